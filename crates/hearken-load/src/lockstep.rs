//! A load in lockstep: rounds of so many requests, each begun when the last reply of the one before is
//! there. It offers no rate and tells no latency; it is what a server's cost is measured under.
//!
//! The driver sends a request on each of its connections, and only then reads the replies. Where it
//! shares one processor with the server, the server thus finds the same number of connections ready
//! each time it runs, whatever else the machine does: its batches, and with them its instructions
//! and system calls, repeat. Time is stretched by other work, counts are not.
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
//! driver.run(100, &stop); // warms the server up
//! let pass = driver.run(1000, &stop);
//! assert!(pass.complete && pass.requests.replies == 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hearken::descriptors;
use hearken_http::Method;

use crate::config::{Config, LoadError};
use crate::failure::{Errors, Failure};
use crate::histogram::Histogram;
use crate::report::{Bytes, Requests, Status};
use crate::target::Target;
use crate::url::Url;
use crate::workload::Workload;

mod peer;
mod report;

pub use report::{Report, SCHEMA};

use peer::{PassError, Peer};

/// Replies larger than this do not fit a socket's buffer for certain: they are read from all
/// connections in turn, lest a server that waits for one of them keep the others waiting.
const LARGE_REPLY_BYTES: u64 = 32 * 1024;
/// What is read at a time.
const READ_BYTES: usize = 128 * 1024;

/// The form of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Connections, each asked once in a round.
    pub batch: NonZeroUsize,
    /// Requests that each of them is sent at once.
    pub pipeline: NonZeroUsize,
    /// A new connection for each request, which the server is asked to close, instead of the same
    /// ones in every round.
    pub close: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        let batch = NonZeroUsize::new(50).unwrap_or(NonZeroUsize::MIN);
        Settings { batch, pipeline: NonZeroUsize::MIN, close: false }
    }
}

/// Makes rounds, pass after pass, over the same connections.
#[derive(Debug)]
pub struct Driver {
    settings: Settings,
    url: String,
    target: Target,
    method: Method<'static>,
    /// What a connection is sent in a round.
    message: Vec<u8>,
    peers: Vec<Peer>,
    /// How much content the first reply had; every other must have as much.
    content_bytes: Option<u64>,
    buffer: Box<[u8]>,
}

impl Driver {
    /// Prepares for the server that `config` names; the rest of it that counts here is the method,
    /// the fields and the timeout. No connection is made yet.
    ///
    /// # Errors
    /// A URL or a field that cannot be used, a host without an address.
    pub fn new(config: &Config, settings: Settings) -> Result<Driver, LoadError> {
        let mut config = config.clone();
        if settings.close && settings.pipeline.get() > 1 {
            return Err(LoadError::Config("a connection for each request cannot be pipelined"));
        }
        if config.timeout.is_zero() {
            return Err(LoadError::Config("a timeout of 0 fails every request; give more"));
        }
        if settings.close {
            config.asking.headers.push("Connection: close".to_owned());
        }
        let url = Url::parse(&config.url)
            .map_err(|reason| LoadError::Url { url: config.url.clone(), reason })?;
        if url.tls {
            return Err(LoadError::Config("rounds are not made over TLS; give an http:// URL"));
        }
        let target = Target::new(&config, &url)?;
        let workload = Workload::of_url(&url, &config.asking)?;
        let message = workload.message(0);
        descriptors::raise_limit();
        Ok(Driver {
            settings,
            url: config.url,
            message: message.bytes.repeat(settings.pipeline.get()),
            method: message.method,
            target,
            peers: Vec::new(),
            content_bytes: None,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
        })
    }

    /// Makes at least `requests` requests, in whole rounds, and tells what came of them. The first
    /// that fails ends the pass, since a round that lacks a connection costs something else; so does
    /// raising `stop`, at the end of a round.
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
        let mut wrong = None;
        while pass.requests.replies < requests && !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            pass.deadline = began + self.target.timeout;
            if let Err(reason) = self.round(&mut pass) {
                wrong = Some(reason);
                // What is still under way on them belongs to no round.
                self.peers.clear();
                break;
            }
            pass.rounds.record(began.elapsed());
        }
        if let Some(wrong) = &wrong {
            pass.errors.record(wrong.failure, 1);
            pass.requests.failed = 1;
        }
        let Requests { intended, replies, failed, .. } = pass.requests;
        pass.requests.unfinished = intended - replies - failed.min(intended - replies);
        Report {
            schema: SCHEMA.to_owned(),
            complete: replies >= requests,
            url: self.url.clone(),
            batch: self.settings.batch.get() as u64,
            pipeline: self.settings.pipeline.get() as u64,
            close: self.settings.close,
            duration_s: began.elapsed().as_secs_f64(),
            requests: pass.requests,
            status: pass.status,
            content_bytes: self.content_bytes.unwrap_or(0),
            round_ns: pass.rounds.quantiles(),
            errors: pass.errors,
            connections_opened: pass.opened,
            bytes: pass.bytes,
            warnings: wrong.map(|wrong| wrong.message).into_iter().collect(),
        }
    }

    fn round(&mut self, pass: &mut Pass) -> Result<(), PassError> {
        let pipeline = self.settings.pipeline.get();
        let batch = self.settings.batch.get();
        if !self.settings.close {
            // So that a round begins with all of its connections made.
            while self.peers.len() < batch {
                self.connect(pass)?;
            }
        }
        pass.requests.intended += (batch * pipeline) as u64;
        for index in 0..batch {
            if self.settings.close {
                self.connect(pass)?;
            }
            self.peers[index].send(&self.message, pipeline)?;
            pass.requests.sent += pipeline as u64;
            pass.bytes.sent += self.message.len() as u64;
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

    /// Reads from every connection what there is, until all replies are there.
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

    /// Reads once from a connection and takes in what came. False if nothing did.
    fn read(&mut self, index: usize, pass: &mut Pass, blocking: bool) -> Result<bool, PassError> {
        let peer = &mut self.peers[index];
        let Some(count) = peer.receive(&mut self.buffer, blocking)? else { return Ok(false) };
        pass.bytes.received += count as u64;
        if Instant::now() > pass.deadline {
            let text = "a round was not over within the timeout".to_owned();
            return Err(PassError { failure: Failure::ClientTimo, message: text });
        }
        let (content, close) = (&mut self.content_bytes, self.settings.close);
        peer.on_received(&self.buffer[..count], self.method, close, |done| {
            let expected = *content.get_or_insert(done.content_bytes);
            pass.status.record(done.status);
            if !(200..300).contains(&done.status) {
                return Err(PassError::reply(format!("a reply has status {}", done.status)));
            }
            if done.content_bytes != expected {
                let got = done.content_bytes;
                let text = format!("a reply has {got} bytes where the first had {expected}");
                return Err(PassError::reply(text));
            }
            pass.requests.replies += 1;
            Ok(())
        })?;
        Ok(true)
    }

    fn connect(&mut self, pass: &mut Pass) -> Result<(), PassError> {
        self.peers.push(Peer::connect(self.target.address(), self.target.timeout)?);
        pass.opened += 1;
        Ok(())
    }
}

/// What is counted in a pass.
#[derive(Debug)]
struct Pass {
    requests: Requests,
    status: Status,
    errors: Errors,
    bytes: Bytes,
    opened: u64,
    rounds: Histogram,
    /// When the round must be over.
    deadline: Instant,
}

impl PassError {
    fn reply(text: String) -> PassError {
        PassError { failure: Failure::Other, message: text }
    }
}
