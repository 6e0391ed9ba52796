//! io_uring(7) as a source of readiness: one poll request per descriptor.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) A poll request keeps the open file alive. A socket that is closed before the request has
//!    ended stays open, and its peer is not notified. `closing` and `revoke` cancel it and wait for
//!    its end, which costs a system call if a request is armed. Dropping the mechanism does the
//!    same.
//! b) The ring may contain completions of former registrations. Each request has its own generation
//!    in its user data, and completions of other generations are dropped.
//! c) A multishot request reports arrivals, each only with the events that triggered it. Several
//!    may be in the ring. They are merged by descriptor. Those that do not fit into the batch wait
//!    in a queue that contains each descriptor at most once.
//! d) A request cannot be modified while an event is being processed (EALREADY). A change cancels
//!    it and submits a new one, which reports current readiness. The next wait submits both.
//! e) Errors, hang-ups and the end of the stream are always reported. Those that no interest covers
//!    are dropped here. Nothing is armed for an empty interest. A one-shot request that ended this
//!    way would immediately end again, so it is replaced by a multishot request, which does not.
//! f) A multishot request ends early if the ring overflows, and immediately if the file is always
//!    ready (a regular file). In the first case it is rearmed. In the second it is silent until it
//!    is changed.
//! g) An exclusive multishot request would always be woken before all others. A one-shot request is
//!    used instead. It moves to the end of the kernel's queue when the next wait rearms it.
//! h) A request for priority data alone is not woken by sockets (the kernel ignores EPOLLPRI in the
//!    key of a wake-up), and one for other data too reports priority data with every arrival.
//!    Priority data is therefore not supported.
//! i) The descriptor of a ring whose completions are deferred does not become readable while another
//!    call waits for it. `work=cooperative` has a descriptor to nest.
//! j) An enter that submits requests does not report that a signal handler interrupted it. It is
//!    recognised by a sleep that ends early and without completions.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use self::completions::{Completions, State, Watch, user_data};
use super::options::{OptionSpec, Options, Values};
use super::{ChangeCost, Mechanism, Open, Semantics, Sharing, SignalMask, Trigger, Unavailable};
use crate::event::{Event, Interest, Readiness, Token};
use crate::ring::{CompletionMode, Ring, RingInterface, Sqe};
use crate::timer::Time;

mod completions;

/// The size of the submission queue. More requests are submitted in several calls.
const SUBMISSIONS: u32 = 256;
/// The maximum batch size.
const MAX_BATCH: usize = 1 << 16;
/// The user data of other requests. No descriptor has this number.
const IGNORED: u64 = u64::MAX;
/// The maximum number of enters until an expected completion. Each completes some work.
const MAX_ENTERS: usize = 10_000;

/// Poll requests of io_uring.
pub struct UringPoll {
    ring: Ring,
    /// The watches, indexed by descriptor number.
    watches: Vec<Watch>,
    /// The descriptors whose changes were not submitted, in order.
    changed: VecDeque<u32>,
    completions: Completions,
}

impl fmt::Debug for UringPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("uring-poll")
            .field("deferred", &self.ring.is_deferred())
            .field("outstanding", &self.completions.outstanding)
            .finish_non_exhaustive()
    }
}

/// A sleep in an enter that also submitted requests.
struct Sleep {
    /// The time at which it times out.
    end: Option<Time>,
    /// The number of completions taken before.
    taken: u32,
}

/// Returns the poll flags for an interest.
fn flags(interest: Interest) -> u16 {
    // Both use the bits of poll(2).
    let mut flags = EventFlags::from_bits_retain(interest.bits().into());
    flags.set(EventFlags::RDHUP, interest.contains(Interest::READ));
    if !flags.is_empty() {
        flags |= EventFlags::ERR | EventFlags::HUP;
    }
    flags.bits() as u16
}

impl UringPoll {
    fn registered(&mut self, fd: RawFd) -> Option<&mut Watch> {
        let watch = self.watches.get_mut(usize::try_from(fd).ok()?)?;
        watch.state.contains(State::REGISTERED).then_some(watch)
    }

    fn register(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
        flags: State,
    ) -> io::Result<()> {
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if self.registered(fd).is_some() {
            return Err(Errno::EXIST.into());
        }
        if number >= self.watches.len() {
            self.watches.resize(number + 1, Watch::UNREGISTERED);
        }
        let watch = &mut self.watches[number];
        watch.token = token;
        watch.state.insert(State::REGISTERED | flags);
        self.set_interest(number as u32, interest);
        Ok(())
    }

    /// Sets an interest, which the next wait submits.
    fn set_interest(&mut self, number: u32, interest: Interest) {
        let watch = &mut self.watches[number as usize];
        watch.requested = flags(interest);
        watch.active = watch.requested;
        watch.unreported = 0;
        watch.state.remove(State::FORCE_MULTISHOT);
        mark_changed(watch, number, &mut self.changed);
    }

    /// Submits all changes.
    fn submit(&mut self) -> io::Result<()> {
        while let Some(&number) = self.changed.front() {
            if self.ring.lacks_space_for(2) {
                self.enter(0, None, 0)?;
                if self.ring.lacks_space_for(2) {
                    return Ok(()); // The kernel is out of memory. The next wait tries again.
                }
            }
            self.changed.pop_front();
            let watch = &mut self.watches[number as usize];
            watch.state.remove(State::CHANGED);
            if watch.state.contains(State::ARMED) {
                let old = user_data(number, watch.generation);
                watch.state.remove(State::ARMED);
                self.cancel(old); // (d)
            }
            self.arm(number);
        }
        Ok(())
    }

    fn arm(&mut self, number: u32) {
        let watch = &mut self.watches[number as usize];
        watch.generation = watch.generation.wrapping_add(1);
        if watch.requested == 0 {
            return; // (e)
        }
        let mut flags = u32::from(watch.requested);
        let mut multishot =
            !self.completions.one_shot || watch.state.contains(State::FORCE_MULTISHOT);
        if watch.state.contains(State::EXCLUSIVE) {
            flags |= EventFlags::EXCLUSIVE.bits();
            multishot = false; // (g)
        }
        watch.state.insert(State::ARMED);
        watch.armed = self.ring.calls() as u32;
        let request = Sqe::poll(number as RawFd, flags, multishot);
        let request = request.user_data(user_data(number, watch.generation));
        self.completions.outstanding += 1;
        // SAFETY: a poll request points to no memory.
        unsafe { self.ring.push(request) };
    }

    fn cancel(&mut self, request: u64) {
        // SAFETY: a cancellation points to no memory.
        unsafe { self.ring.push(Sqe::cancel(request).user_data(IGNORED).skip_success()) };
    }

    /// Ends a registration and makes the kernel release the open file (a).
    fn unregister(&mut self, fd: RawFd) -> io::Result<()> {
        let watch = self.registered(fd).ok_or(Errno::NOENT)?;
        let (request, armed) = (user_data(fd as u32, watch.generation), watch.state & State::ARMED);
        // Its entries in queues remain, and apply to the next registration of the number.
        watch.state &= State::CHANGED | State::QUEUED;
        watch.generation = watch.generation.wrapping_add(1);
        (watch.requested, watch.active, watch.unreported) = (0, 0, 0);
        if armed.is_empty() {
            return Ok(());
        }
        if self.ring.lacks_space_for(1) {
            self.enter(0, None, 0)?;
        }
        self.completions.awaited = request;
        self.cancel(request);
        for _ in 0..MAX_ENTERS {
            self.enter(0, None, 0)?;
            if self.completions.awaited == IGNORED {
                break;
            }
        }
        self.completions.awaited = IGNORED;
        Ok(())
    }

    /// Processes the completions in the ring.
    #[inline]
    fn take(&mut self, space: usize) {
        let UringPoll { ring, watches, completions, .. } = self;
        completions.take(ring, watches, space);
    }

    /// Enters the kernel and processes completions.
    #[inline]
    fn enter(&mut self, min: u32, timeout: Option<Duration>, space: usize) -> io::Result<()> {
        let complete = self.ring.enter(min, timeout)?;
        self.process_completions(complete, space);
        Ok(())
    }

    /// Processes completions after an enter, which was not `complete` if some were lost.
    #[inline]
    fn process_completions(&mut self, complete: bool, space: usize) {
        self.take(space);
        if !self.completions.ended.is_empty() {
            self.rearm_ended(true);
        }
        if !complete {
            self.rearm_all();
        }
    }

    /// Ends a wait without events.
    #[cold]
    fn finish_empty_wait(&mut self, sleep: Option<Sleep>) -> io::Result<usize> {
        self.ring.publish(); // The descriptor is readable until the completions are released.
        let ended_early = sleep.is_some_and(|Sleep { end, taken }| {
            self.ring.taken() == taken && end.is_none_or(|end| Time::now() < end)
        });
        if self.ring.take_interrupted() || ended_early { Err(Errno::INTR.into()) } else { Ok(0) }
    }

    /// Rearms requests that ended unexpectedly. After an enter, requests that it submitted may have
    /// ended immediately.
    #[cold]
    fn rearm_ended(&mut self, entered: bool) {
        let overflowed = self.ring.has_overflowed();
        let calls = self.ring.calls() as u32;
        while let Some((number, result)) = self.completions.ended.pop() {
            let watch = &mut self.watches[number as usize];
            let immediately = entered && calls.wrapping_sub(watch.armed) == 1 && !overflowed;
            let rearm = if result < 0 {
                result != -libc::EBADF // Out of memory, or the file was closed.
            } else if self.completions.one_shot {
                watch.state.insert(State::FORCE_MULTISHOT); // (e)
                watch.active != 0
            } else {
                !immediately || watch.state.contains(State::EXCLUSIVE) // (f), (g)
            };
            if rearm {
                mark_changed(watch, number, &mut self.changed);
            }
        }
    }

    /// Rearms all requests after completions were lost.
    #[cold]
    fn rearm_all(&mut self) {
        for (number, watch) in (0..).zip(&mut self.watches) {
            if watch.active != 0 {
                mark_changed(watch, number, &mut self.changed);
            }
        }
    }
}

fn mark_changed(watch: &mut Watch, number: u32, changed: &mut VecDeque<u32>) {
    if !watch.state.contains(State::CHANGED) {
        watch.state.insert(State::CHANGED);
        changed.push_back(number);
    }
}

const fn semantics(trigger: Trigger) -> Semantics {
    Semantics {
        trigger,
        change: ChangeCost::Wait,
        reports: Semantics::COMMON.reports.difference(Readiness::PRIORITY), // (h)
        overflows: true,
        sharing: Sharing::Exclusive,
        ..Semantics::COMMON
    }
}

static ONE_SHOT: Semantics = semantics(Trigger::OneShot);

impl Open for UringPoll {
    const NAME: &'static str = "uring-poll";
    const SUMMARY: &'static str = "io_uring(7) poll requests: completions read from shared memory";
    const SEMANTICS: Semantics = semantics(Trigger::Edge);
    const AUTO: bool = true;
    const OPTIONS: &'static [OptionSpec] = &[
        OptionSpec {
            name: "shots",
            help: "multishot requests (edge-triggered), or one request per event (one-shot)",
            values: Values::OneOf(&["multi", "one"]),
        },
        OptionSpec {
            name: "work",
            help: "post completions in waits only, or at the end of any system call",
            values: Values::OneOf(&["deferred", "cooperative"]),
        },
        OptionSpec {
            name: "completions",
            help: "size of the completion queue, rounded up to a power of two",
            values: Values::Number { default: 8192, min: 16, max: 32768 },
        },
    ];

    fn open_with(options: &Options) -> Result<Self, Unavailable> {
        let work = match options.get("work") {
            "cooperative" => CompletionMode::Cooperative,
            _ => CompletionMode::Deferred,
        };
        let completions = options.number("completions") as u32;
        Ok(UringPoll {
            ring: Ring::open(work, (completions.min(SUBMISSIONS), completions))?,
            watches: Vec::new(),
            changed: VecDeque::new(),
            completions: Completions::new(options.get("shots") == "one"),
        })
    }
}

impl Mechanism for UringPoll {
    fn semantics(&self) -> &'static Semantics {
        if self.completions.one_shot { &ONE_SHOT } else { const { &Self::SEMANTICS } }
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.register(fd, token, interest, State::empty())
    }

    unsafe fn declare_exclusive(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.register(fd, token, interest, State::EXCLUSIVE)
    }

    unsafe fn change(&mut self, fd: RawFd, _token: Token, interest: Interest) -> io::Result<()> {
        self.registered(fd).ok_or(Errno::NOENT)?;
        self.set_interest(fd as u32, interest);
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        self.unregister(fd)
    }

    #[inline]
    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        let max = max.clamp(1, MAX_BATCH);
        self.completions.batch.clear();
        self.completions.take_deferred(&mut self.watches, max);
        if self.ring.has_completions() {
            self.take(max);
            if !self.completions.ended.is_empty() {
                self.rearm_ended(false);
            }
        }
        if !self.changed.is_empty() {
            self.submit()?;
            // Events from the early submission of a part.
            self.completions.take_deferred(&mut self.watches, max);
        }
        let sleeps = self.completions.batch.is_empty() && timeout != Some(Duration::ZERO);
        let mut sleep = None;
        if sleeps || self.ring.needs_enter() {
            if sleeps && self.ring.has_unsubmitted() {
                // (j)
                let end = timeout.map(|timeout| Time::now() + timeout);
                sleep = Some(Sleep { end, taken: self.ring.taken() });
            }
            self.enter(sleeps.into(), timeout, max)?;
            // On newer kernels one enter does only some of the deferred work.
            for _ in 0..64 {
                if self.completions.batch.len() >= max || !self.ring.has_more() {
                    break;
                }
                self.enter(0, None, max)?;
            }
        }
        match self.completions.batch.len() {
            0 => self.finish_empty_wait(sleep),
            count => Ok(count),
        }
    }

    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        let count = self.wait(max, Some(Duration::ZERO))?;
        if count > 0 || timeout == Some(Duration::ZERO) {
            return Ok(count);
        }
        let complete = self.ring.enter_with_mask(1, timeout, mask.as_raw())?;
        self.process_completions(complete, max.clamp(1, MAX_BATCH));
        match self.completions.batch.len() {
            0 => self.finish_empty_wait(None),
            count => Ok(count),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (!self.ring.is_deferred()).then(|| self.ring.as_fd()) // (i)
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        match self.completions.batch.get(index) {
            Some(&(token, flags)) => Event { token, readiness: Readiness::from_poll(flags) },
            None => super::NO_EVENT,
        }
    }

    fn overflows(&self) -> u64 {
        self.ring.overflows()
    }

    fn calls(&self) -> u64 {
        self.ring.calls()
    }
}

impl Drop for UringPoll {
    /// Cancels all requests: the kernel closes a ring asynchronously, and its requests keep files
    /// open (a).
    fn drop(&mut self) {
        for number in 0..self.watches.len() {
            let watch = self.watches[number];
            if watch.state.contains(State::ARMED) {
                if self.ring.lacks_space_for(1) && self.enter(0, None, 0).is_err() {
                    return;
                }
                self.cancel(user_data(number as u32, watch.generation));
            }
        }
        for _ in 0..MAX_ENTERS {
            if self.completions.outstanding == 0 || self.enter(0, None, 0).is_err() {
                break;
            }
        }
    }
}
