//! A bounded cache with CLOCK replacement, which approximates LRU. A hit costs one store.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

/// Number of slots in the table of recent lookups, because most requests are for few files.
const RECENT_SLOTS: usize = 256;

/// Entries by key, with a limited total weight.
#[derive(Debug)]
pub(super) struct Cache<E> {
    /// Slots of recently found keys, by a cheap hash of the key. Checked before the index.
    recent: Box<[u32; RECENT_SLOTS]>,
    index: HashMap<Rc<[u8]>, u32, BuildHasherDefault<Fx>>,
    slots: Vec<Option<Slot<E>>>,
    vacant: Vec<u32>,
    hand: usize,
    weight: usize,
    limit: usize,
}

#[derive(Debug)]
struct Slot<E> {
    key: Rc<[u8]>,
    entry: E,
    weight: usize,
    used: bool,
}

impl<E> Cache<E> {
    pub(super) fn new(limit: usize) -> Cache<E> {
        Cache {
            recent: Box::new([0; RECENT_SLOTS]),
            index: HashMap::default(),
            slots: Vec::new(),
            vacant: Vec::new(),
            hand: 0,
            weight: 0,
            limit,
        }
    }

    /// Returns the entry of a key and marks it as used.
    #[inline]
    pub(super) fn get(&mut self, key: &[u8]) -> Option<&mut E> {
        self.find(key).and_then(|at| self.entry(at))
    }

    /// Finds the slot of a key. The slot is valid until the next insertion or removal.
    #[inline(always)]
    pub(super) fn find(&mut self, key: &[u8]) -> Option<u32> {
        let hint = recent_index(key);
        let at = self.recent[hint];
        if let Some(Some(slot)) = self.slots.get(at as usize)
            && equal(&slot.key, key)
        {
            return Some(at);
        }
        self.find_by_index(key, hint)
    }

    #[inline(never)]
    fn find_by_index(&mut self, key: &[u8], hint: usize) -> Option<u32> {
        let at = self.index.get(key).copied()?;
        self.recent[hint] = at;
        Some(at)
    }

    /// Returns the entry in a slot and marks it as used.
    #[inline]
    pub(super) fn entry(&mut self, at: u32) -> Option<&mut E> {
        let slot = self.slots.get_mut(at as usize)?.as_mut()?;
        slot.used = true;
        Some(&mut slot.entry)
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some(slot) = self.index.remove(key) {
            self.vacate(slot as usize);
        }
    }

    /// Returns whether an entry of this weight fits into an empty cache.
    pub(super) fn fits(&self, weight: usize) -> bool {
        weight <= self.limit
    }

    /// Inserts an entry. Replaces an entry with the same key, and evicts others as necessary.
    pub(super) fn insert(&mut self, key: &[u8], entry: E, weight: usize) {
        self.remove(key);
        if !self.fits(weight) {
            return;
        }
        while self.weight + weight > self.limit && !self.index.is_empty() {
            self.evict();
        }
        let key: Rc<[u8]> = key.into();
        let slot = Slot { key: Rc::clone(&key), entry, weight, used: false };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(slot);
                at
            }
            None => {
                let Ok(at) = u32::try_from(self.slots.len()) else {
                    return;
                };
                self.slots.push(Some(slot));
                at
            }
        };
        self.weight += weight;
        self.index.insert(key, at);
    }

    /// Removes the entries for which `is_removable` returns true.
    pub(super) fn remove_if(&mut self, is_removable: impl Fn(&E) -> bool) {
        for at in 0..self.slots.len() {
            if let Some(slot) = &self.slots[at]
                && is_removable(&slot.entry)
            {
                self.index.remove(&slot.key);
                self.vacate(at);
            }
        }
    }

    /// Removes the entries that were not used since the last call and for which `is_removable`
    /// returns true.
    pub(super) fn remove_unused(&mut self, is_removable: impl Fn(&E) -> bool) {
        for at in 0..self.slots.len() {
            match &mut self.slots[at] {
                Some(slot) if slot.used => slot.used = false,
                Some(slot) if is_removable(&slot.entry) => {
                    self.index.remove(&slot.key);
                    self.vacate(at);
                }
                _ => {}
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Evicts the next entry that was not used since the hand last passed it.
    fn evict(&mut self) {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let at = self.hand;
            self.hand += 1;
            match &mut self.slots[at] {
                Some(slot) if slot.used => slot.used = false,
                Some(slot) => {
                    self.index.remove(&slot.key);
                    self.vacate(at);
                    return;
                }
                None => {}
            }
        }
    }

    fn vacate(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at).and_then(Option::take) {
            self.weight -= slot.weight;
            // Slot numbers in the index are `u32`.
            self.vacant.push(at as u32);
        }
    }
}

/// Hashes the length and the last bytes of a key to an index into the table of recent lookups.
#[inline]
fn recent_index(key: &[u8]) -> usize {
    let word = match (key.last_chunk::<8>(), key.last_chunk::<2>()) {
        (Some(last), _) => u64::from_le_bytes(*last),
        (None, Some(last)) => u64::from(u16::from_le_bytes(*last)),
        (None, None) => 0,
    };
    let mixed = (word ^ key.len() as u64).wrapping_mul(0xF135_7AEA_2E62_A9C5);
    (mixed >> 56) as usize % RECENT_SLOTS
}

/// Compares keys. They are short, so this is cheaper than a call of memcmp(3).
#[inline]
fn equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let ((one, end), (other, other_end)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    one.iter().zip(other).all(|(one, other)| one == other)
        && end.iter().zip(other_end).all(|(one, other)| one == other)
}

/// The FxHash function of Firefox and rustc, with one multiplication per eight bytes. Keys are names
/// of existing files, so clients cannot choose keys that collide.
#[derive(Default)]
pub(super) struct Fx(u64);

impl Fx {
    #[inline]
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0xF135_7AEA_2E62_A9C5);
    }
}

impl Hasher for Fx {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if let Some(last) = bytes.last_chunk::<8>() {
            // Overlaps bytes that were added. The length, which is hashed too, makes it unambiguous.
            self.add(u64::from_le_bytes(*last));
        } else {
            let (halves, rest) = rest.as_chunks::<4>();
            let half = halves.first().map_or(0, |half| u64::from(u32::from_le_bytes(*half)));
            self.add(rest.iter().fold(half, |word, &byte| word << 8 | u64::from(byte)));
        }
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The table uses the low bits, but multiplication mixes bits upwards.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn key(number: usize) -> Vec<u8> {
        format!("/k{number}").into_bytes()
    }

    #[test]
    fn total_weight_stays_within_the_limit() {
        let mut cache = Cache::new(100);
        for number in 0..1_000 {
            cache.insert(&key(number), number, 1 + number % 40);
            assert!(cache.weight() <= 100 && cache.slots.len() <= 100);
            assert_eq!(cache.get(&key(number)).copied(), Some(number));
            let weights = cache.slots.iter().flatten().map(|slot| slot.weight);
            assert_eq!(weights.sum::<usize>(), cache.weight());
            assert_eq!(cache.index.len() + cache.vacant.len(), cache.slots.len());
        }
        cache.insert(b"/big", 0, 101);
        assert!(cache.get(b"/big").is_none() && !cache.fits(101));
        cache.remove_if(|_| true);
        assert_eq!((cache.len(), cache.weight()), (0, 0));
    }

    #[test]
    fn keeps_used_entries() {
        let mut cache = Cache::new(10);
        cache.insert(b"/hot", 0, 1);
        for number in 1..500 {
            cache.insert(&key(number), number, 1);
            assert_eq!(cache.get(b"/hot").copied(), Some(0));
        }
    }

    #[test]
    fn replaces_entries_with_the_same_key() {
        let mut cache = Cache::new(10);
        cache.insert(b"/a", 1, 4);
        cache.insert(b"/a", 2, 3);
        assert_eq!((cache.len(), cache.weight()), (1, 3));
        assert_eq!(cache.get(b"/a").copied(), Some(2));
        cache.remove(b"/a");
        cache.remove(b"/a");
        assert_eq!((cache.len(), cache.weight()), (0, 0));
        let mut none = Cache::new(0);
        none.insert(b"/a", 1, 1);
        assert!(none.get(b"/a").is_none());
    }

    #[test]
    fn hashes_spread() {
        let hash = |bytes: &[u8]| {
            let mut fx = Fx::default();
            fx.write_usize(bytes.len());
            fx.write(bytes);
            fx.finish()
        };
        let all: HashSet<u64> = (0..10_000).map(|number| hash(&key(number))).collect();
        assert_eq!(all.len(), 10_000);
        let low: HashSet<u64> = all.iter().map(|hash| hash & 0x3fff).collect();
        assert!(low.len() > 6_000, "{}", low.len());
        let short: HashSet<u64> = (0..8).map(|len| hash(&b"aaaaaaaaa"[..len])).collect();
        assert_eq!(short.len(), 8);
    }
}
