//! Are the programs called? A kernel may load and attach them, and never do so.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::layout::{PENDING, SIGNALS, Shared};
use crate::mechanism::Unavailable;
use crate::mechanism::signal::{MOST, Signals};

/// Makes a descriptor signal twice, of which one is to be refused.
///
/// This is also what teaches the programs the number of this process, so it comes before all else.
pub(super) fn is_called(shared: &Shared) -> Result<(), Unavailable> {
    let mut signals = Signals::open(false)?;
    let (raised, word) = two_arrivals(shared, &mut signals).map_err(|error| Unavailable {
        call: "a signal from one socket to see whether the eBPF programs are called",
        error,
        remedy: "raise the limits of open files and of queued signals",
    })?;
    let verdict =
        |call, remedy| Err(Unavailable { call, error: io::ErrorKind::Unsupported.into(), remedy });
    if shared.strays() > 0 {
        return verdict(
            "fentry/send_sigio_to_task is attached, but the kernel never calls it",
            "a kernel in which that function is not inlined",
        );
    }
    match (raised, word & PENDING != 0) {
        (1, true) => Ok(()),
        (_, false) => verdict(
            "lsm/file_send_sigiotask is attached, but the kernel never calls it",
            "add bpf to the list lsm= of the kernel's command line (what it is now: \
                /sys/kernel/security/lsm)",
        ),
        (_, true) => verdict(
            "lsm/file_send_sigiotask refused one of two signals, and not one of them came",
            "raise the limit of queued signals (ulimit -i)",
        ),
    }
}

/// How many signals came of two arrivals, and what is marked.
fn two_arrivals(shared: &Shared, signals: &mut Signals) -> io::Result<(usize, u32)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (source, peer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let fd = source.as_raw_fd();
    shared.claim(fd, SIGNALS, signals.signal() as u32)?;
    // SAFETY: it is open until the end of this function.
    unsafe { signals.arm(fd)? };
    for _ in 0..2 {
        rustix::io::write(&peer, b"x")?;
    }
    let raised = signals.take(MOST)?.count;
    // SAFETY: as above.
    unsafe { signals.disarm(fd)? };
    shared.disown(fd);
    let word = shared.slot(fd).map_or(0, |slot| slot.word.swap(0, Ordering::SeqCst));
    Ok((raised, word))
}
