//! `declare_interest` and `next_events`: the explicit event interface of Banga, Mogul and Druschel
//! ("A scalable and explicit event delivery mechanism for UNIX", USENIX 1999), over any mechanism.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::event::{Event, Interest, Readiness, Token};
use crate::mechanism::epoll::{Edge, Epoll};
use crate::mechanism::{self, Counters, Mechanism, Open, Registry, Semantics, Sharing, Trigger};
use crate::timer::{Time, Wheel};
use crate::waker::{Waker, Wakeups};

mod classes;
mod herald;
mod shared;

pub use classes::Class;
use classes::Pending;
use herald::{Bell, Post};
pub use shared::{Shared, Wake};

/// While registrations differ in class, so many events are taken from the mechanism at a time that
/// those of the first class are among them.
const WIDE: usize = 1024;

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
/// Events come in the order in which the mechanism has them, by [`Class`], one for each descriptor
/// however much happened to it, each with the readiness found by the
/// [`next_events`](Self::next_events) that gives it. Whether a descriptor that stays ready is named
/// again is the mechanism's ([`Trigger`]); code that reads or writes until
/// `WouldBlock`, and tells of it by [`Registration::would_block`], is right with all.
/// An event is never given for a registration that was dropped meanwhile, also not from a batch that
/// was taken before.
///
/// # Threads
/// The queue is not `Send`. It and its registrations share one table without a lock, which each
/// declaration and each wait uses; a lock there would cost every event. Each thread creates a queue of its
/// own. A [`Waker`] and a [`Shared`] source cross threads.
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
    pending: Pending,
    /// Registrations differ in class.
    classed: bool,
    wakeups: Token,
    /// By which it hears of what it shares with other queues and cannot watch itself.
    bell: Option<(Token, Arc<Bell>)>,
    woken: bool,
    wheel: Wheel,
    /// The present, once it was asked for since the last wait: without timers nobody does.
    now: Option<Time>,
}

struct Slot<P> {
    token: Token,
    /// None once the registration is gone.
    payload: Option<P>,
    idle: Option<Duration>,
    /// What is to be said of it: an entry in the queue is stale where this is empty.
    pending: Readiness,
    class: Class,
    shared: Sharer,
}

impl<P> Slot<P> {
    fn new(token: Token, payload: Option<P>) -> Slot<P> {
        Slot {
            token,
            payload,
            idle: None,
            pending: Readiness::empty(),
            class: Class::default(),
            shared: Sharer::Not,
        }
    }
}

/// Whether other queues may be told of the same.
enum Sharer {
    Not,
    /// They may, and another may have dealt with it.
    Herd,
    /// It is heard of by the bell; the interest is known here alone.
    Heard(Arc<Post>, Interest),
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
    fn set_class(&self, token: Token, class: Class);
    fn would_block(&self, token: Token, interest: Interest);
    fn revoke(&self, token: Token);
}

/// What declaring interest answers: the registration, and what the source is ready for now.
pub type Declared<S> = Result<(Registration<S>, Readiness), DeclareError<S>>;

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
        let (waker, wakeups) = Wakeups::new()?.split();
        let mut registry: Registry<M, Rc<dyn AsFd>> = Registry::new(mechanism);
        let wakeups = registry.insert(Rc::new(wakeups));
        registry.declare(wakeups, Interest::READ)?;
        registry.keep_active(wakeups);
        let core = Core {
            registry,
            slots: Vec::new(),
            pending: Pending::default(),
            classed: false,
            wakeups,
            bell: None,
            woken: false,
            wheel: Wheel::new(Time::now()),
            now: None,
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
    ) -> Declared<S> {
        self.declare(source, payload, |core, token, _| {
            core.registry.declare(token, interest).map(|()| Sharer::Not)
        })
    }

    /// As [`declare_interest`](Self::declare_interest), for the whole process: each queue that
    /// declares it in a clone of the same source hears of its events, or one of them does, as the
    /// source's [`Wake`] says.
    ///
    /// With mechanisms of which only one can watch an open file ([`Sharing::Owner`]) a thread that is
    /// started for it watches in their place, and tells them.
    ///
    /// # Errors
    /// As [`declare_interest`](Self::declare_interest); where the thread is needed, that it cannot
    /// be started.
    pub fn declare_processwide_interest<S: AsFd + Send + Sync + 'static>(
        &self,
        source: Shared<S>,
        interest: Interest,
        payload: P,
    ) -> Declared<Shared<S>> {
        self.declare(source, payload, |core, token, source| {
            match (core.registry.semantics().sharing, source.wake()) {
                (Sharing::Owner, _) => core.hear_of(token, interest, source.post()),
                (Sharing::Exclusive, Wake::One) => {
                    core.registry.declare_exclusive(token, interest).map(|()| Sharer::Not)
                }
                (Sharing::Each, Wake::One) => {
                    core.registry.declare_exclusive(token, interest).map(|()| Sharer::Herd)
                }
                (_, Wake::All) => core.registry.declare(token, interest).map(|()| Sharer::Not),
            }
        })
    }

    /// Declares interest by `how`.
    fn declare<S: AsFd + 'static>(
        &self,
        source: S,
        payload: P,
        how: impl FnOnce(&mut Core<P, M>, Token, &S) -> io::Result<Sharer>,
    ) -> Declared<S> {
        let source = Rc::new(source);
        let mut core = self.core.borrow_mut();
        let token = core.registry.insert(source.clone());
        let declared = how(&mut core, token, &source);
        // Asked after it was declared: what comes between the two is an event.
        let asked = declared.and_then(|shared| Ok((shared, ready_now(source.as_fd())?)));
        match asked {
            Ok((shared, readiness)) => {
                core.register(token, payload, shared);
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
    fn register(&mut self, token: Token, payload: P, shared: Sharer) {
        let slot = Slot { shared, ..Slot::new(token, Some(payload)) };
        match self.slots.get_mut(token.slot() as usize) {
            Some(place) => *place = slot,
            None => {
                // Only the slots of the wake-ups are without a payload.
                self.slots.resize_with(token.slot() as usize, || Slot::new(token, None));
                self.slots.push(slot);
            }
        }
        self.look(token);
    }

    /// Has the bell be rung for what the mechanism cannot share.
    fn hear_of(
        &mut self,
        token: Token,
        interest: Interest,
        post: &Arc<Post>,
    ) -> io::Result<Sharer> {
        let bell = match &self.bell {
            Some((_, bell)) => bell.clone(),
            None => {
                let (waker, wakeups) = Wakeups::new()?.split();
                let rings = self.registry.insert(Rc::new(wakeups));
                if let Err(error) = self.registry.declare(rings, Interest::READ) {
                    self.registry.remove(rings);
                    return Err(error);
                }
                let bell = Arc::new(Bell::new(waker));
                self.bell = Some((rings, bell.clone()));
                bell
            }
        };
        post.join(token, &bell)?;
        Ok(Sharer::Heard(post.clone(), interest))
    }

    /// Looks at what is heard of by the bell, and has what is ready be an event.
    fn look(&mut self, token: Token) {
        let Some(Slot { shared: Sharer::Heard(_, asked), .. }) = self.slot(token) else {
            return;
        };
        let asked = *asked;
        let now = self.registry.get(token).and_then(|source| ready_now(source.as_fd()).ok());
        let readiness = now.unwrap_or_default().answering(asked);
        if !readiness.is_empty() {
            self.push(Event { who: token, readiness });
        }
    }

    /// What is asked for, wherever that is known.
    fn asked(&self, slot: &Slot<P>) -> Interest {
        match slot.shared {
            Sharer::Heard(_, asked) => asked,
            _ => self.registry.interest(slot.token),
        }
    }

    /// The slot of a registration that is not gone.
    fn slot(&mut self, token: Token) -> Option<&mut Slot<P>> {
        let slot = self.slots.get_mut(token.slot() as usize)?;
        (slot.token == token && slot.payload.is_some()).then_some(slot)
    }

    /// Has the mechanism wait until there is something to give, and tells whether a waker was used.
    fn fill(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<bool> {
        let max = if self.classed { max.max(WIDE) } else { max };
        self.refresh();
        self.now = None;
        let end = timeout.map(|timeout| self.now() + timeout);
        loop {
            let until = [self.wheel.next(), end].into_iter().flatten().min();
            let timeout = if self.pending.is_empty() && !self.woken {
                until.map(|until| until.since(self.now()))
            } else {
                Some(Duration::ZERO)
            };
            self.set_waiting(true);
            let batch = self.registry.wait(max, timeout);
            self.set_waiting(false);
            self.now = None;
            let batch = batch?;
            for index in 0..batch {
                if let Some(event) = self.registry.event(index) {
                    self.push(event);
                }
            }
            if batch > 0 && !self.registry.semantics().tells_state() {
                self.refresh();
            }
            if self.wheel.armed() > 0 {
                self.expire();
            }
            let woken = std::mem::take(&mut self.woken);
            if woken || !self.pending.is_empty() || end.is_some_and(|end| self.now() >= end) {
                return Ok(woken);
            }
        }
    }

    /// The present, the same for all that one wait brought.
    fn now(&mut self) -> Time {
        *self.now.get_or_insert_with(Time::now)
    }

    fn arm(&mut self, slot: u32, now: Time, after: Duration) {
        if self.wheel.armed() == 0 {
            // Without timers the wheel was not told of the time.
            self.wheel.expired(now);
        }
        self.wheel.arm(slot, now + after);
    }

    /// Says which registrations are idle: after the events, which count as activity.
    fn expire(&mut self) {
        let now = self.now();
        while let Some(slot) = self.wheel.expired(now) {
            let who = self.slots[slot as usize].token;
            self.push(Event { who, readiness: Readiness::IDLE });
        }
    }

    #[inline]
    fn push(&mut self, event: Event) {
        match self.slots.get_mut(event.who.slot() as usize) {
            // Nothing is known of it, and nobody asked after its idleness.
            Some(slot)
                if slot.token == event.who
                    && slot.payload.is_some()
                    && slot.pending.is_empty()
                    && slot.idle.is_none() =>
            {
                slot.pending = event.readiness;
                self.pending.push(slot.class, event.who.slot());
            }
            _ => self.push_more(event),
        }
    }

    #[inline(never)]
    fn push_more(&mut self, event: Event) {
        let Some(slot) = self.slot(event.who) else {
            return self.on_wakeups(event.who);
        };
        let class = slot.class;
        let first = slot.pending.is_empty();
        // Idleness is said alone: whatever there is to be said besides ends it.
        let idle = first && event.readiness.is_idle();
        slot.pending |= event.readiness;
        slot.pending.set(Readiness::IDLE, idle);
        if let (Some(after), false) = (slot.idle, idle) {
            let now = self.now();
            self.arm(event.who.slot(), now, after);
        }
        if first {
            self.pending.push(class, event.who.slot());
        }
    }

    /// Hears a waker, or the bell: the queue's own registrations.
    fn on_wakeups(&mut self, who: Token) {
        let bell = self.bell.as_ref().filter(|(rings, _)| *rings == who).map(|(_, bell)| bell);
        let bell = bell.cloned();
        if who != self.wakeups && bell.is_none() {
            return;
        }
        if let Some(source) = self.registry.get(who) {
            Wakeups::drain(source);
        }
        self.registry.would_block(who, Interest::READ);
        if self.registry.semantics().trigger == Trigger::OneShot {
            // It was armed before, so it can be again.
            let _ = self.registry.declare(who, Interest::READ);
        }
        match bell {
            Some(bell) => bell.answer().into_iter().for_each(|rung| self.look(rung)),
            None => self.woken = true,
        }
    }

    fn set_waiting(&self, waiting: bool) {
        if let Some((_, bell)) = &self.bell {
            bell.set_waiting(waiting);
        }
    }

    /// Asks again about what nobody took of the last batch: it may have been dealt with since.
    fn refresh(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let left: Vec<u32> = self.pending.take().collect();
        let left = || left.iter().map(|index| *index as usize);
        let source = |index: usize| self.registry.get(self.slots[index].token);
        let mut list: Vec<_> =
            left().filter_map(source).map(|source| any_readiness(source.as_fd())).collect();
        let asked = ask(&mut list);
        let now: Vec<_> =
            list.iter().map(|entry| mechanism::poll::readiness(entry.revents())).collect();
        // What cannot be asked is as it was.
        let mut now = asked.ok().map(|()| now.into_iter());
        for index in left() {
            let here = self.registry.get(self.slots[index].token).is_some();
            let now = now.as_mut().filter(|_| here).and_then(Iterator::next);
            let asked = self.asked(&self.slots[index]);
            let Slot { token, class, pending, .. } = &mut self.slots[index];
            // Idleness lasts until an event comes.
            if let (Some(now), false) = (now, pending.is_idle() || pending.is_empty()) {
                *pending = now.answering(asked);
                if pending.is_empty() && self.registry.semantics().trigger == Trigger::OneShot {
                    // Nobody will have heard of it who would arm it again.
                    let _ = self.registry.declare(*token, asked);
                }
            }
            if !pending.is_empty() {
                self.pending.push(*class, index as u32);
            }
        }
    }

    /// The next event that is still true.
    #[inline]
    fn take(&mut self) -> Option<Event<P>> {
        while let Some(index) = self.pending.pop() {
            let slot = &mut self.slots[index as usize];
            let readiness = std::mem::take(&mut slot.pending);
            let Some(who) = slot.payload else { continue };
            let readiness = match slot.shared {
                Sharer::Herd => self.left_by_others(index, readiness),
                _ => readiness,
            };
            if !readiness.is_empty() {
                return Some(Event { who, readiness });
            }
        }
        None
    }

    /// What is left of `readiness` where another queue may have been faster.
    #[cold]
    fn left_by_others(&self, index: u32, readiness: Readiness) -> Readiness {
        let token = self.slots[index as usize].token;
        let Some(source) = self.registry.get(token).filter(|_| !readiness.is_idle()) else {
            return readiness;
        };
        let asked = self.registry.interest(token);
        ready_now(source.as_fd()).map_or(readiness, |now| now.answering(asked))
    }
}

impl<P: Copy, M: Mechanism> Registrar for RefCell<Core<P, M>> {
    fn change(&self, token: Token, interest: Interest) -> io::Result<()> {
        let mut core = self.borrow_mut();
        match core.slot(token) {
            Some(Slot { shared: Sharer::Heard(_, asked), .. }) => {
                *asked = interest;
                core.look(token);
            }
            _ => core.registry.declare(token, interest)?,
        }
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
            core.classed |= class != Class::default();
        }
    }

    fn would_block(&self, token: Token, interest: Interest) {
        self.borrow_mut().registry.would_block(token, interest);
    }

    fn revoke(&self, token: Token) {
        let mut core = self.borrow_mut();
        let mut shared = Sharer::Not;
        if let Some(slot) = core.slot(token) {
            slot.payload = None;
            slot.pending = Readiness::empty();
            shared = std::mem::replace(&mut slot.shared, Sharer::Not);
        }
        if let (Sharer::Heard(post, _), Some((_, bell))) = (shared, &core.bell) {
            post.leave(token, bell);
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
    let mut list = [any_readiness(source)];
    ask(&mut list)?;
    Ok(mechanism::poll::readiness(list[0].revents()))
}

fn any_readiness(of: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(of, PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP)
}

/// Fills in what each is ready for now.
fn ask(list: &mut [PollFd<'_>]) -> io::Result<()> {
    let now = Duration::ZERO.try_into().ok();
    while let Err(errno) = poll(list, now.as_ref()) {
        if errno != Errno::INTR {
            return Err(errno.into());
        }
    }
    Ok(())
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

    #[inline]
    fn next(&mut self) -> Option<Event<P>> {
        self.left = self.left.checked_sub(1)?;
        self.queue.core.borrow_mut().take()
    }
}

impl<S: AsFd + 'static> Registration<S> {
    /// Replaces the interest. Empty silences the registration and keeps it. Where the mechanism is
    /// one-shot ([`Trigger::OneShot`]) this arms it again, which each event asks for.
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

    /// Puts it in a class: from its next event on, what is in an earlier class comes before it, and
    /// what is in a later one after it. It is [`Class::NORMAL`] before that. O(1).
    ///
    /// While a queue has registrations of several classes, up to 1024 events are taken from the
    /// mechanism at a time, so that the first class is first of all that is ready.
    pub fn set_class(&self, class: Class) {
        self.queue.set_class(self.token, class);
    }

    /// Tells the mechanism that an operation in the directions of `interest` met `WouldBlock` since
    /// the last wait. This may save a system call. It must be true: see [`Mechanism::would_block`].
    /// O(1).
    pub fn would_block(&self, interest: Interest) {
        self.queue.would_block(self.token, interest);
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
