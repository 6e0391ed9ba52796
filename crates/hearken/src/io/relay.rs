//! Moving bytes from one connection to another without waiting.
//!
//! splice(2) moves many bytes within the kernel. A receive and a send move few bytes in fewer calls
//! than splice(2) needs; `examples/relay_cost.rs` measures the break-even point. A relay therefore
//! starts with a receive, and splices if the receive filled its buffer.
//!
//! A relay holds at most 64 KiB that it received and could not send: in a pipe, or in memory if the
//! bytes were not spliced. A relay that waits for bytes holds neither. If no pipe is available, the
//! relay copies.
//!
//! The receive that ends a series of splices is necessary, because splice(2) stops at urgent data.

use std::collections::HashMap;
use std::io;

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::RelayEnd;
use super::kernel::{Kernel, KernelSocket};
use crate::event::Token;

/// Number of bytes to receive before splicing. Copying fewer bytes is cheaper.
const RECEIVE_SIZE: usize = 64 * 1024;
/// Capacity of a pipe in bytes, unless the user owns too many pipes.
const PIPE_SIZE: usize = 64 * 1024;
/// Maximum number of empty pipes that are retained for later relays.
const MAX_IDLE_PIPES: usize = 16;

/// The relays of an [`Io`](super::Io).
#[derive(Debug)]
pub(super) struct Relays<K: Kernel> {
    /// The relays, by the slots of their sources.
    all: HashMap<u32, Relay<K>>,
    /// The sources, by the slots of their targets.
    sources: HashMap<u32, Token>,
    shared: SharedResources<K>,
}

/// Resources that relays share.
#[derive(Debug)]
struct SharedResources<K: Kernel> {
    pipes: Vec<K::Pipe>,
    /// A receive buffer, used only during a call.
    scratch: Vec<u8>,
}

/// One relay.
#[derive(Debug)]
pub(super) struct Relay<K: Kernel> {
    pub(super) to: Token,
    /// Number of bytes that are still to be received.
    remaining: u64,
    /// Number of bytes that were sent.
    pub(super) moved: u64,
    /// Number of received bytes in the pipe.
    piped: usize,
    pipe: Option<K::Pipe>,
    /// Received bytes that were not spliced. Those before `start` were sent.
    pending: Vec<u8>,
    start: usize,
    /// Whether the relay splices at present.
    splices: bool,
    /// Whether the sockets support splice(2), as far as it was tried.
    can_splice: bool,
    /// Whether a receive may succeed without another event.
    pub(super) readable: bool,
    /// Whether the last receive failed with `EAGAIN`.
    pub(super) would_block: bool,
}

/// The reason why a relay pauses.
pub(super) enum RelayStep {
    /// The source has no bytes.
    NeedsBytes,
    /// The target has no space.
    NeedsSpace,
    /// The limit of this turn is reached.
    ShareUsed,
    /// The relay ended.
    Ended(RelayEnd),
}

/// The two sockets of a relay, and its limit, in one turn.
pub(super) struct RelayTurn<'a, K: Kernel> {
    pub(super) kernel: &'a K,
    pub(super) from: &'a K::Socket,
    pub(super) to: &'a K::Socket,
    /// Maximum number of bytes to receive.
    pub(super) share: usize,
    /// Whether another receive must follow a short one.
    pub(super) ending: bool,
}

impl<K: Kernel> Default for Relays<K> {
    fn default() -> Relays<K> {
        let shared = SharedResources { pipes: Vec::new(), scratch: Vec::new() };
        Relays { all: HashMap::new(), sources: HashMap::new(), shared }
    }
}

impl<K: Kernel> Relays<K> {
    pub(super) fn start(&mut self, from: Token, to: Token, max: u64) {
        self.sources.insert(to.slot(), from);
        let relay = Relay {
            to,
            remaining: max,
            moved: 0,
            piped: 0,
            pipe: None,
            pending: Vec::new(),
            start: 0,
            splices: false,
            can_splice: true,
            readable: true,
            would_block: false,
        };
        self.all.insert(from.slot(), relay);
    }

    /// Returns the relay that receives from a socket.
    pub(super) fn get(&mut self, from: Token) -> Option<&mut Relay<K>> {
        self.all.get_mut(&from.slot())
    }

    /// Returns the number of bytes that the relay from a socket has moved.
    pub(super) fn moved(&self, from: Token) -> u64 {
        self.all.get(&from.slot()).map_or(0, |relay| relay.moved)
    }

    /// Returns the source of the relay to a socket.
    pub(super) fn source(&self, to: Token) -> Option<Token> {
        self.sources.get(&to.slot()).copied()
    }

    /// Ends the relay that receives from a socket. Bytes that it holds are lost.
    pub(super) fn end(&mut self, from: Token) -> Option<Relay<K>> {
        let mut relay = self.all.remove(&from.slot())?;
        self.sources.remove(&relay.to.slot());
        relay.release_pipe(&mut self.shared);
        Some(relay)
    }

    /// Continues the relay that receives from a socket. Reduces `turn.share` by the number of
    /// received bytes.
    pub(super) fn advance(
        &mut self,
        from: Token,
        turn: &mut RelayTurn<'_, K>,
    ) -> Option<RelayStep> {
        let relay = self.all.get_mut(&from.slot())?;
        Some(relay.advance(&mut self.shared, turn))
    }
}

impl<K: Kernel> Relay<K> {
    fn advance(
        &mut self,
        shared: &mut SharedResources<K>,
        turn: &mut RelayTurn<'_, K>,
    ) -> RelayStep {
        loop {
            match self.flush(turn.to) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return RelayStep::NeedsSpace,
                Err(errno) => return RelayStep::Ended(RelayEnd::SendFailed(errno.into())),
            }
            if self.remaining == 0 {
                return RelayStep::Ended(RelayEnd::Complete);
            }
            if !self.readable {
                self.release_pipe(shared);
                return RelayStep::NeedsBytes;
            }
            if turn.share == 0 {
                return RelayStep::ShareUsed;
            }
            let max = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(turn.share);
            let received = if self.splices && self.has_pipe(shared, turn.kernel) {
                self.splice(turn.from, max)
            } else {
                self.receive(shared, turn, max)
            };
            match received {
                Ok(0) => return RelayStep::Ended(RelayEnd::End),
                Ok(count) => {
                    self.remaining -= count as u64;
                    turn.share -= count;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.splices => self.splices = false,
                Err(Errno::AGAIN) => (self.readable, self.would_block) = (false, true),
                Err(Errno::INVAL) if self.splices => {
                    (self.splices, self.can_splice) = (false, false);
                }
                Err(errno) => return RelayStep::Ended(RelayEnd::ReceiveFailed(errno.into())),
            }
        }
    }

    /// Sends the bytes that the relay holds.
    fn flush(&mut self, to: &K::Socket) -> Result<(), Errno> {
        while self.piped > 0
            && let Some(pipe) = &self.pipe
        {
            match to.splice_from(pipe, self.piped) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(count) => {
                    self.piped = self.piped.saturating_sub(count);
                    self.moved += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        while self.start < self.pending.len() {
            let count = send(to, &self.pending[self.start..])?;
            self.start += count;
            self.moved += count as u64;
        }
        if self.start > 0 {
            (self.pending, self.start) = (Vec::new(), 0);
        }
        Ok(())
    }

    /// Moves up to `max` bytes into the empty pipe.
    fn splice(&mut self, from: &K::Socket, max: usize) -> Result<usize, Errno> {
        let pipe = self.pipe.as_ref().ok_or(Errno::INVAL)?;
        self.piped = from.splice_to(pipe, max.min(PIPE_SIZE))?;
        Ok(self.piped)
    }

    /// Receives up to `max` bytes, and sends what the target takes.
    fn receive(
        &mut self,
        shared: &mut SharedResources<K>,
        turn: &RelayTurn<'_, K>,
        max: usize,
    ) -> Result<usize, Errno> {
        shared.scratch.resize(RECEIVE_SIZE, 0);
        let length = max.min(RECEIVE_SIZE);
        let scratch = &mut shared.scratch[..length];
        let count = turn.from.receive_into(scratch)?;
        if count == RECEIVE_SIZE {
            self.splices = self.can_splice;
        }
        if count < length && !turn.ending {
            self.readable = false;
        }
        // An error, or EAGAIN, recurs in the next flush, which handles it.
        let sent = if count == 0 { 0 } else { send(turn.to, &scratch[..count]).unwrap_or(0) };
        self.moved += sent as u64;
        self.pending.extend_from_slice(&scratch[sent..count]);
        Ok(count)
    }

    /// Acquires a pipe if the relay has none. Returns whether it has one; without one it stops
    /// splicing.
    fn has_pipe(&mut self, shared: &mut SharedResources<K>, kernel: &K) -> bool {
        if self.pipe.is_none() {
            self.pipe = shared.pipes.pop().or_else(|| kernel.pipe().ok());
            self.splices = self.pipe.is_some();
        }
        self.splices
    }

    /// Releases an empty pipe for the next relay, and closes one that is not empty.
    fn release_pipe(&mut self, shared: &mut SharedResources<K>) {
        if let Some(pipe) = self.pipe.take()
            && self.piped == 0
            && shared.pipes.len() < MAX_IDLE_PIPES
        {
            shared.pipes.push(pipe);
        }
    }
}

fn send(to: &impl KernelSocket, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match to.send(bytes, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Returns the reason for the end of a relay whose target was closed.
pub(super) fn target_closed() -> RelayEnd {
    RelayEnd::SendFailed(io::ErrorKind::NotConnected.into())
}
