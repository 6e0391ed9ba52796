//! A server that misbehaves as it is told, and counts.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test uses a part of it")]

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket, sockopt};

mod act;
pub mod conserved;
pub mod tls;

pub use act::{Act, Wire};

#[derive(Default)]
pub struct Counts {
    pub accepted: AtomicU64,
    pub requests: AtomicU64,
    pub replies: AtomicU64,
    pub peers: Mutex<Vec<TcpStream>>,
    /// What was asked for, with the number of the connection.
    pub asked: Mutex<Vec<(u64, String)>>,
    stop: AtomicBool,
}

pub struct Server {
    pub addr: SocketAddr,
    pub counts: Arc<Counts>,
    scheme: &'static str,
}

impl Server {
    /// One that does `act` for the request of a number.
    pub fn start(act: impl Fn(u64) -> Act + Send + Sync + 'static) -> Server {
        Server::speaking("http", |peer| Box::new(peer), act)
    }

    /// As [`start`](Server::start), with something between it and the socket.
    pub fn speaking(
        scheme: &'static str,
        wire: impl Fn(TcpStream) -> Box<dyn Wire> + Send + Sync + 'static,
        act: impl Fn(u64) -> Act + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The library's 128 are soon full, and then the kernel drops who connects.
        listen(&listener, 4096).unwrap();
        let addr = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let both = Arc::new((wire, act));
        thread::spawn({
            let counts = counts.clone();
            move || {
                for peer in listener.incoming().flatten() {
                    if counts.stop.load(SeqCst) {
                        return;
                    }
                    counts.peers.lock().unwrap().push(peer.try_clone().unwrap());
                    let number = counts.accepted.fetch_add(1, SeqCst);
                    let (counts, both) = (counts.clone(), both.clone());
                    thread::spawn(move || {
                        let (wire, act) = &*both;
                        let mut wire = wire(peer.try_clone().unwrap());
                        if serve(&mut *wire, number, &counts, act).is_ok() {
                            wire.finish();
                        }
                        // Whoever holds a clone does not keep it open.
                        let lingers = sockopt::socket_linger(&peer).ok().flatten().is_none();
                        if lingers {
                            let _ = peer.shutdown(Shutdown::Both);
                        }
                        let port = peer.peer_addr();
                        let mut peers = counts.peers.lock().unwrap();
                        peers.retain(|other| other.peer_addr().ok() != port.as_ref().ok().copied());
                    });
                }
            }
        });
        Server { addr, counts, scheme }
    }

    pub fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.addr)
    }

    pub fn requests(&self) -> u64 {
        self.counts.requests.load(SeqCst)
    }

    pub fn replies(&self) -> u64 {
        self.counts.replies.load(SeqCst)
    }

    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(SeqCst)
    }

    /// What was asked for on each connection, in order.
    pub fn asked(&self) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for (number, target) in &*self.counts.asked.lock().unwrap() {
            let number = *number as usize;
            if all.len() <= number {
                all.resize(number + 1, Vec::new());
            }
            all[number].push(target.clone());
        }
        all
    }

    /// Waits until it has come so far; panics if that takes an absurd time.
    pub fn until(&self, done: impl Fn(&Server) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < Duration::from_secs(60), "the server has come to a halt");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends every connection that there is.
    pub fn drop_all(&self) {
        for peer in self.counts.peers.lock().unwrap().drain(..) {
            let _ = peer.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.counts.stop.store(true, SeqCst);
        let _ = TcpStream::connect(self.addr);
        self.drop_all();
    }
}

fn serve(
    wire: &mut dyn Wire,
    number: u64,
    counts: &Counts,
    act: &dyn Fn(u64) -> Act,
) -> io::Result<()> {
    wire.socket().set_nodelay(true)?;
    let (mut came, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        while let Some((target, length)) = request(&came) {
            came.drain(..length);
            counts.asked.lock().unwrap().push((number, target));
            let act = act(counts.requests.fetch_add(1, SeqCst));
            if act.replies() {
                // Before, or the client could be first to know.
                counts.replies.fetch_add(1, SeqCst);
            }
            if !act.perform(wire)? {
                return Ok(());
            }
        }
        match wire.read(&mut bytes)? {
            0 => return Ok(()),
            count => came.extend_from_slice(&bytes[..count]),
        }
    }
}

/// The target of the first request, and its length, if it is complete.
fn request(bytes: &[u8]) -> Option<(String, usize)> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]);
    let body = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length = head + body.map_or(0, |length| length.parse().unwrap());
    let target = text.split(' ').nth(1)?.to_owned();
    (bytes.len() >= length).then_some((target, length))
}

/// An address that refuses connections, for as long as what comes with it is kept.
pub fn refusing() -> (String, impl Sized) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr: SocketAddr = getsockname(&socket).unwrap().try_into().unwrap();
    (format!("http://{addr}/"), socket)
}

/// An address at which connecting comes to nothing, for as long as what comes with it is kept: its
/// queue is full, and nobody accepts.
pub fn black_hole() -> (String, impl Sized) {
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&listener, 0).unwrap();
    let addr: SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
    let mut queued = Vec::new();
    while let Ok(peer) = TcpStream::connect_timeout(&addr, Duration::from_millis(200)) {
        queued.push(peer);
        assert!(queued.len() < 100, "its queue does not fill");
    }
    (format!("http://{addr}/"), (listener, queued))
}

/// Takes leave of whoever connects.
pub fn hanging_up() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    addr
}

/// Replies to whoever connects, once the given bytes were read, and goes on reading.
pub fn hasty(reply: &'static [u8], after: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut peer in listener.incoming().flatten() {
            thread::spawn(move || -> io::Result<()> {
                use io::Read;
                let mut bytes = vec![0; after];
                peer.read_exact(&mut bytes)?;
                peer.write_all(reply)?;
                io::copy(&mut peer, &mut io::sink())?;
                Ok(())
            });
        }
    });
    addr
}
