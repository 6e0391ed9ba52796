//! [`EventQueue`]: the explicit event interface of Banga, Mogul and Druschel ("A scalable and
//! explicit event delivery mechanism for UNIX", USENIX 1999) over any mechanism.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, poll};
use rustix::io::Errno;

use crate::event::{Event, Interest, Readiness, Token};
use crate::mechanism::Trigger;
use crate::mechanism::epoll::{Edge, Epoll};
use crate::mechanism::{self, Counters, Mechanism, Open, Registry, Semantics, Sharing, SignalMask};
use crate::timer::{Time, Wheel};
use crate::waker::{Waker, Wakeups};

mod classes;
mod dispatcher;
mod poller;
mod shared;

pub use classes::Class;
use classes::Pending;
use dispatcher::{Notifier, SharedSource};
pub use poller::Poller;
pub use shared::{Shared, Wake};

/// The minimum batch size while registrations differ in class. A large batch makes it likely that
/// events of the first class are among those taken.
const CLASS_BATCH: usize = 1024;

/// A queue of events on the descriptors in which interest was declared.
///
/// One thread uses the queue. A [`Waker`] ends its wait from another thread. `P` is the payload of
/// a registration, which its events carry. It is any `Copy` type, such as an index into the
/// caller's table.
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
///     assert_eq!(event.token, "there");
///     let mut bytes = [0; 4];
///     (&*registration).read_exact(&mut bytes)?;
///     assert_eq!(&bytes, b"hark");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Events
/// Events come in the order in which the mechanism reports them, by [`Class`]. Each descriptor has
/// at most one event per batch, which combines everything that happened. The event carries the
/// readiness found by the [`next_events`](Self::next_events) call that returns it. The [`Trigger`]
/// of the mechanism determines whether a descriptor that stays ready is reported again. Code that
/// reads or writes until `WouldBlock` and reports that with [`Registration::would_block`] works
/// with all of them.
///
/// A registration that was dropped has no more events, not even from a batch taken before.
///
/// # Threads
/// The queue is not `Send`. The queue and its registrations share one table, which every
/// declaration and every wait use without a lock. A lock would add cost to every event. Create the
/// queue in the thread that uses it. A [`Waker`] and a [`Shared`] source can be sent to other
/// threads.
///
/// # Soundness
/// The queue shares ownership of every source that it watches until the registration ends
/// ([`Registry`] explains why that is sufficient). Dropping a [`Registration`] revokes it. Leaking
/// one leaks its source, which then stays open.
pub struct EventQueue<P: Copy = u64, M: Mechanism = Epoll<Edge>> {
    core: Rc<RefCell<Core<P, M>>>,
    waker: Waker,
}

type Sources<M> = Registry<M, Rc<dyn AsFd>>;

struct Core<P, M: Mechanism> {
    registry: Sources<M>,
    /// The registrations, indexed by the slot of their token.
    slots: Vec<Slot<P>>,
    pending: Pending,
    /// Whether some registration has a class other than the default.
    has_classes: bool,
    wakeups: Token,
    /// The notifier of this queue and the token of its wake-ups, if the queue watches a shared
    /// source that its mechanism cannot share.
    notifier: Option<(Token, Arc<Notifier>)>,
    woken: bool,
    wheel: Wheel,
    /// The current time, if it was read since the last wait. Without timers it is not needed.
    now: Option<Time>,
}

struct Slot<P> {
    token: Token,
    /// `None` after the registration was dropped.
    payload: Option<P>,
    idle: Option<Duration>,
    /// The readiness to be reported. If it is empty, an entry for this slot in `pending` is stale.
    pending: Readiness,
    class: Class,
    delivery: Delivery,
}

impl<P> Slot<P> {
    fn new(token: Token, payload: Option<P>) -> Slot<P> {
        Slot {
            token,
            payload,
            idle: None,
            pending: Readiness::empty(),
            class: Class::default(),
            delivery: Delivery::Direct,
        }
    }
}

/// The path on which the events of a registration reach this queue.
enum Delivery {
    /// The mechanism reports them to this queue alone, or to every queue.
    Direct,
    /// The mechanism reports them to several queues. Another queue may have handled an event.
    Contended,
    /// The dispatcher reports them. Only the queue knows the interest.
    Dispatched(Arc<SharedSource>, Interest),
}

/// A source in which interest is declared. It dereferences to the source. Dropping it revokes the
/// interest and releases the source.
pub struct Registration<S: AsFd + 'static> {
    source: Rc<S>,
    token: Token,
    queue: Rc<dyn Registrar>,
}

/// The operations of a registration on its queue, independent of the queue's type parameters.
trait Registrar {
    fn change(&self, token: Token, interest: Interest) -> io::Result<()>;
    fn set_idle_deadline(&self, token: Token, idle: Option<Duration>);
    fn set_class(&self, token: Token, class: Class);
    fn would_block(&self, token: Token, interest: Interest);
    fn revoke(&self, token: Token);
}

/// The result of declaring interest: the registration and the current readiness of the source.
pub type DeclareResult<S> = Result<(Registration<S>, Readiness), DeclareError<S>>;

/// A source that was not registered, and the reason.
#[derive(thiserror::Error)]
#[error("declaring interest: {error}")]
#[non_exhaustive]
pub struct DeclareError<S> {
    /// The source.
    pub returned_source: S,
    /// The reason.
    pub error: io::Error,
}

impl<S> fmt::Debug for DeclareError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeclareError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<S> From<DeclareError<S>> for io::Error {
    fn from(error: DeclareError<S>) -> io::Error {
        error.error
    }
}

impl<P: Copy + 'static> EventQueue<P> {
    /// Creates a queue over `epoll-edge`, which every Linux system supports.
    ///
    /// # Errors
    /// The process is out of descriptors or memory.
    pub fn new() -> io::Result<EventQueue<P>> {
        EventQueue::with_mechanism(Epoll::open()?)
    }
}

impl<P: Copy + 'static, M: Mechanism + 'static> EventQueue<P, M> {
    /// Creates a queue over `mechanism`. The mechanism is given by type, or selected by name with
    /// [`find`](crate::mechanism::find) as a `Box<dyn Mechanism>`.
    ///
    /// ```
    /// use hearken::{EventQueue, mechanism};
    ///
    /// let mechanism = mechanism::find("poll")?.open()?;
    /// let queue = EventQueue::<u64, _>::with_mechanism(mechanism)?;
    /// assert_eq!(queue.semantics().trigger, mechanism::Trigger::Level);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The process is out of descriptors or memory.
    pub fn with_mechanism(mechanism: M) -> io::Result<EventQueue<P, M>> {
        let (waker, wakeups) = Wakeups::new()?.into_parts();
        let mut registry: Sources<M> = Registry::new(mechanism);
        let wakeups = registry.insert(Rc::new(wakeups));
        registry.declare(wakeups, Interest::READ)?;
        registry.keep_active(wakeups);
        let core = Core {
            registry,
            slots: Vec::new(),
            pending: Pending::default(),
            has_classes: false,
            wakeups,
            notifier: None,
            woken: false,
            wheel: Wheel::new(Time::now()),
            now: None,
        };
        Ok(EventQueue { core: Rc::new(RefCell::new(core)), waker })
    }

    /// Declares interest in `source` and returns its current readiness. No event
    /// between the creation of the source and this call is lost. The next
    /// [`next_events`](Self::next_events) may report the same readiness again.
    ///
    /// It makes one or two system calls.
    ///
    /// # Errors
    /// `EPERM` for a file that cannot be polled, such as a regular file. `EEXIST` if interest in
    /// the same descriptor is declared already. `ENOMEM` or `ENOSPC` if memory or watches are used
    /// up. The error contains the source.
    pub fn declare_interest<S: AsFd + 'static>(
        &self,
        source: S,
        interest: Interest,
        payload: P,
    ) -> DeclareResult<S> {
        self.declare(source, payload, |core, token, _| {
            core.registry.declare(token, interest).map(|()| Delivery::Direct)
        })
    }

    /// Declares interest like [`declare_interest`](Self::declare_interest) for the whole process.
    /// Several queues declare interest in clones of the same source. The [`Wake`] of the source
    /// specifies whether one or all of them receive an event.
    ///
    /// With some mechanisms only one instance can watch an open file ([`Sharing::Owner`]). A
    /// dispatcher thread then watches the source and notifies the queues.
    ///
    /// # Errors
    /// The errors of [`declare_interest`](Self::declare_interest), or the dispatcher thread cannot
    /// be started.
    pub fn declare_processwide_interest<S: AsFd + Send + Sync + 'static>(
        &self,
        source: Shared<S>,
        interest: Interest,
        payload: P,
    ) -> DeclareResult<Shared<S>> {
        self.declare(source, payload, |core, token, source| {
            match (core.registry.semantics().sharing, source.wake()) {
                (Sharing::Owner, _) => core.subscribe(token, interest, source.dispatched()),
                (Sharing::Exclusive, Wake::One) => {
                    core.registry.declare_exclusive(token, interest).map(|()| Delivery::Direct)
                }
                (Sharing::Each, Wake::One) => {
                    core.registry.declare_exclusive(token, interest).map(|()| Delivery::Contended)
                }
                (_, Wake::All) => core.registry.declare(token, interest).map(|()| Delivery::Direct),
            }
        })
    }

    /// Declares interest in `source` by calling `register`.
    fn declare<S: AsFd + 'static>(
        &self,
        source: S,
        payload: P,
        register: impl FnOnce(&mut Core<P, M>, Token, &S) -> io::Result<Delivery>,
    ) -> DeclareResult<S> {
        let source = Rc::new(source);
        let mut core = self.core.borrow_mut();
        let token = core.registry.insert(source.clone());
        let declared = register(&mut core, token, &source);
        // Queried after the declaration: changes between the two calls are reported as events.
        let declared = declared.and_then(|delivery| Ok((delivery, readiness(source.as_fd())?)));
        match declared {
            Ok((delivery, readiness)) => {
                core.register(token, payload, delivery);
                drop(core);
                let queue = self.core.clone();
                Ok((Registration { source, token, queue }, readiness))
            }
            Err(error) => {
                core.registry.remove(token);
                drop(core);
                let source = Rc::into_inner(source).expect("the registry released the source");
                Err(DeclareError { returned_source: source, error })
            }
        }
    }

    /// Waits until there is an event, the timeout passes, a [`Waker`] is used or a signal handler
    /// runs. Without a timeout it waits indefinitely. A timeout never ends early. The batch has at most `max` events (0
    /// counts as 1). Events that remain in the batch when it is dropped come first in the next one,
    /// if they still hold.
    ///
    /// It makes one system call, and one more if events remained from the last batch.
    ///
    /// # Errors
    /// The mechanism's errors.
    pub fn next_events(
        &self,
        max: usize,
        timeout: Option<Duration>,
    ) -> io::Result<Events<'_, P, M>> {
        self.fill(max, timeout, Registry::wait)
    }

    /// Waits like [`next_events`](Self::next_events), with `mask` in place of the thread's signal
    /// mask: see [`SignalMask`].
    ///
    /// # Errors
    /// The errors of [`Mechanism::wait_with_mask`] except `EINTR`.
    pub fn next_events_with_mask(
        &self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<Events<'_, P, M>> {
        self.fill(max, timeout, |registry, max, timeout| {
            registry.wait_with_mask(max, timeout, mask)
        })
    }

    #[inline]
    fn fill(
        &self,
        max: usize,
        timeout: Option<Duration>,
        wait: impl FnMut(&mut Sources<M>, usize, Option<Duration>) -> io::Result<usize>,
    ) -> io::Result<Events<'_, P, M>> {
        let end = self.core.borrow_mut().fill(max.max(1), timeout, wait)?;
        Ok(Events { queue: self, remaining: max.max(1), end })
    }

    /// Returns a duplicate of the descriptor by which another event loop can watch this queue, if
    /// the mechanism has one: see [`Mechanism::descriptor`]. It does not become readable for idle
    /// deadlines, or for events that remain from a batch.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let core = self.core.borrow();
        core.registry.mechanism().descriptor().map(|fd| fd.try_clone_to_owned()).transpose()
    }

    /// Returns a handle that ends this queue's wait from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns the properties of the mechanism.
    pub fn semantics(&self) -> &'static Semantics {
        self.core.borrow().registry.semantics()
    }

    /// Returns the counters since the creation of the queue. They include the queue's own wake-ups.
    pub fn counters(&self) -> Counters {
        self.core.borrow().registry.counters()
    }
}

impl<P: Copy, M: Mechanism> Core<P, M> {
    fn register(&mut self, token: Token, payload: P, delivery: Delivery) {
        let slot = Slot { delivery, ..Slot::new(token, Some(payload)) };
        match self.slots.get_mut(token.slot() as usize) {
            Some(former) => *former = slot,
            None => {
                // Only the queue's own wake-up sources have slots without a payload.
                self.slots.resize_with(token.slot() as usize, || Slot::new(token, None));
                self.slots.push(slot);
            }
        }
        self.check_readiness(token);
    }

    /// Subscribes to a source that the mechanism cannot share.
    fn subscribe(
        &mut self,
        token: Token,
        interest: Interest,
        source: &Arc<SharedSource>,
    ) -> io::Result<Delivery> {
        let notifier = match &self.notifier {
            Some((_, notifier)) => notifier.clone(),
            None => {
                let (waker, wakeups) = Wakeups::new()?.into_parts();
                let wakeups = self.registry.insert(Rc::new(wakeups));
                if let Err(error) = self.registry.declare(wakeups, Interest::READ) {
                    self.registry.remove(wakeups);
                    return Err(error);
                }
                let notifier = Arc::new(Notifier::new(waker));
                self.notifier = Some((wakeups, notifier.clone()));
                notifier
            }
        };
        source.subscribe(token, &notifier)?;
        Ok(Delivery::Dispatched(source.clone(), interest))
    }

    /// Checks a source that the dispatcher watches, and queues an event if it is ready.
    fn check_readiness(&mut self, token: Token) {
        let Some(Slot { delivery: Delivery::Dispatched(_, interest), .. }) = self.slot(token)
        else {
            return;
        };
        let interest = *interest;
        let current = self.registry.get(token).and_then(|source| readiness(source.as_fd()).ok());
        let readiness = current.unwrap_or_default().restrict_to(interest);
        if !readiness.is_empty() {
            self.push(Event { token, readiness });
        }
    }

    /// Returns the interest of a registration.
    fn interest(&self, slot: &Slot<P>) -> Interest {
        match slot.delivery {
            Delivery::Dispatched(_, interest) => interest,
            _ => self.registry.interest(slot.token),
        }
    }

    /// Returns the slot of a registration unless it was dropped.
    fn slot(&mut self, token: Token) -> Option<&mut Slot<P>> {
        let slot = self.slots.get_mut(token.slot() as usize)?;
        (slot.token == token && slot.payload.is_some()).then_some(slot)
    }

    /// Waits until there are events to return.
    fn fill(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mut wait: impl FnMut(&mut Sources<M>, usize, Option<Duration>) -> io::Result<usize>,
    ) -> io::Result<WaitEnd> {
        let max = if self.has_classes { max.max(CLASS_BATCH) } else { max };
        self.refresh();
        self.now = None;
        let end = timeout.map(|timeout| self.now() + timeout);
        loop {
            let deadline = [self.wheel.next_deadline(), end].into_iter().flatten().min();
            let timeout = if self.pending.is_empty() && !self.woken {
                deadline.map(|deadline| deadline.duration_since(self.now()))
            } else {
                Some(Duration::ZERO)
            };
            self.set_waiting(true);
            let batch = wait(&mut self.registry, max, timeout);
            self.set_waiting(false);
            self.now = None;
            let batch = match batch {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    return Ok(WaitEnd { interrupted: true, ..WaitEnd::default() });
                }
                batch => batch?,
            };
            for index in 0..batch {
                if let Some(event) = self.registry.event(index) {
                    self.push(event);
                }
            }
            if batch > 0 && !self.registry.semantics().reports_state() {
                self.refresh();
            }
            if self.wheel.armed() > 0 {
                self.queue_idle_events();
            }
            let woken = std::mem::take(&mut self.woken);
            if woken || !self.pending.is_empty() || end.is_some_and(|end| self.now() >= end) {
                return Ok(WaitEnd { woken, interrupted: false });
            }
        }
    }

    /// Returns the current time, which is the same for all events of one wait.
    fn now(&mut self) -> Time {
        *self.now.get_or_insert_with(Time::now)
    }

    fn arm(&mut self, slot: u32, now: Time, after: Duration) {
        if self.wheel.armed() == 0 {
            // The wheel does not advance while it has no timers.
            self.wheel.pop_expired(now);
        }
        self.wheel.arm(slot, now + after);
    }

    /// Queues events for idle registrations. It runs after the batch, whose events count as
    /// activity.
    fn queue_idle_events(&mut self) {
        let now = self.now();
        while let Some(slot) = self.wheel.pop_expired(now) {
            let token = self.slots[slot as usize].token;
            self.push(Event { token, readiness: Readiness::IDLE });
        }
    }

    #[inline]
    fn push(&mut self, event: Event) {
        match self.slots.get_mut(event.token.slot() as usize) {
            // The common case: nothing is pending and there is no idle deadline.
            Some(slot)
                if slot.token == event.token
                    && slot.payload.is_some()
                    && slot.pending.is_empty()
                    && slot.idle.is_none() =>
            {
                slot.pending = event.readiness;
                self.pending.push(slot.class, event.token.slot());
            }
            _ => self.push_slow(event),
        }
    }

    #[inline(never)]
    fn push_slow(&mut self, event: Event) {
        let Some(slot) = self.slot(event.token) else {
            return self.handle_wakeup(event.token);
        };
        let class = slot.class;
        let first = slot.pending.is_empty();
        // Idleness is reported alone: any other event ends it.
        let idle = first && event.readiness.is_idle();
        slot.pending |= event.readiness;
        slot.pending.set(Readiness::IDLE, idle);
        if let (Some(after), false) = (slot.idle, idle) {
            let now = self.now();
            self.arm(event.token.slot(), now, after);
        }
        if first {
            self.pending.push(class, event.token.slot());
        }
    }

    /// Handles an event of the queue's own sources: a waker or the notifier.
    fn handle_wakeup(&mut self, token: Token) {
        let notifier = self.notifier.as_ref().filter(|(wakeups, _)| *wakeups == token);
        let notifier = notifier.map(|(_, notifier)| notifier.clone());
        if token != self.wakeups && notifier.is_none() {
            return;
        }
        if let Some(source) = self.registry.get(token) {
            Wakeups::drain(source);
        }
        self.registry.would_block(token, Interest::READ);
        if self.registry.semantics().trigger == Trigger::OneShot {
            // It was armed before, so arming it again does not fail.
            let _ = self.registry.declare(token, Interest::READ);
        }
        match notifier {
            Some(notifier) => {
                notifier.take_pending().into_iter().for_each(|token| self.check_readiness(token));
            }
            None => self.woken = true,
        }
    }

    fn set_waiting(&self, waiting: bool) {
        if let Some((_, notifier)) = &self.notifier {
            notifier.set_waiting(waiting);
        }
    }

    /// Checks the events that the caller did not take from the last batch: they may be outdated.
    fn refresh(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let remaining: Vec<u32> = self.pending.drain().collect();
        let remaining = || remaining.iter().map(|index| *index as usize);
        let source = |index: usize| self.registry.get(self.slots[index].token);
        let mut list: Vec<_> =
            remaining().filter_map(source).map(|source| all_conditions(source.as_fd())).collect();
        let checked = poll_now(&mut list);
        let current: Vec<_> =
            list.iter().map(|entry| mechanism::poll::readiness(entry.revents())).collect();
        // Readiness that cannot be checked stays unchanged.
        let mut current = checked.ok().map(|()| current.into_iter());
        for index in remaining() {
            let exists = self.registry.get(self.slots[index].token).is_some();
            let current = current.as_mut().filter(|_| exists).and_then(Iterator::next);
            let interest = self.interest(&self.slots[index]);
            let Slot { token, class, pending, .. } = &mut self.slots[index];
            // Idleness lasts until the next event.
            if let (Some(current), false) = (current, pending.is_idle() || pending.is_empty()) {
                *pending = current.restrict_to(interest);
                if pending.is_empty() && self.registry.semantics().trigger == Trigger::OneShot {
                    // The caller never receives this event, so it would not arm the source again.
                    let _ = self.registry.declare(*token, interest);
                }
            }
            if !pending.is_empty() {
                self.pending.push(*class, index as u32);
            }
        }
    }

    /// Returns the next event that still holds.
    #[inline]
    fn take(&mut self) -> Option<Event<P>> {
        while let Some(index) = self.pending.pop() {
            let slot = &mut self.slots[index as usize];
            let readiness = std::mem::take(&mut slot.pending);
            let Some(payload) = slot.payload else { continue };
            let readiness = match slot.delivery {
                Delivery::Contended => self.recheck(index, readiness),
                _ => readiness,
            };
            if !readiness.is_empty() {
                return Some(Event { token: payload, readiness });
            }
        }
        None
    }

    /// Returns the part of `readiness` that still holds if another queue may have handled the
    /// event.
    #[cold]
    fn recheck(&self, index: u32, readiness: Readiness) -> Readiness {
        let token = self.slots[index as usize].token;
        let Some(source) = self.registry.get(token).filter(|_| !readiness.is_idle()) else {
            return readiness;
        };
        let interest = self.registry.interest(token);
        self::readiness(source.as_fd()).map_or(readiness, |current| current.restrict_to(interest))
    }
}

impl<P: Copy, M: Mechanism> Registrar for RefCell<Core<P, M>> {
    fn change(&self, token: Token, interest: Interest) -> io::Result<()> {
        let mut core = self.borrow_mut();
        match core.slot(token) {
            Some(Slot { delivery: Delivery::Dispatched(_, current), .. }) => {
                *current = interest;
                core.check_readiness(token);
            }
            _ => core.registry.declare(token, interest)?,
        }
        // Pending readiness is reported only if the new interest covers it.
        if let Some(slot) = core.slot(token) {
            let idle = slot.pending & Readiness::IDLE;
            slot.pending = slot.pending.restrict_to(interest) | idle;
        }
        Ok(())
    }

    fn set_idle_deadline(&self, token: Token, idle: Option<Duration>) {
        let mut core = self.borrow_mut();
        let Some(slot) = core.slot(token) else { return };
        slot.idle = idle;
        slot.pending.remove(Readiness::IDLE);
        match idle {
            Some(idle) => core.arm(token.slot(), Time::now(), idle),
            None => {
                core.wheel.cancel(token.slot());
            }
        }
    }

    fn set_class(&self, token: Token, class: Class) {
        let mut core = self.borrow_mut();
        if let Some(slot) = core.slot(token) {
            slot.class = class;
            core.has_classes |= class != Class::default();
        }
    }

    fn would_block(&self, token: Token, interest: Interest) {
        self.borrow_mut().registry.would_block(token, interest);
    }

    fn revoke(&self, token: Token) {
        let mut core = self.borrow_mut();
        let mut delivery = Delivery::Direct;
        if let Some(slot) = core.slot(token) {
            slot.payload = None;
            slot.pending = Readiness::empty();
            delivery = std::mem::replace(&mut slot.delivery, Delivery::Direct);
        }
        if let (Delivery::Dispatched(source, _), Some((_, notifier))) = (delivery, &core.notifier) {
            source.unsubscribe(token, notifier);
        }
        core.wheel.cancel(token.slot());
        let source = core.registry.remove(token);
        // Dropped after the borrow: dropping the source may run the caller's code.
        drop(core);
        drop(source);
    }
}

/// Returns the current readiness of a descriptor.
fn readiness(source: BorrowedFd<'_>) -> io::Result<Readiness> {
    let mut list = [all_conditions(source)];
    poll_now(&mut list)?;
    Ok(mechanism::poll::readiness(list[0].revents()))
}

fn all_conditions(source: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(source, mechanism::poll::flags(Interest::all()))
}

/// Updates the readiness of all entries.
fn poll_now(list: &mut [PollFd<'_>]) -> io::Result<()> {
    let timeout = Duration::ZERO.try_into().ok();
    while let Err(errno) = poll(list, timeout.as_ref()) {
        if errno != Errno::INTR {
            return Err(errno.into());
        }
    }
    Ok(())
}

/// A batch of events. The iterator skips events whose registration has been dropped in the
/// meantime. Registrations can be created, changed and dropped while iterating.
pub struct Events<'q, P: Copy, M: Mechanism> {
    queue: &'q EventQueue<P, M>,
    remaining: usize,
    end: WaitEnd,
}

/// The reasons other than events for which a wait ended.
#[derive(Clone, Copy, Default)]
struct WaitEnd {
    woken: bool,
    interrupted: bool,
}

impl<P: Copy, M: Mechanism> Events<'_, P, M> {
    /// Returns whether a [`Waker`] was used since the last batch.
    pub fn woken(&self) -> bool {
        self.end.woken
    }

    /// Returns whether a signal handler ended the wait. The batch then contains no new events.
    pub fn interrupted(&self) -> bool {
        self.end.interrupted
    }
}

impl<P: Copy, M: Mechanism> Iterator for Events<'_, P, M> {
    type Item = Event<P>;

    #[inline]
    fn next(&mut self) -> Option<Event<P>> {
        self.remaining = self.remaining.checked_sub(1)?;
        self.queue.core.borrow_mut().take()
    }
}

impl<S: AsFd + 'static> Registration<S> {
    /// Replaces the interest. An empty interest keeps the registration and produces no events. With
    /// a one-shot mechanism ([`Trigger::OneShot`]) it also rearms the source, which is necessary
    /// after each event.
    ///
    /// # Errors
    /// The mechanism is out of memory.
    pub fn change_interest(&self, interest: Interest) -> io::Result<()> {
        self.queue.change(self.token, interest)
    }

    /// Sets the idle deadline, or removes it. An event with [`Readiness::IDLE`] comes when no event
    /// has come for the duration `idle`. It is not repeated until another event or another call
    /// starts a new period. It is never early, and at most about two milliseconds late. O(1).
    pub fn set_idle_deadline(&self, idle: Option<Duration>) {
        self.queue.set_idle_deadline(self.token, idle);
    }

    /// Sets the class. From the next event on, events of earlier classes are returned before it and
    /// those of later classes after it. The default is [`Class::NORMAL`]. O(1).
    ///
    /// While registrations differ in class, the queue takes up to 1024 events from the mechanism at
    /// a time. A larger batch is more likely to contain events of the first class.
    pub fn set_class(&self, class: Class) {
        self.queue.set_class(self.token, class);
    }

    /// Reports that an operation in the directions of `interest` returned `WouldBlock` since the
    /// last wait, which may save a system call. It must be true: see [`Mechanism::would_block`].
    /// O(1).
    pub fn would_block(&self, interest: Interest) {
        self.queue.would_block(self.token, interest);
    }

    /// Revokes the interest and returns the source.
    pub fn into_source(self) -> S {
        let source = self.source.clone();
        drop(self);
        Rc::into_inner(source).expect("only the registration and its queue shared the source")
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
        f.debug_struct("Events").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}
