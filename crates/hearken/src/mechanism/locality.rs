//! locality: poll(2) on the descriptors that are likely to have events. This is the file descriptor
//! manager of Liu and Chen ("A scalable locality-aware event dispatching mechanism for network
//! servers", 2004).
//!
//! Descriptors are in three sets. Every wait polls the *active* set. A descriptor without an event
//! in N-1 waits moves to the *doze* set, and after N²-N more to the *idle* set.
//!
//! * `tuning=fixed` polls these sets in every N-th and N²-th wait. Events in two consecutive waits
//!   make a descriptor active, as in the paper.
//! * `tuning=adaptive` adjusts N and the times at which it polls each set. One event makes a
//!   descriptor active. `locality/schedule.rs` describes the algorithm.
//!
//! `n`, and at run time [`Locality::set_n`] (`fdm_setnum` of FDM), set N. The paper measures values
//! from 2 to 1,200 and recommends 3 to 10 (Section 5, Figure 8).
//!
//! `busy=K` polls in a loop, as the server of the paper does: a wait sleeps only after K calls in
//! sequence have found nothing. The paper tunes K for each mechanism.
//!
//! `threads=2` is the multithreaded version for multiprocessors (Section 4.2): a second thread polls
//! the inactive descriptors, and the waiting thread polls only the active ones. The paper has a
//! thread for each set, and finds that slower than poll(2). Here there is one inactive set, and one
//! event makes a descriptor active. With `tuning=adaptive`, all of up to 16 descriptors are
//! active. `locality/helper.rs` describes the hand-over. The
//! mechanism must be opened in the thread that waits.
//!
//! The payload of the paper is the token. [`EventQueue`](crate::EventQueue) provides the deadlines
//! for idle connections for every mechanism.
//!
//! **The bound.** A descriptor of any set that becomes ready is found
//! * *fixed*: by one of the next N² waits. A wait that finds nothing for `sleep-us` then polls all
//!   sets until it ends.
//! * *adaptive*: by the first wait that begins or is in progress when the next poll of all sets is
//!   due. It is due half a microsecond per inactive descriptor after the previous one, and at most
//!   `sleep-us`. In any case it is found by one of the next 1024 waits.
//! * *with `threads=2`*: by the first wait that begins or is in progress when the second thread's
//!   next poll ends. It begins half a microsecond per inactive descriptor after the previous one,
//!   and at most `sleep-us`. In any case it is found by one of the next 961 waits.
//!
//! The descriptor is then active, and in every batch while it is ready. A descriptor that was just
//! declared or changed is active.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) All those of poll(2), which [`poll`](super::poll) lists. The list is the same.
//! b) A listener in the doze set would delay every client. Listeners are recognised by
//!    `SO_ACCEPTCONN` and stay active. The check is made when a descriptor first leaves the active
//!    set, so that short connections do not pay for it. [`Mechanism::keep_active`] pins others,
//!    such as the queues' wake-ups.
//! c) Sleeping on the active set alone would miss events of the others. Sleeping on all sets costs
//!    four times as much as polling them. A wait sleeps on the active set for a while, and then on
//!    all.
//! d) An interrupted poll has checked nothing: it counts neither as a poll nor as a quiet wait.
//! e) A ready descriptor that did not fit into the batch was not quiet.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use rustix::io::Errno;

use super::WaitCost;
use super::poll::{Poll, Position};
use super::{Mechanism, Open, OptionSpec, Options, Semantics, SignalMask, Unavailable, Values};
use crate::event::{Event, Interest, Token};
use crate::timer::Time;

mod exchange;
mod helper;
mod schedule;
mod sets;

use helper::Helper;
use schedule::{N, Schedule, Step, Tuning};
use sets::{Depth, Sets};

/// poll(2) with active, doze and idle sets.
#[derive(Debug)]
pub struct Locality {
    sets: Sets,
    schedule: Schedule,
    batch: Vec<Event>,
    /// Whether there are neither busy calls nor a helper.
    is_plain: bool,
    /// The thread that polls the inactive descriptors.
    helper: Option<Box<Helper>>,
    /// The number of calls without events before a wait sleeps.
    busy_calls: u64,
    /// The number of calls without events since the last event, up to `busy_calls`.
    empty_calls: u64,
    calls: u64,
    polled: u64,
}

impl Locality {
    /// Returns the sizes of the active, the doze and the idle set.
    pub fn sets(&self) -> (usize, usize, usize) {
        let [active, doze, idle] = self.sets.sizes();
        match &self.helper {
            Some(helper) => (active, 0, helper.inactive()),
            None => (active, doze, idle),
        }
    }

    /// Returns the total number of descriptors that waits have passed to the kernel. Does not
    /// include those that the second thread has.
    pub fn polled(&self) -> u64 {
        self.polled
    }

    /// Returns the current value of N.
    pub fn n(&self) -> u32 {
        self.schedule.n()
    }

    /// Sets N to the nearest number from 2 to 4,096. Adaptive tuning continues from there.
    pub fn set_n(&self, n: u32) {
        self.schedule.set_n(n);
    }

    #[cold]
    fn wait_with_variants(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        let count = match self.empty_calls < self.busy_calls {
            true => self.wait_busily(max, timeout)?,
            false => self.wait_once(max, timeout)?,
        };
        if count > 0 {
            self.empty_calls = 0;
        }
        Ok(count)
    }

    fn wait_once(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        match self.helper {
            Some(_) => self.wait_with_helper(max, timeout),
            None => self.fill_batch(max, timeout),
        }
    }

    /// Polls without sleeping until there are events, the timeout has passed, or `busy_calls` calls
    /// in sequence have found nothing. Sleeps after those.
    fn wait_busily(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        // A timeout beyond the range of the clock is infinite.
        let end = timeout.map(|timeout| Time::now() + timeout);
        while self.empty_calls < self.busy_calls {
            let count = self.wait_once(max, Some(Duration::ZERO))?;
            if count > 0 {
                return Ok(count);
            }
            self.empty_calls += 1;
            if end.is_some_and(|end| Time::now() >= end) {
                return Ok(0);
            }
        }
        self.wait_once(max, end.map(|end| end.duration_since(Time::now())))
    }

    fn fill_batch(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        let (depth, ready) = self.poll(timeout)?; // (d)
        self.sets.collect(depth, ready.min(max.max(1)), &mut self.batch);
        let sizes = self.sets.sizes();
        let found = self.sets.move_entries(depth, ready, self.schedule.rule()); // (e)
        self.schedule.update(depth, sizes, found);
        Ok(self.batch.len())
    }

    /// Polls the active set, and with it the helper's notifications.
    fn wait_with_helper(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        let Locality { sets, helper: Some(helper), schedule, .. } = self else { return Ok(0) };
        let known = sets.len(Depth::Active);
        let inactive = helper.inactive();
        for entry in helper.begin_wait()? {
            sets.add(entry);
        }
        let mut timeout = timeout;
        let ready = loop {
            let len = sets.len(Depth::Doze);
            self.calls += 1;
            self.polled += len as u64;
            let ready = sets.list().poll(len, timeout)?;
            if !sets.is_notified() {
                break ready;
            }
            for entry in helper.on_notified()? {
                sets.add(entry);
            }
            if ready > 1 {
                break ready - 1;
            }
            // The next poll returns the readiness of the descriptors that were found.
            timeout = Some(Duration::ZERO);
        };
        let active = sets.len(Depth::Active);
        let found = active - known;
        sets.collect(Depth::Active, ready.min(max.max(1)), &mut self.batch);
        let rule = schedule.helper_rule(known + inactive);
        sets.move_entries(Depth::Active, ready, rule); // (e)
        sets.take_inactive(helper.notifier(), helper.demoted());
        helper.demote()?;
        // A notification costs what a poll of all sets costs a single thread.
        let depth = if found > 0 { Depth::All } else { Depth::Active };
        schedule.update(depth, [active, 0, inactive], [ready.saturating_sub(found), found, 0]);
        Ok(self.batch.len())
    }

    /// Makes an inactive descriptor of the helper active again, before it is changed or closed.
    /// Returns the position of `fd` on the list.
    fn recall(&mut self, fd: RawFd) -> Position {
        if let Some(helper) = &mut self.helper
            && helper.is_inactive(fd)
        {
            for entry in helper.recall(fd) {
                self.sets.add(entry);
            }
        }
        self.sets.position(fd)
    }

    /// Returns the position of `fd` on the list. The helper does not poll it from now on.
    fn own_position(&mut self, fd: RawFd) -> Position {
        match self.sets.position(fd) {
            Position::Silent => self.recall(fd),
            position => position,
        }
    }

    /// Polls and sleeps as the schedule says, until there are results or the timeout has passed.
    /// Returns the largest depth that was polled and the number of ready descriptors.
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<(Depth, usize)> {
        let sizes = self.sets.sizes();
        let mut remaining = timeout;
        let mut deepest = Depth::Active;
        self.schedule.begin(sizes);
        loop {
            let blocking = remaining != Some(Duration::ZERO);
            let Step { depth, pause } = self.schedule.next_step(sizes, blocking);
            let pause_time = pause.map(Duration::from_nanos);
            // The wait ends with the timeout.
            let last = pause_time
                .is_none_or(|pause| remaining.is_some_and(|remaining| remaining <= pause));
            let len = self.sets.len(depth);
            self.calls += 1;
            self.polled += len as u64;
            let ready = self.sets.list().poll(len, if last { remaining } else { pause_time })?;
            self.schedule.on_polled(depth, pause.unwrap_or(0));
            deepest = deepest.max(depth);
            if ready > 0 || last {
                return Ok((deepest, ready));
            }
            remaining = remaining.zip(pause_time).map(|(remaining, slept)| remaining - slept);
        }
    }
}

impl Open for Locality {
    const NAME: &'static str = "locality";
    const SUMMARY: &'static str = "poll(2) on the descriptors likely to have events, in three sets";
    const SOURCE: Option<&'static str> = Some("Liu and Chen 2004");
    const SEMANTICS: Semantics = Semantics { wait: WaitCost::Active, ..Poll::SEMANTICS };
    const OPTIONS: &'static [OptionSpec] = &[
        OptionSpec {
            name: "tuning",
            help: "adapt N and the time between polls of all sets, or use fixed values",
            values: Values::OneOf(&["adaptive", "fixed"]),
        },
        OptionSpec {
            name: "n",
            help: "N: the initial value if adaptive, the constant value if fixed",
            values: Values::Number { default: 5, min: *N.start() as u64, max: *N.end() as u64 },
        },
        OptionSpec {
            name: "sleep-us",
            help: "maximum time in microseconds in which only active descriptors are polled",
            values: Values::Number { default: 4000, min: 0, max: 100_000 },
        },
        OptionSpec {
            name: "busy",
            help: "number of calls in sequence that find nothing before a wait sleeps (Liu and Chen \
                   2004, 5)",
            values: Values::Number { default: 0, min: 0, max: u32::MAX as u64 },
        },
        OptionSpec {
            name: "threads",
            help: "with 2, a second thread polls the inactive descriptors (Liu and Chen 2004, 4.2: \
                   the multithreaded version for SMP)",
            values: Values::OneOf(&["1", "2"]),
        },
    ];

    fn open_with(options: &Options) -> Result<Locality, Unavailable> {
        let tuning =
            if options.get("tuning") == "fixed" { Tuning::Fixed } else { Tuning::Adaptive };
        let n = u32::try_from(options.number("n")).unwrap_or(u32::MAX).clamp(*N.start(), *N.end());
        let sleep = options.number("sleep-us") * 1000;
        let busy_calls = options.number("busy");
        let mut sets = Sets::default();
        let mut helper = None;
        if options.get("threads") == "2" {
            let started = helper.insert(Box::new(Helper::start(sleep)?));
            // SAFETY: the helper is dropped with the sets, and owns the descriptor.
            sets = unsafe { Sets::with_notifier(started.notifier()) };
        }
        Ok(Locality {
            sets,
            schedule: Schedule::new(tuning, n, sleep),
            batch: Vec::new(),
            is_plain: busy_calls == 0 && helper.is_none(),
            helper,
            busy_calls,
            empty_calls: 0,
            calls: 0,
            polled: 0,
        })
    }
}

impl Mechanism for Locality {
    fn semantics(&self) -> &'static Semantics {
        &Self::SEMANTICS
    }

    fn scan_interval(&self) -> u32 {
        match self.helper {
            Some(_) => helper::MAX_WAITS,
            None => self.schedule.within(),
        }
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.sets.list().register(fd)?;
        if !interest.is_empty() {
            // SAFETY: the caller keeps `fd` open until `revoke`.
            unsafe { self.sets.push(fd, token, interest) };
        }
        Ok(())
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        match self.own_position(fd) {
            Position::Unregistered => return Err(Errno::NOENT.into()),
            Position::Listed(index) if interest.is_empty() => self.sets.remove(index as usize),
            // SAFETY: the caller keeps `fd` open until `revoke`.
            Position::Listed(index) => unsafe { self.sets.set(index as usize, interest) },
            Position::Silent if interest.is_empty() => {}
            // SAFETY: as above.
            Position::Silent => unsafe { self.sets.push(fd, token, interest) },
        }
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        match self.own_position(fd) {
            Position::Unregistered => return Err(Errno::NOENT.into()),
            Position::Silent => {}
            Position::Listed(index) => self.sets.remove(index as usize),
        }
        self.sets.list().unregister(fd);
        Ok(())
    }

    fn keep_active(&mut self, fd: RawFd, token: Token) {
        self.own_position(fd);
        self.sets.pin(fd, token);
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        match self.is_plain {
            true => self.fill_batch(max, timeout),
            false => self.wait_with_variants(max, timeout),
        }
    }

    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        self.sets.list().set_mask(Some(mask));
        let waited = self.wait(max, timeout);
        self.sets.list().set_mask(None);
        waited
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.batch.get(index).copied().unwrap_or(super::NO_EVENT)
    }

    fn calls(&self) -> u64 {
        let helper = self.helper.as_ref().map_or(0, |helper| helper.calls());
        self.calls + self.sets.listener_checks + helper
    }
}
