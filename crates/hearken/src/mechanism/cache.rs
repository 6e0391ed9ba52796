//! A cache of recently ready descriptors, which one poll(2) checks again.
//!
//! It keeps results like /dev/poll (Provos & Lever, "Scalable Network I/O in Linux", USENIX 2000),
//! with hints from any source. An edge-triggered mechanism hints that a descriptor changed, and
//! checks report it as long as it is ready. [`AsLevel`](super::trigger::AsLevel) and
//! [`DevPoll`](super::dev_poll::DevPoll) are based on it.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) A hint must be kept until a check has found the descriptor not ready: the mechanism does not
//!    repeat it. Readiness after that check produces a new hint.
//! b) The batch is the front of the list that poll(2) fills in, so that nothing is copied. Entries
//!    that are removed while the batch is valid are marked (poll(2) skips negative numbers). The
//!    next check removes them.
//! c) A descriptor that was in the batch and is still ready must not displace others. The front
//!    moves to the back, behind all entries hinted by then, however small the batch. An entry that
//!    fills a gap only moves forward.
//! d) A hint for a former registration of a number is recognised by its token.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::event::Token;

/// A descriptor, the requested events and the results: `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PollFd {
    /// The descriptor number.
    pub fd: RawFd,
    /// The requested events, as in poll(2).
    pub events: i16,
    /// The reported events.
    pub revents: i16,
}

const _: () = assert!(
    size_of::<PollFd>() == size_of::<libc::pollfd>()
        && align_of::<PollFd>() == align_of::<libc::pollfd>()
        && std::mem::offset_of!(PollFd, events) == std::mem::offset_of!(libc::pollfd, events)
        && std::mem::offset_of!(PollFd, revents) == std::mem::offset_of!(libc::pollfd, revents)
);

/// A source of hints.
pub(super) trait Hints {
    /// Whether a hint contains the complete current readiness. Otherwise it is checked before it is
    /// reported.
    const RELIABLE: bool;

    /// Waits as [`Mechanism::wait`](super::Mechanism::wait) does.
    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize>;

    /// Returns the token of the hint at `index` and, if reliable, its events.
    fn hint(&self, index: usize) -> (Token, i16);

    /// Handles a check that found none of `events`: later ones must produce a new hint.
    fn on_not_ready(&mut self, _fd: RawFd, _token: Token, _events: i16) -> io::Result<()> {
        Ok(())
    }
}

/// The minimum number of hints taken at a time.
const MIN_HINTS: usize = 64;

const UNLISTED: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Slot {
    token: Token,
    /// The descriptor number, or -1 if nothing is registered.
    fd: RawFd,
    events: i16,
    /// Whether no events are requested, not even those that poll(2) always reports.
    silent: bool,
    /// The index on the list, or `UNLISTED`.
    index: u32,
}

const VACANT: Slot =
    Slot { token: Token::from_bits(u64::MAX), fd: -1, events: 0, silent: true, index: UNLISTED };

/// The descriptors that a wait checks, if not only those that were ready and those hinted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scan {
    /// The ones that were ready and the ones hinted, or the whole set if there are more hints than
    /// this number.
    Limited(usize),
    /// The whole set.
    WholeSet,
}

/// A cache of readiness. See the [module](self).
#[derive(Default)]
pub(super) struct Cache {
    /// The descriptors that were ready when last checked, and those hinted since.
    list: Vec<PollFd>,
    tokens: Vec<Token>,
    /// The number of entries marked as removed.
    removed: usize,
    /// The number of entries in the batch.
    batch_len: usize,
    slots: Vec<Slot>,
    /// The number of waits that checked the whole set because of too many hints.
    overflows: u64,
    calls: u64,
}

impl Cache {
    fn slot(&mut self, token: Token) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(token.slot() as usize)?;
        (slot.token == token && slot.fd >= 0).then_some(slot)
    }

    /// Returns the token registered in `slot` and its requested events.
    pub(super) fn registered(&self, slot: usize) -> Option<(Token, i16)> {
        let slot = self.slots.get(slot).filter(|slot| slot.fd >= 0)?;
        Some((slot.token, slot.events))
    }

    /// Registers `token` for hints. With `events` of `None` it is silent. Amortised O(1).
    pub(super) fn register(&mut self, fd: RawFd, token: Token, events: Option<i16>) {
        let index = token.slot() as usize;
        match self.registered(index) {
            Some((former, _)) => self.unregister(former),
            None if index >= self.slots.len() => self.slots.resize(index + 1, VACANT),
            None => {}
        }
        let silent = events.is_none();
        self.slots[index] =
            Slot { token, fd, events: events.unwrap_or(0), silent, index: UNLISTED };
    }

    /// Replaces the requested events of `token`.
    pub(super) fn set(&mut self, token: Token, events: Option<i16>) {
        let Some(slot) = self.slot(token) else { return };
        slot.events = events.unwrap_or(0);
        slot.silent = events.is_none();
        let Slot { events, silent, index, .. } = *slot;
        if silent {
            self.unschedule(token);
        } else if index != UNLISTED {
            self.list[index as usize].events = events;
        }
    }

    /// Schedules a check of `token` by the next wait, as after a hint.
    pub(super) fn schedule(&mut self, token: Token, revents: i16) {
        let end = self.list.len() as u32;
        let Some(slot) = self.slot(token).filter(|slot| !slot.silent) else {
            return; // (d)
        };
        let Slot { fd, events, index, .. } = *slot;
        if index == UNLISTED {
            slot.index = end;
            self.list.push(PollFd { fd, events, revents });
            self.tokens.push(token);
        } else {
            let entry = &mut self.list[index as usize];
            entry.events = events;
            entry.revents |= revents;
        }
    }

    /// Cancels the check of `token`.
    fn unschedule(&mut self, token: Token) {
        let Some(slot) = self.slot(token) else { return };
        let index = std::mem::replace(&mut slot.index, UNLISTED);
        if index != UNLISTED {
            self.list[index as usize].fd = -1; // (b)
            self.removed += 1;
        }
    }

    /// Records that `token` is not ready for `events`, so that later ones produce a new hint.
    pub(super) fn would_block(&mut self, token: Token, events: i16) {
        let Some(Slot { index, .. }) =
            self.slot(token).copied().filter(|slot| slot.index != UNLISTED)
        else {
            return;
        };
        let remaining = self.list[index as usize].events & !events;
        if remaining == 0 {
            self.unschedule(token);
        } else {
            self.list[index as usize].events = remaining;
        }
    }

    /// Ends the registration of `token`.
    pub(super) fn unregister(&mut self, token: Token) {
        self.unschedule(token);
        if let Some(slot) = self.slot(token) {
            *slot = VACANT;
        }
    }

    /// Fills the batch with descriptors that are still ready and with hints. Waits for hints if
    /// there are none. Returns the size of the batch, which may be 0 before the timeout.
    pub(super) fn wait<H: Hints>(
        &mut self,
        hints: &mut H,
        max: usize,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        self.rotate();
        self.poll_list(hints)?;
        let mut timeout = if self.list.is_empty() { timeout } else { Some(Duration::ZERO) };
        let max_hints = max.max(MIN_HINTS);
        let mut hinted = false;
        for _ in 0..=self.slots.len() / max_hints {
            let count = hints.wait(max_hints, timeout)?;
            for index in 0..count {
                let (token, found) = hints.hint(index);
                if !H::RELIABLE || found != 0 {
                    self.schedule(token, found); // (a)
                }
            }
            hinted |= count > 0;
            if count < max_hints {
                break;
            }
            timeout = Some(Duration::ZERO); // (c)
        }
        if !H::RELIABLE && hinted {
            self.poll_list(hints)?;
        }
        self.batch_len = self.list.len().min(max.max(1));
        Ok(self.batch_len)
    }

    /// Fills the batch like [`wait`](Self::wait), from a check of the whole set: always, or if there
    /// are more hints than a limit. Those hints are then lost, as if a queue had no space for them.
    pub(super) fn wait_scanning<H: Hints>(
        &mut self,
        hints: &mut H,
        scan: Scan,
        max: usize,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let limit = match scan {
            Scan::Limited(limit) => limit,
            Scan::WholeSet => 0,
        };
        self.rotate();
        if scan == Scan::WholeSet {
            self.schedule_all();
        }
        self.poll_list(hints)?;
        if scan == Scan::WholeSet && !self.list.is_empty() {
            self.batch_len = self.list.len().min(max.max(1));
            return Ok(self.batch_len);
        }
        let mut timeout = if self.list.is_empty() { timeout } else { Some(Duration::ZERO) };
        let mut total = 0;
        for _ in 0..=self.slots.len() / MIN_HINTS {
            let count = hints.wait(MIN_HINTS, timeout)?;
            for index in 0..count.min(limit.saturating_sub(total)) {
                let (token, _) = hints.hint(index);
                self.schedule(token, 0);
            }
            total += count;
            if count < MIN_HINTS {
                break;
            }
            timeout = Some(Duration::ZERO);
        }
        if total > limit {
            self.overflows += u64::from(scan != Scan::WholeSet);
            self.schedule_all();
        }
        if total > 0 {
            self.poll_list(hints)?;
        }
        self.batch_len = self.list.len().min(max.max(1));
        Ok(self.batch_len)
    }

    /// Schedules a check of all descriptors.
    fn schedule_all(&mut self) {
        for index in 0..self.slots.len() {
            if let Some((token, _)) = self.registered(index) {
                self.schedule(token, 0);
            }
        }
    }

    /// Returns the number of waits that checked the whole set because of too many hints.
    pub(super) fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Moves the entries that did not fit into the batch to the front (c).
    fn rotate(&mut self) {
        let batch_len = std::mem::take(&mut self.batch_len);
        if batch_len < self.list.len() && batch_len > 0 {
            self.list.rotate_left(batch_len);
            self.tokens.rotate_left(batch_len);
            for index in 0..self.list.len() {
                self.update_index(index);
            }
        }
    }

    /// Updates the index of the entry at `index` of the list.
    fn update_index(&mut self, index: usize) {
        if self.list[index].fd >= 0 {
            self.slots[self.tokens[index].slot() as usize].index = index as u32;
        }
    }

    /// Polls the list and keeps the ready entries.
    fn poll_list<H: Hints>(&mut self, hints: &mut H) -> io::Result<()> {
        if self.removed == self.list.len() {
            self.list.clear();
            self.tokens.clear();
            self.removed = 0;
            return Ok(());
        }
        self.calls += 1;
        let count = self.list.len() as libc::nfds_t;
        // SAFETY: the kernel reads and writes `count` elements, whose layout matches its own. It
        // only looks up the numbers: a closed descriptor is reported, not accessed.
        let found = unsafe { libc::poll(self.list.as_mut_ptr().cast(), count, 0) };
        if found < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut index = 0;
        // Ends when only ready entries remain.
        while self.list.len() > found as usize {
            let PollFd { fd, events, revents } = self.list[index];
            if revents != 0 {
                index += 1;
                continue;
            }
            self.list.swap_remove(index);
            let token = self.tokens.swap_remove(index);
            if index < self.list.len() {
                self.update_index(index);
            }
            if fd >= 0 {
                self.slots[token.slot() as usize].index = UNLISTED;
                hints.on_not_ready(fd, token, events)?;
            }
        }
        self.removed = 0;
        Ok(())
    }

    /// Returns the batch in the format of poll(2).
    pub(super) fn results(&self) -> &[PollFd] {
        &self.list[..self.batch_len]
    }

    /// Returns an entry of the batch.
    #[inline]
    pub(super) fn result(&self, index: usize) -> Option<(Token, i16)> {
        let entry = self.list[..self.batch_len].get(index)?;
        Some((self.tokens[index], entry.revents))
    }

    /// Returns the number of polls.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }
}
