//! Memory of tasks: allocations are counted per thread.

// An allocator is unsafe to implement. This one counts, and passes everything on.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;

use hearken::io::Relay;
use hearken::io::readiness::{Policy, ReadinessIo};
use hearken::io::uring::{Settings, UringIo};
use hearken::mechanism::find;
use hearken::task::{self, Executor, TcpListener, TcpStream};

use crate::net::{loopback, pair_of};
use crate::suite::{Tests, lock_many_descriptors, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        operations_allocate_nothing
        operations_over_uring_allocate_nothing
        a_task_takes_one_allocation
        idle_connection_takes_at_most_512_bytes
    }
}

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The thread may be ending.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + layout.size() as isize));
        // SAFETY: required of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() - layout.size() as isize));
        // SAFETY: required of the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Serves a connection in these tests.
async fn echo(stream: TcpStream) {
    loop {
        let bytes = stream.receive().await.unwrap();
        if bytes.is_empty() {
            return;
        }
        stream.write_all(&bytes).await.unwrap();
    }
}

/// Counts the allocations of round trips.
fn count_allocations(io: impl Relay + 'static) {
    let mut executor = Executor::new(io);
    let test = async {
        let listener = TcpListener::bind(loopback()).unwrap();
        let (client, server) = pair_of(&listener).await;
        drop(task::spawn(echo(server)));
        let round = async || {
            client.write_all(b"question").await.unwrap();
            let mut answer = [0; 8];
            let mut length = 0;
            while length < 8 {
                let reading = client.read(&mut answer[length..]);
                let reading = task::timeout(std::time::Duration::from_secs(9), reading);
                length += reading.await.unwrap().unwrap();
            }
        };
        // Tables and pools grow at first.
        for _ in 0..100 {
            round().await;
        }
        let before = ALLOCATIONS.get();
        for _ in 0..1000 {
            round().await;
        }
        ALLOCATIONS.get() - before
    };
    assert_eq!(executor.block_on(test).unwrap(), 0);
}

fn operations_allocate_nothing() {
    let mechanism = find("epoll-edge").unwrap().open().unwrap();
    count_allocations(ReadinessIo::new(mechanism, Policy::default()).unwrap());
}

fn operations_over_uring_allocate_nothing() {
    if let Ok(io) = UringIo::new(Settings::default()) {
        count_allocations(io);
    }
}

fn a_task_takes_one_allocation() {
    let mechanism = find("epoll-edge").unwrap().open().unwrap();
    let mut executor = Executor::new(ReadinessIo::new(mechanism, Policy::default()).unwrap());
    executor.reserve(100);
    let test = async {
        let held = Rc::new(());
        let mut handles = Vec::with_capacity(1);
        for round in 0..100 {
            let inner = Rc::clone(&held);
            let before = ALLOCATIONS.get();
            handles.push(task::spawn(async move {
                task::yield_now().await;
                drop(inner);
            }));
            if round > 0 {
                assert_eq!(ALLOCATIONS.get() - before, 1);
            }
            handles.pop().unwrap().await.unwrap();
        }
        assert_eq!(Rc::strong_count(&held), 1);
    };
    executor.block_on(test).unwrap();
}

/// Checks everything that the process allocates for an idle connection of an echo server.
fn idle_connection_takes_at_most_512_bytes() {
    const COUNT: usize = 400;
    let _lock = lock_many_descriptors();
    let mechanism = find("epoll-edge").unwrap().open().unwrap();
    let mut executor = Executor::new(ReadinessIo::new(mechanism, Policy::default()).unwrap());
    let listener =
        executor.block_on(async { TcpListener::bind(loopback()).map(Rc::new) }).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = Rc::clone(&listener);
    drop(executor.spawn(async move {
        while let Ok(stream) = accepting.accept().await {
            drop(task::spawn(echo(stream)));
        }
    }));
    let mut clients = Vec::with_capacity(COUNT);
    let mut connect = |executor: &mut Executor<_>| {
        let client = std::net::TcpStream::connect(address).unwrap();
        let (mut writing, reading) = (&client, &client);
        std::io::Write::write_all(&mut writing, b"bytes").unwrap();
        let mut answer = [0; 5];
        reading.set_nonblocking(true).unwrap();
        while std::io::Read::read_exact(&mut &client, &mut answer).is_err() {
            executor.turn(None).unwrap();
        }
        clients.push(client);
    };
    connect(&mut executor);
    let before = BYTES.get();
    for _ in 1..COUNT {
        connect(&mut executor);
    }
    let each = (BYTES.get() - before) as usize / (COUNT - 1);
    println!("{each} bytes per idle connection, with the growth of tables");
    assert!(each <= 512, "{each} bytes");
}
