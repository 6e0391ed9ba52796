//! Weighted sampling in constant time with an alias table (Walker 1977, construction by Vose).

/// A sampler of indices with given weights.
#[derive(Debug)]
pub(super) struct AliasTable {
    columns: Box<[Column]>,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    /// Threshold out of 2^32 below which a draw selects the column itself, otherwise its alias.
    threshold: u32,
    alias: u32,
}

impl AliasTable {
    /// Creates a table. `weights` must be finite and non-negative, at least one must be positive, and there
    /// must be fewer than 2^32.
    pub(super) fn new(weights: &[f64]) -> AliasTable {
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        let mut scaled: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let identity = |at: usize| Column { threshold: u32::MAX, alias: at as u32 };
        let mut columns: Box<[Column]> = (0..weights.len()).map(identity).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|&at| scaled[at] < 1.0);
        while let (Some(less), Some(&more)) = (small.pop(), large.last()) {
            let threshold = (scaled[less] * 2f64.powi(32)) as u32;
            columns[less] = Column { threshold, alias: more as u32 };
            scaled[more] -= 1.0 - scaled[less];
            if scaled[more] < 1.0 {
                large.pop();
                small.push(more);
            }
        }
        // The remaining weights are 1 except for rounding errors.
        AliasTable { columns }
    }

    pub(super) fn sample(&self, random: &mut fastrand::Rng) -> u32 {
        let bits = random.u64(..);
        let at = ((bits >> 32) * self.columns.len() as u64) >> 32;
        match self.columns.get(at as usize) {
            Some(column) if (bits as u32) >= column.threshold => column.alias,
            _ => at as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::AliasTable;

    /// Checks that each frequency is within six standard deviations of its expected value.
    fn check(weights: &[f64], seed: u64) {
        const COUNT: u32 = 100_000;
        let alias = AliasTable::new(weights);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut counts = vec![0u32; weights.len()];
        for _ in 0..COUNT {
            counts[alias.sample(&mut random) as usize] += 1;
        }
        let total: f64 = weights.iter().sum();
        for (&count, weight) in counts.iter().zip(weights) {
            let p = weight / total;
            let expected = f64::from(COUNT) * p;
            let bound = 6.0 * (expected * (1.0 - p)).sqrt() + 1.0;
            assert!((f64::from(count) - expected).abs() <= bound, "{count} of {expected}");
            assert!(*weight > 0.0 || count == 0);
        }
    }

    #[test]
    fn frequencies_match_the_weights() {
        check(&[1.0], 1);
        check(&[1.0, 0.0, 3.0], 2);
        check(&[1e-9, 1e9], 3);
        let zipf: Vec<f64> = (1..=500).map(|rank| f64::from(rank).recip()).collect();
        check(&zipf, 4);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 20,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]
        #[test]
        fn frequencies_match_random_weights(
            weights in prop::collection::vec(0.001f64..100.0, 1..40),
            seed in any::<u64>(),
        ) {
            check(&weights, seed);
        }
    }
}
