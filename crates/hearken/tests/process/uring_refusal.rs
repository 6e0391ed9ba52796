//! Refusals of io_uring: without free descriptors, and in a sandbox.
//!
//! Each test runs in a child process, since it changes a limit or the system call filter of the
//! process.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use hearken::io::uring::{Settings, UringIo};
use hearken::mechanism::{Registry, Unavailable, find};
use hearken::{Interest, Token};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::loss::pair;
use crate::suite::{AnyMechanism, Tests, in_child_process, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        names_the_limit_without_free_descriptors
        falls_back_in_a_sandbox
    }
}

/// Mechanisms that need a ring.
const POLLS: [&str; 3] = [
    "uring-poll:completions=16",
    "uring-poll:completions=16:work=cooperative",
    "uring-poll:completions=16:shots=one",
];

/// Mechanisms that use a ring if one is available.
const BATCHED: [&str; 4] = [
    "epoll-batched",
    "epoll-batched:trigger=level",
    "epoll-batched:wait=ring",
    "epoll-batched:via=calls",
];

/// Checks that the error names the limit, regardless of how many descriptors the process inherited.
fn names_the_limit_without_free_descriptors() {
    let null = std::fs::File::open("/dev/null").unwrap();
    // dup(2) does not set FD_CLOEXEC, so the child inherits these.
    let _inherited: Vec<OwnedFd> = (0..20).map(|_| rustix::io::dup(&null).unwrap()).collect();
    in_child_process(|| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        // All descriptors below this one are open.
        let free = u64::try_from(rustix::io::dup(&null).unwrap().as_raw_fd()).unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(free), maximum }).unwrap();
        for spec in POLLS.iter().chain(&BATCHED) {
            let Unavailable { call, error, remedy } = find(spec).unwrap().open().unwrap_err();
            assert!(["io_uring_setup", "epoll_create1"].contains(&call));
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
            assert!(remedy.contains("limit of open files"), "{remedy}");
        }
        let refused = UringIo::new(Settings::default()).unwrap_err();
        assert_eq!(refused.call, "io_uring_setup");
        // One free descriptor suffices for a ring, and not for the pair of sockets for wake-ups.
        setrlimit(Resource::Nofile, Rlimit { current: Some(free + 1), maximum }).unwrap();
        let refused = UringIo::new(Settings::default()).unwrap_err();
        assert_eq!(
            (refused.call, refused.error.raw_os_error()),
            ("socketpair", Some(libc::EMFILE))
        );
    });
}

/// Checks that polls through io_uring report the reason where a sandbox refuses io_uring, and that
/// batched epoll submits its changes one by one instead.
fn falls_back_in_a_sandbox() {
    in_child_process(|| {
        refuse_system_call(libc::SYS_io_uring_setup);
        for spec in POLLS.iter().chain(&["epoll-batched:wait=ring"]) {
            let Unavailable { call, error, remedy } = find(spec).unwrap().open().unwrap_err();
            assert_eq!((call, error.raw_os_error()), ("io_uring_setup", Some(libc::EPERM)));
            assert!(remedy.contains("kernel.io_uring_disabled"), "{remedy}");
        }
        let Unavailable { call, error, remedy } = UringIo::new(Settings::default()).unwrap_err();
        assert_eq!((call, error.raw_os_error()), ("io_uring_setup", Some(libc::EPERM)));
        assert!(remedy.contains("kernel.io_uring_disabled"), "{remedy}");

        let mechanism = find("epoll-batched").unwrap().open().unwrap();
        let mut registry = Registry::<AnyMechanism, OwnedFd>::new(mechanism);
        let pairs: Vec<_> = (0..10)
            .map(|_| {
                let (source, peer) = pair(0).unwrap();
                let token = registry.insert(source);
                registry.declare(token, Interest::READ).unwrap();
                (token, peer)
            })
            .collect();
        let mut wait = |timeout| -> (Vec<Token>, u64) {
            let before = registry.counters().calls;
            let count = registry.wait(64, Some(timeout)).unwrap();
            let tokens =
                (0..count).filter_map(|index| registry.event(index)).map(|event| event.token);
            (tokens.collect(), registry.counters().calls - before)
        };
        assert_eq!(wait(Duration::ZERO), (Vec::new(), 11));
        for (token, peer) in &pairs {
            rustix::io::write(peer, b"x").unwrap();
            assert_eq!(wait(Duration::from_secs(20)).0, [*token]);
        }
    });
}

/// Makes the kernel refuse a system call with EPERM in this process.
fn refuse_system_call(call: libc::c_long) {
    let step = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The data that a filter reads begins with the number of the call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 0, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    #[allow(unsafe_code)]
    // SAFETY: the program outlives the calls, which only revoke privileges.
    let is_refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(is_refused, "{}", std::io::Error::last_os_error());
}
