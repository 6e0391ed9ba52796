//! What was found ready lately, and is looked at again by one poll(2).
//!
//! The results that /dev/poll keeps (Provos & Lever, "Scalable Network I/O in Linux", USENIX 2000),
//! apart from where the hints come from: an edge-triggered mechanism says that a descriptor
//! changed, and as long as it is ready, a look at it says so again. [`AsLevel`](super::trigger::AsLevel)
//! and [`DevPoll`](super::dev_poll::DevPoll) are made of it.
//!
//! Its traps, and what is done about each:
//!
//! a) A hint that came must not be forgotten before a look found the descriptor not ready: the
//!    mechanism has said what it had to say. What comes after that look is a new hint.
//! b) The batch is the front of the list that poll(2) fills in, so that nothing is copied. What
//!    is removed while the batch stands is marked (poll(2) passes over negative numbers), and goes
//!    at the next look.
//! c) Who was in the batch and is still ready must not keep out who was not: the front goes to the
//!    back, behind all that is hinted at by then, however little a batch holds; and what takes the place
//!    of one that left only ever moves forward.
//! d) A hint for a number whose holder has gone is told by its token.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::event::Token;

/// A descriptor, what is asked of it, and what was found: `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PollFd {
    /// The descriptor's number.
    pub fd: RawFd,
    /// The events asked for, as poll(2) has them.
    pub events: i16,
    /// The events found.
    pub revents: i16,
}

const _: () = assert!(
    size_of::<PollFd>() == size_of::<libc::pollfd>()
        && align_of::<PollFd>() == align_of::<libc::pollfd>()
        && std::mem::offset_of!(PollFd, events) == std::mem::offset_of!(libc::pollfd, events)
        && std::mem::offset_of!(PollFd, revents) == std::mem::offset_of!(libc::pollfd, revents)
);

/// Where hints come from.
pub(super) trait Hints {
    /// False if what a hint says may have passed meanwhile, or may not be all, so that each is
    /// looked at before it is reported.
    const BELIEVED: bool;

    /// As [`Mechanism::wait`](super::Mechanism::wait).
    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize>;

    /// Whom the hint at `index` is about, and, if it is believed, what was found.
    fn hint(&self, index: usize) -> (Token, i16);

    /// A look found that nothing of `events` is so: what comes must be hinted at again.
    fn cooled(&mut self, _fd: RawFd, _who: Token, _events: i16) -> io::Result<()> {
        Ok(())
    }
}

/// Hints are taken no fewer at a time.
const LEAST: usize = 64;

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Slot {
    token: Token,
    /// Negative where nothing is registered.
    fd: RawFd,
    events: i16,
    /// Nothing is asked, not even what poll(2) always tells.
    silent: bool,
    /// Where on the list, if it is.
    at: u32,
}

const VACANT: Slot =
    Slot { token: Token::from_bits(u64::MAX), fd: -1, events: 0, silent: true, at: NOWHERE };

/// See the [module](self).
#[derive(Default)]
pub(super) struct Cache {
    /// What was ready when last looked at, and what was not looked at since a hint.
    list: Vec<PollFd>,
    who: Vec<Token>,
    /// How many of the list are marked as gone.
    gone: usize,
    /// How many of the list are the batch.
    taken: usize,
    slots: Vec<Slot>,
    calls: u64,
}

impl Cache {
    fn slot(&mut self, token: Token) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(token.slot() as usize)?;
        (slot.token == token && slot.fd >= 0).then_some(slot)
    }

    /// The token registered in `slot`, and the events asked of it.
    pub(super) fn registered(&self, slot: usize) -> Option<(Token, i16)> {
        let slot = self.slots.get(slot).filter(|slot| slot.fd >= 0)?;
        Some((slot.token, slot.events))
    }

    /// Begins to take hints for `token`; `events` of none are silence. Amortised O(1).
    pub(super) fn register(&mut self, fd: RawFd, token: Token, events: Option<i16>) {
        let index = token.slot() as usize;
        match self.registered(index) {
            Some((former, _)) => self.forget(former),
            None if index >= self.slots.len() => self.slots.resize(index + 1, VACANT),
            None => {}
        }
        let silent = events.is_none();
        self.slots[index] = Slot { token, fd, events: events.unwrap_or(0), silent, at: NOWHERE };
    }

    /// Replaces the events asked of `token`.
    pub(super) fn set(&mut self, token: Token, events: Option<i16>) {
        let Some(slot) = self.slot(token) else { return };
        slot.events = events.unwrap_or(0);
        slot.silent = events.is_none();
        let Slot { events, silent, at, .. } = *slot;
        if silent {
            self.unlist(token);
        } else if at != NOWHERE {
            self.list[at as usize].events = events;
        }
    }

    /// Has `token` looked at by the next wait, as after a hint.
    pub(super) fn list(&mut self, token: Token, revents: i16) {
        let end = self.list.len() as u32;
        let Some(slot) = self.slot(token).filter(|slot| !slot.silent) else {
            return; // (d)
        };
        let Slot { fd, events, at, .. } = *slot;
        if at == NOWHERE {
            slot.at = end;
            self.list.push(PollFd { fd, events, revents });
            self.who.push(token);
        } else {
            let entry = &mut self.list[at as usize];
            entry.events = events;
            entry.revents |= revents;
        }
    }

    /// Ends the looks at `token`.
    fn unlist(&mut self, token: Token) {
        let Some(slot) = self.slot(token) else { return };
        let at = std::mem::replace(&mut slot.at, NOWHERE);
        if at != NOWHERE {
            self.list[at as usize].fd = -1; // (b)
            self.gone += 1;
        }
    }

    /// Hears that `events` are not so at `token` any more, and that what comes is a new hint.
    pub(super) fn cool(&mut self, token: Token, events: i16) {
        let Some(Slot { at, .. }) = self.slot(token).copied().filter(|slot| slot.at != NOWHERE)
        else {
            return;
        };
        let left = self.list[at as usize].events & !events;
        if left == 0 {
            self.unlist(token);
        } else {
            self.list[at as usize].events = left;
        }
    }

    /// Takes no more hints for `token`.
    pub(super) fn forget(&mut self, token: Token) {
        self.unlist(token);
        if let Some(slot) = self.slot(token) {
            *slot = VACANT;
        }
    }

    /// Fills the batch: what is still ready, and what `hints` brings, waiting for it if there is
    /// nothing else. Returns how many it holds; none may be there before the timeout.
    pub(super) fn wait<H: Hints>(
        &mut self,
        hints: &mut H,
        max: usize,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        self.rotate();
        self.look(hints)?;
        let mut timeout = if self.list.is_empty() { timeout } else { Some(Duration::ZERO) };
        let most = max.max(LEAST);
        let mut hinted = false;
        for _ in 0..=self.slots.len() / most {
            let got = hints.wait(most, timeout)?;
            for index in 0..got {
                let (who, found) = hints.hint(index);
                if !H::BELIEVED || found != 0 {
                    self.list(who, found); // (a)
                }
            }
            hinted |= got > 0;
            if got < most {
                break;
            }
            timeout = Some(Duration::ZERO); // (c)
        }
        if !H::BELIEVED && hinted {
            self.look(hints)?;
        }
        self.taken = self.list.len().min(max.max(1));
        Ok(self.taken)
    }

    /// Has those that did not fit come first. (c)
    fn rotate(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        if taken < self.list.len() && taken > 0 {
            self.list.rotate_left(taken);
            self.who.rotate_left(taken);
            for at in 0..self.list.len() {
                self.placed(at);
            }
        }
    }

    /// Notes that what is at `at` on the list is there.
    fn placed(&mut self, at: usize) {
        if self.list[at].fd >= 0 {
            self.slots[self.who[at].slot() as usize].at = at as u32;
        }
    }

    /// Looks at what is on the list, and keeps of it what is ready.
    fn look<H: Hints>(&mut self, hints: &mut H) -> io::Result<()> {
        if self.gone == self.list.len() {
            self.list.clear();
            self.who.clear();
            self.gone = 0;
            return Ok(());
        }
        self.calls += 1;
        let count = self.list.len() as libc::nfds_t;
        // SAFETY: the kernel reads and writes `count` elements, which are laid out as its own.
        // Numbers it merely looks up: one that is not open is answered, not followed.
        let found = unsafe { libc::poll(self.list.as_mut_ptr().cast(), count, 0) };
        if found < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut at = 0;
        // Until none is left but those found ready.
        while self.list.len() > found as usize {
            let PollFd { fd, events, revents } = self.list[at];
            if revents != 0 {
                at += 1;
                continue;
            }
            self.list.swap_remove(at);
            let who = self.who.swap_remove(at);
            if at < self.list.len() {
                self.placed(at);
            }
            if fd >= 0 {
                self.slots[who.slot() as usize].at = NOWHERE;
                hints.cooled(fd, who, events)?;
            }
        }
        self.gone = 0;
        Ok(())
    }

    /// The batch, as poll(2) has left it.
    pub(super) fn results(&self) -> &[PollFd] {
        &self.list[..self.taken]
    }

    /// One of the batch.
    #[inline]
    pub(super) fn result(&self, index: usize) -> Option<(Token, i16)> {
        let entry = self.list[..self.taken].get(index)?;
        Some((self.who[index], entry.revents))
    }

    /// How many looks were taken.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }
}
