//! Clients that begin TLS handshakes and do not complete them, or end sessions without notice.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hearken::Token;
use hearken::io::sim::{SimIo, SimIoSettings, World};
use hearken::io::{Address, CompletionKind, Io};
use hearken::timer::Time;
use hearken_tls::{ClientTls, Session, ToSend, Wire};

use crate::scheduler::Program;

/// Limits that the server applies to handshakes.
#[derive(Clone)]
pub(crate) struct Bounds {
    /// Timeout of handshakes.
    pub(crate) timeout: Duration,
    /// Maximum time by which a handshake may end late, if that is known.
    pub(crate) slack: Option<Duration>,
    /// Whether handshakes may fail early.
    pub(crate) may_fail: bool,
    /// Returns whether the server was stopped.
    pub(crate) is_stopped: Rc<dyn Fn() -> bool>,
}

/// The bytes that a client sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beginning {
    Nothing,
    /// Part of a valid handshake.
    Part,
    /// A record of another type and a wrong length.
    Garbage,
    /// HTTP without TLS.
    Plain,
    /// A session that ends without `close_notify`.
    Truncated,
}

use Beginning::{Garbage, Nothing, Part, Plain, Truncated};

/// Maximum number of clients.
pub(crate) const MAX_CLIENTS: u32 = 4;
/// Time after which a connection that the server keeps is a finding.
const PATIENCE: Duration = Duration::from_secs(7200);

/// Runs some of these clients one after another.
pub(crate) fn run(
    program: Program<'_>,
    address: &Address,
    profiles: &Arc<[ClientTls]>,
    bounds: &Bounds,
) {
    let world = program.host().world().clone();
    let mut io = program.io(SimIo::new(program.host(), SimIoSettings::default()));
    for _ in 0..world.decide(MAX_CLIENTS) {
        let beginnings = [Part, Nothing, Garbage, Plain, Truncated];
        let beginning = beginnings[world.decide(5) as usize];
        let Ok(session) = profiles[0].session() else { return };
        let Ok(token) = io.connect(address, None) else { continue };
        let client = Client { world: &world, token, beginning, session, incoming: Vec::new() };
        let result = client.run(&mut io, bounds);
        if let Err(error) = result {
            program.report().fail("handshake", format!("{beginning:?}: {error}"));
        }
    }
}

struct Client<'w> {
    world: &'w World,
    token: Token,
    beginning: Beginning,
    session: Session,
    incoming: Vec<u8>,
}

impl Client<'_> {
    /// Runs a connection to its end.
    fn run(mut self, io: &mut impl Io, bounds: &Bounds) -> Result<(), String> {
        let began = self.world.now();
        let mut connected: Option<Time> = None;
        loop {
            if io.wait(Some(began + PATIENCE)).is_err() {
                return Ok(());
            }
            while let Some(completion) = io.next() {
                let is_end = match completion.kind {
                    CompletionKind::Connected(Ok(())) => {
                        connected = Some(self.world.now());
                        io.start(self.token);
                        self.begin(io)
                    }
                    CompletionKind::Received(bytes) => self.on_received(io, &bytes),
                    CompletionKind::Sent(Ok(())) => false,
                    CompletionKind::Connected(Err(_)) => {
                        io.close(self.token);
                        return Ok(());
                    }
                    _ => {
                        io.close(self.token);
                        return self.check(bounds, began, connected);
                    }
                };
                if is_end {
                    io.close(self.token);
                    return Ok(());
                }
            }
            if self.world.now() >= began + PATIENCE {
                io.close(self.token);
                return Err("the server keeps the connection".to_owned());
            }
        }
    }

    /// Sends the beginning. Returns whether the client leaves.
    fn begin(&mut self, io: &mut impl Io) -> bool {
        let mut wire = Wire::default();
        match self.beginning {
            Nothing => return false,
            Garbage => {
                let mut bytes = [0x16, 3, 1, 0xff, 0xff, 1, 2, 3];
                bytes[self.world.decide(8) as usize] = self.world.decide(256) as u8;
                let _ = io.send_now(self.token, &bytes);
            }
            Plain => {
                let _ = io.send_now(self.token, b"GET / HTTP/1.1\r\nHost: sim\r\n\r\n");
            }
            Part | Truncated => {
                self.session.process(&mut [], ToSend::default(), &mut wire, |_| ());
                let bytes = wire.bytes();
                let end = match self.beginning {
                    Part => self.world.decide(bytes.len() as u32) as usize,
                    _ => bytes.len(),
                };
                let _ = io.send_now(self.token, &bytes[..end]);
            }
        }
        self.world.decide(8) == 7
    }

    /// Continues the handshake. Returns whether the client leaves.
    fn on_received(&mut self, io: &mut impl Io, bytes: &[u8]) -> bool {
        if self.beginning != Truncated {
            return false;
        }
        self.incoming.extend_from_slice(bytes);
        let mut wire = Wire::default();
        let send = ToSend { content: b"GET / HTTP/1.1\r\nHost", closes: false };
        let progress = self.session.process(&mut self.incoming, send, &mut wire, |_| ());
        self.incoming.drain(..progress.consumed);
        let _ = io.send_now(self.token, wire.bytes());
        if progress.is_encrypted {
            io.shutdown(self.token);
            self.beginning = Plain;
        }
        false
    }

    /// Checks the time at which the server ended the connection.
    fn check(&self, bounds: &Bounds, began: Time, connected: Option<Time>) -> Result<(), String> {
        let lasted = self.world.now().duration_since(began);
        let is_silent = matches!(self.beginning, Nothing | Part);
        let Bounds { timeout, slack, may_fail, is_stopped } = bounds;
        if is_silent && lasted < *timeout && !may_fail && !is_stopped() {
            return Err(format!("ended after {lasted:?}, timeout {timeout:?}"));
        }
        let since = self.world.now().duration_since(connected.unwrap_or(began));
        match slack {
            Some(slack) if is_silent && since > *timeout + *slack && !is_stopped() => {
                Err(format!("ended after {since:?}, timeout {timeout:?}"))
            }
            _ => Ok(()),
        }
    }
}
