//! An adapter: level semantics over an edge-triggered or one-shot mechanism.
//!
//! [`AsLevel`] looks again at each descriptor that was reported until it is not ready.

use std::sync::{Mutex, PoisonError};

use super::Semantics;

mod level;

pub use level::AsLevel;

/// The semantics of an adapter, which are made when it is, for as long as anyone may ask. There are
/// only so many different ones.
fn lasting(semantics: Semantics) -> &'static Semantics {
    static KNOWN: Mutex<Vec<&'static Semantics>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(same) = known.iter().find(|same| ***same == semantics) {
        return same;
    }
    let new: &'static Semantics = Box::leak(Box::new(semantics));
    known.push(new);
    new
}
