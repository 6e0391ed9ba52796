//! A configurable test server that counts connections, requests and replies.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "test helpers")]

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket, sockopt};

pub mod assertions;
mod behaviour;
pub mod http2;
pub mod scripted;
pub mod tls;

pub use behaviour::{Behaviour, Wire};

#[derive(Default)]
pub struct Counts {
    pub accepted: AtomicU64,
    pub requests: AtomicU64,
    pub replies: AtomicU64,
    pub peers: Mutex<Vec<TcpStream>>,
    /// Request targets, each with the number of the connection.
    pub targets: Mutex<Vec<(u64, String)>>,
    stop: AtomicBool,
}

pub struct Server {
    pub addr: SocketAddr,
    pub counts: Arc<Counts>,
    scheme: &'static str,
}

impl Server {
    /// Starts a server. `behaviour` selects the response to the n-th request.
    pub fn start(behaviour: impl Fn(u64) -> Behaviour + Send + Sync + 'static) -> Server {
        Server::speaking("http", |peer| Box::new(peer), behaviour)
    }

    /// Starts a server like [`start`](Server::start), with a protocol layer above the socket.
    pub fn speaking(
        scheme: &'static str,
        wire: impl Fn(TcpStream) -> Box<dyn Wire> + Send + Sync + 'static,
        behaviour: impl Fn(u64) -> Behaviour + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The standard library's backlog of 128 soon overflows, and the kernel then drops
        // connections.
        listen(&listener, 4096).unwrap();
        let addr = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let both = Arc::new((wire, behaviour));
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
                        let (wire, behaviour) = &*both;
                        let mut wire = wire(peer.try_clone().unwrap());
                        if serve(&mut *wire, number, &counts, behaviour).is_ok() {
                            wire.finish();
                        }
                        // Clones of the descriptor must not keep the connection open.
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

    /// Returns the request targets of each connection, in order.
    pub fn targets(&self) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for (number, target) in &*self.counts.targets.lock().unwrap() {
            let number = *number as usize;
            if all.len() <= number {
                all.resize(number + 1, Vec::new());
            }
            all[number].push(target.clone());
        }
        all
    }

    /// Waits until `done` returns true. Panics after a minute.
    pub fn until(&self, done: impl Fn(&Server) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < Duration::from_secs(60), "the server makes no progress");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Closes all connections.
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
    behaviour: &dyn Fn(u64) -> Behaviour,
) -> io::Result<()> {
    wire.socket().set_nodelay(true)?;
    let (mut came, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        while let Some((target, length)) = request(&came) {
            came.drain(..length);
            counts.targets.lock().unwrap().push((number, target));
            let behaviour = behaviour(counts.requests.fetch_add(1, SeqCst));
            if behaviour.replies() {
                // Count before replying, because the client may check the count after the reply.
                counts.replies.fetch_add(1, SeqCst);
            }
            if !behaviour.perform(wire)? {
                return Ok(());
            }
        }
        match wire.read(&mut bytes)? {
            0 => return Ok(()),
            count => came.extend_from_slice(&bytes[..count]),
        }
    }
}

/// Returns the target and the length of the first request, if it is complete.
fn request(bytes: &[u8]) -> Option<(String, usize)> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]);
    let body = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length = head + body.map_or(0, |length| length.parse().unwrap());
    let target = text.split(' ').nth(1)?.to_owned();
    (bytes.len() >= length).then_some((target, length))
}

/// Returns a URL that refuses connections, as long as the second value is not dropped.
pub fn refusing() -> (String, impl Sized) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr: SocketAddr = getsockname(&socket).unwrap().try_into().unwrap();
    (format!("http://{addr}/"), socket)
}

/// Returns a URL whose connection attempts time out, as long as the second value is not dropped:
/// its accept queue is full.
pub fn black_hole() -> (String, impl Sized) {
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&listener, 0).unwrap();
    let addr: SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
    let mut queued = Vec::new();
    while let Ok(peer) = TcpStream::connect_timeout(&addr, Duration::from_millis(200)) {
        queued.push(peer);
        assert!(queued.len() < 100, "the accept queue does not fill");
    }
    (format!("http://{addr}/"), (listener, queued))
}

/// Starts a server that closes all connections immediately.
pub fn hanging_up() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    addr
}

/// Starts a server that replies after `after` bytes and continues to read.
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
