//! The name lookups of a worker: its cache and its pending lookups.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hearken::timer::Time;

use super::{Found, Shared};
use crate::proxy::servers::lock;

/// Maximum number of cached names.
const MAX_CACHED_NAMES: usize = 1024;
/// Lifetime of successful lookups in the cache.
const POSITIVE_TTL: Duration = Duration::from_secs(30);
/// Lifetime of failed lookups in the cache.
const NEGATIVE_TTL: Duration = Duration::from_secs(5);
/// Maximum number of requests that wait for a name.
const MAX_PENDING: usize = 16_384;
/// Maximum length of a name with a final dot (RFC 1035).
const MAX_NAME_LENGTH: usize = 254;

/// The result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookupResult<'l> {
    /// The addresses of the name, at least one.
    Known(&'l [SocketAddr]),
    /// The lookup failed, with this reason.
    Failed(&'l str),
    /// The lookup is pending. Its result will have the ticket.
    Pending,
    /// Too many lookups are pending, so the name will not be resolved.
    Busy,
}

/// The name lookups of a worker. See [`Resolver::lookups`](super::Resolver::lookups).
pub struct Lookups {
    shared: Arc<Shared>,
    result_queue: Arc<ResultQueue>,
    cache: HashMap<Arc<str>, CacheEntry>,
    /// Tickets and ports of pending lookups, by name.
    pending: HashMap<Arc<str>, Vec<(u64, u16)>>,
    pending_count: usize,
    /// Buffers for the returned addresses and for the name in lower case.
    addresses: Vec<SocketAddr>,
    name: String,
    results: Vec<NamedResult>,
}

struct CacheEntry {
    found: Found,
    until: Time,
}

/// The queue of results for a worker.
pub(super) struct ResultQueue {
    worker: usize,
    has_results: AtomicBool,
    results: Mutex<Vec<NamedResult>>,
}

type NamedResult = (Arc<str>, Found);

impl ResultQueue {
    pub(super) fn new(worker: usize) -> ResultQueue {
        ResultQueue { worker, has_results: AtomicBool::new(false), results: Mutex::default() }
    }

    pub(super) fn worker(&self) -> usize {
        self.worker
    }

    /// Appends a result. The number of pending lookups bounds the queue.
    pub(super) fn push(&self, host: Arc<str>, found: Found) {
        lock(&self.results).push((host, found));
        self.has_results.store(true, Ordering::Release);
    }
}

impl Lookups {
    pub(super) fn new(shared: Arc<Shared>, result_queue: Arc<ResultQueue>) -> Lookups {
        Lookups {
            shared,
            result_queue,
            cache: HashMap::new(),
            pending: HashMap::new(),
            pending_count: 0,
            addresses: Vec::new(),
            name: String::new(),
            results: Vec::new(),
        }
    }

    /// Returns the lookups of a new thread of the same worker, with an empty cache.
    pub(crate) fn of_new_thread(&self) -> Lookups {
        Lookups::new(Arc::clone(&self.shared), Arc::clone(&self.result_queue))
    }

    /// Looks up the addresses of `host`, a name or an address with or without brackets. If the lookup
    /// is pending, its result will have the `ticket`.
    pub fn look_up(&mut self, host: &str, port: u16, ticket: u64, now: Time) -> LookupResult<'_> {
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if let Ok(ip) = literal.unwrap_or(host).parse::<IpAddr>() {
            self.addresses.clear();
            self.addresses.push(SocketAddr::new(ip, port));
            return LookupResult::Known(&self.addresses);
        }
        if host.is_empty() || host.len() > MAX_NAME_LENGTH || host.contains('\0') {
            return LookupResult::Failed("invalid host name");
        }
        self.name.clear();
        self.name.push_str(host);
        self.name.make_ascii_lowercase();
        let fresh = self.cache.get(&*self.name).is_some_and(|known| now < known.until);
        if fresh && let Some(known) = self.cache.get(&*self.name) {
            return match &known.found {
                Ok(found) => LookupResult::Known(with_port(&mut self.addresses, found, port)),
                Err(reason) => LookupResult::Failed(reason),
            };
        }
        if self.pending_count >= MAX_PENDING {
            return LookupResult::Busy;
        }
        if let Some(waiting) = self.pending.get_mut(&*self.name) {
            waiting.push((ticket, port));
        } else {
            let name = Arc::from(&*self.name);
            if !self.shared.submit(&name, &self.result_queue) {
                return LookupResult::Busy;
            }
            self.pending.insert(name, vec![(ticket, port)]);
        }
        self.pending_count += 1;
        LookupResult::Pending
    }

    /// Passes each available result to `each`, after a wake-up. Includes results for requests that
    /// have ended.
    pub fn take_results(
        &mut self,
        now: Time,
        mut each: impl FnMut(u64, Result<&[SocketAddr], &str>),
    ) {
        if !self.result_queue.has_results.swap(false, Ordering::Acquire) {
            return;
        }
        std::mem::swap(&mut self.results, &mut *lock(&self.result_queue.results));
        for (name, found) in self.results.drain(..) {
            let waiting = self.pending.remove(&name).unwrap_or_default();
            self.pending_count -= waiting.len();
            for (ticket, port) in waiting {
                match &found {
                    Ok(found) => each(ticket, Ok(with_port(&mut self.addresses, found, port))),
                    Err(reason) => each(ticket, Err(reason)),
                }
            }
            remember(&mut self.cache, name, found, now);
        }
    }
}

fn with_port<'a>(
    addresses: &'a mut Vec<SocketAddr>,
    found: &[SocketAddr],
    port: u16,
) -> &'a [SocketAddr] {
    addresses.clear();
    addresses.extend_from_slice(found);
    addresses.iter_mut().for_each(|addr| addr.set_port(port));
    addresses
}

/// Caches a result. If the cache is full, evicts expired entries, or else the next one to expire.
fn remember(cache: &mut HashMap<Arc<str>, CacheEntry>, name: Arc<str>, found: Found, now: Time) {
    if cache.len() >= MAX_CACHED_NAMES && !cache.contains_key(&name) {
        cache.retain(|_, known| now < known.until);
        if cache.len() >= MAX_CACHED_NAMES {
            // By name among equals, because the order of the map is random.
            let first = cache.iter().map(|(name, known)| (known.until, name)).min();
            if let Some(first) = first.map(|(_, name)| Arc::clone(name)) {
                cache.remove(&first);
            }
        }
    }
    let until = now + if found.is_ok() { POSITIVE_TTL } else { NEGATIVE_TTL };
    cache.insert(name, CacheEntry { found, until });
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups")
            .field("known", &self.cache.len())
            .field("tickets", &self.pending_count)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use hearken::timer::Time;
    use proptest::prelude::*;

    use super::{MAX_CACHED_NAMES, remember};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn cache_stays_within_its_limit_and_contains_the_last_name(names in prop::collection::vec((0_u32..3000, any::<bool>()), 3000)) {
            let mut cache = HashMap::new();
            for (second, (name, good)) in names.into_iter().enumerate() {
                let now = Time::from_nanos(second as u64 * 5_000_000);
                let name: Arc<str> = name.to_string().into();
                let found = if good { Ok(Vec::new()) } else { Err(String::new()) };
                remember(&mut cache, Arc::clone(&name), found, now);
                prop_assert!(cache.len() <= MAX_CACHED_NAMES && cache.contains_key(&name));
            }
        }
    }

    #[test]
    fn a_full_cache_evicts_the_first_name_that_expires_next() {
        let names: Vec<Arc<str>> =
            (0..MAX_CACHED_NAMES).map(|name| format!("{name:04}").into()).collect();
        let mut cache = HashMap::new();
        for name in &names {
            remember(&mut cache, Arc::clone(name), Ok(Vec::new()), Time::default());
        }
        for (index, name) in names.iter().enumerate() {
            remember(
                &mut cache,
                format!("new {index}").into(),
                Ok(Vec::new()),
                Time::from_nanos(1),
            );
            assert!(!cache.contains_key(name), "{name}");
        }
    }
}
