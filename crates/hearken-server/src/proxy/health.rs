//! Asking servers whether they are well, in a thread of its own.
//!
//! Every server is asked by itself, so that one that is slow holds up no other: the thread waits for all of
//! them at once, by poll(2). What it finds goes to [`Servers`].

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hearken::timer::Time;
use hearken_http::head;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::config::{Active, ProxyProtocol, Upstreams};
use super::servers::{Places, Servers};

mod probe;

use probe::{Failure, Probe};

/// Over what time the first checks are spread, at most.
const FIRST: Duration = Duration::from_secs(1);

/// The thread. Dropping it ends that, at once.
#[derive(Debug)]
pub struct Checker {
    /// Its other end tells the thread to end.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Checker {
    /// Begins to ask, if `config` says so. It is to be dropped in the table of descriptors it was
    /// started in.
    ///
    /// # Errors
    /// No thread or no descriptor can be had.
    pub fn start(config: &Upstreams, servers: Arc<Servers>) -> io::Result<Checker> {
        let Some(active) = config.active.clone() else {
            return Ok(Checker { stop: None, thread: None });
        };
        let (stop, stopped) = UnixStream::pair()?;
        stopped.set_nonblocking(true)?;
        let now = Time::now();
        let count = u32::try_from(servers.len()).unwrap_or(u32::MAX).max(1);
        let apart = active.every.min(FIRST) / count;
        let patients = (0..servers.len())
            .map(|server| Patient {
                question: question(&active, config.send_proxy_protocol, servers.authority(server)),
                due: now + apart.saturating_mul(server as u32),
                turn: 0,
                is_down: false,
                others: 0,
                probe: None,
            })
            .collect();
        let round = Round { active, servers, patients, stopped };
        let thread = thread::Builder::new().name("checker".to_owned()).spawn(|| round.run())?;
        Ok(Checker { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        if let Some(mut stop) = self.stop.take() {
            let _ = stop.write_all(&[1]).and_then(|()| stop.shutdown(Shutdown::Both));
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // It has nothing to tell.
        }
    }
}

/// What is sent to a server, all of it.
fn question(active: &Active, preface: Option<ProxyProtocol>, authority: &str) -> Vec<u8> {
    // It speaks for itself, and for no client.
    let mut out = match preface {
        None => Vec::new(),
        Some(ProxyProtocol::V1) => b"PROXY UNKNOWN\r\n".to_vec(),
        Some(ProxyProtocol::V2) => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec(),
    };
    head::request_line(&mut out, "GET", &active.path);
    head::field(&mut out, "Host", active.host.as_deref().unwrap_or(authority));
    head::field(&mut out, "User-Agent", "hearken-check");
    head::field(&mut out, "Connection", "close");
    head::end(&mut out);
    out
}

/// A server that is asked.
struct Patient {
    question: Vec<u8>,
    /// When it is asked next.
    due: Time,
    /// Which of its addresses is next.
    turn: usize,
    is_down: bool,
    /// How many outcomes in a row said the opposite.
    others: u32,
    probe: Option<Probe>,
}

/// All that the thread does.
struct Round {
    active: Active,
    servers: Arc<Servers>,
    patients: Vec<Patient>,
    stopped: UnixStream,
}

impl Round {
    fn run(mut self) {
        let mut ready = Vec::new();
        loop {
            let now = Time::now();
            for server in 0..self.patients.len() {
                if self.patients[server].probe.is_none() && self.patients[server].due <= now {
                    self.begin(server, now);
                }
            }
            if self.wait(now, &mut ready) {
                return;
            }
            let now = Time::now();
            for &server in &ready {
                if let Some(probe) = &mut self.patients[server].probe
                    && let Some(outcome) = probe.go_on(self.active.status)
                {
                    self.end(server, outcome);
                }
            }
            for server in 0..self.patients.len() {
                if let Some(probe) = &self.patients[server].probe
                    && probe.deadline <= now
                {
                    let late = probe.late(self.active.timeout);
                    self.end(server, Err(late));
                }
            }
        }
    }

    /// Waits until there is something to do, and tells whether that is to end. What is `ready` can
    /// go on.
    fn wait(&self, now: Time, ready: &mut Vec<usize>) -> bool {
        ready.clear();
        let mut until = None;
        let mut asked = Vec::with_capacity(self.patients.len());
        let mut fds = vec![PollFd::new(&self.stopped, PollFlags::IN)];
        for (server, patient) in self.patients.iter().enumerate() {
            let next = match &patient.probe {
                None => patient.due,
                Some(probe) => {
                    let flags = if probe.is_sending() { PollFlags::OUT } else { PollFlags::IN };
                    fds.push(PollFd::from_borrowed_fd(probe.as_fd(), flags));
                    asked.push(server);
                    probe.deadline
                }
            };
            until = Some(until.map_or(next, |until: Time| until.min(next)));
        }
        let timeout = until.map(|until| until.since(now));
        let timeout = timeout.and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return false,
            Err(_) => {
                // Out of memory: not to be hurried.
                thread::sleep(Duration::from_millis(100));
                return self.is_stopped();
            }
        }
        let mut events = fds.iter().map(|fd| !fd.revents().is_empty());
        let stopped = events.next().unwrap_or(false);
        ready.extend(asked.into_iter().zip(events).filter(|asked| asked.1).map(|asked| asked.0));
        stopped
    }

    fn is_stopped(&self) -> bool {
        let read = (&self.stopped).read(&mut [0]);
        !read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    fn begin(&mut self, server: usize, now: Time) {
        let patient = &mut self.patients[server];
        let places = self.servers.places(server);
        patient.due = now + self.active.every.max(Duration::from_millis(1));
        if matches!(&places, Places::Inet(addresses) if addresses.is_empty()) {
            return; // It is down for that.
        }
        patient.turn = patient.turn.wrapping_add(1);
        let deadline = now + self.active.timeout;
        match Probe::begin(&places, patient.turn, &patient.question, deadline) {
            Ok(probe) => patient.probe = Some(probe),
            Err(failure) => self.end(server, Err(failure)),
        }
    }

    fn end(&mut self, server: usize, outcome: Result<(), Failure>) {
        let now = Time::now();
        let patient = &mut self.patients[server];
        patient.probe = None;
        // Up to a twentieth off: those that are asked at the same time do not stay so.
        let twentieth = self.active.every / 20;
        let part = (now.as_nanos() as u32).wrapping_mul(0x9e37_79b9) >> 16;
        patient.due = (patient.due + twentieth.mul_f64(f64::from(part) / 65536.0)).max(now);
        let outcome = match outcome {
            // Nothing is known of the server.
            Err(Failure::Own(reason)) => return self.servers.note(server, reason),
            Err(Failure::Of(reason)) => Err(reason),
            Ok(()) => Ok(()),
        };
        let is_well = outcome.is_ok();
        self.servers.checked(server, outcome);
        if is_well != patient.is_down {
            patient.others = 0;
            return;
        }
        patient.others += 1;
        let enough = if is_well { self.active.rise } else { self.active.fall };
        if patient.others >= enough.get() {
            patient.others = 0;
            patient.is_down = !is_well;
            self.servers.set_down(server, !is_well);
        }
    }
}
