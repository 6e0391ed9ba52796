//! Limits each descriptor to one queued signal, in the kernel.

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::Programs;
use super::layout::signal_info;
use crate::mechanism::Unavailable;
use crate::mechanism::signal::SignalInfo;
use crate::mechanism::signal::dispatcher::SignalFilter;

/// The kernel's part of `signal-per-fd:where=kernel`, for one instance.
///
/// [`watch`](Self::watch) is called before a descriptor is armed. Disarming or closing it needs no
/// call: its signal may still be queued, and taking the signal clears its mark.
pub(crate) struct Suppressor {
    programs: Programs,
    owner: u32,
    signal: u32,
}

impl fmt::Debug for Suppressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suppressor").field("signal", &self.signal).finish_non_exhaustive()
    }
}

impl Suppressor {
    /// Creates a suppressor for an instance that arms its descriptors with `signal`.
    pub(crate) fn open(signal: i32) -> Result<Suppressor, Unavailable> {
        let programs = Programs::load()?;
        let owner = programs.signals();
        Ok(Suppressor { programs, owner, signal: signal as u32 })
    }

    /// Limits `fd` to one queued signal from now on.
    ///
    /// # Errors
    /// `ENOSPC` if `fd` exceeds the limit of open files at the time the programs were loaded.
    pub(crate) fn watch(&self, fd: RawFd) -> io::Result<()> {
        self.programs.shared().claim(fd, self.owner, self.signal)
    }
}

impl Drop for Suppressor {
    fn drop(&mut self) {
        self.programs.shared().disown_all(self.owner);
    }
}

impl SignalFilter for Suppressor {
    /// Clears the word of the descriptor, so that its next arrival queues a signal again. The word
    /// contains all arrivals, the signal only the first.
    #[inline]
    fn on_signal(&mut self, signal: SignalInfo) -> SignalInfo {
        let shared = self.programs.shared();
        let slot = shared.slot(signal.fd);
        match slot.filter(|slot| slot.owner.load(Ordering::Relaxed) == self.owner) {
            Some(slot) => {
                let merged = signal_info(signal.fd, slot.word.swap(0, Ordering::AcqRel));
                let merged = SignalInfo { merged: true, ..merged };
                // The signal may be unattributed, so that no word contains its readiness.
                match shared.unattributed() {
                    0 => merged,
                    _ => SignalInfo { readiness: merged.readiness | signal.readiness, ..merged },
                }
            }
            None => SignalInfo { fd: -1, ..signal },
        }
    }

    /// Clears all marks: that of a descriptor whose signal was dropped would silence it
    /// indefinitely.
    #[cold]
    fn on_overflow(&mut self) {
        for slot in self.programs.shared().slots.iter() {
            if slot.owner.load(Ordering::Relaxed) == self.owner {
                slot.word.store(0, Ordering::SeqCst);
            }
        }
    }
}
