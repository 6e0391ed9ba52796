//! Clients that send one request after another, and record the responses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time after which a request hangs.
const HANG: Duration = Duration::from_secs(20);

/// The requests of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// GET of files, on persistent connections.
    Get,
    /// POST, on persistent connections.
    Post,
    /// POST, each on a new connection.
    PostOnce,
}

/// The result of a request.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) id: u64,
    /// Status code; 0 if there was no complete response.
    pub(crate) status: u16,
    /// Time before the request was sent.
    pub(crate) started: Instant,
    /// Time after the request was sent.
    pub(crate) sent: Instant,
}

/// Returns the content of a file.
pub(crate) fn content_of(number: usize) -> String {
    format!("text {number}\n").repeat(200)
}

/// A running load.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<Exchange>>>,
}

impl Load {
    pub(crate) fn start(addr: &str, clients: usize, plan: Plan) -> Load {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let client = |number: usize| {
            let (stop, count, addr) = (stop.clone(), count.clone(), addr.to_owned());
            thread::spawn(move || {
                let mut results = Vec::new();
                let mut connection = None;
                while !stop.load(Ordering::SeqCst) {
                    let id = IDS.fetch_add(1, Ordering::SeqCst);
                    let Some(result) = one(&addr, &mut connection, plan, number, id) else {
                        // The proxy no longer listens, and nothing was sent.
                        break;
                    };
                    results.push(result);
                    count.fetch_add(1, Ordering::SeqCst);
                }
                results
            })
        };
        let threads = (0..clients).map(client).collect();
        Load { stop, count, threads }
    }

    /// Waits for this number of further responses.
    #[track_caller]
    pub(crate) fn wait_for(&self, more: usize) {
        let until = self.count.load(Ordering::SeqCst) + more;
        let since = Instant::now();
        while self.count.load(Ordering::SeqCst) < until {
            assert!(since.elapsed() < HANG * 3, "no responses");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stops the load and returns all results, by start time.
    pub(crate) fn stop(self) -> Vec<Exchange> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all: Vec<Exchange> =
            self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        all.sort_by_key(|result| result.started);
        all
    }
}

fn one(
    addr: &str,
    connection: &mut Option<BufReader<TcpStream>>,
    plan: Plan,
    number: usize,
    id: u64,
) -> Option<Exchange> {
    let mut stream = match connection.take() {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(addr).ok()?;
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(HANG)).unwrap();
            BufReader::new(stream)
        }
    };
    let (request, expected) = match plan {
        Plan::Get => {
            let file = number % 8;
            (format!("GET /{file}.txt HTTP/1.1\r\nHost: a\r\n\r\n"), content_of(file))
        }
        Plan::Post | Plan::PostOnce => {
            let close = if plan == Plan::PostOnce { "Connection: close\r\n" } else { "" };
            let body = format!("body of {id}");
            let length = body.len();
            let head = format!("POST /{id} HTTP/1.1\r\nHost: a\r\n{close}Content-Length: {length}");
            (format!("{head}\r\n\r\n{body}"), body)
        }
    };
    let started = Instant::now();
    let written = stream.get_mut().write_all(request.as_bytes());
    let sent = Instant::now();
    let mut result = Exchange { id, status: 0, started, sent };
    if written.is_err() {
        return Some(result);
    }
    match read(&mut stream) {
        Ok((status, body, keeps)) => {
            result.status = status;
            if status == 200 {
                assert_eq!(body, expected.as_bytes(), "response to another request");
            }
            *connection = keeps.then_some(stream);
        }
        Err(error) => {
            let kind = error.kind();
            let hangs =
                matches!(kind, std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            assert!(!hangs, "request {id} hangs");
        }
    }
    Some(result)
}

/// Reads a response. Returns its status and body, and whether the connection is persistent.
fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<(u16, Vec<u8>, bool)> {
    let (mut first, mut length, mut keeps) = (String::new(), 0, true);
    stream.read_line(&mut first)?;
    let status = first.get(9..12).and_then(|digits| digits.parse().ok());
    let status = status.ok_or(std::io::ErrorKind::UnexpectedEof)?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.to_ascii_lowercase();
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        keeps &= line != "connection: close\r\n";
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((status, body, keeps))
}
