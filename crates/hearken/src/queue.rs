//! `declare_interest` and `next_events`: the explicit event interface of Banga, Mogul and Druschel
//! ("A scalable and explicit event delivery mechanism for UNIX", USENIX 1999), over any mechanism.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::event::{Event, Interest, Readiness, Token};
use crate::mechanism::epoll::{Edge, Epoll};
use crate::mechanism::{self, Counters, Mechanism, Open, Registry, Semantics};
use crate::timer::{Time, Wheel};
use crate::waker::{Waker, Wakeups};

/// A queue of events on the descriptors in which interest was declared.
///
/// One thread uses it; a [`Waker`] ends its wait from another. `P` is what an event carries to say
/// whose it is: anything that is `Copy`, such as an index into the caller's own table.
///
/// ```
/// use hearken::{EventQueue, Interest};
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use std::time::Duration;
///
/// let (mut here, there) = UnixStream::pair()?;
/// let queue = EventQueue::<&str>::new()?;
/// let (registration, ready) = queue.declare_interest(there, Interest::READ, "there")?;
/// assert!(!ready.is_readable());
///
/// here.write_all(b"hark")?;
/// for event in queue.next_events(64, Some(Duration::from_secs(1)))? {
///     assert_eq!(event.who, "there");
///     let mut bytes = [0; 4];
///     (&*registration).read_exact(&mut bytes)?;
///     assert_eq!(&bytes, b"hark");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # What an event says
/// Events come in the order in which the mechanism has them, one for each descriptor however much
/// happened to it, each with the readiness found by the [`next_events`](Self::next_events) that
/// gives it. Whether a descriptor that stays ready is named again is the mechanism's
/// ([`Trigger`](crate::mechanism::Trigger)); code that reads or writes until `WouldBlock` is right
/// with all.
/// An event is never given for a registration that was dropped meanwhile, also not from a batch that
/// was taken before.
///
/// # Soundness
/// The queue holds a share of every source it watches, and gives it up only with the
/// registration ([`Registry`] says why that is enough). Dropping a [`Registration`] revokes
/// it; forgetting one leaks its source, which then stays open.
pub struct EventQueue<P: Copy = u64, M: Mechanism = Epoll<Edge>> {
    core: Rc<RefCell<Core<P, M>>>,
    waker: Waker,
}

struct Core<P, M: Mechanism> {
    registry: Registry<M, Rc<dyn AsFd>>,
    /// By the slot of the token.
    slots: Vec<Slot<P>>,
    /// Slots with something pending, in the order in which it came.
    fifo: VecDeque<u32>,
    wakeups: Token,
    woken: bool,
    wheel: Wheel,
    now: Time,
}

struct Slot<P> {
    token: Token,
    /// None once the registration is gone.
    payload: Option<P>,
    idle: Option<Duration>,
    /// What is to be said of it: an entry in the queue is stale where this is empty.
    pending: Readiness,
}

/// A source in which interest is declared. It lends the source out as `&S`; dropping it revokes the
/// interest and lets the source go.
pub struct Registration<S: AsFd + 'static> {
    source: Rc<S>,
    token: Token,
    queue: Rc<dyn Registrar>,
}

/// What a registration asks of its queue, whatever the queue's types.
trait Registrar {
    fn change(&self, token: Token, interest: Interest) -> io::Result<()>;
    fn set_idle_deadline(&self, token: Token, idle: Option<Duration>);
    fn revoke(&self, token: Token);
}

/// A source that was not registered, and why.
#[derive(thiserror::Error)]
#[error("declaring interest: {error}")]
pub struct DeclareError<S> {
    /// The source, given back.
    pub source_given_back: S,
    /// Why.
    pub error: io::Error,
}

impl<S> fmt::Debug for DeclareError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeclareError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<S> From<DeclareError<S>> for io::Error {
    fn from(refused: DeclareError<S>) -> io::Error {
        refused.error
    }
}

impl<P: Copy + 'static> EventQueue<P> {
    /// A queue over the best mechanism that can be had everywhere (`epoll-edge`).
    ///
    /// # Errors
    /// The kernel's: out of descriptors or memory.
    pub fn new() -> io::Result<EventQueue<P>> {
        EventQueue::over(Epoll::open()?)
    }
}

impl<P: Copy + 'static, M: Mechanism + 'static> EventQueue<P, M> {
    /// A queue over `mechanism`: by type, or by name with
    /// [`find`](crate::mechanism::find) and a `Box<dyn Mechanism>`.
    ///
    /// ```
    /// use hearken::{EventQueue, mechanism};
    ///
    /// let mechanism = mechanism::find("poll")?.open()?;
    /// let queue = EventQueue::<u64, _>::over(mechanism)?;
    /// assert_eq!(queue.semantics().trigger, mechanism::Trigger::Level);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The kernel's: out of descriptors or memory.
    pub fn over(mechanism: M) -> io::Result<EventQueue<P, M>> {
        let (waker, wakeups) = Wakeups::new()?;
        let mut registry: Registry<M, Rc<dyn AsFd>> = Registry::new(mechanism);
        let wakeups = registry.insert(Rc::new(wakeups));
        registry.declare(wakeups, Interest::READ)?;
        let now = Time::now();
        let core = Core {
            registry,
            slots: Vec::new(),
            fifo: VecDeque::new(),
            wakeups,
            woken: false,
            wheel: Wheel::new(now),
            now,
        };
        Ok(EventQueue { core: Rc::new(RefCell::new(core)), waker })
    }

    /// Declares interest in `source`, and answers what it is ready for now, of all it could be asked
    /// for: what happens between its creation and this call is not lost. The next
    /// [`next_events`](Self::next_events) may say the same again.
    ///
    /// One or two system calls.
    ///
    /// # Errors
    /// `EPERM` for a file that cannot be waited for (a regular file is always ready); `EEXIST` if
    /// interest in the same descriptor is declared already; out of memory or watches. The source is
    /// given back.
    pub fn declare_interest<S: AsFd + 'static>(
        &self,
        source: S,
        interest: Interest,
        payload: P,
    ) -> Result<(Registration<S>, Readiness), DeclareError<S>> {
        let source = Rc::new(source);
        let mut core = self.core.borrow_mut();
        let token = core.registry.insert(source.clone());
        let declared = core.registry.declare(token, interest);
        // Asked after it was declared: what comes between the two is an event.
        match declared.and_then(|()| ready_now(source.as_fd())) {
            Ok(readiness) => {
                core.register(token, payload);
                drop(core);
                let queue = self.core.clone();
                Ok((Registration { source, token, queue }, readiness))
            }
            Err(error) => {
                core.registry.remove(token);
                drop(core);
                let source = Rc::into_inner(source).expect("the registry's share was given up");
                Err(DeclareError { source_given_back: source, error })
            }
        }
    }

    /// Waits for events: until there is one, the timeout has passed, or a [`Waker`] was used. Without
    /// a timeout it waits for ever; a timeout never ends early. At most `max` come in the batch
    /// (0 counts as 1). What is left in it when it is dropped comes first the next time, if it is
    /// still so then.
    ///
    /// One system call, and one for each descriptor that was left.
    ///
    /// # Errors
    /// The mechanism's. A signal that is handled does not end the wait.
    pub fn next_events(
        &self,
        max: usize,
        timeout: Option<Duration>,
    ) -> io::Result<Events<'_, P, M>> {
        let woken = self.core.borrow_mut().fill(max.max(1), timeout)?;
        Ok(Events { queue: self, left: max.max(1), woken })
    }

    /// A handle by which another thread ends this queue's wait.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// What holds for the mechanism.
    pub fn semantics(&self) -> &'static Semantics {
        self.core.borrow().registry.semantics()
    }

    /// What was counted since the queue was made. The queue's own wake-ups are among it.
    pub fn counters(&self) -> Counters {
        self.core.borrow().registry.counters()
    }
}

impl<P: Copy, M: Mechanism> Core<P, M> {
    fn register(&mut self, token: Token, payload: P) {
        let slot = Slot { token, payload: Some(payload), idle: None, pending: Readiness::empty() };
        match self.slots.get_mut(token.slot() as usize) {
            Some(place) => *place = slot,
            None => {
                // Only the slot of the wake-ups is without a payload.
                let vacant =
                    || Slot { token, payload: None, idle: None, pending: Readiness::empty() };
                self.slots.resize_with(token.slot() as usize, vacant);
                self.slots.push(slot);
            }
        }
    }

    /// The slot of a registration that is not gone.
    fn slot(&mut self, token: Token) -> Option<&mut Slot<P>> {
        let slot = self.slots.get_mut(token.slot() as usize)?;
        (slot.token == token && slot.payload.is_some()).then_some(slot)
    }

    /// Has the mechanism wait until there is something to give, and tells whether a waker was used.
    fn fill(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<bool> {
        self.refresh();
        self.now = Time::now();
        let end = timeout.map(|timeout| self.now + timeout);
        loop {
            let until = [self.wheel.next(), end].into_iter().flatten().min();
            let timeout = if self.fifo.is_empty() && !self.woken {
                until.map(|until| until.since(self.now))
            } else {
                Some(Duration::ZERO)
            };
            let batch = self.registry.wait(max, timeout)?;
            self.now = Time::now();
            for index in 0..batch {
                if let Some(event) = self.registry.event(index) {
                    self.push(event);
                }
            }
            // After the events, which count as activity.
            while let Some(slot) = self.wheel.expired(self.now) {
                let who = self.slots[slot as usize].token;
                self.push(Event { who, readiness: Readiness::IDLE });
            }
            let woken = std::mem::take(&mut self.woken);
            if woken || !self.fifo.is_empty() || end.is_some_and(|end| self.now >= end) {
                return Ok(woken);
            }
        }
    }

    fn push(&mut self, event: Event) {
        if event.who == self.wakeups {
            if let Some(source) = self.registry.get(self.wakeups) {
                Wakeups::drain(source);
            }
            self.woken = true;
            return;
        }
        let now = self.now;
        let Some(slot) = self.slot(event.who) else {
            return;
        };
        let first = slot.pending.is_empty();
        // Idleness is said alone: whatever there is to be said besides ends it.
        let idle = first && event.readiness.is_idle();
        slot.pending |= event.readiness;
        slot.pending.set(Readiness::IDLE, idle);
        if let (Some(after), false) = (slot.idle, idle) {
            self.wheel.arm(event.who.slot(), now + after);
        }
        if first {
            self.fifo.push_back(event.who.slot());
        }
    }

    /// Asks again about what nobody took of the last batch: it may have been dealt with since.
    fn refresh(&mut self) {
        for _ in 0..self.fifo.len() {
            let Some(index) = self.fifo.pop_front() else {
                break;
            };
            let slot = &mut self.slots[index as usize];
            let was = std::mem::take(&mut slot.pending);
            let Some(source) = self.registry.get(slot.token).filter(|_| !was.is_empty()) else {
                continue;
            };
            let asked = self.registry.interest(slot.token);
            // Idleness lasts until an event comes, and what cannot be asked is as it was.
            slot.pending = if was.is_idle() {
                was
            } else {
                ready_now(source.as_fd()).map_or(was, |now| now.answering(asked))
            };
            if !slot.pending.is_empty() {
                self.fifo.push_back(index);
            }
        }
    }

    /// The next event that is still true.
    fn take(&mut self) -> Option<Event<P>> {
        while let Some(index) = self.fifo.pop_front() {
            let slot = &mut self.slots[index as usize];
            let readiness = std::mem::take(&mut slot.pending);
            if let (Some(who), false) = (slot.payload, readiness.is_empty()) {
                return Some(Event { who, readiness });
            }
        }
        None
    }
}

impl<P: Copy, M: Mechanism> Registrar for RefCell<Core<P, M>> {
    fn change(&self, token: Token, interest: Interest) -> io::Result<()> {
        let mut core = self.borrow_mut();
        core.registry.declare(token, interest)?;
        // What was taken for the old interest and not yet given is given only if still asked for.
        if let Some(slot) = core.slot(token) {
            let idle = slot.pending & Readiness::IDLE;
            slot.pending = slot.pending.answering(interest) | idle;
        }
        Ok(())
    }

    fn set_idle_deadline(&self, token: Token, idle: Option<Duration>) {
        let mut core = self.borrow_mut();
        let Some(slot) = core.slot(token) else { return };
        slot.idle = idle;
        slot.pending.remove(Readiness::IDLE);
        match idle {
            Some(idle) => core.wheel.arm(token.slot(), Time::now() + idle),
            None => {
                core.wheel.cancel(token.slot());
            }
        }
    }

    fn revoke(&self, token: Token) {
        let mut core = self.borrow_mut();
        if let Some(slot) = core.slot(token) {
            slot.payload = None;
            slot.pending = Readiness::empty();
        }
        core.wheel.cancel(token.slot());
        let source = core.registry.remove(token);
        // Dropped after the borrow: it is the caller's code that runs then.
        drop(core);
        drop(source);
    }
}

/// What a descriptor is ready for now, of all it could be asked for.
fn ready_now(source: BorrowedFd<'_>) -> io::Result<Readiness> {
    let asked = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
    let mut list = [PollFd::from_borrowed_fd(source, asked)];
    let now = Duration::ZERO.try_into().ok();
    while let Err(errno) = poll(&mut list, now.as_ref()) {
        if errno != Errno::INTR {
            return Err(errno.into());
        }
    }
    Ok(mechanism::poll::readiness(list[0].revents()))
}

/// A batch of events: an iterator that skips those whose registration has gone by the time they
/// would be given. Registrations may be made, changed and dropped while it is used.
pub struct Events<'q, P: Copy, M: Mechanism> {
    queue: &'q EventQueue<P, M>,
    left: usize,
    woken: bool,
}

impl<P: Copy, M: Mechanism> Events<'_, P, M> {
    /// True if a [`Waker`] was used since the last batch.
    pub fn woken(&self) -> bool {
        self.woken
    }
}

impl<P: Copy, M: Mechanism> Iterator for Events<'_, P, M> {
    type Item = Event<P>;

    fn next(&mut self) -> Option<Event<P>> {
        self.left = self.left.checked_sub(1)?;
        self.queue.core.borrow_mut().take()
    }
}

impl<S: AsFd + 'static> Registration<S> {
    /// Replaces the interest. Empty silences the registration and keeps it.
    ///
    /// # Errors
    /// The mechanism's: out of memory.
    pub fn change_interest(&self, interest: Interest) -> io::Result<()> {
        self.queue.change(self.token, interest)
    }

    /// Has an event with [`Readiness::IDLE`] come once no other event has for `idle`; `None` takes
    /// it back. It comes once for each time of idleness: the next event, or another call, arms it
    /// again. Never early, and at most about two milliseconds late. O(1).
    pub fn set_idle_deadline(&self, idle: Option<Duration>) {
        self.queue.set_idle_deadline(self.token, idle);
    }

    /// Revokes the interest and gives the source back.
    pub fn into_source(self) -> S {
        let source = self.source.clone();
        drop(self);
        Rc::into_inner(source).expect("the registration and its queue held the only other shares")
    }
}

impl<S: AsFd + 'static> Deref for Registration<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.source
    }
}

impl<S: AsFd + 'static> Drop for Registration<S> {
    fn drop(&mut self) {
        self.queue.revoke(self.token);
    }
}

impl<S: AsFd + fmt::Debug + 'static> fmt::Debug for Registration<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(&self.source).finish()
    }
}

impl<P: Copy, M: Mechanism> fmt::Debug for EventQueue<P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").finish_non_exhaustive()
    }
}

impl<P: Copy, M: Mechanism> fmt::Debug for Events<'_, P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("left", &self.left).finish_non_exhaustive()
    }
}
