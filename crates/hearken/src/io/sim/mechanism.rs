//! A simulated event-dispatch mechanism with any [`Semantics`].
//!
//! [`Semantics::sharing`] has no effect, since no socket is in two simulated mechanisms.

// The trait has unsafe methods. This implementation takes numbers of simulated sockets, which need
// not be open for soundness.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use rustix::io::Errno;

use super::SimKernel;
use super::host::SocketId;
use crate::event::{Event, Interest, Readiness, Token};
use crate::mechanism::{ChangeCost, Mechanism, NO_EVENT, Semantics, Trigger, trigger};
use crate::timer::Time;

/// Settings of a [`SimMechanism`]. Probabilities are in thousandths.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MechanismSettings {
    /// The properties.
    pub semantics: Semantics,
    /// Maximum number of waits until an event on a quiet descriptor is reported:
    /// [`Mechanism::scan_interval`]. Level-triggered mechanisms only.
    pub scan_interval: u32,
    /// Number of arrivals between two waits that overflow the queue, if it
    /// [can](Semantics::overflows).
    pub queue_length: usize,
    /// Probability that a batch has fewer events than possible.
    pub short_batches: u32,
    /// Probability that a batch is not in the order of arrival.
    pub reordering: u32,
    /// Probability that a wait returns without events.
    pub early_waits: u32,
    /// Probability that a descriptor is reported although nothing is left to do.
    pub spurious_events: u32,
    /// Probability that an event has directions without interest.
    pub excess: u32,
    /// Probability that an arrival is reported twice, if events report arrivals: see
    /// [`Semantics::reports_state`].
    pub repetitions: u32,
    /// Probability that the queue overflows although it is not full.
    pub overflows: u32,
    /// Probability that [`Mechanism::declare`] fails with `ENOMEM` or `ENOSPC`.
    pub declaration_failures: u32,
}

impl Default for MechanismSettings {
    /// Returns settings without faults.
    fn default() -> MechanismSettings {
        MechanismSettings {
            semantics: Semantics::COMMON,
            scan_interval: 1,
            queue_length: 1024,
            short_batches: 0,
            reordering: 0,
            early_waits: 0,
            spurious_events: 0,
            excess: 0,
            repetitions: 0,
            overflows: 0,
            declaration_failures: 0,
        }
    }
}

/// Maximum time for which a wait that continues hides an event of a quiet descriptor.
const SCAN_TIME: Duration = Duration::from_millis(4);
/// Time after which a wait ends that a direction without interest ends, so that callers that wait
/// for a time do not repeat it millions of times.
const EXCESS_TIME: Duration = Duration::from_micros(50);

/// A simulated mechanism with any [`Semantics`].
///
/// It does whatever the contract of [`Mechanism`] permits: it merges edges, reports fewer events than
/// there are, reports events for which nothing is left to do, returns early, and overflows.
///
/// It panics if its caller violates the contract, and believes its caller: a direction for which
/// [`would_block`](Mechanism::would_block) was wrong is not reported again before the next arrival.
#[derive(Debug)]
pub struct SimMechanism {
    kernel: SimKernel,
    settings: MechanismSettings,
    semantics: &'static Semantics,
    /// The registrations, by the numbers of their descriptors.
    registered: Vec<Option<Registration>>,
    /// Descriptors that their owner closes before the next wait.
    closing: Vec<(RawFd, Option<SocketId>)>,
    batch: Vec<Event>,
    /// Descriptors with an event; used only during a wait.
    ready: Vec<Ready>,
    changes: Vec<SocketId>,
    next_turn: u64,
    waits: u64,
    overflows: u64,
    calls: u64,
}

/// A registered descriptor.
#[derive(Clone, Copy, Debug)]
struct Registration {
    token: Token,
    socket: Option<SocketId>,
    interest: Interest,
    /// Numbers of changes at the last check.
    edges: [u64; 2],
    /// Directions in which something arrived that was not reported.
    arrived: Readiness,
    /// Whether the next wait reports conditions that hold already.
    is_new: bool,
    /// Whether the end of the stream had arrived when an event was last reported.
    has_ended: bool,
    /// Whether a one-shot mechanism may report it.
    is_armed: bool,
    /// Directions that would block as of the caller's last operation.
    blocked: Readiness,
    /// While it has an event: its place in the order in which events are reported.
    turn: Option<u64>,
    is_kept_active: bool,
    /// The last wait that reported it.
    reported_in: u64,
    /// While an event is hidden: the wait and the time until then.
    hidden: Option<(u64, Time)>,
}

/// A descriptor with an event.
#[derive(Clone, Copy, Debug)]
struct Ready {
    turn: u64,
    fd: usize,
    readiness: Readiness,
    /// The conditions of both directions.
    conditions: Readiness,
}

/// The directions, in the order of the numbers of changes.
const DIRECTIONS: [Readiness; 2] = [Readiness::READABLE, Readiness::WRITABLE];
const BOTH: Readiness = DIRECTIONS[0].union(DIRECTIONS[1]);
/// The code of an event in a trace.
const EVENT: u64 = 32;

impl SimMechanism {
    /// Creates a mechanism for the sockets of `kernel`.
    pub(super) fn new(kernel: &SimKernel, settings: MechanismSettings) -> SimMechanism {
        SimMechanism {
            kernel: kernel.clone(),
            settings,
            semantics: trigger::intern(settings.semantics),
            registered: Vec::new(),
            closing: Vec::new(),
            batch: Vec::new(),
            ready: Vec::new(),
            changes: Vec::new(),
            next_turn: 0,
            waits: 0,
            overflows: 0,
            calls: 0,
        }
    }

    fn has_fault(&self, per_mille: u32) -> bool {
        per_mille > 0 && self.kernel.host().world().has_fault(per_mille)
    }

    fn decide(&self, limit: usize) -> usize {
        self.kernel.host().world().decide(u32::try_from(limit).unwrap_or(u32::MAX)) as usize
    }

    fn now(&self) -> Time {
        self.kernel.host().world().now()
    }

    fn count_change(&mut self) {
        self.calls += u64::from(self.semantics.change == ChangeCost::SystemCall);
    }

    /// Returns the registration of a descriptor under `token`.
    fn get_mut(&mut self, fd: RawFd, token: Token) -> Option<&mut Registration> {
        let registration = self.registered.get_mut(usize::try_from(fd).ok()?)?.as_mut()?;
        assert_eq!(registration.token, token, "descriptor {fd} is registered under another token");
        Some(registration)
    }

    fn remove(&mut self, fd: RawFd, token: Token) -> Option<Registration> {
        self.get_mut(fd, token)?;
        self.registered[fd as usize].take()
    }

    /// Returns the conditions of a descriptor that this mechanism can report.
    fn conditions(&self, fd: RawFd) -> Readiness {
        let mut conditions = self.kernel.readiness(fd);
        // They do not name a direction: the caller finds them in its next operation.
        if conditions.intersects(Readiness::ERROR | Readiness::HANGUP) {
            conditions |= BOTH;
        }
        conditions & (self.semantics.reports | BOTH)
    }

    /// Checks that the caller keeps registered descriptors open, and closes the others.
    fn check_caller(&mut self) {
        for (fd, socket) in self.closing.drain(..) {
            let is_open = socket.is_some() && self.kernel.refers_to(fd, socket);
            assert!(!is_open, "descriptor {fd} was announced as closing and is open");
        }
        for (fd, registration) in self.registered.iter().enumerate() {
            let Some(registration) = registration else { continue };
            let is_open = self.kernel.refers_to(fd as RawFd, registration.socket);
            assert!(is_open, "descriptor {fd} was closed while it was registered");
        }
    }

    /// Records what has arrived since the last check.
    fn collect_arrivals(&mut self) {
        self.kernel.host().take_changes(&mut self.changes);
        self.changes.clear();
        let mut arrivals = 0;
        for fd in 0..self.registered.len() {
            let Some(mut registration) = self.registered[fd] else { continue };
            let edges = self.kernel.edges(fd as RawFd);
            if edges == registration.edges {
                continue;
            }
            for (index, direction) in DIRECTIONS.into_iter().enumerate() {
                if edges[index] != registration.edges[index] {
                    arrivals += usize::from(registration.interest.bits() & direction.bits() != 0);
                    registration.arrived |= direction;
                    registration.blocked -= direction;
                }
            }
            registration.edges = edges;
            self.registered[fd] = Some(registration);
        }
        if self.semantics.overflows
            && arrivals > 0
            && (arrivals > self.settings.queue_length || self.has_fault(self.settings.overflows))
        {
            // All arrivals are lost. It recovers by checking all descriptors.
            self.overflows += 1;
            for registration in self.registered.iter_mut().flatten() {
                registration.arrived = Readiness::empty();
                registration.is_new = true;
            }
        }
    }

    /// Returns the readiness to report for a descriptor now, or an empty one.
    fn find_event(&self, registration: &Registration, conditions: Readiness) -> Readiness {
        let interest = registration.interest;
        match self.semantics.trigger {
            Trigger::Level => (conditions - registration.blocked).restrict_to(interest),
            Trigger::OneShot if registration.is_armed => conditions.restrict_to(interest),
            Trigger::OneShot => Readiness::empty(),
            Trigger::Edge if registration.is_new => conditions.restrict_to(interest),
            Trigger::Edge if registration.arrived.restrict_to(interest).is_empty() => {
                Readiness::empty()
            }
            Trigger::Edge if self.semantics.reports_state() => conditions.restrict_to(interest),
            Trigger::Edge => self.find_arrival(registration, conditions).restrict_to(interest),
        }
    }

    /// Returns the readiness of an event that reports an arrival: its directions, and the end of the
    /// stream if it arrived as well.
    fn find_arrival(&self, registration: &Registration, conditions: Readiness) -> Readiness {
        let directions = conditions & registration.arrived & BOTH;
        if directions.is_empty() {
            // The caller has handled the arrival, which the mechanism may not know.
            let is_stale = self.has_fault(self.settings.spurious_events);
            return if is_stale { registration.arrived } else { Readiness::empty() };
        }
        let reasons = conditions - BOTH;
        if reasons.intersects(Readiness::HANGUP | Readiness::ERROR) {
            return directions | BOTH | reasons;
        }
        let has_data =
            registration.socket.is_some_and(|socket| self.kernel.host().readable_bytes(socket) > 0);
        // The end may be missing if it arrived alone.
        let reports_end = !registration.has_ended && (has_data || self.decide(2) == 0);
        if reports_end { directions | reasons } else { directions }
    }

    /// Collects the descriptors to report. Returns whether a direction without interest ends the
    /// wait.
    fn find_ready(&mut self) -> bool {
        self.ready.clear();
        let mut has_excess = false;
        for fd in 0..self.registered.len() {
            let Some(mut registration) = self.registered[fd] else { continue };
            let conditions = self.conditions(fd as RawFd);
            let readiness = self.find_event(&registration, conditions);
            if readiness.is_empty() {
                let changes =
                    self.semantics.trigger != Trigger::Edge || !registration.arrived.is_empty();
                has_excess |= self.semantics.registers_both
                    && changes
                    && !registration.interest.is_empty()
                    && !conditions.is_empty();
                // Later waits do not report consumed or unwanted readiness.
                registration.arrived = Readiness::empty();
                registration.is_new = false;
                registration.turn = None;
                registration.hidden = None;
            } else {
                let turn = registration.turn.unwrap_or_else(|| {
                    self.next_turn += 1;
                    registration.hidden = self.hide(&registration);
                    self.next_turn
                });
                registration.turn = Some(turn);
                let is_hidden = registration
                    .hidden
                    .is_some_and(|(wait, time)| self.waits < wait && self.now() < time);
                if !is_hidden {
                    registration.hidden = None;
                    self.ready.push(Ready { turn, fd, readiness, conditions });
                }
            }
            self.registered[fd] = Some(registration);
        }
        has_excess
    }

    /// Decides until which wait and time an event of a quiet descriptor is hidden.
    fn hide(&self, registration: &Registration) -> Option<(u64, Time)> {
        let interval = u64::from(self.settings.scan_interval);
        let is_quiet = interval > 1
            && !registration.is_kept_active
            && !registration.is_new
            && self.waits - registration.reported_in > interval;
        is_quiet.then(|| {
            let waits = self.decide(interval as usize) as u64;
            (self.waits + waits, self.now() + SCAN_TIME)
        })
    }

    /// Fills the batch with up to `max` of the ready descriptors, those that became ready first.
    fn report(&mut self, max: usize) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.sort_unstable_by_key(|ready| ready.turn);
        let mut count = ready.len().min(max.max(1));
        if count > 1 && self.has_fault(self.settings.short_batches) {
            count = 1 + self.decide(count - 1);
        }
        ready.truncate(count);
        if count > 1 && self.has_fault(self.settings.reordering) {
            for last in (1..count).rev() {
                ready.swap(last, self.decide(last + 1));
            }
        }
        for Ready { fd, mut readiness, conditions, .. } in ready.drain(..) {
            let repeats =
                !self.semantics.reports_state() && self.has_fault(self.settings.repetitions);
            if self.has_fault(self.settings.excess) {
                readiness |= conditions;
            }
            let Some(registration) = &mut self.registered[fd] else { continue };
            if !repeats {
                registration.arrived = Readiness::empty();
            }
            registration.is_new = false;
            registration.has_ended = conditions.contains(Readiness::READ_CLOSED);
            registration.is_armed = false;
            registration.turn = None;
            registration.reported_in = self.waits;
            let token = registration.token;
            self.add(token, readiness);
        }
        self.ready = ready;
    }

    fn add(&mut self, token: Token, readiness: Readiness) {
        let host = self.kernel.host();
        let numbers = [EVENT, token.to_bits(), readiness.bits().into()];
        host.world().record(host.index(), numbers, || format!("{token:?} {readiness:?}"));
        self.batch.push(Event { token, readiness });
    }

    /// Adds an event for which nothing is left to do: of a descriptor that was ready when the kernel
    /// checked.
    fn add_spurious(&mut self) {
        let first = self.decide(self.registered.len());
        let is_possible = |registration: Registration| {
            let is_armed = self.semantics.trigger != Trigger::OneShot || registration.is_armed;
            // A connect does not complete before its time.
            is_armed
                && registration
                    .socket
                    .is_some_and(|socket| !self.kernel.host().is_connecting(socket))
        };
        let mut fds = (first..self.registered.len()).chain(0..first);
        let fd = fds.find(|&fd| self.registered[fd].is_some_and(is_possible));
        let Some(registration) = fd.and_then(|fd| self.registered[fd].as_mut()) else { return };
        registration.is_armed = false;
        let (token, interest) = (registration.token, registration.interest);
        self.add(token, BOTH.restrict_to(interest));
    }

    /// Waits until there is an event, or the wait ends without one.
    fn wait_for_ready(&mut self, until: Option<Time>) {
        loop {
            self.collect_arrivals();
            let has_excess = self.find_ready();
            let is_over = until.is_some_and(|until| self.now() >= until);
            if !self.ready.is_empty() || is_over || self.has_fault(self.settings.early_waits) {
                return;
            }
            let hidden = self.registered.iter().flatten().filter_map(|of| of.hidden);
            let revealed = hidden.map(|(_, time)| time).min();
            let excess = has_excess.then(|| self.now() + EXCESS_TIME);
            let next = [until, revealed, excess, self.kernel.next_change()];
            let next = next.into_iter().flatten().min();
            self.kernel.host().block(next);
            let is_early = next.is_none_or(|next| self.now() < next);
            if is_early && !self.kernel.host().is_ready() {
                return; // A scheduler ends the wait early.
            }
            if has_excess {
                self.collect_arrivals();
                self.find_ready();
                return;
            }
        }
    }
}

impl Mechanism for SimMechanism {
    fn semantics(&self) -> &'static Semantics {
        self.semantics
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        let index = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if index >= self.registered.len() {
            self.registered.resize(index + 1, None);
        }
        if self.registered[index].is_some() {
            return Err(Errno::EXIST.into());
        }
        let socket = self.kernel.socket(fd);
        if socket.is_some() && self.has_fault(self.settings.declaration_failures) {
            return Err([Errno::NOMEM, Errno::NOSPC][self.decide(2)].into());
        }
        self.count_change();
        self.registered[index] = Some(Registration {
            token,
            socket,
            interest,
            edges: self.kernel.edges(fd),
            arrived: Readiness::empty(),
            is_new: true,
            has_ended: false,
            is_armed: true,
            blocked: Readiness::empty(),
            turn: None,
            is_kept_active: false,
            reported_in: 0,
            hidden: None,
        });
        Ok(())
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.count_change();
        let registration = self.get_mut(fd, token).ok_or(Errno::NOENT)?;
        registration.interest = interest;
        registration.is_new = true;
        registration.is_armed = true;
        registration.blocked = Readiness::empty();
        registration.is_kept_active &= !interest.is_empty();
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, token: Token) -> io::Result<()> {
        self.count_change();
        self.remove(fd, token).ok_or(Errno::NOENT)?;
        Ok(())
    }

    unsafe fn closing(&mut self, fd: RawFd, token: Token) {
        if !self.semantics.close_revokes {
            self.count_change();
        }
        if let Some(registration) = self.remove(fd, token) {
            self.closing.push((fd, registration.socket));
        }
    }

    fn would_block(&mut self, fd: RawFd, token: Token, interest: Interest) {
        if let Some(registration) = self.get_mut(fd, token) {
            registration.blocked |= BOTH.restrict_to(interest);
        }
    }

    fn keep_active(&mut self, fd: RawFd, token: Token) {
        if let Some(registration) = self.get_mut(fd, token) {
            registration.is_kept_active = true;
        }
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        self.waits += 1;
        self.calls += 1;
        self.check_caller();
        self.kernel.host().begin_wait();
        let until = timeout.map(|timeout| self.now() + timeout);
        self.wait_for_ready(until);
        if self.has_fault(self.settings.early_waits) {
            return Ok(0);
        }
        if self.ready.is_empty() && self.has_fault(self.settings.spurious_events) {
            self.add_spurious();
        }
        self.report(max);
        Ok(self.batch.len())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.batch.get(index).copied().unwrap_or(NO_EVENT)
    }

    fn scan_interval(&self) -> u32 {
        self.settings.scan_interval.max(1)
    }

    fn overflows(&self) -> u64 {
        self.overflows
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}
