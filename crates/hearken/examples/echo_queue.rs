//! An echo server on `EventQueue`, over any mechanism.
//!
//! `cargo run --example echo_queue -- [--events MECHANISM] [ADDR:PORT]`

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use hearken::mechanism::{self, Mechanism};
use hearken::{EventQueue, Interest, Registration};

type Queue = EventQueue<u64, Box<dyn Mechanism>>;

/// The payload of the listener. Those of connections are larger.
const LISTENER: u64 = 0;
/// The maximum number of bytes read at a time.
const BUFFER: usize = 16 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).peekable();
    let events = match args.next_if(|arg| arg == "--events") {
        Some(_) => args.next().ok_or("--events needs the name of a mechanism, such as poll")?,
        None => mechanism::AUTO.to_owned(),
    };
    let address = args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());

    let queue = Queue::with_mechanism(mechanism::find(&events)?.open()?)?;
    let listener = TcpListener::bind(&address)?;
    listener.set_nonblocking(true)?;
    println!("listening on {}", listener.local_addr()?);
    let (listener, _) = queue.declare_interest(listener, Interest::READ, LISTENER)?;

    let mut connections = HashMap::new();
    let mut last = LISTENER;
    loop {
        for event in queue.next_events(256, None)? {
            if event.token == LISTENER {
                accept(&queue, &listener, &mut connections, &mut last);
            } else if let Some(connection) = connections.get_mut(&event.token) {
                match connection.echo() {
                    Ok(true) => {}
                    // Dropping the registration revokes the interest and closes the socket.
                    Ok(false) | Err(_) => drop(connections.remove(&event.token)),
                }
            }
        }
    }
}

/// Accepts all pending connections: an edge-triggered mechanism reports them only once.
fn accept(
    queue: &Queue,
    listener: &TcpListener,
    connections: &mut HashMap<u64, Connection>,
    last: &mut u64,
) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                *last += 1;
                match Connection::new(queue, stream, *last) {
                    Ok(connection) => drop(connections.insert(*last, connection)),
                    Err(error) => eprintln!("cannot register a connection: {error}"),
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // The peer disconnected. Other errors mean that descriptors or memory are used up: a
            // server would pause accepting until a connection is closed.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return eprintln!("cannot accept a connection: {error}"),
        }
    }
}

struct Connection {
    stream: Registration<TcpStream>,
    interest: Interest,
    /// Bytes that were read and not yet written back.
    pending: Vec<u8>,
}

impl Connection {
    fn new(queue: &Queue, stream: TcpStream, payload: u64) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        let (stream, _) = queue.declare_interest(stream, Interest::READ, payload)?;
        Ok(Connection { stream, interest: Interest::READ, pending: Vec::new() })
    }

    /// Reads and writes back until either would block. Returns false at the end of the stream.
    fn echo(&mut self) -> io::Result<bool> {
        let mut stream: &TcpStream = &self.stream;
        let mut bytes = [0; BUFFER];
        let wanted = loop {
            // Reading continues only after everything was written, which slows down the peer.
            if self.pending.is_empty() {
                match stream.read(&mut bytes) {
                    Ok(0) => return Ok(false),
                    Ok(count) => self.pending.extend_from_slice(&bytes[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break Interest::READ,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                }
            }
            match stream.write(&self.pending) {
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Interest::WRITE,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        if self.interest != wanted {
            self.interest = wanted;
            self.stream.change_interest(wanted)?;
        }
        Ok(true)
    }
}
