//! Lookup of the processes that listen on a port.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::descriptors::socket_inode;

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Returns the processes with a socket that listens on `port` in this network namespace.
pub(crate) fn find_listeners(port: u16) -> Result<Vec<i32>, String> {
    let mut sockets = HashSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match listening_sockets(Path::new(table), port) {
            Ok(found) => sockets.extend(found),
            // The kernel does not support IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read {table}: {error}")),
        }
    }
    if sockets.is_empty() {
        return Err(format!(
            "no process listens on TCP port {port}; specify a server in a container by its process id \
             or cgroup"
        ));
    }
    let (mut holders, denied) = find_owners(&sockets);
    // systemd holds the sockets of socket-activated services.
    if holders.len() > 1 {
        holders.retain(|&pid| pid != 1);
    }
    match (holders.as_slice(), denied) {
        ([1], _) => Err(format!(
            "only process 1 owns the socket that listens on port {port}; specify the \
             socket-activated unit"
        )),
        ([_, ..], _) => Ok(holders),
        ([], 0) => Err(format!(
            "the process that listens on port {port} is in another pid namespace; specify its \
             cgroup"
        )),
        ([], denied) => Err(format!(
            "the process that listens on port {port} is unknown: the descriptors of {denied} processes \
             are not readable (/proc/PID/fd: permission denied); run as the user of the server, as \
             root or with CAP_SYS_PTRACE, or specify its process id"
        )),
    }
}

/// Returns the inodes of listening sockets. Reads line by line, because there may be millions.
fn listening_sockets(table: &Path, port: u16) -> io::Result<Vec<u64>> {
    let lines = BufReader::new(File::open(table)?).lines();
    let mut found = Vec::new();
    for line in lines {
        found.extend(parse_listener(&line?).filter(|(of, _)| *of == port).map(|(_, inode)| inode));
    }
    Ok(found)
}

/// Parses port and inode of a listening socket.
fn parse_listener(line: &str) -> Option<(u16, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    if state != LISTENING {
        return None;
    }
    let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
    Some((port, fields.nth(5)?.parse().ok()?))
}

/// Returns the owners of `sockets`, and the number of processes whose descriptors are not readable.
fn find_owners(sockets: &HashSet<u64>) -> (Vec<i32>, usize) {
    let (mut found, mut denied) = (Vec::new(), 0);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids {
        match owns_any(pid, sockets) {
            Ok(true) => found.push(pid),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied += 1,
            _ => {}
        }
    }
    (found, denied)
}

/// Returns whether a process owns one of `sockets`.
fn owns_any(pid: i32, sockets: &HashSet<u64>) -> io::Result<bool> {
    let has = |table: &Path| -> io::Result<bool> {
        let links = fs::read_dir(table)?.flatten().map(|entry| fs::read_link(entry.path()));
        Ok(links.flatten().filter_map(|link| socket_inode(&link)).any(|of| sockets.contains(&of)))
    };
    if has(Path::new(&format!("/proc/{pid}/fd")))? {
        return Ok(true);
    }
    // A thread may have its own table.
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?.flatten().skip(1);
    Ok(threads.take(MAX_TABLES).any(|thread| has(&thread.path().join("fd")).unwrap_or(false)))
}

/// Maximum number of threads of a process whose tables are read.
const MAX_TABLES: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn finds_this_process() {
        let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
        let this = std::process::id().cast_signed();
        assert!(find_listeners(v4.local_addr().unwrap().port()).unwrap().contains(&this));
        if let Ok(v6) = TcpListener::bind("[::1]:0") {
            assert!(find_listeners(v6.local_addr().unwrap().port()).unwrap().contains(&this));
        }
    }

    #[test]
    fn parses_lines_of_listening_sockets() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  \
                    1000        0 4242 1 0000000000000000 100 0 0 10 0";
        assert_eq!(parse_listener(line), Some((8080, 4242)));
        assert_eq!(parse_listener(&line.replace(" 0A ", " 01 ")), None);
        let v6 = line.replace("0100007F", "00000000000000000000000001000000");
        assert_eq!(parse_listener(&v6), Some((8080, 4242)));
        for odd in
            ["", "sl local_address rem_address st", "0: x y 0A 1 2 3 4 5 6", "0: :FFFFF z 0A"]
        {
            assert_eq!(parse_listener(odd), None, "{odd}");
        }
    }
}
