//! Why results cannot be made one.

use thiserror::Error;

use crate::validate::InvalidReport;

/// Why results cannot be merged. [`MergeError::at`] tells which of them is at fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// There is none.
    #[error("no result to merge")]
    Empty,
    /// No generator can have made it.
    #[error("{source}")]
    Invalid {
        /// Which one.
        at: usize,
        /// What is wrong with it.
        source: InvalidReport,
    },
    /// Another load was asked for than in the first.
    #[error("its {what} is \"{other}\", and that of the first \"{one}\": they are not of one load")]
    FieldMismatch {
        /// Which one.
        at: usize,
        /// The field.
        what: &'static str,
        /// What the first has.
        one: String,
        /// What it has.
        other: String,
    },
    /// A distribution is missing, or not that of the quantiles.
    #[error("its {what} histogram is of {has} times, and {what}_ns tells of {told}")]
    HistogramMismatch {
        /// Which one.
        at: usize,
        /// Of what.
        what: &'static str,
        /// How many the histogram has.
        has: u64,
        /// How many the quantiles are of.
        told: u64,
    },
    /// Intervals of different lengths.
    #[error("its intervals are of {other} s, and others of {one} s: they cannot be aligned")]
    IntervalMismatch {
        /// Which one.
        at: usize,
        /// What the others have.
        one: String,
        /// What it has.
        other: String,
    },
    /// Others say which part of the load they are.
    #[error("it does not say which part of the load it is, and others do")]
    MissingRank {
        /// Which one.
        at: usize,
    },
    /// There is no such rank.
    #[error("it is rank {rank} of {size}: ranks are from 0 to one less than their number")]
    RankOutOfRange {
        /// Which one.
        at: usize,
        /// The rank.
        rank: u32,
        /// Of how many.
        size: u32,
    },
    /// Parts of loads of different sizes.
    #[error("it is of a load in {other} parts, and the first of one in {one}")]
    SizeMismatch {
        /// Which one.
        at: usize,
        /// What the first has.
        one: u32,
        /// What it has.
        other: u32,
    },
    /// The same parts again.
    #[error("{ranks} came before: each part counts once")]
    Duplicate {
        /// Which one.
        at: usize,
        /// Such as "ranks 2, 5-7".
        ranks: String,
    },
}

impl MergeError {
    /// Which of the results is at fault, from 0; none if no single one is.
    pub fn at(&self) -> Option<usize> {
        match *self {
            MergeError::Empty => None,
            MergeError::Invalid { at, .. }
            | MergeError::FieldMismatch { at, .. }
            | MergeError::HistogramMismatch { at, .. }
            | MergeError::IntervalMismatch { at, .. }
            | MergeError::MissingRank { at }
            | MergeError::RankOutOfRange { at, .. }
            | MergeError::SizeMismatch { at, .. }
            | MergeError::Duplicate { at, .. } => Some(at),
        }
    }
}
