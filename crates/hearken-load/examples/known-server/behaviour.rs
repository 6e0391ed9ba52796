//! The behaviour of the server: which requests it answers, how, and when.
//!
//! Requests pass two stages, each in order of arrival. With a capacity, they are served one after
//! another and take the same time each. Then they are delayed. Both times are computed, not
//! measured: a late wake-up of the server delays a reply, but it does not lower the capacity.
//! Stalls are counted from the first request. The service pauses during a stall, and no request is
//! answered.

use std::collections::VecDeque;
use std::time::Duration;

use hearken::Token;
use hearken::timer::Time;

/// Maximum number of requests in the server, to bound its memory.
const MAX_WAITING: usize = 1 << 22;

/// The settings of a [`Model`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Behaviour {
    /// Time between the arrival of a request, or the end of its service, and its reply.
    pub(crate) delay: Duration,
    /// Time for which the server serves each request, one after another.
    pub(crate) service: Option<Duration>,
    pub(crate) stall: Option<Stall>,
    /// The failures, and the share of the requests that each affects.
    pub(crate) failures: Vec<(Outcome, f64)>,
}

/// A periodic stall of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    pub(crate) length: Duration,
    /// Time from the start of a stall to the start of the next one; longer than a stall.
    pub(crate) period: Duration,
}

/// The treatment of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Reply,
    Status(u16),
    /// The server never answers and leaves the connection open.
    Drop,
    /// The server closes the connection.
    Close,
}

/// A request, and the time at which it arrived or at which it is due.
#[derive(Clone, Copy, Debug)]
struct Request {
    token: Token,
    time: Time,
    outcome: Outcome,
}

/// The requests in the server.
#[derive(Debug)]
pub(crate) struct Model {
    behaviour: Behaviour,
    /// The arrival of the first request, from which stalls are counted.
    origin: Option<Time>,
    /// Requests that wait for their service.
    waiting: VecDeque<Request>,
    /// The time at which the last service ended.
    free_at: Time,
    /// Requests with a due time, the earliest first.
    delayed: VecDeque<Request>,
    /// For each failure, the number of requests that it is behind its share.
    credits: Vec<f64>,
    /// Number of requests whose connection was closed before their outcome.
    pub(crate) discarded: u64,
}

impl Model {
    pub(crate) fn new(behaviour: Behaviour) -> Model {
        Model {
            credits: vec![0.0; behaviour.failures.len()],
            behaviour,
            origin: None,
            waiting: VecDeque::new(),
            free_at: Time::default(),
            delayed: VecDeque::new(),
            discarded: 0,
        }
    }

    /// Adds a request. Returns false if the server is full.
    pub(crate) fn add(&mut self, token: Token, now: Time) -> bool {
        if self.in_server() >= MAX_WAITING {
            return false;
        }
        self.origin.get_or_insert(now);
        let request = Request { token, time: now, outcome: Outcome::Reply };
        if self.behaviour.service.is_some() {
            self.waiting.push_back(request);
        } else {
            self.delay(request);
        }
        true
    }

    /// Returns the number of requests in the server.
    pub(crate) fn in_server(&self) -> usize {
        self.waiting.len() + self.delayed.len()
    }

    /// Returns the next request that is due, with its outcome. Discards requests of closed
    /// connections.
    pub(crate) fn next(
        &mut self,
        now: Time,
        is_open: impl Fn(Token) -> bool,
    ) -> Option<(Token, Outcome)> {
        while let Some(end) = self.service_end(&is_open)
            && end <= now
            && let Some(request) = self.waiting.pop_front()
        {
            self.free_at = end;
            self.delay(Request { time: end, ..request });
        }
        while let Some(&request) = self.delayed.front()
            && request.time <= now
        {
            self.delayed.pop_front();
            if is_open(request.token) {
                return Some((request.token, request.outcome));
            }
            self.discarded += 1;
        }
        None
    }

    /// Returns the time at which a service ends or a request is due. Discards requests of closed
    /// connections.
    pub(crate) fn next_time(&mut self, is_open: impl Fn(Token) -> bool) -> Option<Time> {
        let delayed = self.delayed.front().map(|request| request.time);
        [self.service_end(is_open), delayed].into_iter().flatten().min()
    }

    /// Returns the time at which the current service ends.
    fn service_end(&mut self, is_open: impl Fn(Token) -> bool) -> Option<Time> {
        while self.waiting.front().is_some_and(|request| !is_open(request.token)) {
            self.waiting.pop_front();
            self.discarded += 1;
        }
        let request = self.waiting.front()?;
        let mut time = self.after_stall(self.free_at.max(request.time));
        let mut rest = self.behaviour.service.unwrap_or_default();
        while let Some(stall) = self.behaviour.stall {
            let until_stall = stall.period - self.phase(time, stall);
            if rest <= until_stall {
                break;
            }
            rest -= until_stall;
            time = time + until_stall + stall.length;
        }
        Some(time + rest)
    }

    /// Selects the outcome of a request and the time at which it is due.
    fn delay(&mut self, request: Request) {
        let time = self.after_stall(request.time + self.behaviour.delay);
        let outcome = self.next_outcome();
        self.delayed.push_back(Request { time, outcome, ..request });
    }

    /// Returns the end of the stall in which `time` lies, or `time`.
    fn after_stall(&self, time: Time) -> Time {
        let Some(stall) = self.behaviour.stall else { return time };
        time + stall.length.saturating_sub(self.phase(time, stall))
    }

    /// Returns the time since the start of the last stall.
    fn phase(&self, time: Time, stall: Stall) -> Duration {
        let since = time.duration_since(self.origin.unwrap_or(time)).as_nanos();
        Duration::from_nanos((since % stall.period.as_nanos()) as u64)
    }

    /// Returns the outcome of the next request. A failure with a share of 10 % takes every tenth
    /// request, or the one after it if two failures take the same.
    fn next_outcome(&mut self) -> Outcome {
        // Ten times 0.1 is less than 1.
        const DUE: f64 = 1.0 - 1e-9;
        for (credit, (_, share)) in self.credits.iter_mut().zip(&self.behaviour.failures) {
            *credit += share;
        }
        match self.credits.iter().position(|&credit| credit >= DUE) {
            Some(index) => {
                self.credits[index] -= 1.0;
                self.behaviour.failures[index].0
            }
            None => Outcome::Reply,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn at(milliseconds: u64) -> Time {
        Time::from_nanos(1_000_000_000 + milliseconds * 1_000_000)
    }

    fn token(number: u32) -> Token {
        Token::new(number, 0)
    }

    /// Returns the times, in milliseconds, and outcomes of requests that arrive at `arrivals`.
    fn run(behaviour: Behaviour, arrivals: &[u64]) -> Vec<(u64, Outcome)> {
        let mut model = Model::new(behaviour);
        for (number, &arrival) in arrivals.iter().enumerate() {
            assert!(model.add(token(number as u32), at(arrival)));
        }
        let mut results = Vec::new();
        while let Some(time) = model.next_time(|_| true) {
            while let Some((_, outcome)) = model.next(time, |_| true) {
                results.push(((time - at(0)).as_millis() as u64, outcome));
            }
        }
        results
    }

    fn times(behaviour: Behaviour, arrivals: &[u64]) -> Vec<u64> {
        run(behaviour, arrivals).into_iter().map(|(time, _)| time).collect()
    }

    #[test]
    fn delays_requests_independently() {
        let behaviour = Behaviour { delay: 40 * MILLISECOND, ..Behaviour::default() };
        assert_eq!(times(behaviour, &[0, 0, 1, 100]), [40, 40, 41, 140]);
    }

    #[test]
    fn serves_one_request_after_another() {
        let behaviour = Behaviour { service: Some(10 * MILLISECOND), ..Behaviour::default() };
        assert_eq!(times(behaviour.clone(), &[0, 0, 5, 100]), [10, 20, 30, 110]);
        let with_delay = Behaviour { delay: 7 * MILLISECOND, ..behaviour };
        assert_eq!(times(with_delay, &[0, 0, 5, 100]), [17, 27, 37, 117]);
    }

    #[test]
    fn late_wakeups_do_not_lower_the_capacity() {
        let behaviour = Behaviour { service: Some(10 * MILLISECOND), ..Behaviour::default() };
        let mut model = Model::new(behaviour);
        (0..5).for_each(|number| assert!(model.add(token(number), at(0))));
        let due = std::iter::from_fn(|| model.next(at(35), |_| true));
        assert_eq!(due.count(), 3);
        assert_eq!(model.next_time(|_| true), Some(at(40)));
    }

    #[test]
    fn service_pauses_during_stalls() {
        let stall = Some(Stall { length: 20 * MILLISECOND, period: 100 * MILLISECOND });
        let behaviour =
            Behaviour { service: Some(30 * MILLISECOND), stall, ..Behaviour::default() };
        assert_eq!(times(behaviour, &[0, 0, 0, 0]), [50, 80, 130, 160]);
    }

    #[test]
    fn replies_due_in_a_stall_are_sent_at_its_end() {
        let stall = Some(Stall { length: 20 * MILLISECOND, period: 100 * MILLISECOND });
        let behaviour = Behaviour { delay: 5 * MILLISECOND, stall, ..Behaviour::default() };
        assert_eq!(
            times(behaviour, &[0, 10, 20, 94, 96, 110, 130]),
            [20, 20, 25, 99, 120, 120, 135]
        );
    }

    #[test]
    fn requests_of_closed_connections_take_no_service_time() {
        let behaviour = Behaviour { service: Some(10 * MILLISECOND), ..Behaviour::default() };
        let mut model = Model::new(behaviour);
        (0..4).for_each(|number| assert!(model.add(token(number), at(0))));
        let is_open = |open: Token| ![token(0), token(2)].contains(&open);
        assert_eq!(model.next(at(10), is_open), Some((token(1), Outcome::Reply)));
        assert_eq!(model.next(at(20), is_open), Some((token(3), Outcome::Reply)));
        assert_eq!((model.discarded, model.in_server()), (2, 0));
    }

    #[test]
    fn failures_take_their_share_of_the_requests() {
        let failures =
            vec![(Outcome::Drop, 0.1), (Outcome::Close, 0.1), (Outcome::Status(503), 0.25)];
        let outcomes = run(Behaviour { failures, ..Behaviour::default() }, &[0; 1000]);
        let count = |wanted| outcomes.iter().filter(|(_, outcome)| *outcome == wanted).count();
        assert_eq!(count(Outcome::Drop), 100);
        // The last one is due at the request after the last.
        assert!((98..=100).contains(&count(Outcome::Close)));
        assert!((248..=250).contains(&count(Outcome::Status(503))));
        let first = outcomes.iter().position(|(_, outcome)| *outcome == Outcome::Drop);
        assert_eq!(first, Some(9));
    }
}
