//! Drives the front over [`hearken::EventQueue`]: waits, accepts connections and reports events.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hearken::timer::Time;
use hearken::{Interest, Readiness, Registration, Token};
use hearken_http::Limits;

use super::handler::Admin;
use super::sockets::Sockets;
use crate::front::{Front, HalfClose, Settings, Timeouts};
use crate::runtime::unix_time::unix_seconds;

use crate::runtime::queue_thread;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 64;
/// Timer slot of the listener. Connections use the slots below.
const LISTENER: u32 = MAX_CONNECTIONS as u32;
/// Pause after an accept or a wait that failed, for example for lack of memory.
const RETRY_DELAY: Duration = Duration::from_millis(100);

const TIMEOUTS: Timeouts = Timeouts {
    header: Duration::from_secs(5),
    body: Duration::from_secs(5),
    upload: Duration::from_secs(10),
    keepalive: Duration::from_secs(60),
    send: Duration::from_secs(10),
};
const LIMITS: Limits =
    Limits { max_head_bytes: 8 * 1024, max_fields: 64, max_target_bytes: 4 * 1024 };

/// An event queue with the token of the connection as payload; `None` for the listener.
type Queue = queue_thread::Queue<Option<Token>>;

/// A front and its handler over sockets and an event queue.
pub(super) struct Driver {
    listener: Registration<TcpListener>,
    io: Sockets,
    front: Front,
    handler: Admin,
    /// Number of connections accepted so far.
    accepted: u32,
    buffer: Vec<u8>,
}

impl Driver {
    pub(super) fn new(queue: &Queue, listener: TcpListener, handler: Admin) -> io::Result<Driver> {
        let (listener, _) = queue.declare_interest(listener, Interest::READ, None)?;
        let settings = Settings {
            timeouts: TIMEOUTS,
            min_rate: 1024,
            limits: LIMITS,
            half_close: HalfClose::Respond,
            proxy_protocol: Vec::new(),
            needs_peers: false,
        };
        let front = Front::new(settings, MAX_CONNECTIONS, None, Arc::default());
        let io = Sockets::new(Time::now());
        Ok(Driver { listener, io, front, handler, accepted: 0, buffer: vec![0; 16 * 1024] })
    }

    /// Runs until the queue is woken.
    pub(super) fn run(mut self, queue: &Queue) {
        loop {
            let timeout =
                self.io.timers.next_deadline().map(|next| next.duration_since(Time::now()));
            let events = match queue.next_events(MAX_CONNECTIONS, timeout) {
                Ok(events) if events.woken() => return,
                Ok(events) => events,
                Err(_) => {
                    thread::sleep(RETRY_DELAY);
                    continue;
                }
            };
            self.io.now = Time::now();
            self.front.begin_turn(self.io.now, unix_seconds());
            for event in events {
                match event.token {
                    Some(token) => self.on_ready(token, event.readiness),
                    None => self.accept(queue),
                }
            }
            while let Some(slot) = self.io.timers.pop_expired(self.io.now) {
                self.on_deadline(slot);
            }
            self.front.end_turn();
        }
    }

    /// Accepts pending connections.
    fn accept(&mut self, queue: &Queue) {
        for _ in 0..MAX_CONNECTIONS {
            match self.accept_one(queue) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Descriptors or another resource may be exhausted, so retry later.
                    let _ = self.listener.change_interest(Interest::empty());
                    return self.io.timers.arm(LISTENER, self.io.now + RETRY_DELAY);
                }
            }
        }
    }

    fn accept_one(&mut self, queue: &Queue) -> io::Result<()> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(true)?;
        if self.front.open() >= MAX_CONNECTIONS {
            self.close_one();
        }
        self.accepted = self.accepted.wrapping_add(1);
        let token = Token::new(self.io.vacant_slot(), self.accepted);
        let (socket, ready) = queue.declare_interest(stream, Interest::READ, Some(token))?;
        self.io.insert(token, socket);
        self.front.on_accepted(&mut self.io, token, None);
        // Processes a request that has already arrived, so that a burst of connections does not
        // displace this one.
        self.on_ready(token, ready & Readiness::READABLE);
        Ok(())
    }

    /// Closes the connection that has been idle longest, or the oldest one if none is idle.
    fn close_one(&mut self) {
        if !self.front.close_longest_idle(&mut self.io)
            && let Some(oldest) = self.io.oldest()
        {
            self.front.on_receive_failed(&mut self.io, &mut self.handler, oldest);
        }
    }

    fn on_ready(&mut self, token: Token, readiness: Readiness) {
        let Driver { io, front, handler, buffer, .. } = self;
        handler.set_loopback(io.is_loopback(token));
        if readiness.is_readable() {
            match io.receive(token, buffer) {
                Some(Ok(0)) => front.on_ended(io, handler, token),
                Some(Ok(count)) => front.on_received(io, handler, token, &buffer[..count]),
                Some(Err(_)) => front.on_receive_failed(io, handler, token),
                None => {}
            }
        }
        if readiness.is_writable() {
            while let Some(sent) = io.resume_sending(token) {
                match sent {
                    Ok(()) => front.on_sent(io, handler, token),
                    Err(_) => front.on_send_failed(io, handler, token),
                }
            }
        }
        while let Some(next) = front.next_ready() {
            handler.set_loopback(io.is_loopback(next));
            front.next_request(io, handler, next);
        }
    }

    fn on_deadline(&mut self, slot: u32) {
        if slot == LISTENER {
            if self.listener.change_interest(Interest::READ).is_err() {
                self.io.timers.arm(LISTENER, self.io.now + RETRY_DELAY);
            }
        } else if let Some(token) = self.io.token_at(slot) {
            self.front.on_deadline(&mut self.io, &mut self.handler, token);
        }
    }
}
