//! Who listens on a port.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::descriptors::socket_inode;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// The processes that have a socket which listens on `port`, in this network namespace.
pub(crate) fn listeners(port: u16) -> Result<Vec<i32>, String> {
    let mut sockets = HashSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match listening(Path::new(table), port) {
            Ok(found) => sockets.extend(found),
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read {table}: {error}")),
        }
    }
    if sockets.is_empty() {
        return Err(format!(
            "nobody listens on TCP port {port} here; a server in a container with a network of its \
             own is watched by its process id or its control group"
        ));
    }
    let (mut holders, denied) = holders(&sockets);
    // Systemd holds the sockets of the services that it starts when they are needed.
    if holders.len() > 1 {
        holders.retain(|&pid| pid != 1);
    }
    match (holders.as_slice(), denied) {
        ([1], _) => Err(format!(
            "only process 1 holds the socket that listens on port {port}; watch the unit that is \
             started for it"
        )),
        ([_, ..], _) => Ok(holders),
        ([], 0) => Err(format!(
            "somebody listens on port {port}, but no process that is seen here: it is in another \
             process namespace; watch its control group"
        )),
        ([], denied) => Err(format!(
            "somebody listens on port {port}, but the descriptors of {denied} processes may not be \
             looked at (/proc/PID/fd: permission denied); run as the server's user or as root, with \
             CAP_SYS_PTRACE, or give its process id"
        )),
    }
}

/// The inodes of the sockets that listen, line by line: there may be millions that do not.
fn listening(table: &Path, port: u16) -> io::Result<Vec<u64>> {
    let lines = BufReader::new(File::open(table)?).lines();
    let mut found = Vec::new();
    for line in lines {
        found.extend(listener(&line?).filter(|(of, _)| *of == port).map(|(_, inode)| inode));
    }
    Ok(found)
}

/// Port and inode, if the line is that of a listening socket.
fn listener(line: &str) -> Option<(u16, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    if state != LISTENING {
        return None;
    }
    let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
    Some((port, fields.nth(5)?.parse().ok()?))
}

/// Who has one of `sockets`, and how many processes would not show what they have.
fn holders(sockets: &HashSet<u64>) -> (Vec<i32>, usize) {
    let (mut found, mut denied) = (Vec::new(), 0);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids {
        match holds(pid, sockets) {
            Ok(true) => found.push(pid),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied += 1,
            _ => {}
        }
    }
    (found, denied)
}

fn holds(pid: i32, sockets: &HashSet<u64>) -> io::Result<bool> {
    let has = |table: &Path| -> io::Result<bool> {
        let links = fs::read_dir(table)?.flatten().map(|entry| fs::read_link(entry.path()));
        Ok(links.flatten().filter_map(|link| socket_inode(&link)).any(|of| sockets.contains(&of)))
    };
    if has(Path::new(&format!("/proc/{pid}/fd")))? {
        return Ok(true);
    }
    // A thread may have a table of its own.
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?.flatten().skip(1);
    Ok(threads.take(MOST_TABLES).any(|thread| has(&thread.path().join("fd")).unwrap_or(false)))
}

/// Threads of a process whose tables are looked at.
const MOST_TABLES: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn this_process_listens_and_is_found() {
        let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
        let this = std::process::id().cast_signed();
        assert!(listeners(v4.local_addr().unwrap().port()).unwrap().contains(&this));
        if let Ok(v6) = TcpListener::bind("[::1]:0") {
            assert!(listeners(v6.local_addr().unwrap().port()).unwrap().contains(&this));
        }
    }

    #[test]
    fn lines_of_the_kernel_are_understood_and_others_ignored() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  \
                    1000        0 4242 1 0000000000000000 100 0 0 10 0";
        assert_eq!(listener(line), Some((8080, 4242)));
        assert_eq!(listener(&line.replace(" 0A ", " 01 ")), None);
        let v6 = line.replace("0100007F", "00000000000000000000000001000000");
        assert_eq!(listener(&v6), Some((8080, 4242)));
        for odd in
            ["", "sl local_address rem_address st", "0: x y 0A 1 2 3 4 5 6", "0: :FFFFF z 0A"]
        {
            assert_eq!(listener(odd), None, "{odd}");
        }
    }
}
