//! Pairwise test selection.

/// Returns combinations of four factors with these numbers of levels. Every possible pair of levels
/// occurs. The selection is greedy, as in AETG (Cohen et al. 1997).
///
/// A pair is possible if `possible` accepts some combination with it. The first two factors should be
/// those with most levels, because the result has about as many rows as they have pairs.
pub(crate) fn pairwise(
    levels: [usize; 4],
    possible: impl Fn([usize; 4]) -> bool,
) -> Vec<[usize; 4]> {
    let mut rows = Vec::new();
    let mut covered = Covered::new(levels);
    for (first, second) in PAIRS {
        for a in 0..levels[first] {
            for b in 0..levels[second] {
                if covered.get((first, second), (a, b)) {
                    continue;
                }
                // All combinations with this pair; the one with most new pairs is taken.
                let range = |factor| match factor {
                    _ if factor == first => a..a + 1,
                    _ if factor == second => b..b + 1,
                    _ => 0..levels[factor],
                };
                let mut best = (0, [0; 4]);
                for one in range(0) {
                    for two in range(1) {
                        for three in range(2) {
                            for four in range(3) {
                                let row = [one, two, three, four];
                                let new = covered.count_new(row);
                                if new > best.0 && possible(row) {
                                    best = (new, row);
                                }
                            }
                        }
                    }
                }
                if best.0 > 0 {
                    covered.add(best.1);
                    rows.push(best.1);
                }
            }
        }
    }
    rows
}

/// All pairs of factors.
const PAIRS: [(usize, usize); 6] = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];

/// The pairs of levels that occur in the rows so far.
struct Covered {
    levels: [usize; 4],
    pairs: [Vec<bool>; 6],
}

impl Covered {
    fn new(levels: [usize; 4]) -> Covered {
        let pairs = PAIRS.map(|(first, second)| vec![false; levels[first] * levels[second]]);
        Covered { levels, pairs }
    }

    fn get(&self, factors: (usize, usize), (a, b): (usize, usize)) -> bool {
        let index = PAIRS.iter().position(|&pair| pair == factors).unwrap();
        self.pairs[index][a * self.levels[factors.1] + b]
    }

    fn count_new(&self, row: [usize; 4]) -> usize {
        let is_new = |&(index, &(first, second)): &(usize, &(usize, usize))| {
            !self.pairs[index][row[first] * self.levels[second] + row[second]]
        };
        PAIRS.iter().enumerate().filter(is_new).count()
    }

    fn add(&mut self, row: [usize; 4]) {
        for (index, &(first, second)) in PAIRS.iter().enumerate() {
            self.pairs[index][row[first] * self.levels[second] + row[second]] = true;
        }
    }
}
