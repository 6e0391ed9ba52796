//! Detects changes of files.

use std::ffi::CStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, StatxTimestamp};
use rustix::{fd::AsFd, io};

const FIELDS: StatxFlags = StatxFlags::BASIC_STATS;

/// Time after a change within which another change may have the same timestamp. File systems use a
/// clock that ticks only every 1 to 10 ms.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// The identity, size and times of a file.
///
/// If two versions are equal and the first one [is stable](FileVersion::is_stable), the content is the
/// same. Exception: stores to a shared mapping change the times only when the kernel first marks
/// the page as dirty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileVersion {
    device: (u32, u32),
    inode: u64,
    /// Size in bytes.
    pub(super) size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

/// The type and version of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileStatus {
    pub(super) kind: FileType,
    pub(super) version: FileVersion,
}

impl FileStatus {
    /// Returns the status of an open file.
    pub(super) fn from_fd<F: AsFd>(file: F) -> io::Result<FileStatus> {
        rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, FIELDS)
            .map(|found| FileStatus::from_statx(&found))
    }

    /// Returns the status of the file that an absolute path refers to.
    pub(super) fn from_path(path: &CStr) -> io::Result<FileStatus> {
        rustix::fs::statx(CWD, path, AtFlags::empty(), FIELDS)
            .map(|found| FileStatus::from_statx(&found))
    }

    /// Returns the status of an absolute path, without following a symbolic link in its last
    /// component.
    #[inline]
    pub(super) fn from_path_no_follow(path: &CStr) -> io::Result<FileStatus> {
        rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, FIELDS)
            .map(|found| FileStatus::from_statx(&found))
    }

    #[inline]
    fn from_statx(found: &Statx) -> FileStatus {
        let time = |time: &StatxTimestamp| (time.tv_sec, time.tv_nsec);
        FileStatus {
            kind: FileType::from_raw_mode(found.stx_mode.into()),
            version: FileVersion {
                device: (found.stx_dev_major, found.stx_dev_minor),
                inode: found.stx_ino,
                size: found.stx_size,
                modified: time(&found.stx_mtime),
                changed: time(&found.stx_ctime),
            },
        }
    }
}

impl FileVersion {
    /// Creates the version of a simulated file. Times are since 1970-01-01 00:00:00 UTC.
    #[cfg(feature = "simulation")]
    pub(super) fn new(inode: u64, size: u64, modified: Duration, changed: Duration) -> FileVersion {
        let pair = |time: Duration| {
            (i64::try_from(time.as_secs()).unwrap_or(i64::MAX), time.subsec_nanos())
        };
        let (modified, changed) = (pair(modified), pair(changed));
        FileVersion { device: (0, 0), inode, size, modified, changed }
    }

    /// Returns whether both are versions of the same file.
    pub(super) fn same_file(&self, other: &FileVersion) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns whether every later change results in another version. This is not the case for a
    /// file that changed just before `now`.
    pub(super) fn is_stable(&self, now: SystemTime) -> bool {
        let changed = time(self.changed);
        let apart = changed.map(|changed| match now.duration_since(changed) {
            Ok(ago) => ago,
            // The wall clock was set back, but the next change will have another time anyway.
            Err(ahead) => ahead.duration(),
        });
        apart.is_none_or(|apart| apart > CLOCK_TICK)
    }

    /// Returns the modification time in seconds since 1970, if HTTP can represent it.
    pub(super) fn modified(&self) -> Option<u64> {
        const YEAR_10_000: u64 = 253_402_300_800;
        u64::try_from(self.modified.0).ok().filter(|&seconds| seconds < YEAR_10_000)
    }

    /// Returns a hash for the ETag. Different versions have the same hash with a probability of
    /// 2^-64. All workers and processes compute the same hash. The `salt` changes it.
    pub(super) fn fingerprint(&self, salt: u64) -> u64 {
        let pair = |(high, low): (u32, u32)| u64::from(high) << 32 | u64::from(low);
        [
            pair(self.device),
            self.inode,
            self.size,
            self.modified.0.cast_unsigned(),
            pair((self.modified.1, self.changed.1)),
            self.changed.0.cast_unsigned(),
            salt,
        ]
        .iter()
        .fold(0x243F_6A88_85A3_08D3, |mixed: u64, word| {
            // Each step is a bijection, so versions that differ in one word have different hashes.
            let mixed = (mixed ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            mixed ^ (mixed >> 32)
        })
    }
}

fn time((seconds, nanoseconds): (i64, u32)) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::new(u64::try_from(seconds).ok()?, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(modified: i64, changed: (i64, u32)) -> FileVersion {
        FileVersion { device: (8, 1), inode: 77, size: 5, modified: (modified, 3), changed }
    }

    #[test]
    fn versions_near_the_current_time_are_not_stable() {
        let now = UNIX_EPOCH + Duration::new(1_000, 500_000_000);
        for (changed, is_stable) in [
            ((1_000, 500_000_000), false),
            ((1_000, 485_000_000), false),
            ((1_000, 515_000_000), false),
            ((1_000, 470_000_000), true),
            ((999, 500_000_000), true),
            ((2_000, 0), true),
            ((-5, 0), true),
            ((0, 0), true),
        ] {
            assert_eq!(version(0, changed).is_stable(now), is_stable, "{changed:?}");
        }
    }

    #[test]
    fn omits_times_that_http_cannot_represent() {
        assert_eq!(version(-1, (0, 0)).modified(), None);
        assert_eq!(version(i64::MAX, (i64::MAX, 0)).modified(), None);
        assert_eq!(version(i64::MIN, (i64::MIN, 0)).modified(), None);
        assert_eq!(version(253_402_300_800, (0, 0)).modified(), None);
        assert_eq!(version(0, (0, 0)).modified(), Some(0));
        assert_eq!(version(9, (0, 0)).modified(), Some(9));
    }

    #[test]
    fn fingerprints_differ() {
        let base = version(1, (1, 1));
        let mut seen = vec![base.fingerprint(0), base.fingerprint(1)];
        for other in [
            FileVersion { device: (1, 8), ..base },
            FileVersion { inode: 78, ..base },
            FileVersion { size: 6, ..base },
            version(2, (1, 1)),
            version(1, (2, 1)),
            version(1, (1, 2)),
        ] {
            seen.push(other.fingerprint(0));
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }
}
