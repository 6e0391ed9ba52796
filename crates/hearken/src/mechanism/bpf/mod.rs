//! The eBPF programs at the point where the kernel sends a readiness signal.
//!
//! `signal_queue.bpf.c` is their source, and `scripts/bpf` compiles it to `signal_queue.bpf.o`.
//! They are loaded once per process and shared by its instances. Each process has its own.
//!
//! a) A kernel whose `lsm=` parameter lacks `bpf` loads and attaches them but never calls them. A
//!    test descriptor raises a signal before anything relies on them.
//! b) Loading needs CAP_BPF and CAP_PERFMON, and later operation does not. Call [`Programs::load`],
//!    then [`drop_privileges`], then start threads. Privileges are not dropped automatically: each
//!    thread of a process has its own capabilities, and the process may load other programs.
//! c) They stay attached while a [`Programs`] or an instance exists, and at most until the process
//!    ends.
//! d) A child of fork(2) shares the memory, but the parent's programs ignore its signals. It loads
//!    its own.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Unavailable;

pub(crate) mod layout;
#[cfg(feature = "ebpf")]
mod load;
#[cfg(not(feature = "ebpf"))]
#[path = "load_none.rs"]
mod load;
mod privileges;
mod self_test;
mod suppressor;

pub use privileges::drop_privileges;
pub(crate) use suppressor::Suppressor;

use layout::{QUEUES, SIGNALS, Shared};

/// The programs, which stay loaded and attached while this or an instance that uses them exists.
#[derive(Clone, Debug)]
pub struct Programs(Arc<Loaded>);

#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) shared: Shared,
    queues: Mutex<Vec<u32>>,
    instances: AtomicU32,
    process: u32,
    /// Keeps the programs attached.
    _attached: load::Attached,
}

static LOADED: Mutex<Weak<Loaded>> = Mutex::new(Weak::new());

/// Lets every signal of `fd` through, if the programs are loaded. For instances that rely on
/// signals and whose descriptor numbers may have belonged to another instance.
pub(crate) fn disown(fd: RawFd) {
    let known = LOADED.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    if let Some(loaded) = known.filter(|known| known.process == std::process::id()) {
        loaded.shared.disown(fd);
    }
}

impl Programs {
    /// Loads the programs, unless they are loaded already, and verifies that the kernel calls them.
    ///
    /// # Errors
    /// [`Unavailable`] names the refused call and program, its error, and how to allow it.
    pub fn load() -> Result<Programs, Unavailable> {
        let mut known = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = known.upgrade().filter(|known| known.process == std::process::id()) {
            return Ok(Programs(loaded)); // (d)
        }
        let (shared, attached) = load::load()?;
        let loaded = Arc::new(Loaded {
            shared,
            queues: Mutex::new((1..QUEUES).rev().collect()),
            instances: AtomicU32::new(0),
            process: std::process::id(),
            _attached: attached,
        });
        self_test::verify(&loaded.shared)?; // (a)
        *known = Arc::downgrade(&loaded);
        Ok(Programs(loaded))
    }

    /// Returns the number of signals let through because the programs did not know the descriptor,
    /// which happens rarely and only with PREEMPT_RT. Waits find their events by other means.
    pub fn unattributed(&self) -> u32 {
        self.shared().unattributed()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Allocates a queue for an instance. It may contain stale entries.
    pub(crate) fn queue(&self) -> Result<u32, Unavailable> {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).pop().ok_or_else(|| {
            Unavailable {
                call: "allocation of a queue",
                error: io::ErrorKind::QuotaExceeded.into(),
                remedy: "a process may have 255 instances of kernel-queue at a time",
            }
        })
    }

    pub(crate) fn release_queue(&self, queue: u32) {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).push(queue);
    }

    /// Returns a new owner of the kind `signal-per-fd`.
    pub(crate) fn signals(&self) -> u32 {
        SIGNALS | self.0.instances.fetch_add(1, Ordering::Relaxed)
    }
}
