//! What needs this machine: threads, other people's sockets, the table of descriptors.

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hearken::io::{Io, Relay};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Case;
use crate::hop::Hop;
use crate::net::{Kind, LONG, Net, Random, Relayed, between, file, part, pattern};

/// Wake-ups before a wait end it, and are one.
pub(crate) fn woken_before_the_wait<I: Relay>(case: &Case<'_, I>) {
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
    net.settle();
    assert_eq!(net.woken, 1);
    net.sleeps(case);
    waker.wake();
    net.run("it is woken again", |net| net.woken == 2);
    // Whose owner is gone it does not hurt.
    drop(net);
    waker.wake();
}

/// Another thread ends a wait.
pub(crate) fn woken_in_the_wait<I: Relay>(case: &Case<'_, I>) {
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

/// What a wake-up's completion is "on" is nothing that could be closed.
pub(crate) fn woken_completion_names_nothing<I: Relay>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let waker = net.io.waker();
    for round in 1..4 {
        waker.wake();
        net.drive("it is woken", |net, on, kind| {
            net.io.start(on);
            net.io.stop(on);
            net.io.set_deadline(on, Some(net.io.now()));
            net.io.shutdown(on);
            net.io.close(on);
            assert_eq!(net.io.open(), 1);
            kind == Kind::Woken
        });
        net.settle();
        assert_eq!(net.woken, round);
    }
    let (from, to) = net.started_pair();
    net.send(from, b"data");
    net.receives(to, b"data");
}

/// Of connections that were started while there was no buffer, one that is spoken to is heard once there
/// is one, whatever the others do.
pub(crate) fn heard_after_a_famine<I: Relay>(case: &Case<'_, I>) {
    const LONG: Duration = Duration::from_secs(10);
    let mut net = Net::new(case);
    let connect = |net: &mut Net<I>| {
        let stream = TcpStream::connect(net.addr).unwrap();
        let count = net.accepted.len() + 1;
        net.run("it is accepted", |net| net.accepted.len() == count);
        let on = net.accepted[count - 1];
        net.io.start(on);
        (stream, on)
    };
    let (mut eater, on) = connect(&mut net);
    net.hold = true;
    // Where there are many buffers, some are left.
    for round in 1..50 {
        if net.io.pool().is_exhausted() {
            break;
        }
        eater.write_all(b"request").unwrap();
        net.run("it is held", |net| net.seen(on).pieces == round);
    }
    let mut clients: Vec<_> = (0..9).map(|_| connect(&mut net)).collect();
    net.settle();
    net.hold = false;
    net.held.clear();
    let (last, on) = clients.last_mut().unwrap();
    last.write_all(b"request").unwrap();
    let began = Instant::now();
    while net.seen(*on).received != b"request" {
        net.wait(LONG);
        while net.next().is_some() {}
    }
    assert!(began.elapsed() < LONG / 2, "it was heard by chance");
}

/// Clients that are not our own: echoed, ended, reset.
pub(crate) fn peers_of_the_standard_library<I: Relay>(case: &Case<'_, I>) {
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
    net.drive("all are echoed", |net, on, kind| {
        match kind {
            Kind::Accepted(connection) => net.io.start(connection),
            Kind::Received(_) => {
                net.io.stop(on);
                let bytes = std::mem::take(&mut net.seen(on).received);
                net.send(on, &bytes);
                *unsent.entry(on).or_insert(0) += 1;
            }
            Kind::Sent => {
                *unsent.get_mut(&on).unwrap() -= 1;
                net.io.start(on);
            }
            _ => {}
        }
        // What was under way when it was stopped, the end too, may have come before the answer was sent.
        if net.seen(on).ended && unsent[&on] == 0 {
            net.io.close(on);
            closed += 1;
        }
        closed == peers.len()
    });
    for peer in peers {
        peer.join().unwrap();
    }

    // An end, after which we still hear.
    let mut stream = TcpStream::connect(addr).unwrap();
    net.accepted.clear();
    net.run("it is accepted", |net| !net.accepted.is_empty());
    let on = net.accepted[0];
    net.io.start(on);
    net.send(on, b"bye");
    net.sends(on, 1);
    net.io.shutdown(on);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"bye");
    stream.write_all(b"so long").unwrap();
    net.receives(on, b"so long");

    // A reset.
    let mut stream = TcpStream::connect(addr).unwrap();
    net.accepted.clear();
    net.run("it is accepted", |net| !net.accepted.is_empty());
    net.io.abort(net.accepted[0]);
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Says to this program that it is the child.
const CHILD: &str = "HEARKEN_IO_CHILD";

/// Does `work` in a process of its own, since what it changes is the whole process's: this test,
/// run again, is the child.
fn alone(work: impl FnOnce()) {
    if env::var_os(CHILD).is_some() {
        return work();
    }
    let name = crate::suite::current();
    let output = Command::new(env::current_exe().unwrap())
        .args([&name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{name}, alone:\n{stdout}\n{stderr}"
    );
}

/// The numbers of the descriptors that are open.
fn descriptors() -> Vec<u64> {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let mut open: Vec<u64> = entries
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    open.sort_unstable();
    // That of the directory itself is closed by now.
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

/// Out of descriptors a listener says so, once, and stops; started when there are some, it goes on
/// where it was.
pub(crate) fn descriptors_run_out<I: Relay>(case: &Case<'_, I>) {
    alone(|| {
        let before = getrlimit(Resource::Nofile).current.unwrap();
        let mut net = Net::new(case);
        net.io.stop(net.listener);
        let from: Vec<_> =
            (0..10).map(|_| net.io.connect(&net.addr.into(), None).unwrap()).collect();
        net.run("all are connected", |net| from.iter().all(|&on| net.seen(on).connected.is_some()));
        limit_descriptors(lowest_free_descriptor() + 3);
        for round in 1..3 {
            net.io.start(net.listener);
            net.run("the descriptors run out", |net| net.accept_failures.len() == round);
            let error = net.accept_failures.last().unwrap();
            assert_eq!(error.raw_os_error(), Some(24), "EMFILE, not {error}");
            assert!(net.accepted.len() < from.len());
            net.settle();
            assert_eq!(net.accept_failures.len(), round);
            net.sleeps(case);
        }
        assert!(net.io.connect(&net.addr.into(), None).is_err());
        assert!(net.io.listen(&net.addr.into(), &Default::default()).is_err());
        // Those that there are go on.
        let (to, from) = (net.accepted[0], from[0]);
        net.io.start(to);
        net.send(from, b"data");
        net.receives(to, b"data");

        limit_descriptors(before);
        net.io.start(net.listener);
        net.run("the rest is accepted", |net| net.accepted.len() == 10);
        net.pair();
        assert_eq!(net.accept_failures.len(), 2);
    });
}

/// Whatever became of connections, their descriptors are closed with them, and all with the `Io`.
pub(crate) fn descriptors_do_not_leak<I: Relay>(case: &Case<'_, I>) {
    alone(|| {
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
                2 => net.receives(to, b"data"),
                3 => net.io.shutdown(from),
                4 => net.settle(),
                5 => {
                    net.send_last(from, b"last");
                    net.settle();
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
            for on in [from, to] {
                net.io.close(on);
            }
            // One that is refused, and one that is closed before it is made.
            let from = net.io.connect(&net.addr.into(), None).unwrap();
            net.io.close(from);
            let source = Some(([192, 0, 2, 1], 0).into());
            net.io.connect(&net.addr.into(), source).unwrap_err();
            net.io.listen(&net.addr.into(), &Default::default()).unwrap_err();
            net.settle();
            net.run("all are closed", |net| {
                for on in std::mem::take(&mut net.accepted) {
                    net.io.close(on);
                }
                net.io.open() == 1
            });
        }
        drop(on_disk);
        assert_eq!(descriptors(), with_net);
        net.pair();
        drop(net);
        assert_eq!(descriptors(), at_first);
    });
}

/// A descriptor whose number is beyond `FD_SETSIZE` is as good as another.
pub(crate) fn descriptors_of_any_number<I: Relay>(case: &Case<'_, I>) {
    alone(|| {
        let filler: Vec<_> = (0..1100).map(|_| File::open("/dev/null").unwrap()).collect();
        let mut net = Net::new(case);
        let (from, to) = net.started_pair();
        let bytes = pattern(2, 20_000);
        net.send(from, &bytes);
        net.receives(to, &bytes);
        drop(filler);
        let (from, to) = net.started_pair();
        net.send(from, &bytes);
        net.receives(to, &bytes);
        net.io.shutdown(from);
        net.ends(to, &bytes);
    });
}

/// A relay needs no descriptor: a pipe only makes it cheaper. Where it took some they are closed, or
/// kept for the next, however it ended, and all closed with the `Io`.
pub(crate) fn descriptors_of_relays<I: Relay>(case: &Case<'_, I>) {
    alone(|| {
        let before = getrlimit(Resource::Nofile).current.unwrap();
        let at_first = descriptors();
        let bytes = pattern(3, LONG);
        for limited in [true, false] {
            let mut hop = Hop::new(case);
            if limited {
                limit_descriptors(lowest_free_descriptor());
            }
            hop.outer.send_body(hop.source, Bytes::from(bytes.clone()));
            hop.relay(bytes.len() as u64);
            hop.outer.io.start(hop.sink);
            assert_eq!(hop.end(), (bytes.len() as u64, Relayed::Most));
            hop.arrives(&bytes);
            limit_descriptors(before);
            // A listener that looked meanwhile for another connection has stopped.
            for net in [&mut hop.outer, &mut hop.net] {
                net.io.start(net.listener);
            }
            // Closed while the pipe is full: it is not the next one's.
            let mut most = 0;
            for round in 0..30 {
                hop.outer.io.stop(hop.sink);
                for _ in 0..3 {
                    hop.outer.send_body(hop.source, Bytes::from(bytes.clone()));
                }
                hop.relay(u64::MAX);
                for _ in 0..20 {
                    hop.outer.turn(Duration::ZERO);
                    hop.net.turn(Duration::from_micros(100));
                }
                let closed = [hop.from, hop.to][round % 2];
                hop.net.io.close(closed);
                for on in [hop.source, hop.sink, hop.from, hop.to] {
                    hop.outer.io.close(on);
                    hop.net.io.close(on);
                }
                let Hop { outer, net, .. } = &mut hop;
                let (source, from) = between(outer, net);
                let (to, sink) = between(net, outer);
                (hop.source, hop.from, hop.to, hop.sink) = (source, from, to, sink);
                hop.outer.io.start(sink);
                hop.outer.send(source, &bytes[..100_000]);
                hop.forget();
                hop.relay(100_000);
                assert_eq!(hop.end(), (100_000, Relayed::Most));
                hop.arrives(&bytes[..100_000]);
                if round < 3 {
                    most = most.max(descriptors().len());
                }
            }
            assert!(descriptors().len() <= most + 4, "they leak");
            drop(hop);
            assert_eq!(descriptors(), at_first);
        }
    });
}
