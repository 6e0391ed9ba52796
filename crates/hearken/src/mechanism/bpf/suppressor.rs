//! At most one queued signal per descriptor, decided by the kernel.

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::Programs;
use super::layout::raised;
use crate::mechanism::Unavailable;
use crate::mechanism::signal::Raised;
use crate::mechanism::signal::dispatch::Pending;

/// The kernel's half of `signal-per-fd:where=kernel`, for one instance.
///
/// [`watch`](Self::watch) comes before a descriptor is armed. Nothing need be said when it is disarmed
/// or closed: its signal may be queued then, and its mark goes with that.
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
    /// For an instance that arms its descriptors with `signal`.
    pub(crate) fn open(signal: i32) -> Result<Suppressor, Unavailable> {
        let programs = Programs::load()?;
        let owner = programs.signals();
        Ok(Suppressor { programs, owner, signal: signal as u32 })
    }

    /// From now on, at most one signal for `fd` is queued.
    ///
    /// # Errors
    /// `ENOSPC` if its number is beyond the limit of open files that held when the programs were
    /// loaded.
    pub(crate) fn watch(&self, fd: RawFd) -> io::Result<()> {
        self.programs.shared().claim(fd, self.owner, self.signal)
    }
}

impl Drop for Suppressor {
    fn drop(&mut self) {
        self.programs.shared().disown_all(self.owner);
    }
}

impl Pending for Suppressor {
    /// Takes the word, so that the next arrival queues a signal again. It says of all that has arrived,
    /// the signal only of the first.
    #[inline]
    fn taken(&mut self, signal: Raised) -> Raised {
        let shared = self.programs.shared();
        let slot = shared.slot(signal.fd);
        match slot.filter(|slot| slot.owner.load(Ordering::Relaxed) == self.owner) {
            Some(slot) => {
                let told = raised(signal.fd, slot.word.swap(0, Ordering::AcqRel));
                let told = Raised { merged: true, ..told };
                // Where signals stray, this may be one: no word tells of it.
                match shared.strays() {
                    0 => told,
                    _ => Raised { readiness: told.readiness | signal.readiness, ..told },
                }
            }
            None => Raised { fd: -1, ..signal },
        }
    }

    /// The mark of a descriptor whose signal was lost would keep it silent for ever.
    #[cold]
    fn overflowed(&mut self) {
        for slot in self.programs.shared().slots.iter() {
            if slot.owner.load(Ordering::Relaxed) == self.owner {
                slot.word.store(0, Ordering::SeqCst);
            }
        }
    }
}
