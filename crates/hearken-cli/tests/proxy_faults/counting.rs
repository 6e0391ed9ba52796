//! A server that counts requests, and crashes on demand.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// A server that echoes the body of each POST, and counts the requests by the number in their target.
pub(crate) struct CountingServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// Processing time of a request.
    delay: Duration,
    /// A lock that serialises the requests, if any.
    serial: Option<Mutex<()>>,
    counts: Mutex<HashMap<u64, usize>>,
    concurrent: AtomicUsize,
    max_concurrent: AtomicUsize,
    down: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl CountingServer {
    pub(crate) fn start(delay: Duration, serial: bool) -> CountingServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            delay,
            serial: serial.then(Mutex::default),
            counts: Mutex::default(),
            concurrent: AtomicUsize::new(0),
            max_concurrent: AtomicUsize::new(0),
            down: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        listen(listener, shared.clone());
        CountingServer { addr, shared }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Resets all connections and stops listening.
    pub(crate) fn crash(&self) {
        self.shared.down.store(true, Ordering::SeqCst);
        // Wakes the listening thread.
        drop(TcpStream::connect(self.addr));
        for connection in lock(&self.shared.connections).drain(..) {
            let linger = rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO));
            linger.unwrap();
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn restart(&self) {
        self.shared.down.store(false, Ordering::SeqCst);
        let listener = loop {
            match TcpListener::bind(self.addr) {
                Ok(listener) => break listener,
                // The previous thread still listens.
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        listen(listener, self.shared.clone());
    }

    pub(crate) fn counts(&self) -> HashMap<u64, usize> {
        lock(&self.shared.counts).clone()
    }

    pub(crate) fn max_concurrent(&self) -> usize {
        self.shared.max_concurrent.load(Ordering::SeqCst)
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
        let concurrent = shared.concurrent.fetch_add(1, Ordering::SeqCst) + 1;
        shared.max_concurrent.fetch_max(concurrent, Ordering::SeqCst);
        let turn = shared.serial.as_ref().map(lock);
        *lock(&shared.counts).entry(id).or_default() += 1;
        thread::sleep(shared.delay);
        drop(turn);
        shared.concurrent.fetch_sub(1, Ordering::SeqCst);
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        reader.get_mut().write_all(&[response.as_bytes(), &body].concat())?;
    }
}
