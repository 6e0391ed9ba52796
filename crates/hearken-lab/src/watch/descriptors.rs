//! How many descriptors and sockets processes have open, without looking at each of very many.
//!
//! The size of `/proc/PID/fd` is the number of descriptors (Linux 6.2; before, its entries are
//! counted). Whether one is a socket takes a `readlink(2)`, which a server with a hundred thousand
//! of them would feel: the kernel locks its table for each.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Descriptors that are looked at one by one in a sample; above, they are taken for sockets.
const LOOKED_AT: u64 = 4_096;
/// The same the first time, when nothing is known yet.
const LOOKED_AT_FIRST: u64 = 200_000;
/// Threads of a process that may have tables of their own; more are taken to share one.
const MOST_TABLES: usize = 64;
/// Descriptors by which two tables are told from one another.
const SAMPLED: usize = 32;

/// Counts them.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    /// Descriptors that were no sockets, or second ones of a socket, when last looked at.
    others: Option<u64>,
}

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) descriptors: Option<u64>,
    pub(crate) sockets: Option<u64>,
    /// What could not be looked at, and why.
    pub(crate) refused: Option<String>,
}

impl Counter {
    /// Counts what is in `tables`; one that has gone has nothing.
    pub(crate) fn count(&mut self, tables: &[PathBuf]) -> Counted {
        let mut descriptors = 0;
        for table in tables {
            match size(table) {
                Ok(size) => descriptors += size,
                Err(error) if has_gone(&error) => {}
                Err(error) => {
                    return Counted { refused: said(table, &error), ..Counted::default() };
                }
            }
        }
        let most = if self.others.is_some() { LOOKED_AT } else { LOOKED_AT_FIRST };
        if descriptors > most {
            let sockets = descriptors.saturating_sub(*self.others.get_or_insert(0));
            return Counted {
                descriptors: Some(descriptors),
                sockets: Some(sockets),
                refused: None,
            };
        }
        let (mut seen, mut sockets) = (0u64, HashSet::new());
        for table in tables {
            match look(table, usize::MAX, |_, link| {
                seen += 1;
                sockets.extend(socket_inode(link));
            }) {
                // Nor is it then known whether threads have tables of their own.
                Err(error) if !has_gone(&error) => {
                    return Counted { refused: said(table, &error), ..Counted::default() };
                }
                _ => {}
            }
        }
        let sockets = sockets.len() as u64;
        self.others = Some(seen - sockets);
        Counted { descriptors: Some(descriptors), sockets: Some(sockets), refused: None }
    }
}

/// The tables of descriptors that the `threads` of a process have: one, or several where threads
/// have their own.
pub(crate) fn tables(pid: i32, threads: &[i32]) -> Vec<PathBuf> {
    let shared = PathBuf::from(format!("/proc/{pid}/fd"));
    if threads.len() < 2 || threads.len() > MOST_TABLES {
        return vec![shared];
    }
    let path = |thread: i32| PathBuf::from(format!("/proc/{pid}/task/{thread}/fd"));
    let sample = || threads.iter().map(|&thread| sampled(&path(thread))).collect::<Vec<_>>();
    let (first, again) = (sample(), sample());
    let twice = |index: usize| [&first[index], &again[index]];
    let mut owners: Vec<usize> = Vec::new();
    for index in 0..threads.len() {
        if !owners.iter().any(|&owner| is_same(twice(owner), twice(index))) {
            owners.push(index);
        }
    }
    match owners.as_slice() {
        [_] => vec![shared],
        _ => owners.into_iter().map(|owner| path(threads[owner])).collect(),
    }
}

type Sampled = HashMap<u64, PathBuf>;

/// Whether two tables, each of which was looked at twice, are one: each has most of what stays in the
/// other. What comes and goes proves nothing.
fn is_same(one: [&Sampled; 2], other: [&Sampled; 2]) -> bool {
    has_most(one, other) && has_most(other, one)
}

fn has_most(of: [&Sampled; 2], within: [&Sampled; 2]) -> bool {
    let stays = of[0].iter().filter(|(fd, link)| of[1].get(fd) == Some(link));
    let (mut all, mut same) = (0, 0);
    for (fd, link) in stays {
        all += 1;
        same += usize::from(within.iter().any(|sampled| sampled.get(fd) == Some(link)));
    }
    same * 2 > all || all == 0
}

/// The first descriptors after the standard ones that have an identity, as sockets and pipes have.
fn sampled(table: &Path) -> Sampled {
    let mut sampled = Sampled::new();
    let looked = look(table, SAMPLED, |fd, link| {
        let bytes = link.as_os_str().as_bytes();
        if fd > 2 && (bytes.starts_with(b"socket:[") || bytes.starts_with(b"pipe:[")) {
            sampled.insert(fd, link.to_owned());
        }
    });
    // One that cannot be looked at is like any other.
    if looked.is_err() { Sampled::new() } else { sampled }
}

/// Calls `see` with up to `most` descriptors and what they refer to.
fn look(table: &Path, most: usize, mut see: impl FnMut(u64, &Path)) -> io::Result<()> {
    for entry in fs::read_dir(table)?.take(most) {
        let entry = entry?;
        let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // One that is closed meanwhile is not there.
        if let (Some(fd), Ok(link)) = (fd, fs::read_link(entry.path())) {
            see(fd, &link);
        }
    }
    Ok(())
}

fn size(table: &Path) -> io::Result<u64> {
    match fs::metadata(table)?.len() {
        0 => Ok(fs::read_dir(table)?.count() as u64),
        size => Ok(size),
    }
}

/// The process or the thread has ended.
fn has_gone(error: &io::Error) -> bool {
    const NO_SUCH_PROCESS: i32 = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(NO_SUCH_PROCESS)
}

fn said(table: &Path, error: &io::Error) -> Option<String> {
    let remedy = "run as the server's user or as root, or with CAP_SYS_PTRACE";
    Some(format!("sockets and descriptors: reading {}: {error}; {remedy}", table.display()))
}

/// The number in `socket:[4242]`.
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
    fn a_socket_with_several_descriptors_is_one() {
        let (_one, one) = table([socket(7), socket(7), "/dev/null".into(), "pipe:[9]".into()]);
        let (_other, other) = table([socket(7), socket(8)]);
        let mut counter = Counter::default();
        let counted = counter.count(&[one, other, "/no/such/table".into()]);
        assert_eq!(counted.sockets, Some(2));
        assert_eq!((counter.others, counted.refused), (Some(4), None));
    }

    #[test]
    fn tables_are_told_apart_by_what_stays_in_them() {
        let seen = |links: &[(u64, &str)]| -> Sampled {
            links.iter().map(|&(fd, link)| (fd, PathBuf::from(link))).collect()
        };
        let now = seen(&[(3, "socket:[1]"), (4, "socket:[2]"), (5, "socket:[3]")]);
        let later = seen(&[(3, "socket:[1]"), (4, "socket:[2]"), (5, "socket:[9]")]);
        let same = |links: &[(u64, &str)]| is_same([&now, &later], [&seen(links), &seen(links)]);
        // The fifth comes and goes: it tells nothing.
        assert!(same(&[(3, "socket:[1]"), (4, "socket:[2]")]));
        assert!(same(&[(3, "socket:[1]"), (4, "socket:[2]"), (5, "socket:[7]")]));
        assert!(!same(&[(3, "socket:[1]"), (4, "socket:[8]")]));
        assert!(!same(&[(3, "socket:[5]"), (4, "socket:[6]")]));
        // Two that have nothing may be one, but one that has nothing is not one that has.
        assert!(!same(&[]));
        assert!(is_same([&seen(&[]); 2], [&seen(&[]); 2]));
    }

    #[test]
    fn threads_that_share_a_table_have_one() {
        let this = std::process::id().cast_signed();
        let _kept = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let threads = crate::meter::Meter::open(this).unwrap().threads().unwrap();
        assert!(!tables(this, &threads).is_empty());
        assert_eq!(tables(this, &[this]), [PathBuf::from(format!("/proc/{this}/fd"))]);
        let many = vec![this; MOST_TABLES + 1];
        assert_eq!(tables(this, &many).len(), 1);
    }

    #[test]
    fn a_link_is_a_socket_or_not() {
        assert_eq!(socket_inode(Path::new("socket:[12]")), Some(12));
        for other in ["pipe:[12]", "socket:[x]", "socket:[12", "/a/socket:[1]", ""] {
            assert_eq!(socket_inode(Path::new(other)), None);
        }
    }
}
