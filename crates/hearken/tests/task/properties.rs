//! Properties of tasks over simulated networks with random delays, faults and cancellations.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hearken::io::sim::{Checked, Decisions, NetworkSettings, SimIo, SimIoSettings, World};
use hearken::task::{self, Executor, TcpListener, TcpStream};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::net::pattern;
use crate::suite::{Tests, property, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! { streams_survive_cancellations }
}

/// A step of a client.
#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    /// Writes, and drops the write after some microseconds.
    WriteWithin(usize, u64),
    Sleep(u64),
    Yield,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..20_000_usize).prop_map(Step::Write),
        (1..20_000_usize, 0..3000_u64).prop_map(|(count, micros)| Step::WriteWithin(count, micros)),
        (0..3000_u64).prop_map(Step::Sleep),
        Just(Step::Yield),
    ]
}

/// Checks that an echo server, whose receives are dropped at random times, returns exactly what its
/// clients have sent, and that dropped writes arrive as a whole or not at all.
fn streams_survive_cancellations() {
    let scripts = prop::collection::vec(prop::collection::vec(step(), 1..12), 1..4);
    let cases = (scripts, any::<u64>(), any::<bool>());
    TestRunner::new(property(60))
        .run(&cases, |(scripts, seed, erratic)| {
            check(scripts, seed, erratic);
            Ok(())
        })
        .unwrap();
}

fn check(scripts: Vec<Vec<Step>>, seed: u64, erratic: bool) {
    let (mut network, mut io) = (NetworkSettings::default(), SimIoSettings::default());
    if erratic {
        (network.min_window, network.max_window) = (4096, 64 * 1024);
        network.jitter = Duration::from_micros(500);
        (network.short_sends, network.stalls) = (300, 100);
        (io.buffers, io.buffer_size) = (4, 512);
        let faults = &mut io.faults;
        (faults.short_receives, faults.deferred_sends, faults.reordering) = (500, 300, 500);
        (faults.early_waits, faults.linked_closes) = (100, 500);
    }
    let world = World::new(Decisions::from_seed(seed), network);
    let mut executor =
        Executor::new(Checked::new(SimIo::new(&world.host([127, 0, 0, 1].into()), io)));
    let test = async move {
        let listener = TcpListener::bind(([127, 0, 0, 1], 80).into()).unwrap();
        let address = listener.local_addr().unwrap();
        drop(task::spawn(async move {
            let mut micros = seed % 1000;
            while let Ok(stream) = listener.accept().await {
                micros += 100;
                drop(task::spawn(echo(stream, micros)));
            }
        }));
        let clients: Vec<_> =
            scripts.into_iter().map(|script| task::spawn(client(address, script))).collect();
        for client in clients {
            client.await.unwrap();
        }
    };
    executor.block_on(test).unwrap();
}

async fn echo(stream: TcpStream, micros: u64) {
    loop {
        let receiving = task::timeout(Duration::from_micros(micros), stream.receive());
        let Ok(bytes) = receiving.await else { continue };
        let bytes = bytes.unwrap();
        if bytes.is_empty() {
            return;
        }
        stream.send(bytes.into()).await.unwrap();
    }
}

/// Runs a script, and checks that the bytes come back. Each write starts with its number, so that
/// the absence of a dropped one is recognised.
async fn client(address: std::net::SocketAddr, script: Vec<Step>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let received = Rc::new(RefCell::new(Vec::new()));
    let (reader, all) = (stream.clone(), Rc::clone(&received));
    let reading = task::spawn(async move {
        loop {
            let bytes = reader.receive().await.unwrap();
            if bytes.is_empty() {
                return;
            }
            all.borrow_mut().extend_from_slice(&bytes);
        }
    });
    // Each message, and whether it was certainly sent.
    let mut messages = Vec::new();
    for (number, step) in script.into_iter().enumerate() {
        let message = |count: usize| {
            let mut bytes = vec![number as u8 + 1; 4];
            bytes.extend(pattern(count));
            bytes
        };
        match step {
            Step::Write(count) => {
                let bytes = message(count);
                stream.write_all(&bytes).await.unwrap();
                messages.push((bytes, true));
            }
            Step::WriteWithin(count, micros) => {
                let bytes = message(count);
                let writing =
                    task::timeout(Duration::from_micros(micros), stream.write_all(&bytes));
                let completed = writing.await.is_ok();
                messages.push((bytes, completed));
            }
            Step::Sleep(micros) => task::sleep(Duration::from_micros(micros)).await,
            Step::Yield => task::yield_now().await,
        }
    }
    stream.shutdown().await.unwrap();
    reading.await.unwrap();
    let received = received.borrow();
    let mut rest = &received[..];
    for (message, is_certain) in messages {
        match rest.strip_prefix(&message[..]) {
            Some(after) => rest = after,
            None => assert!(!is_certain, "a message is missing or in parts"),
        }
    }
    assert!(rest.is_empty(), "{} bytes too many", rest.len());
}
