//! Adapters: edge semantics over a level-triggered or one-shot mechanism, and level semantics over
//! an edge-triggered or one-shot one.
//!
//! | from | to | how |
//! |---|---|---|
//! | level, one-shot | edge | [`AsEdge`]: a direction that was reported is silenced until it is said to be used up |
//! | edge, one-shot | level | [`AsLevel`]: what was reported is looked at again until it is found not ready |
//!
//! Neither direction is free, and one is not whole: whoever is shown the level only cannot see that
//! more arrived on top of what is there. [`AsEdge`] must therefore be told by
//! [`would_block`](super::Mechanism::would_block), which [`Semantics::needs_told`] says.

use std::sync::{Mutex, PoisonError};

use super::Semantics;

mod edge;
mod level;

pub use edge::AsEdge;
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
