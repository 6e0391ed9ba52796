//! Limits of each worker: its share of the connections and files of the process.

use crate::runtime::event_loops::EventLoopConfig;

/// Limits of one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerLimits {
    /// Maximum number of client connections.
    pub(crate) connections: usize,
    /// Maximum number of descriptors for client and upstream connections.
    pub(crate) descriptors: usize,
    /// Maximum number of files kept open between requests.
    pub(crate) open_files: usize,
    /// Number of workers that share the memory of a cache.
    pub(crate) cache_shares: usize,
}

/// Number of descriptors per thread: a wake-up channel, the mechanism, directories, and a connection
/// with one to an upstream server.
const PER_THREAD: usize = 10;

/// Returns the maximum number of threads with one connection each in a table of `descriptors`.
pub(crate) fn max_threads(descriptors: usize) -> usize {
    (descriptors.saturating_sub(reserved_for_files(descriptors) + 8) / PER_THREAD).max(1)
}

/// Returns the number of descriptors that are reserved, so that existing connections can open files at
/// the connection limit.
fn reserved_for_files(descriptors: usize) -> usize {
    (descriptors / 8).clamp(8, 512)
}

impl WorkerLimits {
    /// Computes the limits of the worker at `index`. The first workers get the remainder of each
    /// division. `descriptors` is the size of a descriptor table. With `own`, each worker has its own
    /// table; otherwise the workers share one.
    pub(crate) fn new(
        loops: &EventLoopConfig,
        connects: bool,
        workers: usize,
        descriptors: usize,
        own: bool,
        index: usize,
    ) -> WorkerLimits {
        let (tables, users) = if own { (workers, 1) } else { (1, workers) };
        let files = reserved_for_files(descriptors);
        let available = descriptors.saturating_sub(files + 8 + 8 * users);
        // Most clients are idle at any time, and an idle client has no upstream connection.
        let available = if connects { available / 4 * 3 } else { available };
        let all = available.saturating_mul(tables);
        let connections = loops.max_connections.map_or(all, |max| max.get().min(all));
        let remainder = usize::from(index < connections % workers);
        let (connections, cache_shares) = match loops.model.has_thread_per_connection() {
            true => (1, workers),
            false => ((connections / workers + remainder).max(1), 1),
        };
        WorkerLimits {
            connections,
            descriptors: if connects { connections + connections.div_ceil(3) } else { connections },
            open_files: (files / 2 / users).max(1),
            cache_shares,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::WorkerLimits;
    use crate::runtime::event_loops::EventLoopConfig;

    fn all(workers: usize, own: bool, max: usize, connects: bool) -> usize {
        let loops = EventLoopConfig {
            max_connections: NonZeroUsize::new(max),
            ..EventLoopConfig::default()
        };
        let share = |index| WorkerLimits::new(&loops, connects, workers, 20_000, own, index);
        (0..workers).map(|index| share(index).connections).sum()
    }

    #[test]
    fn connection_limit_grows_with_the_number_of_descriptor_tables() {
        let one = all(1, false, 0, false);
        assert!((19_000..20_000).contains(&one), "{one}");
        assert_eq!(all(10, true, 0, false), 10 * one);
        assert!(all(10, false, 0, false) <= one);
        let proxied = all(1, false, 0, true);
        assert!((14_000..15_000).contains(&proxied), "{proxied}");
        for own in [false, true] {
            assert_eq!(all(3, own, 1000, false), 1000);
        }
    }
}
