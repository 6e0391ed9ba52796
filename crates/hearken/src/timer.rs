//! A hierarchical timing wheel (Varghese and Lauck, 1987), one per queue.
//!
//! There is one timer per key. Keys are dense, such as the slots of a table. Arming, moving and
//! cancelling a timer cost O(1) and 16 bytes per key, and allocate only to grow the table of keys.
//! A timer never fires early. It fires at most one tick (about a millisecond) late, plus the delay
//! of its owner's wait.
//!
//! With [`TimerPolicy::Scan`] there is no wheel: each check for expired timers scans the deadlines
//! of all keys, as the servers of the literature scan an array of time stamps.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A time of the monotonic clock, in nanoseconds.
///
/// Changes of the wall clock do not affect it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// Returns the current time of `CLOCK_MONOTONIC`.
    #[inline]
    pub fn now() -> Time {
        let now = clock_gettime(ClockId::Monotonic);
        Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// Creates the time that is `nanos` nanoseconds after the zero of the clock.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Returns the nanoseconds since the zero of the clock.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time elapsed since `earlier`, or zero if `earlier` is later.
    #[inline]
    pub fn duration_since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// Returns the time that is `duration` later, saturating at the maximum.
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
        self.duration_since(earlier)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// The length of a tick as a power of two: 2^20 ns, or 1.05 ms.
const TICK_BITS: u32 = 20;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 6;
/// The span of the wheel in ticks: 2.3 years. Later deadlines are filed again after that time.
const SPAN: u64 = 1 << (SLOT_BITS * LEVELS as u32);
/// The span of one slot of the highest level, in ticks.
const TOP: u64 = SPAN / SLOTS as u64;

const NONE: u32 = u32::MAX;
/// A flag of `prev`: the entry is the first of the slot that the low bits name.
const HEAD: u32 = 1 << 31;

#[derive(Clone, Copy)]
struct Entry {
    /// The deadline in ticks. It may be later than the slot that contains the entry, which is then
    /// filed again. Moving a timer to a later time, as every request does, is therefore one store.
    deadline: u64,
    next: u32,
    /// The previous entry, or [`NONE`] if the timer is not armed.
    prev: u32,
}

/// The method of finding expired timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum TimerPolicy {
    /// The wheel, in O(1).
    #[default]
    Wheel,
    /// A scan of all deadlines, in O(n) (the time stamps of Liu and Chen, 2004, Section 5).
    Scan,
}

/// The state of [`TimerPolicy::Scan`].
struct Scan {
    /// The next key to examine.
    cursor: usize,
    /// A time in ticks before which no timer is due.
    earliest: u64,
    /// The earliest deadline that the scan in progress has found.
    found: u64,
}

/// A set of timers. See the [module](self).
///
/// ```
/// use hearken::timer::{Time, Wheel};
/// use std::time::Duration;
///
/// let start = Time::now();
/// let mut wheel = Wheel::new(start);
/// wheel.arm(7, start + Duration::from_secs(10));
/// assert_eq!(wheel.pop_expired(start + Duration::from_secs(9)), None);
/// assert_eq!(wheel.pop_expired(start + Duration::from_secs(11)), Some(7));
/// assert_eq!(wheel.pop_expired(start + Duration::from_secs(11)), None);
/// ```
pub struct Wheel {
    /// The tick up to which all slots were checked.
    current: u64,
    occupied: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
    entries: Vec<Entry>,
    armed: usize,
    scan: Option<Scan>,
}

impl fmt::Debug for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel").field("armed", &self.armed).finish_non_exhaustive()
    }
}

impl Wheel {
    /// Creates an empty wheel whose first tick is `now`.
    pub fn new(now: Time) -> Wheel {
        Wheel {
            current: now.0 >> TICK_BITS,
            occupied: [0; LEVELS],
            heads: [[NONE; SLOTS]; LEVELS],
            entries: Vec::new(),
            armed: 0,
            scan: None,
        }
    }

    /// Creates an empty set of timers that finds expired ones by `policy`.
    pub fn with_policy(now: Time, policy: TimerPolicy) -> Wheel {
        let scan = Scan { cursor: 0, earliest: u64::MAX, found: u64::MAX };
        Wheel { scan: (policy == TimerPolicy::Scan).then_some(scan), ..Wheel::new(now) }
    }

    /// Reserves address space for `keys` more keys. Memory is committed only when used.
    pub fn reserve(&mut self, keys: usize) {
        self.entries.reserve_exact(keys);
    }

    /// Returns the number of armed timers.
    #[inline]
    pub fn armed(&self) -> usize {
        self.armed
    }

    /// Arms the timer of `key` to fire at `deadline`, or moves it. A deadline in the past fires at
    /// the next check. O(1). Grows the table to `key`.
    ///
    /// # Panics
    /// Panics if `key` is 2^31 or more.
    #[inline]
    pub fn arm(&mut self, key: u32, deadline: Time) {
        // Rounded up to a tick, so that the timer never fires early.
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
        assert!(key < HEAD, "timer key {key} is 2^31 or more");
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

    /// Arms the timer of `key` if a deadline is given, and disarms it otherwise. O(1).
    ///
    /// # Panics
    /// Panics if `key` is 2^31 or more.
    #[inline]
    pub fn set(&mut self, key: u32, deadline: Option<Time>) {
        match deadline {
            Some(deadline) => self.arm(key, deadline),
            None => drop(self.cancel(key)),
        }
    }

    /// Disarms the timer of `key` and returns whether it was armed. O(1).
    #[inline]
    pub fn cancel(&mut self, key: u32) -> bool {
        let armed = self.entries.get(key as usize).is_some_and(|entry| entry.prev != NONE);
        if armed {
            self.unlink(key);
        }
        armed
    }

    /// Returns the deadline of `key`, rounded up to a tick, or `None` if its timer is not armed.
    pub fn deadline(&self, key: u32) -> Option<Time> {
        let entry = self.entries.get(key as usize).filter(|entry| entry.prev != NONE)?;
        Some(Time(entry.deadline.saturating_mul(1 << TICK_BITS)))
    }

    /// Removes and returns one timer whose deadline has passed at `now`. Amortised O(1), or O(n) for
    /// each check with [`TimerPolicy::Scan`].
    pub fn pop_expired(&mut self, now: Time) -> Option<u32> {
        let target = now.0 >> TICK_BITS;
        loop {
            let Some((level, slot, tick)) = self.first() else {
                self.current = self.current.max(target);
                return self.scan_expired(target);
            };
            if tick > target {
                break;
            }
            self.current = self.current.max(tick);
            // All entries of a higher level's slot move down. An entry that stayed would be hidden
            // by the levels below, whether or not it is due.
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

    /// Continues a scan of all keys. Returns the next expired one, or `None` at the end.
    #[cold]
    fn scan_expired(&mut self, target: u64) -> Option<u32> {
        let scan = self.scan.as_mut()?;
        loop {
            while let Some(entry) = self.entries.get(scan.cursor) {
                let key = scan.cursor as u32;
                scan.cursor += 1;
                if entry.prev == NONE {
                    continue;
                }
                if entry.deadline <= target {
                    self.unlink(key);
                    return Some(key);
                }
                scan.found = scan.found.min(entry.deadline);
            }
            *scan = Scan { cursor: 0, earliest: scan.found, found: u64::MAX };
            if scan.earliest > target {
                return None;
            }
            // A timer that is due was armed behind the cursor.
        }
    }

    /// Returns the earliest time at which a timer may be due. It may be too early, never too late.
    /// O(1).
    #[inline]
    pub fn next_deadline(&self) -> Option<Time> {
        if self.armed == 0 {
            return None;
        }
        let tick = match (self.first(), &self.scan) {
            (Some((_, _, tick)), _) => tick,
            (None, scan) => scan.as_ref()?.earliest,
        };
        Some(Time(tick.saturating_mul(1 << TICK_BITS)))
    }

    /// Returns the level and index of the first occupied slot, and the tick at which to check it.
    fn first(&self) -> Option<(usize, usize, u64)> {
        // All slots of a lower level come before those of a higher level.
        let level = (0..LEVELS).find(|&level| self.occupied[level] != 0)?;
        let shift = SLOT_BITS * level as u32;
        let current = (self.current >> shift) as u32 & (SLOTS as u32 - 1);
        let distance = self.occupied[level].rotate_right(current).trailing_zeros();
        let slot = (current + distance) as usize & (SLOTS - 1);
        let tick = ((self.current >> shift) + u64::from(distance)) << shift;
        Some((level, slot, tick.max(self.current)))
    }

    fn link(&mut self, key: u32) {
        if let Some(scan) = &mut self.scan {
            let entry = &mut self.entries[key as usize];
            // Unlinking it only empties the first slot, which is not used.
            (entry.next, entry.prev) = (NONE, HEAD);
            scan.earliest = scan.earliest.min(entry.deadline);
            scan.found = scan.found.min(entry.deadline);
            self.armed += 1;
            return;
        }
        // The last slot of the highest level: the slot after it would equal the current one.
        let last = (self.current | (TOP - 1)) + (SPAN - TOP);
        let tick = self.entries[key as usize].deadline.clamp(self.current, last);
        // The level is the first digit in which tick and current tick differ. A slot therefore
        // never wraps around to the current one.
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
            let index = (prev & !HEAD) as usize;
            let (level, slot) = (index / SLOTS, index % SLOTS);
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
