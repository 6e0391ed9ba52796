//! The names to resolve and the order of their lookups. It performs no lookup and reads no clock.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hearken::timer::Time;

use super::Found;
use super::lookups::ResultQueue;
use crate::proxy::config::{Address, Upstreams};
use crate::proxy::servers::Servers;

/// Maximum number of pending names from workers.
const MAX_PENDING: usize = 256;
/// Maximum number of addresses per name.
const MAX_ADDRESSES: usize = 64;
/// Maximum interval between lookups of a server name without an address.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The names to resolve.
#[derive(Default)]
pub(super) struct Work {
    /// Pending names, with the queues of the workers that wait for them.
    pending: HashMap<Arc<str>, Vec<Arc<ResultQueue>>>,
    /// Names whose lookup has not started.
    queue: VecDeque<Arc<str>>,
    watched: Vec<Watched>,
    worker_count: usize,
    is_stopping: bool,
}

/// A host name of upstream servers, which is resolved periodically.
struct Watched {
    host: Arc<str>,
    servers: Arc<Servers>,
    /// Indices and ports of the servers with this name.
    targets: Vec<(usize, u16)>,
    interval: Duration,
    /// Time of the next lookup; `None` during a lookup, or if none follows.
    next_lookup: Option<Time>,
    /// Result of the last lookup.
    last_result: Option<Result<(), String>>,
}

/// A lookup to perform.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
    /// Index among the names of servers; `None` for a name from a worker.
    watched: Option<usize>,
}

/// The next step of a resolver.
#[derive(Debug)]
pub(super) enum Step {
    /// Perform this lookup.
    LookUp(Task),
    /// Wait for new names, or until a time if there is one.
    Wait(Option<Time>),
    /// End.
    Stop,
}

impl Work {
    /// Creates the result queue of the next worker, starting with worker 0.
    pub(super) fn add_worker(&mut self) -> Arc<ResultQueue> {
        self.worker_count += 1;
        Arc::new(ResultQueue::new(self.worker_count - 1))
    }

    /// Adds a name from a worker. Returns false if too many names are pending.
    pub(super) fn submit(&mut self, host: &Arc<str>, result_queue: &Arc<ResultQueue>) -> bool {
        if let Some(queues) = self.pending.get_mut(host) {
            queues.push(Arc::clone(result_queue));
            return true;
        }
        if self.queue.len() >= MAX_PENDING {
            return false;
        }
        self.pending.insert(Arc::clone(host), vec![Arc::clone(result_queue)]);
        self.queue.push_back(Arc::clone(host));
        true
    }

    /// Adds the names of servers, which are resolved periodically from `now` on. Returns the index of
    /// the first added name.
    pub(super) fn watch(&mut self, config: &Upstreams, servers: &Arc<Servers>, now: Time) -> usize {
        let first = self.watched.len();
        for (server, settings) in config.servers.iter().enumerate() {
            let Address::Name(host, port) = &settings.address else { continue };
            let known = self.watched[first..]
                .iter_mut()
                .find(|known| known.host.eq_ignore_ascii_case(host));
            match known {
                Some(known) => known.targets.push((server, *port)),
                None => self.watched.push(Watched {
                    host: host.as_str().into(),
                    servers: Arc::clone(servers),
                    targets: vec![(server, *port)],
                    interval: config.resolve_interval,
                    next_lookup: Some(now),
                    last_result: None,
                }),
            }
        }
        first
    }

    /// Returns whether a server name has no result yet. `first` is the index of the first name.
    pub(super) fn is_unresolved(&self, first: usize) -> bool {
        self.watched[first..].iter().any(|name| name.last_result.is_none())
    }

    /// Returns a message for each server name without an address after a wait of `waited`. `first` is
    /// the index of the first name.
    pub(super) fn warnings(&self, first: usize, waited: Duration) -> Vec<String> {
        let warning = |name: &Watched| match &name.last_result {
            Some(result) => result.clone().err(),
            None => Some(format!(
                "name '{}' is not resolved after {waited:?}; its servers are down until it is",
                name.host
            )),
        };
        self.watched[first..].iter().filter_map(warning).collect()
    }

    /// Returns the next step at `now`. Names of servers take precedence.
    pub(super) fn next_step(&mut self, now: Time) -> Step {
        if self.is_stopping {
            return Step::Stop;
        }
        let mut first = None;
        for (index, name) in self.watched.iter_mut().enumerate() {
            let Some(due) = name.next_lookup else { continue };
            if due <= now {
                name.next_lookup = None;
                let port = name.targets.first().map_or(0, |of| of.1);
                let host = Arc::clone(&name.host);
                return Step::LookUp(Task { host, port, watched: Some(index) });
            }
            first = first.map_or(Some(due), |first: Time| Some(first.min(due)));
        }
        match self.queue.pop_front() {
            Some(host) => Step::LookUp(Task { host, port: 0, watched: None }),
            None => Step::Wait(first),
        }
    }

    /// Records the result of a lookup that ended at `now`. Returns the workers that wait for it.
    pub(super) fn complete(
        &mut self,
        task: &Task,
        found: io::Result<Vec<SocketAddr>>,
        now: Time,
    ) -> Vec<usize> {
        let host = &task.host;
        let found = match found {
            Ok(found) if found.is_empty() => Err(format!("name '{host}' has no address")),
            Ok(mut found) => {
                found.truncate(MAX_ADDRESSES);
                found.shrink_to_fit();
                Ok(found)
            }
            Err(error) => Err(format!("cannot resolve name '{host}': {error}")),
        };
        if let Some(index) = task.watched {
            if let Some(name) = self.watched.get_mut(index) {
                name.record(found, now);
            }
            return Vec::new();
        }
        let queues = self.pending.remove(host).unwrap_or_default();
        let notify = |queue: Arc<ResultQueue>| {
            queue.push(Arc::clone(host), found.clone());
            queue.worker()
        };
        queues.into_iter().map(notify).collect()
    }

    /// Ends all following steps.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Returns the number of names whose lookup has not started.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }
}

impl Watched {
    /// Records the result of a lookup for its servers, and schedules the next lookup.
    fn record(&mut self, found: Found, now: Time) {
        let mut wait = (!self.interval.is_zero()).then_some(self.interval);
        for &(server, port) in &self.targets {
            match &found {
                Ok(found) => {
                    let mut found = found.clone();
                    found.iter_mut().for_each(|addr| addr.set_port(port));
                    // Sorted, so that another order does not count as a change.
                    found.sort_unstable();
                    self.servers.record_resolution(server, Ok(&found));
                }
                Err(reason) => {
                    self.servers.record_resolution(server, Err(reason.clone()));
                    if !self.servers.has_address(server) {
                        wait = Some(wait.map_or(RETRY_INTERVAL, |wait| wait.min(RETRY_INTERVAL)));
                    }
                }
            }
        }
        self.next_lookup = wait.map(|wait| now + wait);
        self.last_result = Some(found.map(drop));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::config::Server;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn watch(work: &mut Work, interval: u64) -> Arc<Servers> {
        let server = Server::new(Address::Name("a.example".to_owned(), 80));
        let resolve_interval = Duration::from_secs(interval);
        let config = Upstreams { resolve_interval, ..Upstreams::new(vec![server]) };
        let servers = Arc::new(Servers::new(&config));
        work.watch(&config, &servers, at(1));
        servers
    }

    fn task(work: &mut Work, now: Time) -> Task {
        match work.next_step(now) {
            Step::LookUp(task) => task,
            step => panic!("{step:?}"),
        }
    }

    fn wait(work: &mut Work, now: Time) -> Option<Time> {
        match work.next_step(now) {
            Step::Wait(until) => until,
            step => panic!("{step:?}"),
        }
    }

    #[test]
    fn names_of_servers_precede_names_from_workers() {
        let mut work = Work::default();
        let queue = work.add_worker();
        assert!(work.submit(&"b.example".into(), &queue));
        watch(&mut work, 30);
        let [first, second] = [task(&mut work, at(1)), task(&mut work, at(1))];
        assert_eq!((&*first.host, first.port), ("a.example", 80));
        assert_eq!((&*second.host, second.port), ("b.example", 0));
        assert_eq!(wait(&mut work, at(1)), None);
    }

    #[test]
    fn names_without_an_address_are_resolved_again_earlier() {
        for (interval, after_failure) in [(30, Some(at(15))), (2, Some(at(12))), (0, Some(at(15)))]
        {
            let mut work = Work::default();
            let servers = watch(&mut work, interval);
            let failed = task(&mut work, at(1));
            assert!(work.is_unresolved(0));
            work.complete(&failed, Err(io::Error::other("no such name")), at(10));
            assert!(!work.is_unresolved(0) && !servers.has_address(0));
            assert_eq!(wait(&mut work, at(10)), after_failure);

            let resolved = task(&mut work, at(15));
            work.complete(&resolved, Ok(vec![([192, 0, 2, 1], 0).into()]), at(16));
            assert!(servers.has_address(0));
            let next = (interval > 0).then(|| at(16 + interval));
            assert_eq!(wait(&mut work, at(16)), next);
        }
    }

    #[test]
    fn a_result_reaches_each_worker_that_waits_for_it() {
        let mut work = Work::default();
        let queues = [work.add_worker(), work.add_worker(), work.add_worker()];
        let name = "a.example".into();
        assert!(work.submit(&name, &queues[0]) && work.submit(&name, &queues[2]));
        let lookup = task(&mut work, at(1));
        assert_eq!(wait(&mut work, at(1)), None);
        assert_eq!(work.complete(&lookup, Ok(Vec::new()), at(2)), [0, 2]);
        assert!(work.submit(&name, &queues[1]));
        assert_eq!(&*task(&mut work, at(2)).host, "a.example");
    }

    #[test]
    fn no_lookup_follows_a_stop() {
        let mut work = Work::default();
        watch(&mut work, 30);
        work.stop();
        assert!(matches!(work.next_step(at(1)), Step::Stop));
    }
}
