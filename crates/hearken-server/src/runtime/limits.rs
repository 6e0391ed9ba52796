//! What a worker may have of what the process has: connections and files.

use crate::runtime::event_loops::Loops;

/// A worker's share of what the process may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerLimits {
    /// How many connections it may have open.
    pub(crate) connections: usize,
    /// How many descriptors it may have for them, and for connections that it makes itself.
    pub(crate) descriptors: usize,
    /// How many files it may keep open between requests.
    pub(crate) open_files: usize,
}

impl WorkerLimits {
    /// That of the worker at `index` of so many; the first ones take what cannot be divided.
    /// `descriptors` is what a table holds, and the workers have one table, or `own` ones.
    pub(crate) fn new(
        loops: &Loops,
        connects: bool,
        workers: usize,
        descriptors: usize,
        own: bool,
        index: usize,
    ) -> WorkerLimits {
        let (tables, users) = if own { (workers, 1) } else { (1, workers) };
        // Open connections go on getting files when there is no descriptor for one connection more.
        let files = (descriptors / 8).clamp(8, 512);
        let room = descriptors.saturating_sub(files + 8 + 8 * users);
        // Most clients are idle at a time, and idle ones have no connection to a server.
        let room = if connects { room / 4 * 3 } else { room };
        let all = room.saturating_mul(tables);
        let connections = loops.max_connections.map_or(all, |most| most.get().min(all));
        let rest = usize::from(index < connections % workers);
        let connections = (connections / workers + rest).max(1);
        WorkerLimits {
            connections,
            descriptors: if connects { connections / 3 * 4 } else { connections },
            open_files: (files / 2 / users).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::WorkerLimits;
    use crate::runtime::event_loops::Loops;

    fn all(workers: usize, own: bool, most: usize, connects: bool) -> usize {
        let loops = Loops { max_connections: NonZeroUsize::new(most), ..Loops::default() };
        let share = |index| WorkerLimits::new(&loops, connects, workers, 20_000, own, index);
        (0..workers).map(|index| share(index).connections).sum()
    }

    #[test]
    fn own_tables_hold_as_many_times_more() {
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
