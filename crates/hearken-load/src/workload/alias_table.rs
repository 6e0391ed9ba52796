//! Drawing by weight in constant time: an alias table (Walker 1977, as Vose builds it).

/// Draws numbers from 0 on, each as often as its weight says.
#[derive(Debug)]
pub(super) struct Alias {
    columns: Box<[Column]>,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    /// Below this, of 2^32, a draw of this column is the column itself, otherwise its alias.
    own: u32,
    alias: u32,
}

impl Alias {
    /// `weights` are finite and not negative, one at least is positive, and there are fewer than
    /// 2^32.
    pub(super) fn new(weights: &[f64]) -> Alias {
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        let mut scaled: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let whole = |at: usize| Column { own: u32::MAX, alias: at as u32 };
        let mut columns: Box<[Column]> = (0..weights.len()).map(whole).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|&at| scaled[at] < 1.0);
        while let (Some(less), Some(&more)) = (small.pop(), large.last()) {
            let own = (scaled[less] * 2f64.powi(32)) as u32;
            columns[less] = Column { own, alias: more as u32 };
            scaled[more] -= 1.0 - scaled[less];
            if scaled[more] < 1.0 {
                large.pop();
                small.push(more);
            }
        }
        // What is left of either is 1 but for rounding, and stays whole.
        Alias { columns }
    }

    pub(super) fn sample(&self, random: &mut fastrand::Rng) -> u32 {
        let bits = random.u64(..);
        let at = ((bits >> 32) * self.columns.len() as u64) >> 32;
        match self.columns.get(at as usize) {
            Some(column) if (bits as u32) >= column.own => column.alias,
            _ => at as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Alias;

    /// How often each is drawn is within six standard deviations of what it should be.
    fn check(weights: &[f64], seed: u64) {
        const COUNT: u32 = 100_000;
        let alias = Alias::new(weights);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut seen = vec![0u32; weights.len()];
        for _ in 0..COUNT {
            seen[alias.sample(&mut random) as usize] += 1;
        }
        let total: f64 = weights.iter().sum();
        for (&seen, weight) in seen.iter().zip(weights) {
            let p = weight / total;
            let expected = f64::from(COUNT) * p;
            let bound = 6.0 * (expected * (1.0 - p)).sqrt() + 1.0;
            assert!((f64::from(seen) - expected).abs() <= bound, "{seen} of {expected}");
            assert!(*weight > 0.0 || seen == 0);
        }
    }

    #[test]
    fn frequencies() {
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
        fn frequencies_of_any(
            weights in prop::collection::vec(0.001f64..100.0, 1..40),
            seed in any::<u64>(),
        ) {
            check(&weights, seed);
        }
    }
}
