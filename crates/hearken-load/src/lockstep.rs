//! A load in lockstep, to measure the cost of a server. Each round of requests begins when the last
//! reply of the previous round has arrived. There is no offered rate and no latency.
//!
//! The driver sends a request on each of its connections and only then reads the replies. If the
//! driver shares one processor with the server, the server always finds the same number of ready
//! connections, independent of other activity. Thus its batches, and with them its instructions and
//! system calls, are reproducible. Other work on the machine affects times, but not counts.
//!
//! ```
//! # use std::io::{Read, Write};
//! # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let url = format!("http://{}/", server.local_addr()?);
//! # std::thread::spawn(move || {
//! #     while let Ok((mut peer, _)) = server.accept() {
//! #         std::thread::spawn(move || {
//! #             while peer.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {
//! #                 let _ = peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
//! #             }
//! #         });
//! #     }
//! # });
//! use std::sync::atomic::AtomicBool;
//! use hearken_load::{Config, lockstep::{Driver, Settings}};
//!
//! let config = Config { url, ..Config::default() };
//! let mut driver = Driver::new(&config, Settings::default())?;
//! let stop = AtomicBool::new(false);
//! driver.run(100, &stop); // warms up the server
//! let pass = driver.run(1000, &stop);
//! assert!(pass.complete && pass.requests.replies == 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hearken::descriptors;
use hearken::io::Address;
use hearken_http::{Method, h2};

use crate::config::{Config, LoadError};
use crate::environment::port_range;
use crate::failure::{Errors, Failure};
use crate::histogram::Histogram;
use crate::http2;
use crate::reply::CompleteReply;
use crate::report::{Bytes, Requests, Status};
use crate::target::{Protocol, Target};
use crate::url::Url;
use crate::workload::Workload;

mod peer;
mod report;
mod stream;
mod streams;

pub use report::{Report, SCHEMA};

use peer::{PassError, Peer};
use stream::Stream;

/// Replies larger than this may not fit a socket buffer. The driver then reads from all connections
/// in turn, because the server may block on each connection.
const LARGE_REPLY_BYTES: u64 = 32 * 1024;
/// Maximum number of bytes per read.
const READ_BYTES: usize = 128 * 1024;

/// Settings of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of connections, each of which carries one request per round.
    pub batch: NonZeroUsize,
    /// Number of requests sent at once on each connection. In HTTP/2, it is that of
    /// [`Config::http2`].
    pub pipeline: NonZeroUsize,
    /// Whether each request uses a new connection with `Connection: close`, instead of persistent
    /// connections.
    pub close: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        let batch = NonZeroUsize::new(50).unwrap_or(NonZeroUsize::MIN);
        Settings { batch, pipeline: NonZeroUsize::MIN, close: false }
    }
}

/// Runs passes of rounds over the same connections.
#[derive(Debug)]
pub struct Driver {
    settings: Settings,
    url: String,
    target: Target,
    address: SocketAddr,
    method: Method<'static>,
    /// Bytes sent on a connection of HTTP/1.1 in a round.
    message: Vec<u8>,
    workload: Workload,
    http2: Option<http2::Settings>,
    peers: Vec<Peer>,
    /// Content length of the first reply. All other replies must have the same.
    content_bytes: Option<u64>,
    buffer: Box<[u8]>,
}

impl Driver {
    /// Prepares passes against the server that `config` names, with its method, header fields and
    /// timeout. Other settings are ignored. No connection is opened yet.
    ///
    /// # Errors
    /// An invalid URL or header field, or a host name that cannot be resolved.
    pub fn new(config: &Config, settings: Settings) -> Result<Driver, LoadError> {
        let mut config = config.clone();
        let mut settings = settings;
        if let Some(streams) = config.http2 {
            if settings.close || settings.pipeline.get() > 1 {
                return Err(LoadError::Config(
                    "HTTP/2 has streams on persistent connections; omit pipelining and new connections \
                     for each request",
                ));
            }
            settings.pipeline = streams.try_into().unwrap_or(NonZeroUsize::MAX);
        }
        if settings.close && settings.pipeline.get() > 1 {
            return Err(LoadError::Config(
                "pipelining requires persistent connections; use either pipelining or one connection per request",
            ));
        }
        if config.timeout.is_zero() {
            return Err(LoadError::Config(
                "a timeout of 0 fails every request; set a longer timeout",
            ));
        }
        if settings.close {
            config.template.headers.push("Connection: close".to_owned());
        }
        let url = Url::parse(&config.url)
            .map_err(|reason| LoadError::Url { url: config.url.clone(), reason })?;
        let protocol = match config.http2 {
            Some(_) => Protocol::Http2,
            None => Protocol::Http1,
        };
        let target = Target::new(&config, &url, port_range())?.with_protocol(protocol);
        let Address::Inet(address) = *target.address() else {
            return Err(LoadError::Config(
                "lockstep mode does not support Unix sockets; use a TCP address",
            ));
        };
        let workload = Workload::for_url(&url, &config.template)?;
        if config.http2.is_some() {
            http2::check(&workload)?;
        }
        let message = workload.message(0);
        descriptors::raise_limit();
        Ok(Driver {
            settings,
            url: config.url,
            message: message.bytes.repeat(settings.pipeline.get()),
            method: message.method,
            http2: config.http2.map(|streams| http2::Settings::new(streams, false)),
            workload,
            target,
            address,
            peers: Vec::new(),
            content_bytes: None,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
        })
    }

    /// Sends at least `requests` requests in full rounds and returns a report. The first failure
    /// ends the pass, because a round with fewer connections has a different cost. Setting `stop`
    /// ends the pass after the current round.
    pub fn run(&mut self, requests: u64, stop: &AtomicBool) -> Report {
        let mut pass = Pass {
            requests: Requests::default(),
            status: Status::default(),
            errors: Errors::default(),
            bytes: Bytes::default(),
            opened: 0,
            rounds: Histogram::new(),
            deadline: Instant::now(),
        };
        let began = Instant::now();
        let mut failure = None;
        while pass.requests.replies < requests && !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            pass.deadline = began + self.target.timeout;
            if let Err(reason) = self.round(&mut pass) {
                failure = Some(reason);
                // Replies in flight belong to no round.
                self.peers.clear();
                break;
            }
            pass.rounds.record(began.elapsed());
        }
        if let Some(error) = &failure {
            pass.errors.record(error.failure, 1);
            pass.requests.failed = 1;
        }
        let Requests { scheduled, replies, failed, .. } = pass.requests;
        pass.requests.unfinished = scheduled - replies - failed.min(scheduled - replies);
        Report {
            schema: SCHEMA.to_owned(),
            complete: replies >= requests,
            url: self.url.clone(),
            batch: self.settings.batch.get() as u64,
            pipeline: self.settings.pipeline.get() as u64,
            http2: self.http2.is_some(),
            close: self.settings.close,
            duration_s: began.elapsed().as_secs_f64(),
            requests: pass.requests,
            status: pass.status,
            content_bytes: self.content_bytes.unwrap_or(0),
            round_ns: pass.rounds.quantiles(),
            errors: pass.errors,
            connections_opened: pass.opened,
            bytes: pass.bytes,
            warnings: failure.map(|error| error.message).into_iter().collect(),
        }
    }

    fn round(&mut self, pass: &mut Pass) -> Result<(), PassError> {
        let pipeline = self.settings.pipeline.get();
        let batch = self.settings.batch.get();
        if !self.settings.close {
            // All connections are open when a round begins.
            while self.peers.len() < batch {
                self.connect(pass)?;
            }
        }
        pass.requests.scheduled += (batch * pipeline) as u64;
        for index in 0..batch {
            if self.settings.close {
                self.connect(pass)?;
            }
            let sent = self.peers[index].send(&self.message, pipeline, &self.workload)?;
            pass.requests.sent += pipeline as u64;
            pass.bytes.sent += sent as u64;
        }
        if self.content_bytes.is_some_and(|content| content <= LARGE_REPLY_BYTES) {
            for index in 0..batch {
                while !self.peers[index].is_done() {
                    self.read(index, pass, true)?;
                }
            }
        } else {
            self.read_in_turn(pass)?;
        }
        let close = self.settings.close;
        self.peers.retain(|peer| !close && peer.can_carry_more());
        Ok(())
    }

    /// Reads from all connections in turn until all replies are complete.
    fn read_in_turn(&mut self, pass: &mut Pass) -> Result<(), PassError> {
        loop {
            let mut moved = false;
            let mut left = false;
            for index in 0..self.peers.len() {
                if !self.peers[index].is_done() {
                    moved |= self.read(index, pass, false)?;
                    left |= !self.peers[index].is_done();
                }
            }
            if !left {
                return Ok(());
            }
            if !moved {
                peer::wait(&self.peers, self.target.timeout)?;
            }
        }
    }

    /// Reads once from a connection and parses the data. Returns false if there was none.
    fn read(&mut self, index: usize, pass: &mut Pass, blocking: bool) -> Result<bool, PassError> {
        let peer = &mut self.peers[index];
        let Some(count) = peer.receive(&mut self.buffer, blocking)? else { return Ok(false) };
        pass.bytes.received += count as u64;
        if Instant::now() > pass.deadline {
            let text = "a round did not complete within the timeout".to_owned();
            return Err(PassError { failure: Failure::ClientTimo, message: text });
        }
        let (content, close) = (&mut self.content_bytes, self.settings.close);
        let bytes = &self.buffer[..count];
        let replied = |done: CompleteReply| {
            let expected = *content.get_or_insert(done.content_bytes);
            pass.status.record(done.status);
            if !(200..300).contains(&done.status) {
                return Err(PassError::reply(format!(
                    "a reply has status {}, expected 2xx",
                    done.status
                )));
            }
            if done.content_bytes != expected {
                let got = done.content_bytes;
                let text =
                    format!("a reply has {got} bytes of content, the first reply had {expected}");
                return Err(PassError::reply(text));
            }
            pass.requests.replies += 1;
            Ok(())
        };
        match peer.is_http2() {
            true => pass.bytes.sent += peer.on_frames(bytes, &self.workload, replied)? as u64,
            false => peer.on_received(bytes, self.method, close, replied)?,
        }
        Ok(true)
    }

    fn connect(&mut self, pass: &mut Pass) -> Result<(), PassError> {
        let session = self.target.session();
        let session = session.map_err(|error| PassError::from_io("connecting", &error))?;
        let timeout = self.target.timeout;
        let stream = Stream::connect(self.address, timeout, session, &mut self.buffer)?;
        if self.http2.is_some() && !stream.speaks(h2::ALPN) {
            let text = "the server did not select HTTP/2; omit --http2 if it does not support it";
            return Err(PassError::reply(text.to_owned()));
        }
        let mut peer = Peer::new(stream);
        if let Some(http2) = &self.http2 {
            let (sent, received) = peer.begin_http2(http2.connect(), &mut self.buffer)?;
            pass.bytes.sent += sent as u64;
            pass.bytes.received += received as u64;
        }
        self.peers.push(peer);
        pass.opened += 1;
        Ok(())
    }
}

/// The counts of a pass.
#[derive(Debug)]
struct Pass {
    requests: Requests,
    status: Status,
    errors: Errors,
    bytes: Bytes,
    opened: u64,
    rounds: Histogram,
    /// Deadline of the current round.
    deadline: Instant,
}

impl PassError {
    fn reply(text: String) -> PassError {
        PassError { failure: Failure::Other, message: text }
    }
}
