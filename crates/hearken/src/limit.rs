//! Which limit of this machine an error of the kernel tells of, and what raises it.

use std::io;

use rustix::io::Errno;

/// The limit that `error` tells of, with its name and what would raise it; `None` if it tells of no
/// limit.
pub fn met(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_io_error(error)? {
        Errno::MFILE => {
            "the table of descriptors is full (RLIMIT_NOFILE): raise it with ulimit -n, or use more \
             tables"
        }
        Errno::NFILE => "the system's table of open files is full: raise fs.file-max",
        Errno::NOBUFS | Errno::NOMEM => {
            "the kernel has no memory for it: more memory, a higher limit of the control group, or \
             a higher net.ipv4.tcp_mem"
        }
        Errno::NOSPC => {
            "too much is watched by epoll for this user: raise fs.epoll.max_user_watches"
        }
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => {
            "no port of the source address is left: more source addresses, or a wider \
             net.ipv4.ip_local_port_range"
        }
        _ => return None,
    })
}
