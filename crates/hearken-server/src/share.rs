//! What a worker may have of what the process has: connections and files.

use crate::server::Plan;

/// A worker's share of what the process may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// How many connections it may have open.
    pub(crate) connections: usize,
    /// How many files it may keep open between requests.
    pub(crate) open_files: usize,
}

impl Share {
    /// That of the worker at `index` of so many; the first ones take what cannot be divided.
    /// `descriptors` is what a table holds, and the workers have one table, or `own` ones.
    pub(crate) fn of(
        plan: &Plan<'_>,
        workers: usize,
        descriptors: usize,
        own: bool,
        index: usize,
    ) -> Share {
        let (tables, users) = if own { (workers, 1) } else { (1, workers) };
        // Open connections go on getting files when there is no descriptor for one connection more.
        let files = (descriptors / 8).clamp(8, 512);
        let room = descriptors.saturating_sub(files + 8 + 8 * users) / plan.per_connection;
        let all = room.saturating_mul(tables);
        let connections = plan.max_connections.map_or(all, |most| most.get().min(all));
        let rest = usize::from(index < connections % workers);
        Share {
            connections: (connections / workers + rest).max(1),
            open_files: (files / 2 / users).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::num::NonZeroUsize;

    use hearken::io::readiness::Policy;

    use super::Share;
    use crate::server::Plan;

    fn all(workers: usize, own: bool, most: usize, per_connection: usize) -> usize {
        let plan = Plan {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            events: "auto",
            workers: NonZeroUsize::new(workers).unwrap(),
            max_connections: NonZeroUsize::new(most),
            policy: Policy::default(),
            per_connection,
        };
        let share = |index| Share::of(&plan, workers, 20_000, own, index);
        (0..workers).map(|index| share(index).connections).sum()
    }

    #[test]
    fn own_tables_hold_as_many_times_more() {
        let one = all(1, false, 0, 1);
        assert!((19_000..20_000).contains(&one), "{one}");
        assert_eq!(all(10, true, 0, 1), 10 * one);
        assert_eq!(all(10, true, 0, 2), 10 * (one / 2));
        assert!(all(10, false, 0, 1) <= one);
        for own in [false, true] {
            assert_eq!(all(3, own, 1000, 1), 1000);
        }
    }
}
