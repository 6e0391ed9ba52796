//! Translates kernel errors into the resource limit they report and advice on raising it.

use std::io;

use rustix::io::Errno;

/// Returns the resource limit that `error` reports and how to raise it, or `None` if it reports no
/// limit.
///
/// ```
/// let error = std::io::Error::from_raw_os_error(libc::EMFILE);
/// assert!(hearken::limit::describe(&error).is_some_and(|advice| advice.contains("ulimit -n")));
/// ```
pub fn describe(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_io_error(error)? {
        Errno::MFILE => {
            "the file descriptor table is full (RLIMIT_NOFILE): raise the limit with ulimit -n, or \
             use more tables"
        }
        Errno::NFILE => "the system's table of open files is full: raise fs.file-max",
        Errno::NOBUFS | Errno::NOMEM => {
            "the kernel is out of memory: add memory, raise the memory limit of the control group, \
             or raise net.ipv4.tcp_mem"
        }
        Errno::NOSPC => "this user's epoll watches are used up: raise fs.epoll.max_user_watches",
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => {
            "the source address has no free port: add source addresses, or widen \
             net.ipv4.ip_local_port_range"
        }
        _ => return None,
    })
}
