//! The order in which the runs of both sides were made.

/// Start times of the runs of both sides, in nanoseconds since 1970.
pub(super) struct Design<'a> {
    pub(super) a: &'a [u64],
    pub(super) b: &'a [u64],
}

impl Design<'_> {
    /// Returns the pairs of runs that were made one after the other, as indices; none if the runs do not
    /// alternate in pairs.
    ///
    /// The result depends on the order of the runs only, not on what they measured, so it does not bias
    /// the comparison.
    pub(super) fn pairs(&self) -> Option<Vec<(usize, usize)>> {
        let mut runs = self.runs();
        if self.a.len() != self.b.len() || self.a.len() < 2 {
            return None;
        }
        runs.sort_unstable();
        if runs.windows(2).any(|two| two[0].0 == two[1].0) {
            return None;
        }
        let pair = |two: &[(u64, bool, usize)]| match (two[0], two[1]) {
            ((_, false, a), (_, true, b)) | ((_, true, b), (_, false, a)) => Some((a, b)),
            _ => None,
        };
        runs.chunks_exact(2).map(pair).collect()
    }

    /// Returns whether all runs of one side were made before those of the other.
    pub(super) fn is_sequential(&self) -> bool {
        let ends = |starts: &[u64]| Some((*starts.iter().min()?, *starts.iter().max()?));
        match (ends(self.a), ends(self.b)) {
            (Some(a), Some(b)) => a.1 < b.0 || b.1 < a.0,
            _ => false,
        }
    }

    /// Returns the start, the side (whether it is the second) and the index of each run.
    fn runs(&self) -> Vec<(u64, bool, usize)> {
        let side = |starts: &[u64], second| -> Vec<(u64, bool, usize)> {
            starts.iter().enumerate().map(|(index, &start)| (start, second, index)).collect()
        };
        [side(self.a, false), side(self.b, true)].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::Design;

    fn pairs(a: &[u64], b: &[u64]) -> Option<Vec<(usize, usize)>> {
        Design { a, b }.pairs()
    }

    #[test]
    fn alternating_runs_are_pairs_in_any_order() {
        assert_eq!(pairs(&[1, 4], &[2, 3]), Some(vec![(0, 0), (1, 1)]));
        assert_eq!(pairs(&[40, 10, 50], &[60, 20, 30]), Some(vec![(1, 1), (0, 2), (2, 0)]));
    }

    #[test]
    fn other_runs_are_not_pairs() {
        assert_eq!(pairs(&[1, 2], &[3, 4]), None);
        assert_eq!(pairs(&[1, 3, 5], &[2, 4]), None);
        assert_eq!(pairs(&[1], &[2]), None);
        assert_eq!(pairs(&[1, 1], &[1, 1]), None);
        assert_eq!(pairs(&[], &[]), None);
    }

    #[test]
    fn sequential_runs_are_recognised() {
        for (a, b, sequential) in [
            (&[1, 2][..], &[3, 4][..], true),
            (&[3, 4], &[1, 2], true),
            (&[1, 3], &[2, 4], false),
            (&[1, 4], &[2, 3], false),
            (&[1, 1], &[1, 1], false),
            (&[], &[1], false),
        ] {
            assert_eq!(Design { a, b }.is_sequential(), sequential, "{a:?} {b:?}");
        }
    }
}
