//! Threads with a descriptor table of their own.

use std::fs;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use hearken::descriptors::Table;
use hearken::io::readiness::{Policy, ReadinessIo};
use hearken::io::{CompletionKind, Io};
use hearken::mechanism;
use hearken::{Waker, Wakeups};

use crate::suite::{Tests, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        a_new_table_contains_only_the_wake_ups
        wakers_of_other_threads_work
        closing_in_another_thread_closes_the_socket
        the_end_of_the_thread_closes_its_table
        numbers_of_the_process_are_not_in_the_table
        both_kinds_of_table_are_available
        the_thread_blocks_signals_of_the_process
    }
}

/// Returns the descriptor numbers in this thread's table, and the file of each.
fn open_descriptors() -> Vec<(i32, String)> {
    let entries = fs::read_dir("/proc/thread-self/fd").unwrap().map(Result::unwrap);
    let mut open: Vec<_> = entries
        .map(|entry| {
            let number = entry.file_name().to_str().unwrap().parse().unwrap();
            (number, fs::read_link(entry.path()).map(|to| to.display().to_string()))
        })
        // The descriptor of the directory is closed by now.
        .filter_map(|(number, to)| Some((number, to.ok()?)))
        .filter(|(_, to)| !to.contains("/fd"))
        .collect();
    open.sort();
    open
}

fn a_new_table_contains_only_the_wake_ups() {
    // Their numbers surround those of the wake-up sockets.
    let before: Vec<OwnedFd> = (0..5).map(|_| rustix::io::dup(io::stdin()).unwrap()).collect();
    let own = || {
        let started = Table::Own.spawn(Builder::new(), (), |(), wakeups| {
            let open = open_descriptors();
            drop(wakeups);
            Ok(open)
        });
        let (thread, waker) = started.unwrap();
        drop(waker);
        thread.join().unwrap().unwrap()
    };
    let first = own();
    assert_eq!(first.iter().filter(|(number, _)| *number > 2).count(), 2, "{first:?}");
    assert!(first[first.len() - 2..].iter().all(|(_, to)| to.starts_with("socket:")), "{first:?}");
    drop(before);
    own();
}

fn wakers_of_other_threads_work() {
    for entry in mechanism::TABLE.iter().filter(|entry| entry.spec().probe().is_ok()) {
        if entry.spec().needs_privileges() {
            continue;
        }
        for table in [Table::Shared, Table::Own] {
            let woken = |name: &'static str, wakeups: Wakeups| {
                let mechanism = mechanism::find(name).unwrap().open().unwrap();
                let mut io = ReadinessIo::with_wakeups(mechanism, Policy::default(), wakeups)?;
                loop {
                    // A mechanism that always wakes returns before the wake-up, without a
                    // completion.
                    io.wait(None)?;
                    if let Some(done) = io.next() {
                        return Ok(matches!(done.kind, CompletionKind::Woken));
                    }
                }
            };
            let (thread, waker) = table.spawn(Builder::new(), entry.name, woken).unwrap();
            waker.wake();
            assert!(thread.join().unwrap().unwrap(), "{} {table:?}", entry.name);
        }
    }
}

/// Starts a thread that holds its table. Returns a function that ends the thread.
fn start_holder() -> (impl FnOnce(), Waker) {
    let (end, ends) = mpsc::channel::<()>();
    let (thread, waker) = Table::Own
        .spawn(Builder::new(), ends, |ends, _wakeups| {
            let _ = ends.recv();
            Ok(())
        })
        .unwrap();
    let finish = move || {
        drop(end);
        thread.join().unwrap().unwrap();
    };
    (finish, waker)
}

fn closing_in_another_thread_closes_the_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(addr).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (peer, _) = listener.accept().unwrap();
    let (finish, _waker) = start_holder();
    drop((peer, listener));
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    // A child process of another test may hold the listener for a moment.
    let start = Instant::now();
    while TcpStream::connect(addr).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(20), "the listener is still open");
    }
    finish();
}

fn the_end_of_the_thread_closes_its_table() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (thread, _waker) = Table::Own
        .spawn(Builder::new(), addr, |addr, _wakeups| {
            std::mem::forget(TcpStream::connect(addr)?);
            Ok(())
        })
        .unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    thread.join().unwrap().unwrap();
}

fn numbers_of_the_process_are_not_in_the_table() {
    let here = fs::File::open("/dev/null").unwrap();
    let (thread, _waker) = Table::Own
        .spawn(Builder::new(), here.as_raw_fd(), |number, _wakeups| {
            Ok(open_descriptors().iter().any(|(other, to)| *other == number && to == "/dev/null"))
        })
        .unwrap();
    assert!(!thread.join().unwrap().unwrap());
    drop(here);
}

fn both_kinds_of_table_are_available() {
    Table::Shared.probe().unwrap();
    Table::Own.probe().unwrap();
}

fn the_thread_blocks_signals_of_the_process() {
    let (thread, _waker) = Table::Own
        .spawn(Builder::new(), (), |(), _| fs::read_to_string("/proc/thread-self/status"))
        .unwrap();
    let status = thread.join().unwrap().unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
    for (signal, is_unblocked) in
        [(1, false), (2, false), (15, false), (34, false), (7, true), (11, true)]
    {
        assert_eq!(blocked & 1 << (signal - 1) == 0, is_unblocked, "signal {signal}");
    }
}
