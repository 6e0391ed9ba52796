//! Errors of merging results.

use thiserror::Error;

use crate::validate::InvalidReport;

/// An error of merging results. [`MergeError::index`] returns the index of the result at fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// No results.
    #[error("no results to merge")]
    Empty,
    /// A result is invalid.
    #[error("{source}")]
    Invalid {
        /// Index of the result.
        index: usize,
        /// The problem.
        source: InvalidReport,
    },
    /// A setting differs from the first result.
    #[error(
        "field '{field}' is '{found}', but '{expected}' in the first result; merge only results of the same load"
    )]
    FieldMismatch {
        /// Index of the result.
        index: usize,
        /// The field.
        field: &'static str,
        /// Value in the first result.
        expected: String,
        /// Value in this result.
        found: String,
    },
    /// A histogram is missing or does not match its quantiles.
    #[error(
        "the {field} histogram contains {found} times, but {field}_ns has a count of {expected}"
    )]
    HistogramMismatch {
        /// Index of the result.
        index: usize,
        /// Name of the histogram.
        field: &'static str,
        /// Number of times in the histogram.
        found: u64,
        /// Number of times according to the quantiles.
        expected: u64,
    },
    /// The intervals have different lengths.
    #[error(
        "its intervals are {found} s long, but {expected} s in other results: cannot align them"
    )]
    IntervalMismatch {
        /// Index of the result.
        index: usize,
        /// Length in the other results, in seconds.
        expected: String,
        /// Length in this result, in seconds.
        found: String,
    },
    /// The result has no rank, but others have.
    #[error("it has no rank, but other results have one")]
    MissingRank {
        /// Index of the result.
        index: usize,
    },
    /// The rank is out of range.
    #[error("rank {rank} of {size} is out of range: ranks start at 0")]
    RankOutOfRange {
        /// Index of the result.
        index: usize,
        /// The rank.
        rank: u32,
        /// The number of parts.
        size: u32,
    },
    /// The results are parts of loads with different numbers of parts.
    #[error("its load has {found} parts, but {expected} in the first result")]
    SizeMismatch {
        /// Index of the result.
        index: usize,
        /// Number of parts in the first result.
        expected: u32,
        /// Number of parts in this result.
        found: u32,
    },
    /// A part occurs twice.
    #[error("{ranks} occurred before: each part may occur once")]
    Duplicate {
        /// Index of the result.
        index: usize,
        /// The ranks, such as "ranks 2, 5-7".
        ranks: String,
    },
}

impl MergeError {
    /// Returns the index of the result at fault, or `None` if no single result is.
    pub fn index(&self) -> Option<usize> {
        match *self {
            MergeError::Empty => None,
            MergeError::Invalid { index, .. }
            | MergeError::FieldMismatch { index, .. }
            | MergeError::HistogramMismatch { index, .. }
            | MergeError::IntervalMismatch { index, .. }
            | MergeError::MissingRank { index }
            | MergeError::RankOutOfRange { index, .. }
            | MergeError::SizeMismatch { index, .. }
            | MergeError::Duplicate { index, .. } => Some(index),
        }
    }
}
