//! Behaviour specific to operations over io_uring: buffers that outlive the ring, sends that are
//! dropped with it, and accepts that it limits.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use hearken::Token;
use hearken::io::uring::{Settings, UringIo};
use hearken::io::{Address, Body, Completion, CompletionKind, Io, ListenOptions, Outgoing};

use crate::suite::{Tests, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        received_bytes_outlive_the_ring
        drop_cancels_and_frees_pending_sends
        accepts_no_more_than_reserved
    }
}

const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// Accepts a connection. Returns its token and its peer.
fn accepted(io: &mut UringIo) -> (Token, TcpStream) {
    let listener =
        io.listen(&Address::Inet(([127, 0, 0, 1], 0).into()), &ListenOptions::default()).unwrap();
    io.start(listener);
    let peer = TcpStream::connect(io.local_addr(listener).unwrap()).unwrap();
    peer.set_read_timeout(PATIENCE).unwrap();
    let CompletionKind::Accepted { token, .. } = completion(io).kind else {
        panic!("not accepted")
    };
    io.close(listener);
    (token, peer)
}

/// Waits for the next completion.
fn completion(io: &mut UringIo) -> Completion {
    loop {
        if let Some(completion) = io.next() {
            return completion;
        }
        io.wait(None).unwrap();
    }
}

/// Checks that received bytes outlive the instance, and that its drop closes its connections.
fn received_bytes_outlive_the_ring() {
    let receiving = thread::spawn(|| {
        let mut io = UringIo::new(Settings::default()).ok()?;
        let (token, mut peer) = accepted(&mut io);
        io.start(token);
        peer.write_all(b"kept").unwrap();
        let CompletionKind::Received(mut bytes) = completion(&mut io).kind else {
            panic!("not received")
        };
        let pool = io.pool().clone();
        drop(io);
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0, "the connection is not closed");
        assert_eq!((&*bytes, pool.in_use()), (&b"kept"[..], 1));
        bytes.consume(1);
        bytes.as_vec().extend_from_slice(b" on");
        assert_eq!(&*bytes, b"ept on");
        drop(bytes);
        assert_eq!(pool.in_use(), 0);
        Some(())
    });
    receiving.join().unwrap();
}

/// Checks that drop cancels pending sends and frees their bytes.
fn drop_cancels_and_frees_pending_sends() {
    let sending = thread::spawn(|| {
        for round in 0..20 {
            let mut io = UringIo::new(Settings::default()).ok()?;
            let (token, mut peer) = accepted(&mut io);
            io.start(token);
            let body = Bytes::from(vec![7; 8 << 20]);
            let shared = body.clone();
            for _ in 0..2 {
                let head = io.pool().acquire_over_limit();
                io.send(token, Outgoing { head, body: Body::Bytes(body.clone()) });
            }
            drop(body);
            if round % 2 == 0 {
                io.wait(Some(io.now())).unwrap();
                while io.next().is_some() {}
            }
            drop(io);
            assert!(shared.is_unique(), "the bytes are not freed");
            let mut all = Vec::new();
            let _ = peer.read_to_end(&mut all);
            assert!(all.len() < shared.len() && all.iter().all(|byte| *byte == 7));
        }
        Some(())
    });
    sending.join().unwrap();
}

/// Returns the number of connections in the backlog of a port, from /proc/net/tcp.
fn listen_queue(port: u16) -> u32 {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    let listens =
        |line: &&str| line.split_whitespace().nth(1) == Some(&local) && line.contains(" 0A ");
    let line = table.lines().find(listens).unwrap();
    let queues = line.split_whitespace().nth(4).unwrap();
    u32::from_str_radix(queues.split_once(':').unwrap().1, 16).unwrap()
}

/// Checks that the kernel accepts no more connections than were reserved before the listener stops.
fn accepts_no_more_than_reserved() {
    let accepting = thread::spawn(|| {
        let mut io = UringIo::new(Settings::default()).ok()?;
        io.reserve(5);
        let listener = io
            .listen(&Address::Inet(([127, 0, 0, 1], 0).into()), &ListenOptions::default())
            .unwrap();
        let addr = io.local_addr(listener).unwrap();
        let peers: Vec<_> = (0..20).map(|_| TcpStream::connect(addr).unwrap()).collect();
        io.start(listener);
        for _ in 0..5 {
            let accepted = completion(&mut io);
            assert!(matches!(accepted.kind, CompletionKind::Accepted { .. }), "{accepted:?}");
        }
        io.stop(listener);
        for _ in 0..5 {
            io.wait(Some(io.now())).unwrap();
            assert!(io.next().is_none());
        }
        // Peers cannot observe whether their connection was accepted. The kernel's table shows it.
        let waiting = listen_queue(addr.port());
        assert_eq!(waiting, 15, "the kernel accepted too many");
        assert_eq!(io.open_count(), 6);
        io.start(listener);
        for _ in 5..20 {
            assert!(matches!(completion(&mut io).kind, CompletionKind::Accepted { .. }));
        }
        drop(peers);
        Some(())
    });
    accepting.join().unwrap();
}
