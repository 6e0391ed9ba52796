//! The file descriptor manager of Liu and Chen ("A scalable locality-aware event dispatching
//! mechanism for network servers", 2004): poll(2), but of those that are likely to have events.
//!
//! Descriptors are in three sets. The *active* ones are asked about in every wait; one that has had
//! no event in N-1 waits goes to *doze*, and after N²-N more to the *idle* ones. `tuning=fixed` asks
//! about those in every N-th and N²-th wait, and has a descriptor become active by events in two
//! waits in a row, as in the paper. `tuning=adaptive` finds N, and when to look at which set,
//! by itself, and one event is enough (`locality/pace.rs` has the law). A payload is the token;
//! deadlines for idle connections are [`EventQueue`](crate::EventQueue)'s, for every mechanism.
//!
//! **The bound.** What becomes ready in any set is found
//! * *fixed*: by one of the next N² waits; a wait that finds nothing for `sleep-us` asks about all
//!   until it ends.
//! * *adaptive*: by the first wait that begins half a microsecond for each descriptor that is not
//!   active, and at most `sleep-us`, after the look at all before; by a wait that is under way at
//!   that time; and by one of the next 1024 waits.
//!
//! From then on it is active, and in every batch for as long as it is so. What was just declared,
//! or changed, is active.
//!
//! Its traps, and what is done about each:
//!
//! a) All of poll(2)'s, which [`poll`](super::poll) tells of; the list is the same.
//! b) A listener that dozes makes every client wait. Listeners are known by `SO_ACCEPTCONN` and stay
//!    active. It is asked when a descriptor would leave the active set for the first time, so that
//!    short connections are not charged for it. [`Mechanism::keep_active`] locks others: the queues'
//!    wake-ups.
//! c) Sleeping on the active set alone would never hear of the others, and sleeping on all costs
//!    four times a look at all. So a wait sleeps on the active set for a while, then on all.
//! d) An interrupted look found nothing because it did not look: it counts neither as a look nor as
//!    a quiet call.
//! e) What was ready and did not fit into the batch was not quiet.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use rustix::io::Errno;

use super::poll::{Place, Poll};
use super::{Choice, Mechanism, Open, Options, Semantics, Unavailable, Values, WaitCost};
use crate::event::{Event, Interest, Token};

mod pace;
mod sets;

use pace::{Look, Pace, Tuning};
use sets::{Depth, Sets};

/// poll(2) with active, doze and idle sets.
#[derive(Debug)]
pub struct Locality {
    sets: Sets,
    pace: Pace,
    batch: Vec<Event>,
    polls: u64,
    asked: u64,
}

impl Locality {
    /// How many descriptors are in the active, the doze and the idle set.
    pub fn sets(&self) -> (usize, usize, usize) {
        let [active, doze, idle] = self.sets.sizes();
        (active, doze, idle)
    }

    /// How many descriptors the kernel was asked about, in all calls together.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// N, as it is now.
    pub fn n(&self) -> u32 {
        self.pace.n()
    }

    /// Looks and sleeps as the pace says, until there is an answer or the timeout has passed. Tells
    /// how far down it has looked, and how many answers there are.
    fn look(&mut self, timeout: Option<Duration>) -> io::Result<(Depth, usize)> {
        let sizes = self.sets.sizes();
        let mut left = timeout;
        let mut deepest = Depth::Active;
        self.pace.begin(sizes);
        loop {
            let patient = left != Some(Duration::ZERO);
            let Look { depth, pause } = self.pace.step(sizes, patient);
            let wanted = pause.map(Duration::from_nanos);
            // The end of the timeout is the end of the wait.
            let last = wanted.is_none_or(|wanted| left.is_some_and(|left| left <= wanted));
            let len = self.sets.len(depth);
            self.polls += 1;
            self.asked += len as u64;
            let ready = self.sets.list().ask(len, if last { left } else { wanted })?;
            self.pace.looked(depth, pause.unwrap_or(0));
            deepest = deepest.max(depth);
            if ready > 0 || last {
                return Ok((deepest, ready));
            }
            left = left.zip(wanted).map(|(left, slept)| left - slept);
        }
    }
}

impl Open for Locality {
    const NAME: &'static str = "locality";
    const SUMMARY: &'static str = "poll(2) of those likely to have events, in three sets";
    const SEMANTICS: Semantics = Semantics { wait: WaitCost::Active, ..Poll::SEMANTICS };
    const OPTIONS: &'static [Choice] = &[
        Choice {
            name: "tuning",
            help: "whether N and the time between looks at all find themselves",
            values: Values::OneOf(&["adaptive", "fixed"]),
        },
        Choice {
            name: "n",
            help: "N, the live counter: where adaptive begins, and where fixed stays",
            values: Values::Number { default: 5, least: 2, most: 64 },
        },
        Choice {
            name: "sleep-us",
            help: "for how many microseconds only active descriptors may be heard",
            values: Values::Number { default: 4000, least: 0, most: 100_000 },
        },
    ];

    fn open_with(options: &Options) -> Result<Locality, Unavailable> {
        let tuning =
            if options.get("tuning") == "fixed" { Tuning::Fixed } else { Tuning::Adaptive };
        let n = u32::try_from(options.number("n")).unwrap_or(u32::MAX).clamp(2, 64);
        let pace = Pace::new(tuning, n, options.number("sleep-us") * 1000);
        Ok(Locality { sets: Sets::default(), pace, batch: Vec::new(), polls: 0, asked: 0 })
    }
}

impl Mechanism for Locality {
    fn semantics(&self) -> &'static Semantics {
        &Self::SEMANTICS
    }

    fn within(&self) -> u32 {
        self.pace.within()
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.sets.list().register(fd)?;
        if !interest.is_empty() {
            // SAFETY: the caller keeps fd open until revoke.
            unsafe { self.sets.push(fd, token, interest) };
        }
        Ok(())
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        match self.sets.place(fd) {
            Place::Unregistered => return Err(Errno::NOENT.into()),
            Place::Listed(at) if interest.is_empty() => self.sets.remove(at as usize),
            // SAFETY: the caller keeps fd open until revoke.
            Place::Listed(at) => unsafe { self.sets.set(at as usize, interest) },
            Place::Silent if interest.is_empty() => {}
            // SAFETY: as above.
            Place::Silent => unsafe { self.sets.push(fd, token, interest) },
        }
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        match self.sets.place(fd) {
            Place::Unregistered => return Err(Errno::NOENT.into()),
            Place::Silent => {}
            Place::Listed(at) => self.sets.remove(at as usize),
        }
        self.sets.list().forget(fd);
        Ok(())
    }

    fn keep_active(&mut self, fd: RawFd, token: Token) {
        self.sets.lock(fd, token);
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        let (depth, ready) = match self.look(timeout) {
            Ok(looked) => looked,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0), // (d)
            Err(error) => return Err(error),
        };
        self.sets.collect(depth, ready.min(max.max(1)), &mut self.batch);
        let sizes = self.sets.sizes();
        let found = self.sets.sort(depth, ready, self.pace.rule()); // (e)
        self.pace.learn(depth, sizes, found);
        Ok(self.batch.len())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.batch.get(index).copied().unwrap_or(super::NO_EVENT)
    }

    fn calls(&self) -> u64 {
        self.polls + self.sets.questions
    }
}
