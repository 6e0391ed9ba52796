//! The two privileges that loading needs, and how to drop them.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

const NEEDED: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

#[cfg_attr(not(feature = "ebpf"), allow(dead_code, reason = "nothing is loaded"))]
/// Returns advice on allowing a call that the kernel has refused for lack of privileges.
pub(super) fn remedy() -> &'static str {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |held| held.effective);
    // CAP_SYS_ADMIN includes both.
    let missing = if held.contains(CapabilitySet::SYS_ADMIN) {
        CapabilitySet::empty()
    } else {
        NEEDED.difference(held)
    };
    match (missing.contains(CapabilitySet::BPF), missing.contains(CapabilitySet::PERFMON)) {
        (true, true) => {
            "run it with CAP_BPF and CAP_PERFMON, which this thread lacks: \
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
            "this thread has CAP_BPF and CAP_PERFMON: the kernel or a sandbox refuses programs of \
            this type, which stock kernels allow"
        }
    }
}

/// Drops CAP_BPF and CAP_PERFMON in the calling thread and the threads it starts from then on.
///
/// Call it after [`Programs::load`](super::Programs::load) and before starting threads. Other
/// capabilities are not affected: root keeps those.
///
/// # Errors
/// The errors of capset(2).
pub fn drop_privileges() -> io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    let less = CapabilitySets {
        effective: effective.difference(NEEDED),
        permitted: permitted.difference(NEEDED),
        inheritable: inheritable.difference(NEEDED),
    };
    Ok(set_capabilities(None, less)?)
}
