//! Clients that ask one request after another, each with its one answer, which is noted.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Only what hangs takes as long.
const HANG: Duration = Duration::from_secs(20);

/// What they ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// For files, on connections that are kept.
    Get,
    /// To have something done, on connections that are kept.
    Post,
    /// The same, on a connection each.
    PostOnce,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    /// 0 if there was none, or not all of it.
    pub(crate) status: u16,
    /// Before it was sent, and after.
    pub(crate) asked: Instant,
    pub(crate) sent: Instant,
}

/// The text of a file.
pub(crate) fn text_of(number: usize) -> String {
    format!("text {number}\n").repeat(200)
}

/// A running load.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<Answer>>>,
}

impl Load {
    pub(crate) fn start(addr: &str, clients: usize, plan: Plan) -> Load {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let client = |number: usize| {
            let (stop, count, addr) = (stop.clone(), count.clone(), addr.to_owned());
            thread::spawn(move || {
                let mut answers = Vec::new();
                let mut connection = None;
                while !stop.load(Ordering::SeqCst) {
                    let id = IDS.fetch_add(1, Ordering::SeqCst);
                    let Some(answer) = one(&addr, &mut connection, plan, number, id) else {
                        // Nobody listens any more: nothing was sent.
                        break;
                    };
                    answers.push(answer);
                    count.fetch_add(1, Ordering::SeqCst);
                }
                answers
            })
        };
        let threads = (0..clients).map(client).collect();
        Load { stop, count, threads }
    }

    /// Waits for so many more answers.
    #[track_caller]
    pub(crate) fn wait_for(&self, more: usize) {
        let until = self.count.load(Ordering::SeqCst) + more;
        let since = Instant::now();
        while self.count.load(Ordering::SeqCst) < until {
            assert!(since.elapsed() < HANG * 3, "there are no answers");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends it; all that was asked, in order for each client.
    pub(crate) fn end(self) -> Vec<Answer> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all: Vec<Answer> =
            self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        all.sort_by_key(|answer| answer.asked);
        all
    }
}

fn one(
    addr: &str,
    connection: &mut Option<BufReader<TcpStream>>,
    plan: Plan,
    number: usize,
    id: u64,
) -> Option<Answer> {
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
            (format!("GET /{file}.txt HTTP/1.1\r\nHost: a\r\n\r\n"), text_of(file))
        }
        Plan::Post | Plan::PostOnce => {
            let close = if plan == Plan::PostOnce { "Connection: close\r\n" } else { "" };
            let body = format!("body of {id}");
            let length = body.len();
            let head = format!("POST /{id} HTTP/1.1\r\nHost: a\r\n{close}Content-Length: {length}");
            (format!("{head}\r\n\r\n{body}"), body)
        }
    };
    let asked = Instant::now();
    let written = stream.get_mut().write_all(request.as_bytes());
    let sent = Instant::now();
    let mut answer = Answer { id, status: 0, asked, sent };
    if written.is_err() {
        return Some(answer);
    }
    match read(&mut stream) {
        Ok((status, body, keeps)) => {
            answer.status = status;
            if status == 200 {
                assert_eq!(body, expected.as_bytes(), "the answer to another request");
            }
            *connection = keeps.then_some(stream);
        }
        Err(error) => {
            let kind = error.kind();
            let hangs =
                matches!(kind, std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            assert!(!hangs, "request {id} has no answer");
        }
    }
    Some(answer)
}

/// Reads an answer: its status and body, and whether another request may follow.
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
