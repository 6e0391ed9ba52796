//! Clients that read their replies or send their requests slowly.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use hearken::io::{find, names};
use hearken_load::{Config, Profile, Report, SlowGroup, SlowOptions};

use crate::server::tls::{Authority, Closing};
use crate::server::{Behaviour, Server};
use crate::while_running;

/// Starts a server that calls `serve` for each connection.
fn start(serve: impl Fn(TcpStream) -> Option<()> + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for peer in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(peer));
        }
    });
    addr
}

/// Reads a request without a body.
fn read_request(peer: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") {
        peer.read_exact(&mut byte).ok()?;
        request.push(byte[0]);
    }
    Some(request)
}

fn slow(text: &str) -> Option<SlowOptions> {
    Some(text.parse().unwrap())
}

fn config(addr: SocketAddr) -> Config {
    Config {
        url: format!("http://{addr}/"),
        rate: Profile::constant(0.0),
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

fn readers(report: &Report) -> &SlowGroup {
    report.slow_clients.as_ref().unwrap().readers.as_ref().unwrap()
}

fn senders(report: &Report) -> &SlowGroup {
    report.slow_clients.as_ref().unwrap().senders.as_ref().unwrap()
}

fn wait(events: &Receiver<()>, count: usize) {
    for _ in 0..count {
        events.recv_timeout(Duration::from_secs(60)).expect("the server makes no progress");
    }
}

#[test]
fn readers_take_their_replies_at_their_rate() {
    const BODY: usize = 2000;
    for mechanism in names().filter(|name| find(name).unwrap().probe().is_ok()) {
        let (sender, requests) = channel();
        let addr = start(move |mut peer| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n");
            loop {
                read_request(&mut peer)?;
                sender.send(()).ok()?;
                peer.write_all(&[head.as_bytes(), &[b'x'; BODY]].concat()).ok()?;
            }
        });
        let config = Config {
            slow_readers: slow("1,rate=20000"),
            mechanism: mechanism.to_owned(),
            ..config(addr)
        };
        let begin = Instant::now();
        let report = while_running(&config, || wait(&requests, 4));
        // Three complete replies come before the fourth request.
        let least = Duration::from_secs_f64(3.0 * BODY as f64 / 20_000.0);
        assert!(begin.elapsed() >= least, "{mechanism}: {:?}\n{report}", begin.elapsed());
        let readers = readers(&report);
        assert_eq!((readers.requested, readers.open), (1, 1), "{report}");
        assert!(readers.completed >= 3 && readers.requests >= 4, "{report}");
        assert_eq!((readers.refused, readers.closed_by_server, readers.timed_out), (0, 0, 0));
        assert!(readers.bytes >= 3 * BODY as u64, "{report}");
    }
}

/// Checks the limit with a reply that would otherwise be received by the megabyte.
#[test]
fn readers_receive_no_more_than_their_rate_allows() {
    let (sender, blocked) = channel();
    let addr = start(move |mut peer| {
        read_request(&mut peer)?;
        peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").ok()?;
        peer.set_nonblocking(true).ok()?;
        while peer.write(&[b'x'; 65536]).is_ok() {}
        // The buffers are full, because the client does not read.
        sender.send(()).ok()?;
        peer.set_nonblocking(false).ok()?;
        while peer.write(&[b'x'; 65536]).is_ok() {}
        None
    });
    let config = Config { slow_readers: slow("2,rate=5000"), ..config(addr) };
    let begin = Instant::now();
    let report = while_running(&config, || {
        wait(&blocked, 2);
        thread::sleep(Duration::from_millis(100));
    });
    let most = 2.0 * (5000.0 * begin.elapsed().as_secs_f64() + 65536.0);
    let readers = readers(&report);
    assert!(readers.bytes > 0 && (readers.bytes as f64) < most, "{report}");
    assert_eq!((readers.open, readers.completed), (2, 0), "{report}");
}

#[test]
fn readers_count_replies_that_do_not_complete() {
    for (behaviour, count) in [
        (Behaviour::Missing, (|group| group.refused) as fn(&SlowGroup) -> u64),
        (Behaviour::Partial, |group| group.closed_by_server),
        (Behaviour::ResetInBody, |group| group.closed_by_server),
        (Behaviour::Never, |group| group.timed_out),
        (Behaviour::UntilClose, |group| group.completed),
        (Behaviour::Garbage, |group| group.failures.total()),
    ] {
        let server = Server::start(move |_| behaviour);
        let config = Config {
            slow_readers: slow("1,rate=1000000"),
            timeout: Duration::from_secs(1),
            ..config(server.addr)
        };
        let report = while_running(&config, || server.until(|server| server.requests() >= 3));
        assert!(count(readers(&report)) >= 2, "{behaviour:?}: {report}");
    }
}

#[test]
fn senders_send_their_requests_in_pieces() {
    let (sender, requests) = channel();
    let addr = start(move |mut peer| {
        loop {
            let request = read_request(&mut peer)?;
            assert!(request.starts_with(b"GET / HTTP/1.1\r\n"));
            sender.send(request.len()).ok()?;
            peer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
        }
    });
    let config = Config { slow_senders: slow("1,rate=500"), ..config(addr) };
    let begin = Instant::now();
    let mut bytes = 0;
    let report = while_running(&config, || {
        for _ in 0..3 {
            bytes += requests.recv_timeout(Duration::from_secs(60)).unwrap();
        }
    });
    // The last piece of each request, of 50 bytes, takes no time.
    let least = Duration::from_secs_f64((bytes - 3 * 50) as f64 / 500.0);
    assert!(begin.elapsed() >= least, "{:?} {least:?}\n{report}", begin.elapsed());
    let senders = senders(&report);
    assert!(senders.completed >= 2, "{report}");
    assert!(senders.bytes >= bytes as u64, "{report}");
    assert_eq!((senders.open, senders.refused, senders.closed_by_server), (1, 0, 0), "{report}");
}

/// Checks senders that wait for more than the duration of the test after their first byte.
#[test]
fn servers_refuse_and_close_incomplete_requests() {
    let (sender, requests) = channel();
    let addr = start(move |mut peer| {
        let mut bytes = [0; 100];
        // More than a byte would be the complete request.
        assert_eq!(peer.read(&mut bytes).ok()?, 1);
        sender.send(()).ok()?;
        peer.write_all(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n").ok()
    });
    let config = Config { slow_senders: slow("2,rate=0.01"), ..config(addr) };
    let report = while_running(&config, || wait(&requests, 6));
    assert!(senders(&report).refused >= 4, "{report}");
    assert_eq!((senders(&report).completed, senders(&report).failures.total()), (0, 0), "{report}");

    let (sender, closed) = channel();
    let addr = start(move |peer| {
        drop(peer);
        sender.send(()).ok()
    });
    let config = Config { slow_senders: slow("2,rate=0.01"), ..self::config(addr) };
    let report = while_running(&config, || wait(&closed, 6));
    assert!(senders(&report).closed_by_server >= 4, "{report}");
    assert!(report.to_string().contains("closed by server"), "{report}");
}

#[test]
fn slow_clients_work_under_tls() {
    let authority = Authority::new();
    let server = authority.start_server(Closing::Announced, |_| Behaviour::Reply);
    let config = Config {
        url: server.url(),
        tls: authority.options(),
        slow_readers: slow("2,rate=100000"),
        slow_senders: slow("2,rate=100000"),
        ..config(server.addr)
    };
    let report = while_running(&config, || {
        server.until(|server| server.targets().iter().filter(|all| all.len() > 2).count() == 4);
    });
    assert!(readers(&report).completed >= 4 && senders(&report).completed >= 4, "{report}");
    assert_eq!(report.tls.full + report.tls.resumed, 4, "{report}");
}
