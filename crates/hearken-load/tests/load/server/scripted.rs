//! A test server whose replies depend on the requests, over TCP or a Unix socket.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A listening socket.
pub trait Listener: Send + 'static {
    type Peer: Read + Write + Send + 'static;

    fn accept(&self) -> io::Result<Self::Peer>;
    fn end(peer: &Self::Peer);
}

impl Listener for TcpListener {
    type Peer = TcpStream;

    fn accept(&self) -> io::Result<TcpStream> {
        TcpListener::accept(self).map(|(peer, _)| peer)
    }

    fn end(peer: &TcpStream) {
        let _ = peer.shutdown(Shutdown::Both);
    }
}

impl Listener for UnixListener {
    type Peer = UnixStream;

    fn accept(&self) -> io::Result<UnixStream> {
        UnixListener::accept(self).map(|(peer, _)| peer)
    }

    fn end(peer: &UnixStream) {
        let _ = peer.shutdown(Shutdown::Both);
    }
}

/// Complete requests, each with the number of its connection.
pub type Requests = Arc<Mutex<Vec<(u64, String)>>>;

/// Starts a server that sends the result of `reply` for each request, with fields and without content.
/// A reply with `Connection: close` ends the connection. Returns the requests.
pub fn start<L: Listener>(
    listener: L,
    reply: impl Fn(&str) -> String + Send + Sync + 'static,
) -> Requests {
    let requests = Requests::default();
    let (all, reply) = (requests.clone(), Arc::new(reply));
    thread::spawn(move || {
        for number in 0.. {
            let Ok(peer) = listener.accept() else { return };
            let (all, reply) = (all.clone(), reply.clone());
            thread::spawn(move || serve::<L>(peer, number, &all, &*reply));
        }
    });
    requests
}

fn serve<L: Listener>(
    mut peer: L::Peer,
    number: u64,
    requests: &Requests,
    reply: &dyn Fn(&str) -> String,
) -> io::Result<()> {
    let (mut came, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        while let Some((_, length)) = super::request(&came) {
            let request: Vec<_> = came.drain(..length).collect();
            let request = String::from_utf8(request).unwrap();
            let fields = reply(&request);
            requests.lock().unwrap().push((number, request));
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
            peer.write_all(head.as_bytes())?;
            if fields.contains("Connection: close") {
                L::end(&peer);
                return Ok(());
            }
        }
        match peer.read(&mut bytes)? {
            0 => return Ok(()),
            count => came.extend_from_slice(&bytes[..count]),
        }
    }
}

/// Starts a server on a free port of 127.0.0.1. Returns its URL and the requests.
pub fn start_tcp(reply: impl Fn(&str) -> String + Send + Sync + 'static) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (url, start(listener, reply))
}

/// Returns the value of a field of a request.
pub fn field<'r>(request: &'r str, name: &str) -> Option<&'r str> {
    let head = request.split("\r\n\r\n").next().unwrap();
    let mut values = head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let value = values.next();
    assert_eq!(values.next(), None, "{request}");
    value
}
