//! Numbers of open descriptors and sockets of processes, without reading each of very many.
//!
//! The size of `/proc/PID/fd` is the number of descriptors since Linux 6.2; older kernels require
//! counting its entries. Identifying a socket takes a `readlink(2)`, for which the kernel locks the
//! descriptor table. This would slow down a server with a hundred thousand descriptors.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of descriptors that a sample reads. Above, the others are assumed to be sockets.
const MAX_READ: u64 = 4_096;
/// Maximum number of descriptors that the first sample reads.
const MAX_READ_FIRST: u64 = 200_000;
/// Maximum number of threads that are checked for separate tables; more are assumed to share one.
const MAX_TABLES: usize = 64;
/// Number of descriptors that are compared to distinguish two tables.
const SAMPLE_SIZE: usize = 32;

/// A counter of descriptors and sockets.
#[derive(Debug, Default)]
pub(crate) struct DescriptorCounter {
    /// Descriptors that are not sockets, or duplicates of a socket, when they were last read.
    non_sockets: Option<u64>,
}

/// Result of counting.
#[derive(Debug, Default)]
pub(crate) struct DescriptorCounts {
    pub(crate) descriptors: Option<u64>,
    pub(crate) sockets: Option<u64>,
    /// Description of a table that is not readable, with the reason.
    pub(crate) error: Option<String>,
}

impl DescriptorCounter {
    /// Counts the descriptors in `tables`. Tables of exited processes count as empty.
    pub(crate) fn count(&mut self, tables: &[PathBuf]) -> DescriptorCounts {
        let mut descriptors = 0;
        for table in tables {
            match count_entries(table) {
                Ok(size) => descriptors += size,
                Err(error) if has_exited(&error) => {}
                Err(error) => {
                    return DescriptorCounts {
                        error: access_error(table, &error),
                        ..DescriptorCounts::default()
                    };
                }
            }
        }
        let max = if self.non_sockets.is_some() { MAX_READ } else { MAX_READ_FIRST };
        if descriptors > max {
            let sockets = descriptors.saturating_sub(*self.non_sockets.get_or_insert(0));
            return DescriptorCounts {
                descriptors: Some(descriptors),
                sockets: Some(sockets),
                error: None,
            };
        }
        let (mut seen, mut sockets) = (0u64, HashSet::new());
        for table in tables {
            match for_each_link(table, usize::MAX, |_, link| {
                seen += 1;
                sockets.extend(socket_inode(link));
            }) {
                // Without access, it is also unknown whether threads have separate tables.
                Err(error) if !has_exited(&error) => {
                    return DescriptorCounts {
                        error: access_error(table, &error),
                        ..DescriptorCounts::default()
                    };
                }
                _ => {}
            }
        }
        let sockets = sockets.len() as u64;
        self.non_sockets = Some(seen - sockets);
        DescriptorCounts { descriptors: Some(descriptors), sockets: Some(sockets), error: None }
    }
}

/// Returns the distinct descriptor tables of the `threads` of a process. Threads usually share one
/// table but may have their own.
pub(crate) fn tables(pid: i32, threads: &[i32]) -> Vec<PathBuf> {
    let shared = PathBuf::from(format!("/proc/{pid}/fd"));
    if threads.len() < 2 || threads.len() > MAX_TABLES {
        return vec![shared];
    }
    let path = |thread: i32| PathBuf::from(format!("/proc/{pid}/task/{thread}/fd"));
    let sample = || threads.iter().map(|&thread| sample_table(&path(thread))).collect::<Vec<_>>();
    let (first, again) = (sample(), sample());
    let twice = |index: usize| [&first[index], &again[index]];
    let mut owners: Vec<usize> = Vec::new();
    for index in 0..threads.len() {
        if !owners.iter().any(|&owner| is_same_table(twice(owner), twice(index))) {
            owners.push(index);
        }
    }
    match owners.as_slice() {
        [_] => vec![shared],
        _ => owners.into_iter().map(|owner| path(threads[owner])).collect(),
    }
}

type TableSample = HashMap<u64, PathBuf>;

/// Returns whether two tables, each sampled twice, are the same: each contains most of the stable
/// entries of the other. Entries that change between samples are ignored.
fn is_same_table(one: [&TableSample; 2], other: [&TableSample; 2]) -> bool {
    contains_most(one, other) && contains_most(other, one)
}

fn contains_most(of: [&TableSample; 2], within: [&TableSample; 2]) -> bool {
    let stays = of[0].iter().filter(|(fd, link)| of[1].get(fd) == Some(link));
    let (mut all, mut same) = (0, 0);
    for (fd, link) in stays {
        all += 1;
        same += usize::from(within.iter().any(|sampled| sampled.get(fd) == Some(link)));
    }
    same * 2 > all || all == 0
}

/// Samples the first descriptors that identify their object, such as sockets and pipes.
fn sample_table(table: &Path) -> TableSample {
    let mut sampled = TableSample::new();
    let looked = for_each_link(table, SAMPLE_SIZE, |fd, link| {
        let bytes = link.as_os_str().as_bytes();
        if fd > 2 && (bytes.starts_with(b"socket:[") || bytes.starts_with(b"pipe:[")) {
            sampled.insert(fd, link.to_owned());
        }
    });
    // A table that is not readable is treated as empty.
    if looked.is_err() { TableSample::new() } else { sampled }
}

/// Calls `see` with up to `most` descriptors and their links.
fn for_each_link(table: &Path, max: usize, mut callback: impl FnMut(u64, &Path)) -> io::Result<()> {
    for entry in fs::read_dir(table)?.take(max) {
        let entry = entry?;
        let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // A descriptor that was closed in the meantime is skipped.
        if let (Some(fd), Ok(link)) = (fd, fs::read_link(entry.path())) {
            callback(fd, &link);
        }
    }
    Ok(())
}

/// Returns the number of descriptors in a table.
fn count_entries(table: &Path) -> io::Result<u64> {
    match fs::metadata(table)?.len() {
        0 => Ok(fs::read_dir(table)?.count() as u64),
        size => Ok(size),
    }
}

/// Returns whether the process or thread has exited.
fn has_exited(error: &io::Error) -> bool {
    const NO_SUCH_PROCESS: i32 = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(NO_SUCH_PROCESS)
}

/// Describes a table that is not readable.
fn access_error(table: &Path, error: &io::Error) -> Option<String> {
    let remedy = "run as the user of the server, as root or with CAP_SYS_PTRACE";
    Some(format!("sockets and descriptors: cannot read {}: {error}; {remedy}", table.display()))
}

/// Returns the inode number of a link such as `socket:[4242]`.
pub(crate) fn socket_inode(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn table(links: impl IntoIterator<Item = String>) -> (TempDir, PathBuf) {
        let dir = TempDir::new().unwrap();
        for (fd, link) in links.into_iter().enumerate() {
            symlink(link, dir.path().join(fd.to_string())).unwrap();
        }
        let path = dir.path().to_owned();
        (dir, path)
    }

    fn socket(inode: u64) -> String {
        format!("socket:[{inode}]")
    }

    #[test]
    fn socket_with_several_descriptors_counts_once() {
        let (_one, one) = table([socket(7), socket(7), "/dev/null".into(), "pipe:[9]".into()]);
        let (_other, other) = table([socket(7), socket(8)]);
        let mut counter = DescriptorCounter::default();
        let counted = counter.count(&[one, other, "/no/such/table".into()]);
        assert_eq!(counted.sockets, Some(2));
        assert_eq!((counter.non_sockets, counted.error), (Some(4), None));
    }

    #[test]
    fn tables_are_distinguished_by_stable_entries() {
        let seen = |links: &[(u64, &str)]| -> TableSample {
            links.iter().map(|&(fd, link)| (fd, PathBuf::from(link))).collect()
        };
        let now = seen(&[(3, "socket:[1]"), (4, "socket:[2]"), (5, "socket:[3]")]);
        let later = seen(&[(3, "socket:[1]"), (4, "socket:[2]"), (5, "socket:[9]")]);
        let same =
            |links: &[(u64, &str)]| is_same_table([&now, &later], [&seen(links), &seen(links)]);
        // Descriptor 5 changes and is ignored.
        assert!(same(&[(3, "socket:[1]"), (4, "socket:[2]")]));
        assert!(same(&[(3, "socket:[1]"), (4, "socket:[2]"), (5, "socket:[7]")]));
        assert!(!same(&[(3, "socket:[1]"), (4, "socket:[8]")]));
        assert!(!same(&[(3, "socket:[5]"), (4, "socket:[6]")]));
        // Two empty tables are considered the same, an empty and a non-empty one are not.
        assert!(!same(&[]));
        assert!(is_same_table([&seen(&[]); 2], [&seen(&[]); 2]));
    }

    #[test]
    fn threads_that_share_a_table_have_one_table() {
        let this = std::process::id().cast_signed();
        let _kept = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let threads = crate::accounting::ProcessAccounting::open(this).unwrap().threads().unwrap();
        assert!(!tables(this, &threads).is_empty());
        assert_eq!(tables(this, &[this]), [PathBuf::from(format!("/proc/{this}/fd"))]);
        let many = vec![this; MAX_TABLES + 1];
        assert_eq!(tables(this, &many).len(), 1);
    }

    #[test]
    fn parses_links_to_sockets() {
        assert_eq!(socket_inode(Path::new("socket:[12]")), Some(12));
        for other in ["pipe:[12]", "socket:[x]", "socket:[12", "/a/socket:[1]", ""] {
            assert_eq!(socket_inode(Path::new(other)), None);
        }
    }
}
