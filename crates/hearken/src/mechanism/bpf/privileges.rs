//! The two privileges that loading needs, and giving them up.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

const NEEDED: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

#[cfg_attr(not(feature = "ebpf"), allow(dead_code, reason = "nothing is loaded"))]
/// What would allow what the kernel has refused for want of a privilege.
pub(super) fn remedy() -> &'static str {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |held| held.effective);
    // CAP_SYS_ADMIN stands for both.
    let missing = if held.contains(CapabilitySet::SYS_ADMIN) {
        CapabilitySet::empty()
    } else {
        NEEDED.difference(held)
    };
    match (missing.contains(CapabilitySet::BPF), missing.contains(CapabilitySet::PERFMON)) {
        (true, true) => {
            "run it with CAP_BPF and CAP_PERFMON, of which this thread has neither: \
            as root, or after setcap cap_bpf,cap_perfmon+ep on the program"
        }
        (true, false) => {
            "run it with CAP_BPF as well as CAP_PERFMON: \
            as root, or after setcap cap_bpf,cap_perfmon+ep on the program"
        }
        (false, true) => {
            "run it with CAP_PERFMON as well as CAP_BPF: \
            as root, or after setcap cap_bpf,cap_perfmon+ep on the program"
        }
        (false, false) => {
            "this thread has CAP_BPF and CAP_PERFMON, so it is this kernel, or a \
            sandbox around it, that refuses programs of this type; a stock kernel allows them"
        }
    }
}

/// Gives up CAP_BPF and CAP_PERFMON in the calling thread, and in those that it starts from then on.
///
/// For a process that has loaded what it wants to load ([`Programs::load`](super::Programs::load)),
/// before it starts its threads. Other capabilities stay as they are: root keeps those.
///
/// # Errors
/// The kernel's, of capset(2).
pub fn drop_privileges() -> io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    let less = CapabilitySets {
        effective: effective.difference(NEEDED),
        permitted: permitted.difference(NEEDED),
        inheritable: inheritable.difference(NEEDED),
    };
    Ok(set_capabilities(None, less)?)
}
