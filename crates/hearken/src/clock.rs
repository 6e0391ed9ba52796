//! How far the real-time clock of this machine can be trusted: adjtimex(2).
//!
//! Whoever keeps the clock right (chrony, ntpd, systemd-timesyncd, a hypervisor's agent) tells the
//! kernel how right it is, and the kernel lets that grow worse with time.
//!
//! ```
//! match hearken::clock::discipline() {
//!     Ok(state) if state.synchronised => println!("right to {} us", state.max_error_us),
//!     Ok(_) => println!("nobody keeps this clock right"),
//!     // Some containers' filters of system calls refuse it.
//!     Err(error) => println!("adjtimex: {error}"),
//! }
//! ```

use std::io;

use crate::sys;

/// What the kernel knows of its real-time clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Discipline {
    /// Whether somebody keeps it right.
    pub synchronised: bool,
    /// By how much it is wrong at most, in microseconds; 16 seconds and more where nobody knows.
    pub max_error_us: u64,
    /// By how much it is probably wrong, in microseconds.
    pub estimated_error_us: u64,
}

/// Asks the kernel. This needs no privilege.
///
/// # Errors
/// The system call is refused, as by a filter of a container.
pub fn discipline() -> io::Result<Discipline> {
    let (answer, state) = sys::clock_discipline()?;
    let micros = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    Ok(Discipline {
        synchronised: answer != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0,
        max_error_us: micros(state.maxerror),
        estimated_error_us: micros(state.esterror),
    })
}

#[cfg(test)]
mod tests {
    use super::discipline;

    /// The kernel never says that a clock is synchronised whose error has grown beyond all bounds.
    #[test]
    fn the_kernel_answers() {
        match discipline() {
            Ok(state) => {
                assert!(!state.synchronised || state.max_error_us < 16_000_000, "{state:?}");
                assert!(state.estimated_error_us <= 16_000_000, "{state:?}");
            }
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}"),
        }
    }
}
