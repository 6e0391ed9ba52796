//! Origin servers: a function handles each connection in a thread of its own.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

use super::connection::Connection;
use super::wire::{Kind, Message};

/// A listening server. It stops accepting connections when it is dropped.
#[derive(Debug)]
pub(crate) struct Origin {
    at: At,
    stop: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
    /// Returns whether the thread of a connection panicked.
    thread: Option<JoinHandle<bool>>,
}

#[derive(Clone, Debug)]
enum At {
    Inet(SocketAddr),
    Unix(PathBuf),
}

enum Listener {
    Inet(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn accept(&self) -> std::io::Result<Connection> {
        Ok(match self {
            Listener::Inet(listener) => Connection::tcp(listener.accept()?.0, Kind::Request),
            Listener::Unix(listener) => Connection::unix(listener.accept()?.0, Kind::Request),
        })
    }
}

/// A socket that reserves an address and refuses connections to it.
#[derive(Debug)]
pub(crate) struct Refusing {
    socket: OwnedFd,
    pub(crate) addr: SocketAddr,
}

impl Refusing {
    pub(crate) fn new() -> Refusing {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let addr = getsockname(&socket).unwrap().try_into().unwrap();
        Refusing { socket, addr }
    }

    /// Starts an origin at the address.
    pub(crate) fn listen(self, serve: impl Fn(Peer) + Send + Sync + 'static) -> Origin {
        listen(&self.socket, 128).unwrap();
        Origin::start(Listener::Inet(self.socket.into()), At::Inet(self.addr), serve)
    }
}

/// A connection to an origin.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    /// The index of the connection, from 0 in the order of accepting.
    pub(crate) number: usize,
}

impl Peer {
    /// Returns the next request, unless the connection ends before its end.
    pub(crate) fn request(&mut self) -> Option<Message> {
        self.connection.message()
    }

    /// Returns the head of the next request, before its body is read.
    pub(crate) fn head(&mut self) -> Option<Message> {
        self.connection.receive_until(|reader| reader.advance().is_err() || reader.has_head());
        self.connection.reader.has_head().then(|| self.connection.reader.message().clone())
    }

    /// Sends a response with this text and a Content-Length.
    pub(crate) fn respond(&mut self, text: &str) {
        let length = text.len();
        self.connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}"));
    }
}

impl Origin {
    /// Starts an origin on a free port, whose connections `serve` handles.
    pub(crate) fn new(serve: impl Fn(Peer) + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = At::Inet(listener.local_addr().unwrap());
        Origin::start(Listener::Inet(listener), at, serve)
    }

    pub(crate) fn unix(path: &Path, serve: impl Fn(Peer) + Send + Sync + 'static) -> Origin {
        let listener = UnixListener::bind(path).unwrap();
        Origin::start(Listener::Unix(listener), At::Unix(path.to_owned()), serve)
    }

    /// Starts an origin that sends the result of `respond` for each request.
    pub(crate) fn responding(
        respond: impl Fn(&Message) -> String + Send + Sync + 'static,
    ) -> Origin {
        Origin::new(move |mut peer| {
            while let Some(request) = peer.request() {
                peer.respond(&respond(&request));
            }
        })
    }

    fn start(listener: Listener, at: At, serve: impl Fn(Peer) + Send + Sync + 'static) -> Origin {
        let stop = Arc::new(AtomicBool::new(false));
        let accepted = Arc::new(AtomicUsize::new(0));
        let (stopped, count) = (stop.clone(), accepted.clone());
        let serve = Arc::new(serve);
        let thread = thread::spawn(move || {
            let (mut threads, mut failed) = (Vec::new(), false);
            while let Ok(connection) = listener.accept() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let peer = Peer { connection, number: count.fetch_add(1, Ordering::SeqCst) };
                let serve = serve.clone();
                threads.push(thread::spawn(move || serve(peer)));
                if threads.len() >= 256 {
                    // A finished thread that is not joined keeps its stack.
                    let all = std::mem::take(&mut threads).into_iter();
                    let (ended, running): (Vec<_>, _) = all.partition(JoinHandle::is_finished);
                    threads = running;
                    failed |= join(ended);
                }
            }
            drop(listener);
            join(threads) || failed
        });
        Origin { at, stop, accepted, thread: Some(thread) }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        match self.at {
            At::Inet(addr) => addr,
            At::Unix(_) => panic!("no address"),
        }
    }

    /// Returns the number of accepted connections.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Stops accepting and waits until peers have closed all connections.
    pub(crate) fn end(mut self) {
        assert!(!self.join(), "a connection of the origin panicked");
    }

    /// Stops accepting and waits for all connections. Returns whether one panicked.
    fn join(&mut self) -> bool {
        self.stop.store(true, Ordering::SeqCst);
        match &self.at {
            At::Inet(addr) => drop(TcpStream::connect(addr)),
            At::Unix(path) => drop(UnixStream::connect(path)),
        }
        self.thread.take().is_some_and(|thread| thread.join().unwrap_or(true))
    }
}

/// Joins threads. Returns whether one panicked.
fn join(threads: Vec<JoinHandle<()>>) -> bool {
    let failed: Vec<bool> = threads.into_iter().map(|thread| thread.join().is_err()).collect();
    failed.contains(&true)
}

impl Drop for Origin {
    fn drop(&mut self) {
        // A proxy that ends later may hold connections, so these are not waited for.
        self.stop.store(true, Ordering::SeqCst);
        match &self.at {
            At::Inet(addr) => drop(TcpStream::connect(addr)),
            At::Unix(path) => drop(UnixStream::connect(path)),
        }
    }
}

/// A list that several threads append to.
#[derive(Debug)]
pub(crate) struct Recorder<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Recorder<T> {
    fn clone(&self) -> Self {
        Recorder(self.0.clone())
    }
}

impl<T> Recorder<T> {
    pub(crate) fn new() -> Recorder<T> {
        Recorder(Arc::default())
    }

    pub(crate) fn add(&self, item: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(item);
    }

    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn peek(&self) -> Vec<T>
    where
        T: Clone,
    {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
