//! A server that counts what it does, and crashes when it is told to.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Answers each POST with its body, and counts it by the number in its target.
pub(crate) struct Counting {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// How long each takes; one at a time, if `serial`.
    takes: Duration,
    serial: Option<Mutex<()>>,
    counts: Mutex<HashMap<u64, usize>>,
    now: AtomicUsize,
    most: AtomicUsize,
    down: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Counting {
    pub(crate) fn start(takes: Duration, serial: bool) -> Counting {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            takes,
            serial: serial.then(Mutex::default),
            counts: Mutex::default(),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            down: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        listen(listener, shared.clone());
        Counting { addr, shared }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Breaks all its connections off, and nobody listens.
    pub(crate) fn crash(&self) {
        self.shared.down.store(true, Ordering::SeqCst);
        // The listening thread is to see it.
        drop(TcpStream::connect(self.addr));
        for connection in lock(&self.shared.connections).drain(..) {
            let linger = rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO));
            linger.unwrap();
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn come_back(&self) {
        self.shared.down.store(false, Ordering::SeqCst);
        let listener = loop {
            match TcpListener::bind(self.addr) {
                Ok(listener) => break listener,
                // The thread of the last one has not ended yet.
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        listen(listener, self.shared.clone());
    }

    pub(crate) fn counts(&self) -> HashMap<u64, usize> {
        lock(&self.shared.counts).clone()
    }

    pub(crate) fn most_at_a_time(&self) -> usize {
        self.shared.most.load(Ordering::SeqCst)
    }
}

fn listen(listener: TcpListener, shared: Arc<Shared>) {
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            if shared.down.load(Ordering::SeqCst) {
                return;
            }
            lock(&shared.connections).push(stream.try_clone().unwrap());
            let shared = shared.clone();
            thread::spawn(move || drop(serve(stream, &shared)));
        }
    });
}

fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let id = first.split(['/', ' ', '?']).find_map(|word| word.parse().ok());
        let id: u64 = id.unwrap_or_else(|| panic!("no number in {first:?}"));
        let now = shared.now.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most.fetch_max(now, Ordering::SeqCst);
        let turn = shared.serial.as_ref().map(lock);
        *lock(&shared.counts).entry(id).or_default() += 1;
        thread::sleep(shared.takes);
        drop(turn);
        shared.now.fetch_sub(1, Ordering::SeqCst);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        reader.get_mut().write_all(&[answer.as_bytes(), &body].concat())?;
    }
}
