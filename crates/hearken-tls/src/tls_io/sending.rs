//! Sending: encrypts content into records as the transport takes them.

use std::io;

use hearken::io::{Body, CloseMode, Io, Outgoing, SendOutcome};
use rustix::io::Errno;

use super::Core;
use super::connection::{Closing, Connection, Phase, Receiving, remaining};
use crate::session::{MAX_RECORD_CONTENT, Progress, ToSend};

/// Maximum number of bytes of content that are encrypted at a time, and so ahead of the transport.
pub(super) const MAX_AHEAD: usize = 3 * MAX_RECORD_CONTENT;
/// Minimum number of bytes of content that count as a large transfer.
const LARGE_TRANSFER: u64 = 32 * 1024;

/// Memory for content that is gathered from several places. It stays initialised.
#[derive(Debug, Default)]
pub(super) struct Content {
    memory: Vec<u8>,
    used: usize,
}

impl Content {
    fn bytes(&self) -> &[u8] {
        &self.memory[..self.used]
    }

    fn clear(&mut self) {
        self.used = 0;
        self.memory.resize(MAX_AHEAD, 0);
    }

    fn free(&mut self) -> &mut [u8] {
        &mut self.memory[self.used..]
    }

    /// Appends as many of `bytes` as there is space for. Returns their number.
    fn append(&mut self, bytes: &[u8]) -> usize {
        let free = self.free();
        let count = bytes.len().min(free.len());
        free[..count].copy_from_slice(&bytes[..count]);
        self.used += count;
        count
    }

    /// Moves bytes from the front of `outgoing`. Returns whether it is empty then.
    fn gather(&mut self, outgoing: &mut Outgoing) -> io::Result<bool> {
        let count = self.append(&outgoing.head);
        outgoing.head.consume(count);
        if !outgoing.head.is_empty() {
            return Ok(false);
        }
        outgoing.head.release();
        match &mut outgoing.body {
            Body::None => {}
            Body::Bytes(bytes) => {
                let count = self.append(bytes);
                drop(bytes.split_to(count));
            }
            Body::File(part) => {
                while part.length > 0 && self.used < MAX_AHEAD {
                    let free = self.free();
                    let count = usize::try_from(part.length)
                        .map_or(free.len(), |length| length.min(free.len()));
                    match rustix::io::pread(&*part.file, &mut free[..count], part.offset) {
                        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                        Ok(count) => {
                            self.used += count;
                            part.offset += count as u64;
                            part.length -= count as u64;
                        }
                        Err(Errno::INTR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
            }
        }
        Ok(remaining(outgoing) == 0)
    }
}

impl<I: Io> Core<I> {
    /// Sends `outgoing` after all previous sends.
    pub(super) fn send(&mut self, connection: &mut Connection, outgoing: Outgoing) {
        if connection.sends.has_failed {
            if connection.sends.fail_new() {
                self.mark_ready(connection);
            }
            return;
        }
        connection.sends.queue.push_back(outgoing);
        self.resume_sending(connection);
        if let Some(outgoing) = connection.sends.queue.back_mut() {
            outgoing.head.detach();
        }
    }

    /// Sends `bytes` after all previous sends. Returns whether that is done.
    pub(super) fn send_now(&mut self, connection: &mut Connection, bytes: &[u8]) -> bool {
        if !connection.can_encrypt() || bytes.len() > MAX_AHEAD {
            let outgoing = Outgoing::copy(self.io.pool(), bytes);
            self.send(connection, outgoing);
            return false;
        }
        if !self.encrypt(connection, ToSend { content: bytes, closes: false }) {
            connection.sends.is_failing = true;
            self.mark_ready(connection);
            return false;
        }
        let is_done = self.transmit(connection);
        connection.sends.encrypted += u32::from(!is_done);
        is_done
    }

    /// Sends `bytes` and `close_notify`.
    pub(super) fn send_last(
        &mut self,
        connection: &mut Connection,
        bytes: &[u8],
        mode: CloseMode,
    ) -> SendOutcome {
        // The connection must have no other completion to report when the transport closes it.
        let fits =
            connection.can_encrypt() && bytes.len() <= MAX_AHEAD && !connection.has_completion();
        if !fits || !self.encrypt(connection, ToSend { content: bytes, closes: true }) {
            return match self.send_now(connection, bytes) {
                true => SendOutcome::Complete,
                false => SendOutcome::Pending,
            };
        }
        connection.closing = Closing::Done;
        connection.sends.wire_bytes += self.wire.bytes().len() as u64;
        let outcome = self.io.send_last(connection.token, self.wire.bytes(), mode);
        self.wire.clear();
        if outcome != SendOutcome::Complete {
            connection.sends.in_flight += 1;
            connection.sends.encrypted += 1;
            connection.sends.closes = outcome == SendOutcome::PendingClose;
        }
        outcome
    }

    /// Sends `close_notify` and ends the sending side.
    pub(super) fn shutdown(&mut self, connection: &mut Connection) {
        match connection.closing {
            Closing::Open => {}
            // A last send has announced this.
            Closing::Done => return self.io.shutdown(connection.token),
            _ => return,
        }
        let is_complete = !connection.sends.has_incomplete() && !connection.sends.has_failed;
        connection.sends.fail(io::ErrorKind::BrokenPipe.into());
        if is_complete && connection.phase != Phase::Failed {
            connection.closing = Closing::Requested;
            self.notify_close(connection);
        } else {
            // Without `close_notify` the peer reports that content is missing.
            connection.closing = Closing::Done;
            self.io.shutdown(connection.token);
        }
        if connection.has_completion() {
            self.mark_ready(connection);
        }
    }

    /// Sends `close_notify` if it was requested and is possible.
    pub(super) fn notify_close(&mut self, connection: &mut Connection) {
        if connection.closing != Closing::Requested || connection.phase != Phase::Open {
            return;
        }
        self.encrypt(connection, ToSend { content: &[], closes: true });
        self.transmit(connection);
        if connection.sends.in_flight == 0 {
            connection.closing = Closing::Done;
            self.io.shutdown(connection.token);
        } else {
            connection.closing = Closing::Notifying;
        }
    }

    /// Sends `close_notify` and closes the transport. Returns whether the transport is closed;
    /// otherwise the connection remains until the transport has taken the alert.
    pub(super) fn close(&mut self, connection: &mut Connection) -> bool {
        let token = connection.token;
        match connection.closing {
            Closing::Notifying => {
                connection.closing = Closing::Lingering;
                return false;
            }
            Closing::Open if connection.can_notify() => {}
            _ => {
                self.io.close(token);
                return true;
            }
        }
        connection.closing = Closing::Done;
        self.encrypt(connection, ToSend { content: &[], closes: true });
        let outcome = self.io.send_last(token, self.wire.bytes(), CloseMode::Close);
        self.wire.clear();
        match outcome {
            SendOutcome::Complete => {
                self.io.close(token);
                true
            }
            pending => {
                connection.closing = Closing::Lingering;
                connection.sends.in_flight += 1;
                connection.sends.closes = pending == SendOutcome::PendingClose;
                false
            }
        }
    }

    /// Handles a completed operation of the transport. Returns whether the transport is closed.
    pub(super) fn on_sent(&mut self, connection: &mut Connection, result: io::Result<()>) -> bool {
        let sends = &mut connection.sends;
        sends.in_flight = sends.in_flight.saturating_sub(1);
        if let Err(error) = result {
            if connection.closing == Closing::Lingering {
                self.io.close(connection.token);
                return true;
            }
            // It completes no later operation.
            sends.in_flight = 0;
            sends.closes = false;
            sends.fail(error);
            if connection.closing == Closing::Notifying {
                connection.closing = Closing::Done;
            }
        } else if sends.in_flight == 0 {
            sends.completed += std::mem::take(&mut sends.encrypted);
            if sends.closes {
                return true;
            }
            match connection.closing {
                Closing::Notifying => {
                    connection.closing = Closing::Done;
                    self.io.shutdown(connection.token);
                }
                Closing::Lingering => {
                    self.io.close(connection.token);
                    return true;
                }
                _ => {}
            }
            self.resume_sending(connection);
        }
        if connection.has_completion() {
            self.mark_ready(connection);
        }
        false
    }

    /// Sends from the queue, if the transport is ready and the turn has time for it.
    pub(super) fn resume_sending(&mut self, connection: &mut Connection) {
        if !connection.can_send() || connection.sends.queue.is_empty() {
            return;
        }
        if self.turn.is_time_up && connection.sends.next_length() >= LARGE_TRANSFER {
            self.queue_transfer(connection);
        } else {
            self.send_queued(connection);
        }
    }

    /// Sends one piece from the queue.
    pub(super) fn send_queued(&mut self, connection: &mut Connection) {
        if !connection.can_send() {
            return;
        }
        self.content.clear();
        let (mut finished, mut failed) = (0, None);
        while let Some(outgoing) = connection.sends.queue.front_mut() {
            match self.content.gather(outgoing) {
                Ok(true) => {
                    connection.sends.queue.pop_front();
                    finished += 1;
                }
                Ok(false) => break,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if connection.sends.queue.is_empty() {
            connection.sends.queue = std::collections::VecDeque::new();
        }
        let content = std::mem::take(&mut self.content);
        let is_sent = self.encrypt(connection, ToSend { content: content.bytes(), closes: false });
        let is_large = content.used as u64 >= LARGE_TRANSFER;
        self.content = content;
        if is_sent {
            if self.transmit(connection) {
                connection.sends.completed += finished;
            } else {
                connection.sends.encrypted += finished;
            }
        }
        if let Some(error) = failed {
            connection.sends.fail_queued(error);
        }
        if is_large {
            self.turn.is_time_up |= self.io.clock() >= self.turn.ends;
        }
        if connection.can_send() && !connection.sends.queue.is_empty() {
            self.queue_transfer(connection);
        }
        if connection.has_completion() {
            self.mark_ready(connection);
        }
    }

    /// Encrypts into `wire`. Returns false if that failed, and then fails the connection's sends.
    fn encrypt(&mut self, connection: &mut Connection, send: ToSend<'_>) -> bool {
        connection.sends.content_bytes += send.content.len() as u64;
        let Connection { session, incoming, .. } = connection;
        // Complete records of `incoming` were decrypted when they arrived.
        let Progress { result, is_encrypted, .. } =
            session.process(incoming, send, &mut self.wire, |_| {});
        let error: io::Error = match result {
            Ok(()) if is_encrypted => return true,
            Ok(()) => io::ErrorKind::BrokenPipe.into(),
            Err(error) => error.into(),
        };
        connection.sends.fail(error);
        false
    }

    /// Passes the encrypted bytes to the transport. Returns whether it has taken them.
    pub(super) fn transmit(&mut self, connection: &mut Connection) -> bool {
        if self.wire.is_empty() {
            return true;
        }
        connection.sends.wire_bytes += self.wire.bytes().len() as u64;
        let is_done = self.io.send_now(connection.token, self.wire.bytes());
        self.wire.clear();
        connection.sends.in_flight += u32::from(!is_done);
        is_done
    }
}

impl Connection {
    /// Returns whether content can be encrypted and passed to the transport.
    fn can_send(&self) -> bool {
        self.phase == Phase::Open && !self.sends.has_failed && self.sends.in_flight == 0
    }

    /// Returns whether new content can be encrypted at once.
    fn can_encrypt(&self) -> bool {
        self.can_send()
            && self.sends.queue.is_empty()
            && self.closing == Closing::Open
            && !matches!(self.receiving, Receiving::Ended(Err(_)))
    }

    /// Returns whether `close_notify` can be sent because all sends are complete.
    fn can_notify(&self) -> bool {
        self.phase == Phase::Open
            && !self.sends.has_incomplete()
            && !self.sends.has_failed
            && !matches!(self.receiving, Receiving::Ended(Err(_)))
    }

    /// Returns the number of sent bytes of content that the peer's host has acknowledged, given the
    /// number of encrypted bytes. Bytes of an incomplete record count as not acknowledged.
    pub(super) fn delivered(&self, wire_bytes: u64) -> u64 {
        let pending = self.sends.wire_bytes.saturating_sub(wire_bytes);
        let delivered = self.sends.content_bytes.saturating_sub(pending);
        self.sends.delivered.set(delivered.max(self.sends.delivered.get()));
        self.sends.delivered.get()
    }
}
