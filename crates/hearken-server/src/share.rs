//! What a worker may have of what the process has: connections and files.

use crate::config::Config;

/// A worker's share of what the process may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// How many connections it may have open.
    pub(crate) connections: usize,
    /// How many files it may keep open between requests.
    pub(crate) open_files: usize,
}

impl Share {
    /// That of the worker at `index`; the first ones take what cannot be divided. `descriptors` is
    /// what a table holds, and the workers have one table, or `own` ones.
    pub(crate) fn of(config: &Config, descriptors: usize, own: bool, index: usize) -> Share {
        let workers = config.workers.get();
        let (tables, users) = if own { (workers, 1) } else { (1, workers) };
        // Open connections go on getting files when there is no descriptor for one connection more.
        let files = (descriptors / 8).clamp(8, 512);
        let room = descriptors.saturating_sub(files + 8 + 8 * users);
        let all = room.saturating_mul(tables);
        let connections = config.max_connections.map_or(all, |most| most.get().min(all));
        let rest = usize::from(index < connections % workers);
        Share {
            connections: (connections / workers + rest).max(1),
            open_files: (files / 2 / users).max(1).min(config.site.open_files),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::Share;
    use crate::config::Config;

    fn all(workers: usize, own: bool, most: usize) -> usize {
        let config = Config {
            workers: NonZeroUsize::new(workers).unwrap(),
            max_connections: NonZeroUsize::new(most),
            ..Config::default()
        };
        (0..workers).map(|index| Share::of(&config, 20_000, own, index).connections).sum()
    }

    #[test]
    fn own_tables_hold_as_many_times_more() {
        let one = all(1, false, 0);
        assert!((19_000..20_000).contains(&one), "{one}");
        assert_eq!(all(10, true, 0), 10 * one);
        assert!(all(10, false, 0) <= one);
        for own in [false, true] {
            assert_eq!(all(3, own, 1000), 1000);
        }
    }
}
