//! One list for poll(2) in three parts, so that each set comes with those before it in one call:
//!
//! ```text
//! | active | doze | idle |
//! 0        doze   idle   len
//! ```
//!
//! A descriptor changes its set by a swap at each border that it crosses. What is beyond the part
//! that was asked about has no answer: whatever answers becomes active at once.

use std::os::fd::RawFd;

use crate::event::{Event, Interest, Token};
use crate::mechanism::borrow;
use crate::mechanism::poll::{List, Place};

/// How far down the list is asked about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Depth {
    Active,
    Doze,
    All,
}

/// How many calls without an event a descriptor may have in a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) active: u32,
    pub(super) doze: u32,
    /// One event makes a descriptor active for the next call only, two in a row for good.
    pub(super) on_trial: bool,
}

#[derive(Debug, Default)]
pub(super) struct Sets {
    list: List,
    /// For each entry of the list.
    lives: Vec<Life>,
    doze: usize,
    idle: usize,
    /// Where the next batch begins.
    next: usize,
    /// Waits so far; it wraps.
    now: u32,
    /// System calls made to know what is a listener.
    pub(super) questions: u64,
}

/// What is remembered of a descriptor.
#[derive(Clone, Copy, Debug)]
struct Life {
    /// The call of its last event, or, in the doze set, in which it came there.
    since: u32,
    state: State,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, Debug)]
    struct State: u8 {
        /// It stays active.
        const LOCKED = 1;
        /// Whether it is a listener has been asked.
        const KNOWN = 2;
        /// It had an event in the last call, and was not active before.
        const TRIED = 4;
        /// Where it goes back to if it has none in this one.
        const FROM_IDLE = 8;
    }
}

impl Sets {
    /// How many there are in each set.
    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.doze, self.idle - self.doze, self.list.len() - self.idle]
    }

    /// How many entries `depth` means.
    pub(super) fn len(&self, depth: Depth) -> usize {
        match depth {
            Depth::Active => self.doze,
            Depth::Doze => self.idle,
            Depth::All => self.list.len(),
        }
    }

    pub(super) fn list(&mut self) -> &mut List {
        &mut self.list
    }

    /// Puts what is registered into the active set.
    ///
    /// # Safety
    /// As for [`List::push`].
    pub(super) unsafe fn push(&mut self, fd: RawFd, token: Token, interest: Interest) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.list.push(fd, token, interest) };
        self.lives.push(Life { since: self.now, state: State::empty() });
        self.raise(self.lives.len() - 1);
    }

    /// Replaces the interest in an entry and makes it active.
    ///
    /// # Safety
    /// As for [`List::set`].
    pub(super) unsafe fn set(&mut self, at: usize, interest: Interest) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.list.set(at, interest) };
        self.lives[at].state -= State::TRIED | State::FROM_IDLE;
        self.raise(at);
    }

    pub(super) fn remove(&mut self, at: usize) {
        let at = self.lower(at, true);
        self.list.swap_remove(at);
        self.lives.swap_remove(at);
    }

    /// Keeps a descriptor active from now on.
    pub(super) fn lock(&mut self, fd: RawFd, token: Token) {
        if let Place::Listed(at) = self.place(fd)
            && self.list.whose(at as usize).1 == token
        {
            let at = self.raise(at as usize);
            self.lives[at].state = State::LOCKED;
        }
    }

    /// Takes the events of the last look into the batch, at most `max`.
    pub(super) fn collect(&mut self, depth: Depth, max: usize, batch: &mut Vec<Event>) {
        self.next = self.list.collect(self.len(depth), self.next, max, batch);
    }

    /// Puts everyone where the answers to a call, of which there are `ready`, say. Tells how many
    /// there were in each set.
    pub(super) fn sort(&mut self, depth: Depth, ready: usize, rule: Rule) -> [usize; 3] {
        self.now = self.now.wrapping_add(1);
        let mut found = [0; 3];
        let (active, idle) = (self.doze, self.idle);
        // From the outside in, as far as the order matters: what has moved is not met again.
        if depth >= Depth::Doze {
            found[1] = self.sort_doze(rule);
        }
        found[0] = self.sort_active(active, rule);
        let left = ready - found[0] - found[1];
        let mut at = idle;
        while found[2] < left {
            if self.list.is_ready(at) {
                found[2] += 1;
                self.wake(at, rule, State::TRIED | State::FROM_IDLE);
            }
            at += 1;
        }
        found
    }

    fn sort_doze(&mut self, rule: Rule) -> usize {
        let mut found = 0;
        let mut at = self.doze;
        while at < self.idle {
            if self.list.is_ready(at) {
                found += 1;
                self.wake(at, rule, State::TRIED);
            } else if self.now.wrapping_sub(self.lives[at].since) >= rule.doze {
                self.lower(at, true);
                continue; // Another has come to this place.
            }
            at += 1;
        }
        found
    }

    fn sort_active(&mut self, active: usize, rule: Rule) -> usize {
        let mut found = 0;
        for at in (0..active).rev() {
            let life = &mut self.lives[at];
            if self.list.is_ready(at) {
                found += 1;
                life.since = self.now;
                life.state -= State::TRIED | State::FROM_IDLE;
            } else if life.state.contains(State::TRIED) {
                let home = life.state.contains(State::FROM_IDLE);
                life.state -= State::TRIED | State::FROM_IDLE;
                life.since = self.now;
                self.lower(at, home);
            } else if self.now.wrapping_sub(life.since) >= rule.active && !self.is_locked(at) {
                self.lives[at].since = self.now;
                self.lower(at, false);
            }
        }
        found
    }

    /// Makes active what had an event outside.
    fn wake(&mut self, at: usize, rule: Rule, trial: State) {
        let at = self.raise(at);
        let life = &mut self.lives[at];
        life.since = self.now;
        life.state.set(trial, rule.on_trial);
    }

    /// Whether it stays active: a listener does, and what was locked. Asked once, when it would
    /// leave for the first time.
    fn is_locked(&mut self, at: usize) -> bool {
        let state = &mut self.lives[at].state;
        if !state.intersects(State::LOCKED | State::KNOWN) {
            self.questions += 1;
            // SAFETY: what is listed is open.
            let source = unsafe { borrow(self.list.whose(at).0) };
            let listens = rustix::net::sockopt::socket_acceptconn(source).unwrap_or(false);
            *state |= if listens { State::LOCKED } else { State::KNOWN };
        }
        state.contains(State::LOCKED)
    }

    /// Moves an entry to the end of the active set, if it is not in it, and tells where it is.
    fn raise(&mut self, mut at: usize) -> usize {
        if at >= self.idle {
            self.swap(at, self.idle);
            at = self.idle;
            self.idle += 1;
        }
        if at >= self.doze {
            self.swap(at, self.doze);
            at = self.doze;
            self.doze += 1;
        }
        self.lives[at].since = self.now;
        at
    }

    /// Moves an entry out of the active set, and out of the doze set as well if so `far`.
    fn lower(&mut self, mut at: usize, far: bool) -> usize {
        if at < self.doze {
            // Whoever comes to lie before the next batch loses a turn, and never comes to lie
            // further back: turns cannot be lost for ever.
            self.doze -= 1;
            self.swap(at, self.doze);
            at = self.doze;
        }
        if far && at < self.idle {
            self.idle -= 1;
            self.swap(at, self.idle);
            at = self.idle;
        }
        at
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one != other {
            self.list.swap(one, other);
            self.lives.swap(one, other);
        }
    }

    /// Where `fd` is on the list.
    pub(super) fn place(&self, fd: RawFd) -> Place {
        self.list.place(fd)
    }
}
