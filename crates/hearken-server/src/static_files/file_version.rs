//! By what a file is known to be the same, and unchanged.

use std::ffi::CStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, StatxTimestamp};
use rustix::{fd::AsFd, io};

const FIELDS: StatxFlags = StatxFlags::BASIC_STATS;

/// For how long after a change the file may change again without that being seen: file systems
/// take their times from a clock that ticks only every 1 to 10 ms.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// What a file system says of a file; two that are equal, of a file that was
/// [`settled`](Stamp::settled), are of the same bytes. (Bytes written through a shared mapping show
/// when the kernel first marks the page as written, not at each store.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileVersion {
    device: (u32, u32),
    inode: u64,
    /// In bytes.
    pub(super) size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

/// What the kernel says of a path or descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileStatus {
    pub(super) kind: FileType,
    pub(super) version: FileVersion,
}

impl FileStatus {
    /// Of an open file.
    pub(super) fn from_fd<F: AsFd>(file: F) -> io::Result<FileStatus> {
        rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, FIELDS)
            .map(|found| FileStatus::from_statx(&found))
    }

    /// Of what an absolute path leads to.
    pub(super) fn from_path(path: &CStr) -> io::Result<FileStatus> {
        rustix::fs::statx(CWD, path, AtFlags::empty(), FIELDS)
            .map(|found| FileStatus::from_statx(&found))
    }

    /// Of what an absolute path names, even if that is a symbolic link.
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
    /// Whether it is the same file, whatever became of its bytes.
    pub(super) fn same_file(&self, other: &FileVersion) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether any later change must show. Not so for a file that changed just before `now`.
    pub(super) fn is_stable(&self, now: SystemTime) -> bool {
        let changed = time(self.changed);
        let apart = changed.map(|changed| match now.duration_since(changed) {
            Ok(ago) => ago,
            // The wall clock was set back; the next change has another time all the same.
            Err(ahead) => ahead.duration(),
        });
        apart.is_none_or(|apart| apart > CLOCK_TICK)
    }

    /// When its bytes were last changed, in seconds since 1970, if that is a time that HTTP can
    /// tell.
    pub(super) fn modified(&self) -> Option<u64> {
        const YEAR_10_000: u64 = 253_402_300_800;
        u64::try_from(self.modified.0).ok().filter(|&seconds| seconds < YEAR_10_000)
    }

    /// A number that another stamp has by a chance of 2^-64 only, and that does not tell what is
    /// in the stamp. The same in every worker and after a restart. A `salt` makes it another.
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
            // Each step loses nothing: stamps that differ in one word differ in the result.
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

    fn stamp(modified: i64, changed: (i64, u32)) -> FileVersion {
        FileVersion { device: (8, 1), inode: 77, size: 5, modified: (modified, 3), changed }
    }

    #[test]
    fn settled_is_away_from_now() {
        let now = UNIX_EPOCH + Duration::new(1_000, 500_000_000);
        for (changed, settled) in [
            ((1_000, 500_000_000), false),
            ((1_000, 485_000_000), false),
            ((1_000, 515_000_000), false),
            ((1_000, 470_000_000), true),
            ((999, 500_000_000), true),
            ((2_000, 0), true),
            ((-5, 0), true),
            ((0, 0), true),
        ] {
            assert_eq!(stamp(0, changed).is_stable(now), settled, "{changed:?}");
        }
    }

    #[test]
    fn times_that_http_cannot_tell() {
        assert_eq!(stamp(-1, (0, 0)).modified(), None);
        assert_eq!(stamp(i64::MAX, (i64::MAX, 0)).modified(), None);
        assert_eq!(stamp(i64::MIN, (i64::MIN, 0)).modified(), None);
        assert_eq!(stamp(253_402_300_800, (0, 0)).modified(), None);
        assert_eq!(stamp(0, (0, 0)).modified(), Some(0));
        assert_eq!(stamp(9, (0, 0)).modified(), Some(9));
    }

    #[test]
    fn fingerprints_differ() {
        let base = stamp(1, (1, 1));
        let mut seen = vec![base.fingerprint(0), base.fingerprint(1)];
        for other in [
            FileVersion { device: (1, 8), ..base },
            FileVersion { inode: 78, ..base },
            FileVersion { size: 6, ..base },
            stamp(2, (1, 1)),
            stamp(1, (2, 1)),
            stamp(1, (1, 2)),
        ] {
            seen.push(other.fingerprint(0));
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }
}
