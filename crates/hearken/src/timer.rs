//! A hierarchical timing wheel (Varghese and Lauck, 1987): one for a whole queue.
//!
//! One timer for each key, keys being dense (slots of a table). Arming, moving and cancelling
//! cost O(1), 16 bytes a key, and no allocation but the growth of the table of keys. A timer never
//! fires early; it fires at most one tick (about a millisecond) late, plus what its owner's wait
//! adds.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point on the monotonic clock, in nanoseconds.
///
/// Setting the wall clock does not touch it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The present, by `CLOCK_MONOTONIC`.
    #[inline]
    pub fn now() -> Time {
        let now = clock_gettime(ClockId::Monotonic);
        Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// The point that is `nanos` nanoseconds after the clock's zero.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the clock's zero.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long it is from `earlier` to here; nothing if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// The point `duration` later, or the end of time.
    #[inline]
    fn add(self, duration: Duration) -> Time {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }
}

impl Sub for Time {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A tick is 2^20 ns: 1.05 ms.
const TICK_BITS: u32 = 20;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 6;
/// What the wheel spans: 2.3 years. A later deadline is looked at again then.
const SPAN: u64 = 1 << (SLOT_BITS * LEVELS as u32);
/// What a slot of the highest level spans.
const TOP: u64 = SPAN / SLOTS as u64;

const NONE: u32 = u32::MAX;
/// In `prev`: the entry is first in the slot that the low bits name.
const HEAD: u32 = 1 << 31;

#[derive(Clone, Copy)]
struct Entry {
    /// In ticks. May be later than the slot it waits in, which is then looked at again: moving a
    /// timer to a later time, as every request does, is one store.
    deadline: u64,
    next: u32,
    /// [`NONE`] if it is not armed.
    prev: u32,
}

/// The wheel. See the [module](self).
///
/// ```
/// use hearken::timer::{Time, Wheel};
/// use std::time::Duration;
///
/// let start = Time::now();
/// let mut wheel = Wheel::new(start);
/// wheel.arm(7, start + Duration::from_secs(10));
/// assert_eq!(wheel.expired(start + Duration::from_secs(9)), None);
/// assert_eq!(wheel.expired(start + Duration::from_secs(11)), Some(7));
/// assert_eq!(wheel.expired(start + Duration::from_secs(11)), None);
/// ```
pub struct Wheel {
    /// The tick up to which all has been looked at.
    current: u64,
    occupied: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
    entries: Vec<Entry>,
    armed: usize,
}

impl fmt::Debug for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel").field("armed", &self.armed).finish_non_exhaustive()
    }
}

impl Wheel {
    /// An empty wheel that begins at `now`.
    pub fn new(now: Time) -> Wheel {
        Wheel {
            current: now.0 >> TICK_BITS,
            occupied: [0; LEVELS],
            heads: [[NONE; SLOTS]; LEVELS],
            entries: Vec::new(),
            armed: 0,
        }
    }

    /// Makes room for so many more keys: memory that is taken only as it is used.
    pub fn reserve(&mut self, keys: usize) {
        self.entries.reserve_exact(keys);
    }

    /// How many timers are armed.
    #[inline]
    pub fn armed(&self) -> usize {
        self.armed
    }

    /// Arms the timer of `key`, or moves it, to fire at `deadline`; one in the past fires at the
    /// next look. O(1); grows the table to `key`, which must be less than 2^31.
    ///
    /// # Panics
    /// If `key` is 2^31 or more.
    #[inline]
    pub fn arm(&mut self, key: u32, deadline: Time) {
        // Rounded up to a tick, so that it never fires early.
        let deadline =
            (deadline.0 >> TICK_BITS) + u64::from(deadline.0 & ((1 << TICK_BITS) - 1) != 0);
        match self.entries.get_mut(key as usize) {
            Some(entry) if entry.prev != NONE && entry.deadline <= deadline => {
                entry.deadline = deadline;
            }
            _ => self.rearm(key, deadline),
        }
    }

    #[inline(never)]
    fn rearm(&mut self, key: u32, deadline: u64) {
        assert!(key < HEAD, "a wheel's keys are dense");
        if key as usize >= self.entries.len() {
            let idle = Entry { deadline: 0, next: NONE, prev: NONE };
            self.entries.resize(key as usize + 1, idle);
        }
        if self.entries[key as usize].prev != NONE {
            self.unlink(key);
        }
        self.entries[key as usize].deadline = deadline;
        self.link(key);
    }

    /// Arms the timer of `key` as [`arm`](Wheel::arm) does, or disarms it. O(1).
    ///
    /// # Panics
    /// As [`arm`](Wheel::arm).
    #[inline]
    pub fn set(&mut self, key: u32, deadline: Option<Time>) {
        match deadline {
            Some(deadline) => self.arm(key, deadline),
            None => drop(self.cancel(key)),
        }
    }

    /// Disarms the timer of `key`, and tells whether it was armed. O(1).
    #[inline]
    pub fn cancel(&mut self, key: u32) -> bool {
        let armed = self.entries.get(key as usize).is_some_and(|entry| entry.prev != NONE);
        if armed {
            self.unlink(key);
        }
        armed
    }

    /// When the timer of `key` fires, if it is armed, rounded up to a tick.
    pub fn deadline(&self, key: u32) -> Option<Time> {
        let entry = self.entries.get(key as usize).filter(|entry| entry.prev != NONE)?;
        Some(Time(entry.deadline.saturating_mul(1 << TICK_BITS)))
    }

    /// Takes one timer that is due at `now`, which disarms it. Amortised O(1).
    pub fn expired(&mut self, now: Time) -> Option<u32> {
        let target = now.0 >> TICK_BITS;
        while let Some((level, slot, tick)) = self.first().filter(|first| first.2 <= target) {
            self.current = self.current.max(tick);
            // A higher level's slot moves down as a whole: what stayed in it would be hidden by
            // what is below, due or not.
            while let key @ 0..HEAD = self.heads[level][slot] {
                self.unlink(key);
                if level == 0 && self.entries[key as usize].deadline <= target {
                    return Some(key);
                }
                self.link(key);
            }
        }
        self.current = self.current.max(target);
        None
    }

    /// When to look next: no timer is due before. It may be too soon, never too late. O(1).
    #[inline]
    pub fn next(&self) -> Option<Time> {
        if self.armed == 0 {
            return None;
        }
        self.first().map(|(_, _, tick)| Time(tick.saturating_mul(1 << TICK_BITS)))
    }

    /// The first occupied slot, and the tick at which it is to be looked at.
    fn first(&self) -> Option<(usize, usize, u64)> {
        // A lower level's slots all come before a higher level's.
        let level = (0..LEVELS).find(|&level| self.occupied[level] != 0)?;
        let shift = SLOT_BITS * level as u32;
        let here = (self.current >> shift) as u32 & (SLOTS as u32 - 1);
        let ahead = self.occupied[level].rotate_right(here).trailing_zeros();
        let slot = (here + ahead) as usize & (SLOTS - 1);
        let tick = ((self.current >> shift) + u64::from(ahead)) << shift;
        Some((level, slot, tick.max(self.current)))
    }

    fn link(&mut self, key: u32) {
        // The highest level's last slot ahead: one further would be the present's again.
        let last = (self.current | (TOP - 1)) + (SPAN - TOP);
        let tick = self.entries[key as usize].deadline.clamp(self.current, last);
        // The level is where tick and present first differ, so a slot never wraps onto the present.
        let differs = (tick ^ self.current) | (SLOTS as u64 - 1);
        let level = ((63 - differs.leading_zeros()) / SLOT_BITS).min(LEVELS as u32 - 1);
        let slot = (tick >> (SLOT_BITS * level)) as usize & (SLOTS - 1);
        let level = level as usize;

        let first = std::mem::replace(&mut self.heads[level][slot], key);
        if first != NONE {
            self.entries[first as usize].prev = key;
        }
        let entry = &mut self.entries[key as usize];
        entry.next = first;
        entry.prev = HEAD | (level * SLOTS + slot) as u32;
        self.occupied[level] |= 1 << slot;
        self.armed += 1;
    }

    fn unlink(&mut self, key: u32) {
        let Entry { next, prev, .. } = self.entries[key as usize];
        if prev & HEAD != 0 {
            let place = (prev & !HEAD) as usize;
            let (level, slot) = (place / SLOTS, place % SLOTS);
            self.heads[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        } else {
            self.entries[prev as usize].next = next;
        }
        if next != NONE {
            self.entries[next as usize].prev = prev;
        }
        self.entries[key as usize].prev = NONE;
        self.armed -= 1;
    }
}
