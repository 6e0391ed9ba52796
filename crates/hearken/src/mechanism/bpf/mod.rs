//! The eBPF programs that stand where the kernel decides to send a readiness signal.
//!
//! `signal_queue.bpf.c` is their source, `signal_queue.bpf.o` what `scripts/bpf` makes of it. They
//! are loaded once a process, and shared by its instances; each process has its own.
//!
//! a) A kernel may load and attach them and never call them: one whose `lsm=` lacks `bpf`. A descriptor
//!    is made to signal, once, before anything relies on them.
//! b) Loading needs CAP_BPF and CAP_PERFMON, and nothing afterwards does: [`Programs::load`], then
//!    [`drop_privileges`], then the threads. It is not done unasked, since the threads of a process
//!    have their capabilities apart, and since the process may want its own programs.
//! c) They stay attached while a [`Programs`] or an instance lives, and go with the process.
//! d) A child of fork(2) shares the memory, and its parent's programs do not look at its signals: it
//!    loads its own.

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

/// The programs, loaded and attached for as long as this or an instance that uses them lives.
#[derive(Clone, Debug)]
pub struct Programs(Arc<Loaded>);

#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) shared: Shared,
    queues: Mutex<Vec<u32>>,
    instances: AtomicU32,
    process: u32,
    /// Keeps them attached.
    _attached: load::Attached,
}

static LOADED: Mutex<Weak<Loaded>> = Mutex::new(Weak::new());

/// The programs let every signal of `fd` pass, if there are any: for an instance that counts on its
/// signals, and whose number may have been another's.
pub(crate) fn disown(fd: RawFd) {
    let known = LOADED.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    if let Some(loaded) = known.filter(|known| known.process == std::process::id()) {
        loaded.shared.disown(fd);
    }
}

impl Programs {
    /// Loads the programs, or finds them loaded, and makes sure that the kernel calls them.
    ///
    /// # Errors
    /// [`Unavailable`]: which call was refused for which program, how, and what would allow it.
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
        self_test::is_called(&loaded.shared)?; // (a)
        *known = Arc::downgrade(&loaded);
        Ok(Programs(loaded))
    }

    /// How many signals were let pass because the programs could not know the descriptor: on a kernel
    /// with PREEMPT_RT, and seldom. They are found by other means.
    pub fn strays(&self) -> u32 {
        self.shared().strays()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// A queue that no instance has; it may hold what belongs to no one.
    pub(crate) fn queue(&self) -> Result<u32, Unavailable> {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).pop().ok_or_else(|| {
            Unavailable {
                call: "one more queue",
                error: io::ErrorKind::QuotaExceeded.into(),
                remedy: "a process may have 255 instances at once",
            }
        })
    }

    pub(crate) fn give_back(&self, queue: u32) {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).push(queue);
    }

    /// An owner of the kind `signal-per-fd` that there was not before.
    pub(crate) fn signals(&self) -> u32 {
        SIGNALS | self.0.instances.fetch_add(1, Ordering::Relaxed)
    }
}
