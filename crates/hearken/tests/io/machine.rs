//! Clauses that use threads, sockets of the standard library, and the descriptor table.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hearken::Token;
use hearken::io::{Io, ListenOptions, Relay, StreamSocket};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Case;
use crate::hop::Hop;
use crate::net::{Kind, LONG, Net, Random, Relayed, between, file, loopback, part, pattern};
use crate::suite::in_child_process;

/// Checks that many wake-ups before a wait end it, and are reported once.
pub(crate) fn wake_ups_before_a_wait_end_it<I: Relay>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let waker = net.io.waker();
    let other = waker.clone();
    thread::spawn(move || {
        for _ in 0..2000 {
            other.wake();
        }
    })
    .join()
    .unwrap();
    waker.wake();
    while net.woken == 0 {
        net.io.wait(None).unwrap();
        while net.next().is_some() {}
    }
    net.run_until_idle();
    assert_eq!(net.woken, 1);
    net.assert_sleeps(case);
    waker.wake();
    net.run("it is woken again", |net| net.woken == 2);
    // A waker may outlive its instance.
    drop(net);
    waker.wake();
}

/// Checks that another thread ends a wait.
pub(crate) fn another_thread_ends_a_wait<I: Relay>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    for round in 1..4 {
        let waker = net.io.waker();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(3));
            waker.wake();
        });
        while net.woken < round {
            net.io.wait(None).unwrap();
            while net.next().is_some() {}
        }
        other.join().unwrap();
    }
}

/// Checks that the token of a wake-up belongs to no socket.
pub(crate) fn woken_completions_have_no_connection<I: Relay>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let waker = net.io.waker();
    for round in 1..4 {
        waker.wake();
        net.drive("it is woken", |net, token, kind| {
            net.io.start(token);
            net.io.stop(token);
            net.io.set_deadline(token, Some(net.io.now()));
            net.io.shutdown(token);
            net.io.close(token);
            assert_eq!(net.io.open_count(), 1);
            kind == Kind::Woken
        });
        net.run_until_idle();
        assert_eq!(net.woken, round);
    }
    let (from, to) = net.started_pair();
    net.send(from, b"data");
    net.expect_received(to, b"data");
}

/// Checks that a connection that was started while the pool was exhausted receives as soon as a
/// buffer is released, although other connections wait too.
pub(crate) fn receives_from_an_active_peer_after_exhaustion<I: Relay>(case: &Case<'_, I>) {
    const LONG: Duration = Duration::from_secs(10);
    let mut net = Net::new(case);
    let connect = |net: &mut Net<I>| {
        let stream = TcpStream::connect(net.addr).unwrap();
        let count = net.accepted.len() + 1;
        net.run("it is accepted", |net| net.accepted.len() == count);
        let token = net.accepted[count - 1];
        net.io.start(token);
        (stream, token)
    };
    let (mut consumer, token) = connect(&mut net);
    net.holds_buffers = true;
    // A large pool is not exhausted by this.
    for round in 1..50 {
        if net.io.pool().is_exhausted() {
            break;
        }
        consumer.write_all(b"request").unwrap();
        net.run("it is held", |net| net.seen(token).pieces == round);
    }
    let mut clients: Vec<_> = (0..9).map(|_| connect(&mut net)).collect();
    net.run_until_idle();
    net.holds_buffers = false;
    net.held_buffers.clear();
    let (last, token) = clients.last_mut().unwrap();
    last.write_all(b"request").unwrap();
    let began = Instant::now();
    while net.seen(*token).received != b"request" {
        net.wait(LONG);
        while net.next().is_some() {}
    }
    assert!(began.elapsed() < LONG / 2, "the request was received only after a timeout");
}

/// Checks clients of the standard library: echo, end of stream, reset.
pub(crate) fn serves_clients_of_the_standard_library<I: Relay>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let addr = net.addr;
    let echoed = |seed: u64| {
        thread::spawn(move || {
            let bytes = pattern(seed, 100_000);
            let mut stream = TcpStream::connect(addr).unwrap();
            let mut answers = stream.try_clone().unwrap();
            let reader = thread::spawn(move || {
                let mut answer = Vec::new();
                answers.read_to_end(&mut answer).unwrap();
                answer
            });
            let mut random = Random(seed);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(random.up_to(5000).min(rest.len()));
                stream.write_all(now).unwrap();
                rest = later;
            }
            stream.shutdown(Shutdown::Write).unwrap();
            assert!(reader.join().unwrap() == bytes);
        })
    };
    let peers: Vec<_> = (0..3).map(echoed).collect();
    let mut closed = 0;
    let mut unsent = std::collections::HashMap::new();
    net.drive("all are echoed", |net, token, kind| {
        match kind {
            Kind::Accepted(connection) => net.io.start(connection),
            Kind::Received(_) => {
                net.io.stop(token);
                let bytes = std::mem::take(&mut net.seen(token).received);
                net.send(token, &bytes);
                *unsent.entry(token).or_insert(0) += 1;
            }
            Kind::Sent => {
                *unsent.get_mut(&token).unwrap() -= 1;
                net.io.start(token);
            }
            _ => {}
        }
        // The receive in progress, even the end, may complete before the response is sent.
        if net.seen(token).ended && unsent[&token] == 0 {
            net.io.close(token);
            closed += 1;
        }
        closed == peers.len()
    });
    for peer in peers {
        peer.join().unwrap();
    }

    // The end of the sending side, after which the connection still receives.
    let mut stream = TcpStream::connect(addr).unwrap();
    net.accepted.clear();
    net.run("it is accepted", |net| !net.accepted.is_empty());
    let token = net.accepted[0];
    net.io.start(token);
    net.send(token, b"bye");
    net.expect_sent(token, 1);
    net.io.shutdown(token);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"bye");
    stream.write_all(b"so long").unwrap();
    net.expect_received(token, b"so long");

    // A reset.
    let mut stream = TcpStream::connect(addr).unwrap();
    net.accepted.clear();
    net.run("it is accepted", |net| !net.accepted.is_empty());
    net.io.abort(net.accepted[0]);
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Returns the numbers of the open descriptors.
fn descriptors() -> Vec<u64> {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let mut open: Vec<u64> = entries
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    open.sort_unstable();
    // The descriptor of the directory is closed by now.
    open.retain(|descriptor| fs::read_link(format!("/proc/self/fd/{descriptor}")).is_ok());
    open
}

fn lowest_free_descriptor() -> u64 {
    File::open("/dev/null").unwrap().as_raw_fd() as u64
}

fn limit_descriptors(limit: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(limit);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// Checks that a listener without free descriptors reports one failure and stops. Restarted with
/// free descriptors, it accepts the waiting connections.
pub(crate) fn listener_stops_without_free_descriptors<I: Relay>(case: &Case<'_, I>) {
    in_child_process(|| {
        let before = getrlimit(Resource::Nofile).current.unwrap();
        let mut net = Net::new(case);
        net.io.stop(net.listener);
        let from: Vec<_> =
            (0..10).map(|_| net.io.connect(&net.addr.into(), None).unwrap()).collect();
        net.run("all are connected", |net| {
            from.iter().all(|&token| net.seen(token).connected.is_some())
        });
        limit_descriptors(lowest_free_descriptor() + 3);
        for round in 1..3 {
            net.io.start(net.listener);
            net.run("the descriptors run out", |net| net.accept_failures.len() == round);
            let error = net.accept_failures.last().unwrap();
            assert_eq!(error.raw_os_error(), Some(24), "EMFILE, not {error}");
            assert!(net.accepted.len() < from.len());
            net.run_until_idle();
            assert_eq!(net.accept_failures.len(), round);
            net.assert_sleeps(case);
        }
        assert!(net.io.connect(&net.addr.into(), None).is_err());
        assert!(net.io.listen(&net.addr.into(), &Default::default()).is_err());
        // Existing connections continue.
        let (to, from) = (net.accepted[0], from[0]);
        net.io.start(to);
        net.send(from, b"data");
        net.expect_received(to, b"data");

        limit_descriptors(before);
        net.io.start(net.listener);
        net.run("the rest is accepted", |net| net.accepted.len() == 10);
        net.pair();
        assert_eq!(net.accept_failures.len(), 2);
    });
}

/// Checks that instances accept from one listener, each connection once, and that one accepts what
/// another left over.
pub(crate) fn instances_share_a_listener<I: Relay>(case: &Case<'_, I>) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut options = ListenOptions::default();
    options.peers = true;
    let share = || {
        let mut net = Net::new(case);
        let shared = net.io.share_listener(listener.try_clone().unwrap().into(), &options);
        shared.map(|shared| {
            net.io.start(shared);
            net.run_until_idle();
            (net, shared)
        })
    };
    let mut nets = match (share(), share()) {
        (Ok(one), Ok(other)) => [one, other],
        (Err(error), _) | (_, Err(error)) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            return;
        }
    };
    let clients: Vec<_> = (0..20).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let accepted = |nets: &[(Net<I>, Token); 2]| -> usize {
        nets.iter().map(|(net, _)| net.accepted.len()).sum()
    };
    for _ in 0..1000 {
        if accepted(&nets) == clients.len() {
            break;
        }
        nets.iter_mut().for_each(|(net, _)| net.run_until_idle());
    }
    assert_eq!(accepted(&nets), clients.len());
    assert!(nets[0].0.last_peer.or(nets[1].0.last_peer).is_some());
    // One stops before it can accept.
    let [(first, shared), (second, other)] = &mut nets;
    first.io.stop(*shared);
    second.io.stop(*other);
    first.run_until_idle();
    second.run_until_idle();
    let before = first.accepted.len();
    let _late = TcpStream::connect(addr).unwrap();
    first.run_until_idle();
    second.run_until_idle();
    first.io.start(*shared);
    first.run("the connection is accepted", |net| net.accepted.len() > before);
}

/// Checks that an adopted socket works like an accepted one, with bytes that arrived before.
pub(crate) fn adopts_sockets_of_the_standard_library<I: Relay>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let listener = TcpListener::bind(loopback()).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(b"request").unwrap();
    let token =
        net.io.adopt(StreamSocket::new(listener.accept().unwrap().0.into()).unwrap()).unwrap();
    net.run_until_idle();
    assert_eq!(net.seen(token).received, b"");
    assert_eq!(net.io.peer_addr(token).unwrap(), client.local_addr().unwrap());
    assert!(rustix::net::sockopt::tcp_nodelay(net.io.socket(token).unwrap()).unwrap());
    net.io.start(token);
    net.expect_received(token, b"request");
    net.send(token, b"response");
    net.expect_sent(token, 1);
    client.shutdown(Shutdown::Write).unwrap();
    net.expect_end(token, b"request");
    net.io.close(token);
    let mut received = String::new();
    client.read_to_string(&mut received).unwrap();
    assert_eq!(received, "response");
    let file = file(b"not a socket");
    let error = StreamSocket::new(file.try_clone().unwrap()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NOTSOCK.raw_os_error()));
}

/// Checks that a watched descriptor is reported once per start, also if it was readable before.
pub(crate) fn reports_watched_descriptors_once_per_start<I: Relay>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let token = net.io.watch(reader.try_clone().unwrap()).unwrap();
    rustix::io::write(&writer, b"1").unwrap();
    net.run_until_idle();
    assert_eq!(net.seen(token).readable, 0);
    for expected in 1..3 {
        net.io.start(token);
        net.run("a readable descriptor is reported", |net| net.seen(token).readable == expected);
        net.run_until_idle();
        assert_eq!(net.seen(token).readable, expected);
    }
    rustix::io::read(&reader, &mut [0; 8]).unwrap();
    net.io.start(token);
    net.run_until_idle();
    assert_eq!(net.seen(token).readable, 2);
    rustix::io::write(&writer, b"2").unwrap();
    net.run("the next bytes are reported", |net| net.seen(token).readable == 3);
    rustix::io::read(&reader, &mut [0; 8]).unwrap();
    net.io.start(token);
    net.run_until_idle();
    net.io.stop(token);
    rustix::io::write(&writer, b"3").unwrap();
    net.run_until_idle();
    assert_eq!(net.seen(token).readable, 3);
    net.io.close(token);
    net.run_until_idle();
}

/// Checks that an idle connection moves to another instance with the bytes that arrive meanwhile,
/// and that others are not released.
pub(crate) fn released_connections_continue_in_another_instance<I: Relay>(case: &Case<'_, I>) {
    let (mut net, mut other) = (Net::new(case), Net::new(case));
    assert!(net.io.release(net.listener).is_none());
    let (from, to) = net.started_pair();
    net.send(from, b"first");
    net.expect_received(to, b"first");
    net.run_until_idle();
    net.io.set_deadline(to, Some(net.io.now()));
    let Some(socket) = net.io.release(to) else {
        assert_eq!(net.io.open_count(), 3);
        return; // The implementation releases none.
    };
    assert_eq!(net.io.open_count(), 2);
    assert!(net.io.release(to).is_none());
    net.send(from, b"second");
    net.expect_sent(from, 2);
    let moved = other.io.adopt(socket).unwrap();
    other.io.start(moved);
    other.expect_received(moved, b"second");
    other.send(moved, b"third");
    other.expect_sent(moved, 1);
    net.expect_received(from, b"third");
    // A connection that is sending.
    other.io.stop(moved);
    other.send_body(moved, Bytes::from(pattern(1, LONG)));
    assert!(other.io.release(moved).is_none());
    assert_eq!(net.seen(to).deadlines, 0);
    // One that ended.
    net.io.abort(from);
    other.io.start(moved);
    other.run("the reset is reported", |other| other.seen(moved).failed.is_some());
    assert!(other.io.release(moved).is_none());
}

/// Checks that connections close their descriptors in every state, and that the `Io` closes all.
pub(crate) fn descriptors_do_not_leak<I: Relay>(case: &Case<'_, I>) {
    in_child_process(|| {
        let at_first = descriptors();
        let mut net = Net::new(case);
        let with_net = descriptors();
        let on_disk = file(&pattern(1, 100_000));
        for round in 0..9 {
            let (from, to) = net.pair();
            net.io.start(to);
            net.send(from, b"data");
            net.send_with(to, b"data", part(&on_disk, 0, 100_000));
            match round {
                0 => net.io.close(to),
                1 => net.io.abort(to),
                2 => net.expect_received(to, b"data"),
                3 => net.io.shutdown(from),
                4 => net.run_until_idle(),
                5 => {
                    net.send_last(from, b"last");
                    net.run_until_idle();
                }
                6 => {
                    net.send_last(from, b"last");
                }
                7 => {
                    net.io.abort(to);
                    net.send_last(from, b"last");
                }
                _ => {}
            }
            for token in [from, to] {
                net.io.close(token);
            }
            // A refused connection, and one that is closed before it is established.
            let from = net.io.connect(&net.addr.into(), None).unwrap();
            net.io.close(from);
            let source = Some(([192, 0, 2, 1], 0).into());
            net.io.connect(&net.addr.into(), source).unwrap_err();
            net.io.listen(&net.addr.into(), &Default::default()).unwrap_err();
            net.run_until_idle();
            net.run("all are closed", |net| {
                for token in std::mem::take(&mut net.accepted) {
                    net.io.close(token);
                }
                net.io.open_count() == 1
            });
        }
        drop(on_disk);
        assert_eq!(descriptors(), with_net);
        net.pair();
        drop(net);
        assert_eq!(descriptors(), at_first);
    });
}

/// Checks descriptors with numbers above `FD_SETSIZE`.
pub(crate) fn descriptor_numbers_may_exceed_fd_setsize<I: Relay>(case: &Case<'_, I>) {
    in_child_process(|| {
        let filler: Vec<_> = (0..1100).map(|_| File::open("/dev/null").unwrap()).collect();
        let mut net = Net::new(case);
        let (from, to) = net.started_pair();
        let bytes = pattern(2, 20_000);
        net.send(from, &bytes);
        net.expect_received(to, &bytes);
        drop(filler);
        let (from, to) = net.started_pair();
        net.send(from, &bytes);
        net.expect_received(to, &bytes);
        net.io.shutdown(from);
        net.expect_end(to, &bytes);
    });
}

/// Checks that a relay works without free descriptors, since a pipe only makes it cheaper. Its
/// pipes are reused or closed after any end, and closed with the `Io`.
pub(crate) fn relays_need_and_leak_no_descriptors<I: Relay>(case: &Case<'_, I>) {
    in_child_process(|| {
        let before = getrlimit(Resource::Nofile).current.unwrap();
        let at_first = descriptors();
        let bytes = pattern(3, LONG);
        let body = Bytes::from(bytes.clone());
        for limited in [true, false] {
            let mut hop = Hop::new(case);
            if limited {
                limit_descriptors(lowest_free_descriptor());
            }
            hop.outer.send_body(hop.source, body.clone());
            hop.relay(bytes.len() as u64);
            hop.outer.io.start(hop.sink);
            assert_eq!(hop.wait_for_end(), (bytes.len() as u64, Relayed::Complete));
            hop.expect_at_sink(&bytes);
            limit_descriptors(before);
            // A listener that found no free descriptor meanwhile has stopped.
            for net in [&mut hop.outer, &mut hop.net] {
                net.io.start(net.listener);
            }
            // A pipe that is full when its relay ends must not be reused.
            let mut max = 0;
            for round in 0..10 {
                hop.outer.io.stop(hop.sink);
                for _ in 0..2 {
                    hop.outer.send_body(hop.source, body.clone());
                }
                hop.relay(u64::MAX);
                for _ in 0..20 {
                    hop.outer.turn(Duration::ZERO);
                    hop.net.turn(Duration::from_micros(100));
                }
                let closed = [hop.from, hop.to][round % 2];
                hop.net.io.close(closed);
                for token in [hop.source, hop.sink, hop.from, hop.to] {
                    hop.outer.io.close(token);
                    hop.net.io.close(token);
                }
                let Hop { outer, net, .. } = &mut hop;
                let (source, from) = between(outer, net);
                let (to, sink) = between(net, outer);
                (hop.source, hop.from, hop.to, hop.sink) = (source, from, to, sink);
                hop.outer.io.start(sink);
                hop.outer.send(source, &bytes[..100_000]);
                hop.cancel();
                hop.relay(100_000);
                assert_eq!(hop.wait_for_end(), (100_000, Relayed::Complete));
                hop.expect_at_sink(&bytes[..100_000]);
                if round < 3 {
                    max = max.max(descriptors().len());
                }
            }
            assert!(descriptors().len() <= max + 4, "descriptors leak");
            drop(hop);
            assert_eq!(descriptors(), at_first);
        }
    });
}
