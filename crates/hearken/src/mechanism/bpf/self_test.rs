//! Verifies that the kernel calls the programs: it may load and attach them without calling them.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::layout::{PENDING, SIGNALS, Shared};
use crate::mechanism::Unavailable;
use crate::mechanism::signal::{MAX_SIGNALS, Signals};

/// Makes a descriptor raise two signals, of which the programs must suppress one.
///
/// This also informs the programs of the ID of this process, so it precedes any other use.
pub(super) fn verify(shared: &Shared) -> Result<(), Unavailable> {
    let mut signals = Signals::open(false)?;
    let (signal_info, word) = two_arrivals(shared, &mut signals).map_err(|error| Unavailable {
        call: "a test signal from a socket",
        error,
        remedy: "raise the limits of open files and of queued signals",
    })?;
    let fail =
        |call, remedy| Err(Unavailable { call, error: io::ErrorKind::Unsupported.into(), remedy });
    if shared.unattributed() > 0 {
        return fail(
            "fentry/send_sigio_to_task is attached, but the kernel never calls it",
            "it needs a kernel in which that function is not inlined",
        );
    }
    match (signal_info, word & PENDING != 0) {
        (1, true) => Ok(()),
        (_, false) => fail(
            "lsm/file_send_sigiotask is attached, but the kernel never calls it",
            "add bpf to the list lsm= of the kernel's command line (current value: \
                /sys/kernel/security/lsm)",
        ),
        (_, true) => fail(
            "lsm/file_send_sigiotask suppressed one of two signals, and the other was not received",
            "raise the limit of queued signals (ulimit -i)",
        ),
    }
}

/// Returns the number of signals from two arrivals, and the word of the descriptor.
fn two_arrivals(shared: &Shared, signals: &mut Signals) -> io::Result<(usize, u32)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (source, peer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let fd = source.as_raw_fd();
    shared.claim(fd, SIGNALS, signals.signal() as u32)?;
    // SAFETY: the descriptor is open until the end of this function.
    unsafe { signals.arm(fd)? };
    for _ in 0..2 {
        rustix::io::write(&peer, b"x")?;
    }
    let signal_info = signals.take(MAX_SIGNALS)?.count;
    // SAFETY: as above.
    unsafe { signals.disarm(fd)? };
    shared.disown(fd);
    let word = shared.slot(fd).map_or(0, |slot| slot.word.swap(0, Ordering::SeqCst));
    Ok((signal_info, word))
}
