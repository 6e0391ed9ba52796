//! An adapter that gives an edge-triggered or one-shot mechanism level semantics.
//!
//! [`AsLevel`] checks each reported descriptor again until it is not ready.

use std::sync::{Mutex, PoisonError};

use super::Semantics;

mod level;

pub use level::AsLevel;

/// Returns a static reference to the semantics that are computed. The number of different values is
/// small and bounded, so leaking them is harmless.
pub(crate) fn intern(semantics: Semantics) -> &'static Semantics {
    static KNOWN: Mutex<Vec<&'static Semantics>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(same) = known.iter().find(|same| ***same == semantics) {
        return same;
    }
    let new: &'static Semantics = Box::leak(Box::new(semantics));
    known.push(new);
    new
}
