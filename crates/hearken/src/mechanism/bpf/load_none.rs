//! The replacement for `load.rs` if Hearken is built without the feature `ebpf`.

use std::convert::Infallible;
use std::io;

use super::layout::Shared;
use crate::mechanism::Unavailable;

/// No programs.
pub(super) type Attached = Infallible;

pub(super) fn load() -> Result<(Shared, Attached), Unavailable> {
    Err(Unavailable {
        call: "bpf(BPF_PROG_LOAD)",
        error: io::ErrorKind::Unsupported.into(),
        remedy: "hearken was built without the feature 'ebpf': build it with --features ebpf",
    })
}
