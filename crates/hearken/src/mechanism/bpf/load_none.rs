//! In place of `load.rs` where there is no loader.

use std::convert::Infallible;
use std::io;

use super::layout::Shared;
use crate::mechanism::Unavailable;

/// There are no programs.
pub(super) type Attached = Infallible;

pub(super) fn load() -> Result<(Shared, Attached), Unavailable> {
    Err(Unavailable {
        call: "loading eBPF programs",
        error: io::ErrorKind::Unsupported.into(),
        remedy: "hearken was built without its feature ebpf: build it with --features ebpf",
    })
}
