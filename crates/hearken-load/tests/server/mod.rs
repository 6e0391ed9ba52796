//! A server that misbehaves as it is told, and counts.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test uses a part of it")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};

/// What is done about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Reply,
    Missing,
    Slow,
    Chunked,
    ByteByByte,
    Interim,
    /// Replies, and then closes: unannounced, or announced; or the end of the reply is the close.
    ThenClose,
    AnnouncedClose,
    UntilClose,
    /// Does not reply, but closes or resets.
    Close,
    Reset,
    /// Closes in the middle of the body.
    Partial,
    Garbage,
    Never,
}

impl Act {
    pub const ALL: [Act; 14] = [
        Act::Reply,
        Act::Missing,
        Act::Slow,
        Act::Chunked,
        Act::ByteByByte,
        Act::Interim,
        Act::ThenClose,
        Act::AnnouncedClose,
        Act::UntilClose,
        Act::Close,
        Act::Reset,
        Act::Partial,
        Act::Garbage,
        Act::Never,
    ];

    /// Whether the reply is a whole one.
    pub fn replies(self) -> bool {
        !matches!(self, Act::Close | Act::Reset | Act::Partial | Act::Garbage | Act::Never)
    }

    /// Does it; true if the connection can carry another request.
    fn perform(self, peer: &mut TcpStream) -> io::Result<bool> {
        const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        match self {
            Act::Reply | Act::ThenClose => peer.write_all(OK)?,
            Act::Missing => peer.write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")?,
            Act::Slow => {
                thread::sleep(Duration::from_millis(5));
                peer.write_all(OK)?;
            }
            Act::Chunked => peer.write_all(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            )?,
            Act::ByteByByte => {
                for byte in OK {
                    peer.write_all(&[*byte])?;
                }
            }
            Act::Interim => {
                peer.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n")?;
                peer.write_all(OK)?;
            }
            Act::AnnouncedClose => peer.write_all(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
            )?,
            Act::UntilClose => peer.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello")?,
            Act::Close => {}
            Act::Reset => sockopt::set_socket_linger(&*peer, Some(Duration::ZERO))?,
            Act::Partial => peer.write_all(&OK[..OK.len() - 2])?,
            Act::Garbage => peer.write_all(b"SSH-2.0-OpenSSH_9.6\r\n")?,
            // Until the client gives up.
            Act::Never => {
                while peer.read(&mut [0; 512])? > 0 {}
            }
        }
        let goes_on =
            [Act::Reply, Act::Missing, Act::Slow, Act::Chunked, Act::ByteByByte, Act::Interim];
        Ok(goes_on.contains(&self))
    }
}

#[derive(Default)]
pub struct Counts {
    pub accepted: AtomicU64,
    pub requests: AtomicU64,
    pub replies: AtomicU64,
    pub peers: Mutex<Vec<TcpStream>>,
    stop: AtomicBool,
}

pub struct Server {
    pub addr: SocketAddr,
    pub counts: Arc<Counts>,
}

impl Server {
    /// One that does `act` for the request of a number.
    pub fn start(act: impl Fn(u64) -> Act + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let act = Arc::new(act);
        thread::spawn({
            let counts = counts.clone();
            move || {
                for peer in listener.incoming().flatten() {
                    if counts.stop.load(SeqCst) {
                        return;
                    }
                    counts.peers.lock().unwrap().push(peer.try_clone().unwrap());
                    counts.accepted.fetch_add(1, SeqCst);
                    let (counts, act) = (counts.clone(), act.clone());
                    thread::spawn(move || {
                        let _ = serve(&peer, &counts, &*act);
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
        Server { addr, counts }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.addr)
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

fn serve(mut peer: &TcpStream, counts: &Counts, act: &dyn Fn(u64) -> Act) -> io::Result<()> {
    peer.set_nodelay(true)?;
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    loop {
        let count = peer.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        head.extend_from_slice(&bytes[..count]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        head.clear();
        let act = act(counts.requests.fetch_add(1, SeqCst));
        if act.replies() {
            // Before, or the client could be first to know.
            counts.replies.fetch_add(1, SeqCst);
        }
        if !act.perform(&mut peer.try_clone()?)? {
            return Ok(());
        }
    }
}

/// An address that refuses connections, for as long as what comes with it is kept.
pub fn refusing() -> (String, impl Sized) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr: SocketAddr = getsockname(&socket).unwrap().try_into().unwrap();
    (format!("http://{addr}/"), socket)
}
