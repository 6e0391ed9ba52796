//! The accuracy of this machine's real-time clock: adjtimex(2).
//!
//! A time service (chrony, ntpd, systemd-timesyncd, a hypervisor's agent) synchronises the clock
//! and reports its error bound to the kernel. The kernel lets the bound grow between its updates.
//!
//! ```
//! match hearken::clock_sync::sync_status() {
//!     Ok(state) if state.synchronised => println!("accurate to {} us", state.max_error_us),
//!     Ok(_) => println!("the clock is not synchronised"),
//!     // The system-call filters of some containers refuse it.
//!     Err(error) => println!("adjtimex: {error}"),
//! }
//! ```

use std::io;

use crate::sys;

/// The kernel's state of its real-time clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncStatus {
    /// Whether a time service synchronises the clock.
    pub synchronised: bool,
    /// Maximum error in microseconds. It is 16 seconds or more if unknown.
    pub max_error_us: u64,
    /// Estimated error in microseconds.
    pub estimated_error_us: u64,
}

/// Returns the kernel's state of the clock. It needs no privileges.
///
/// # Errors
/// The system call is refused, as by the filter of a container.
pub fn sync_status() -> io::Result<SyncStatus> {
    let (result, state) = sys::adjtimex()?;
    let micros = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    Ok(SyncStatus {
        synchronised: result != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0,
        max_error_us: micros(state.maxerror),
        estimated_error_us: micros(state.esterror),
    })
}

#[cfg(test)]
mod tests {
    use super::sync_status;

    /// Checks that a synchronised clock has an error bound of at most 16 seconds.
    #[test]
    fn synchronised_clocks_have_a_bounded_error() {
        match sync_status() {
            Ok(state) => {
                assert!(!state.synchronised || state.max_error_us < 16_000_000, "{state:?}");
                assert!(state.estimated_error_us <= 16_000_000, "{state:?}");
            }
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}"),
        }
    }
}
