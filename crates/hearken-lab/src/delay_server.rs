//! A server that measures the delay of notifications: from the arrival of a packet, which the kernel records, to
//! the wait that returns its event, and to the handler of the connection.
//!
//! It answers each request with one byte. The distributions are histograms of its metrics page.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use hearken::mechanism::{self, Mechanism};
use hearken::{EventQueue, Interest, Registration};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use rustix::time::{ClockId, clock_gettime};

use crate::error::LabError;

/// The payload of the listener. Those of connections are larger.
const LISTENER: u64 = 0;
/// Maximum number of events per wait.
const BATCH: usize = 256;
/// Size of the receive buffer.
const BUFFER: usize = 4096;
/// Upper bounds of the buckets, in nanoseconds, from 250 ns with 8 buckets per factor of 2.
const BUCKETS: usize = 192;
const FIRST_BOUND_NS: f64 = 250.0;
const BUCKETS_PER_DOUBLING: f64 = 8.0;
/// Response to every request.
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
/// Name of the metric with the stages.
pub(crate) const METRIC: &str = "hearken_notification_delay_seconds";

/// Stages of a notification, in the order of their names in metrics.
const STAGES: [&str; 2] = ["dequeue", "handler"];

/// Counts by bucket. The last one has no upper bound.
#[derive(Debug)]
struct Delays([AtomicU64; BUCKETS]);

impl Default for Delays {
    fn default() -> Delays {
        Delays(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Returns the upper bound of a bucket in nanoseconds.
fn bound(bucket: usize) -> f64 {
    FIRST_BOUND_NS * (bucket as f64 / BUCKETS_PER_DOUBLING).exp2()
}

impl Delays {
    fn record(&self, delay_ns: u64) {
        let octaves = (delay_ns as f64 / FIRST_BOUND_NS).max(1e-9).log2();
        let bucket = (octaves * BUCKETS_PER_DOUBLING).ceil().max(0.0) as usize;
        self.0[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// Appends the histogram in the Prometheus format.
    fn render(&self, stage: &str, page: &mut String) {
        let mut count = 0;
        for (bucket, number) in self.0.iter().enumerate() {
            count += number.load(Ordering::Relaxed);
            let bound = match bucket + 1 {
                BUCKETS => "+Inf".to_owned(),
                _ => format!("{:.9}", bound(bucket) / 1e9),
            };
            let _ = writeln!(page, "{METRIC}_bucket{{stage=\"{stage}\",le=\"{bound}\"}} {count}");
        }
    }
}

/// Serves until the process ends.
///
/// # Errors
/// An unknown or unavailable mechanism, an address in use, or a wait that fails.
pub fn run(events: &str, listen: SocketAddr, admin: SocketAddr) -> Result<(), LabError> {
    let failed = |action: &str| {
        let action = action.to_owned();
        move |source| LabError::System { action, source }
    };
    let spec = mechanism::find(events).map_err(|error| LabError::Config(error.to_string()))?;
    let mechanism = spec.open().map_err(|error| LabError::Config(error.to_string()))?;
    let queue = EventQueue::with_mechanism(mechanism).map_err(failed("create an event queue"))?;
    let listener = TcpListener::bind(listen).map_err(failed("listen"))?;
    let delays: Arc<[Delays; 2]> = Arc::default();
    let metrics = TcpListener::bind(admin).map_err(failed("listen for requests of metrics"))?;
    let shared = delays.clone();
    thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || serve_metrics(&metrics, &shared))
        .map_err(failed("start a thread"))?;
    serve(&queue, listener, &delays).map_err(failed("wait for events"))
}

/// Answers each connection to the metrics page.
fn serve_metrics(listener: &TcpListener, delays: &[Delays; 2]) {
    for client in listener.incoming() {
        // A client that disconnects early receives no page.
        let _ = client.and_then(|client| send_metrics(client, delays));
    }
}

fn send_metrics(mut client: TcpStream, delays: &[Delays; 2]) -> io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(1)))?;
    let _ = client.read(&mut [0; BUFFER])?;
    let mut page = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_owned();
    let _ = writeln!(page, "# TYPE {METRIC} histogram");
    for (stage, delays) in STAGES.iter().zip(delays) {
        delays.render(stage, &mut page);
    }
    client.write_all(page.as_bytes())
}

/// Returns the time of the clock by which the kernel records the arrival of packets.
fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

type Queue = EventQueue<u64, Box<dyn Mechanism>>;

fn serve(queue: &Queue, listener: TcpListener, delays: &[Delays; 2]) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let (listener, _) =
        queue.declare_interest(listener, Interest::READ, LISTENER).map_err(|error| error.error)?;
    let mut connections: HashMap<u64, Registration<TcpStream>> = HashMap::new();
    let mut last = LISTENER;
    loop {
        let events = queue.next_events(BATCH, None)?;
        let dequeued = now_ns();
        for event in events {
            if event.token == LISTENER {
                accept(queue, &listener, &mut connections, &mut last);
            } else if let Some(connection) = connections.get(&event.token)
                && !answer(connection, dequeued, delays).unwrap_or(false)
            {
                connections.remove(&event.token);
            }
        }
    }
}

/// Accepts all pending connections: an edge-triggered mechanism reports them only once.
fn accept(
    queue: &Queue,
    listener: &TcpListener,
    connections: &mut HashMap<u64, Registration<TcpStream>>,
    last: &mut u64,
) {
    while let Ok((stream, _)) = listener.accept() {
        *last += 1;
        let ready = stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true))
            .and_then(|()| Ok(setsockopt(&stream, sockopt::ReceiveTimestampns, &true)?));
        if ready.is_ok()
            && let Ok((stream, _)) = queue.declare_interest(stream, Interest::READ, *last)
        {
            connections.insert(*last, stream);
        }
    }
}

/// Answers the requests that have arrived. Returns false at the end of the stream.
fn answer(stream: &TcpStream, dequeued: u64, delays: &[Delays; 2]) -> io::Result<bool> {
    let handled = now_ns();
    let mut bytes = [0; BUFFER];
    let mut space = nix::cmsg_space!(TimeSpec);
    loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received =
            recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty());
        let (length, arrived) = match received.map_err(io::Error::from) {
            Ok(message) => (message.bytes, message.cmsgs().ok().and_then(arrival)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if length == 0 {
            return Ok(false);
        }
        // Bytes that arrived after the wait were not part of its notification.
        if let Some(arrived) = arrived.filter(|&arrived| arrived <= dequeued) {
            delays[0].record(dequeued - arrived);
            delays[1].record(handled.saturating_sub(arrived));
        }
        let requests = bytes[..length].windows(4).filter(|end| end == b"\r\n\r\n").count();
        let mut stream = stream;
        stream.write_all(&RESPONSE.repeat(requests))?;
    }
}

/// Returns the time at which the kernel received the bytes.
fn arrival(messages: impl Iterator<Item = ControlMessageOwned>) -> Option<u64> {
    messages.into_iter().find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => {
            Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_have_buckets() {
        let delays = Delays::default();
        for delay in [0, 250, 251, 1_000_000, u64::MAX] {
            delays.record(delay);
        }
        let mut page = String::new();
        delays.render("dequeue", &mut page);
        assert!(page.contains("{stage=\"dequeue\",le=\"0.000000250\"} 2\n"), "{page}");
        assert!(page.ends_with("le=\"+Inf\"} 5\n"), "{page}");
        assert!(bound(BUCKETS - 1) > 1e9);
    }

    #[test]
    fn requests_have_delays() {
        let queue =
            Queue::with_mechanism(mechanism::find("poll").unwrap().open().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        setsockopt(&stream, sockopt::ReceiveTimestampns, &true).unwrap();
        stream.set_nonblocking(true).unwrap();
        let (stream, _) =
            queue.declare_interest(stream, Interest::READ, 1).map_err(|e| e.error).unwrap();
        let delays: [Delays; 2] = Default::default();
        let sum = |delays: &Delays| delays.0.iter().map(|n| n.load(Ordering::Relaxed)).sum::<u64>();
        // The kernel begins to record arrivals a moment after the first socket asks for it.
        while sum(&delays[0]) == 0 {
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            assert_eq!(queue.next_events(1, None).unwrap().count(), 1);
            assert!(answer(&stream, now_ns(), &delays).unwrap());
            let mut reply = [0; RESPONSE.len()];
            client.read_exact(&mut reply).unwrap();
            assert_eq!(reply, RESPONSE);
        }
        assert_eq!(sum(&delays[0]), sum(&delays[1]));
        drop(client);
        assert!(!answer(&stream, now_ns(), &delays).unwrap());
    }
}
