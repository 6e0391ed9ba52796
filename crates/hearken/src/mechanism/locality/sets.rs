//! One list for poll(2) in three parts, so that one call polls each set together with those before
//! it:
//!
//! ```text
//! | active | doze | idle |
//! 0        doze   idle   len
//! ```
//!
//! A descriptor moves to another set by one swap at each border that it crosses. Entries beyond the
//! polled part have no results: each ready descriptor becomes active immediately.

use std::os::fd::RawFd;

use crate::event::{Event, Interest, Token};
use crate::mechanism::poll::{Entry, List, Position};
use crate::mechanism::{NO_EVENT, borrow};

/// The part of the list that is polled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Depth {
    Active,
    Doze,
    All,
}

/// The number of waits without an event after which a descriptor leaves a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) active: u32,
    pub(super) doze: u32,
    /// Whether one event makes a descriptor active for the next wait only, and a second one
    /// permanently.
    pub(super) on_trial: bool,
}

#[derive(Debug, Default)]
pub(super) struct Sets {
    list: List,
    /// The history of each entry of the list.
    histories: Vec<History>,
    doze: usize,
    idle: usize,
    /// The entry at which the next batch begins.
    next: usize,
    /// The number of waits so far, which wraps.
    now: u32,
    /// The number of system calls made to recognise listeners.
    pub(super) listener_checks: u64,
}

/// The state of a descriptor.
#[derive(Clone, Copy, Debug)]
struct History {
    /// The wait of its last event or, in the doze set, in which it entered the set.
    last_event: u32,
    state: State,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, Debug)]
    struct State: u8 {
        /// The descriptor stays active.
        const PINNED = 1;
        /// The descriptor is not a listener.
        const NOT_LISTENER = 2;
        /// The descriptor had an event in the last wait and was not active before.
        const ON_TRIAL = 4;
        /// The descriptor returns to the idle set if it has no event in this wait.
        const FROM_IDLE = 8;
    }
}

impl Sets {
    /// Creates sets whose doze set contains `fd` only, for the helper thread's notifications.
    ///
    /// # Safety
    /// `fd` stays open.
    pub(super) unsafe fn with_notifier(fd: RawFd) -> Sets {
        let mut sets = Sets::default();
        // SAFETY: the caller fulfils the same requirements. An empty list refuses no descriptor.
        let _ = unsafe { sets.list.declare(fd, NO_EVENT.token, Interest::READ) };
        sets.histories.push(History { last_event: 0, state: State::PINNED });
        sets.idle = 1;
        sets
    }

    /// Returns whether the notifier is ready. It is the only inactive descriptor.
    pub(super) fn is_notified(&self) -> bool {
        self.list.is_ready(self.doze)
    }

    /// Moves all inactive descriptors except the notifier to `taken`.
    pub(super) fn take_inactive(&mut self, notifier: RawFd, taken: &mut Vec<Entry>) {
        for index in (self.doze..self.list.len()).rev() {
            if self.list.entry(index).0 != notifier {
                let index = self.demote(index, true);
                taken.push(self.list.take(index));
                self.histories.swap_remove(index);
            }
        }
    }

    /// Adds a descriptor of [`take_inactive`](Sets::take_inactive) to the active set.
    pub(super) fn add(&mut self, entry: Entry) {
        self.list.add(entry);
        self.histories.push(History { last_event: self.now, state: State::NOT_LISTENER });
        let index = self.activate(self.histories.len() - 1);
        // It stays active until the next wait has polled it.
        self.histories[index].last_event = self.now.wrapping_add(1);
    }

    /// Returns the sizes of the sets.
    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.doze, self.idle - self.doze, self.list.len() - self.idle]
    }

    /// Returns the number of entries to poll for `depth`.
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

    /// Adds a registered descriptor to the active set.
    ///
    /// # Safety
    /// The requirements of [`List::push`].
    pub(super) unsafe fn push(&mut self, fd: RawFd, token: Token, interest: Interest) {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.list.push(fd, token, interest) };
        self.histories.push(History { last_event: self.now, state: State::empty() });
        self.activate(self.histories.len() - 1);
    }

    /// Replaces the interest in an entry and makes it active.
    ///
    /// # Safety
    /// The requirements of [`List::set`].
    pub(super) unsafe fn set(&mut self, index: usize, interest: Interest) {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.list.set(index, interest) };
        self.histories[index].state -= State::ON_TRIAL | State::FROM_IDLE;
        self.activate(index);
    }

    pub(super) fn remove(&mut self, index: usize) {
        let index = self.demote(index, true);
        self.list.swap_remove(index);
        self.histories.swap_remove(index);
    }

    /// Keeps a descriptor active from now on.
    pub(super) fn pin(&mut self, fd: RawFd, token: Token) {
        if let Position::Listed(index) = self.position(fd)
            && self.list.entry(index as usize).1 == token
        {
            let index = self.activate(index as usize);
            self.histories[index].state = State::PINNED;
        }
    }

    /// Moves at most `max` events of the last poll to the batch.
    pub(super) fn collect(&mut self, depth: Depth, max: usize, batch: &mut Vec<Event>) {
        self.next = self.list.collect(self.len(depth), self.next, max, batch);
    }

    /// Moves descriptors between the sets after a poll with `ready` results. Returns the number of
    /// ready descriptors in each set.
    pub(super) fn move_entries(&mut self, depth: Depth, ready: usize, rule: Rule) -> [usize; 3] {
        self.now = self.now.wrapping_add(1);
        let mut found = [0; 3];
        let (active, idle) = (self.doze, self.idle);
        // The outer sets first, so that entries that have moved are not processed again.
        if depth >= Depth::Doze {
            found[1] = self.move_doze(rule);
        }
        found[0] = self.move_active(active, rule);
        let remaining = ready - found[0] - found[1];
        let mut index = idle;
        while found[2] < remaining {
            if self.list.is_ready(index) {
                found[2] += 1;
                self.on_event(index, rule, State::ON_TRIAL | State::FROM_IDLE);
            }
            index += 1;
        }
        found
    }

    fn move_doze(&mut self, rule: Rule) -> usize {
        let mut found = 0;
        let mut index = self.doze;
        while index < self.idle {
            if self.list.is_ready(index) {
                found += 1;
                self.on_event(index, rule, State::ON_TRIAL);
            } else if self.now.wrapping_sub(self.histories[index].last_event) >= rule.doze {
                self.demote(index, true);
                continue; // Another entry has moved to this index.
            }
            index += 1;
        }
        found
    }

    fn move_active(&mut self, active: usize, rule: Rule) -> usize {
        let mut found = 0;
        for index in (0..active).rev() {
            let history = &mut self.histories[index];
            if self.list.is_ready(index) {
                found += 1;
                history.last_event = self.now;
                history.state -= State::ON_TRIAL | State::FROM_IDLE;
            } else if history.state.contains(State::ON_TRIAL) {
                let to_idle = history.state.contains(State::FROM_IDLE);
                history.state -= State::ON_TRIAL | State::FROM_IDLE;
                history.last_event = self.now;
                self.demote(index, to_idle);
            } else if self.now.wrapping_sub(history.last_event) >= rule.active
                && !self.is_pinned(index)
            {
                self.histories[index].last_event = self.now;
                self.demote(index, false);
            }
        }
        found
    }

    /// Activates an inactive descriptor that had an event.
    fn on_event(&mut self, index: usize, rule: Rule, trial: State) {
        let index = self.activate(index);
        let history = &mut self.histories[index];
        history.last_event = self.now;
        history.state.set(trial, rule.on_trial);
    }

    /// Returns whether a descriptor stays active: it is a listener or was pinned. The system call
    /// is made once, when it would first leave the active set.
    fn is_pinned(&mut self, index: usize) -> bool {
        let state = &mut self.histories[index].state;
        if !state.intersects(State::PINNED | State::NOT_LISTENER) {
            self.listener_checks += 1;
            // SAFETY: listed descriptors are open.
            let source = unsafe { borrow(self.list.entry(index).0) };
            let is_listener = rustix::net::sockopt::socket_acceptconn(source).unwrap_or(false);
            *state |= if is_listener { State::PINNED } else { State::NOT_LISTENER };
        }
        state.contains(State::PINNED)
    }

    /// Moves an entry to the end of the active set unless it is active. Returns its index.
    fn activate(&mut self, mut index: usize) -> usize {
        if index >= self.idle {
            self.swap(index, self.idle);
            index = self.idle;
            self.idle += 1;
        }
        if index >= self.doze {
            self.swap(index, self.doze);
            index = self.doze;
            self.doze += 1;
        }
        self.histories[index].last_event = self.now;
        index
    }

    /// Moves an entry out of the active set, and out of the doze set as well if `to_idle`.
    fn demote(&mut self, mut index: usize, to_idle: bool) -> usize {
        if index < self.doze {
            // An entry that moves before the start of the next batch loses a turn. It never moves
            // further back, so that it cannot lose turns indefinitely.
            self.doze -= 1;
            self.swap(index, self.doze);
            index = self.doze;
        }
        if to_idle && index < self.idle {
            self.idle -= 1;
            self.swap(index, self.idle);
            index = self.idle;
        }
        index
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one != other {
            self.list.swap(one, other);
            self.histories.swap(one, other);
        }
    }

    /// Returns the position of `fd` on the list.
    pub(super) fn position(&self, fd: RawFd) -> Position {
        self.list.position(fd)
    }
}
