//! Receiving: decrypts records, and drives handshakes.

use std::io;

use hearken::io::{Buffer, CompletionKind, Io, Pool};
use hearken::timer::Time;

use super::Core;
use super::connection::{Connection, Phase, Receiving};
use crate::failure::TlsFailure;
use crate::session::{Progress, ToSend};

/// Maximum size in bytes of incomplete messages from a client.
const MAX_INCOMPLETE_CLIENT: usize = 32 * 1024;
/// Maximum size in bytes of incomplete messages from a server, whose certificates may be long.
const MAX_INCOMPLETE_SERVER: usize = 128 * 1024;

/// Collects decrypted content in buffers of the pool.
struct Collector<'a> {
    pool: &'a Pool,
    /// The buffer that is being filled, and the last one.
    last: Option<Buffer>,
    full: Vec<Buffer>,
}

impl Collector<'_> {
    fn append(&mut self, content: &[u8]) {
        if content.is_empty() {
            return;
        }
        if let Some(last) = self.last.take_if(|last| last.spare_capacity() < content.len()) {
            self.full.push(last);
        }
        // The received buffer returns to the pool at the same time.
        let last = self.last.get_or_insert_with(|| self.pool.acquire_over_limit());
        last.as_vec().extend_from_slice(content);
    }
}

impl<I: Io> Core<I> {
    /// Handles received bytes. Returns a completion that can be reported at once.
    pub(super) fn on_received(
        &mut self,
        connection: &mut Connection,
        buffer: Buffer,
    ) -> Option<CompletionKind> {
        if !matches!(connection.receiving, Receiving::Open) {
            return None;
        }
        if connection.phase == Phase::Handshake
            && !connection.session.is_client()
            && (self.turn.handshakes == 0 || connection.queued.handshakes)
        {
            connection.incoming.extend_from_slice(&buffer);
            self.queue_handshake(connection);
            return None;
        }
        self.process(connection, Some(buffer))
    }

    /// Processes received bytes.
    pub(super) fn process(
        &mut self,
        connection: &mut Connection,
        buffer: Option<Buffer>,
    ) -> Option<CompletionKind> {
        let pool = self.io.pool().clone();
        let mut collector = Collector { pool: &pool, last: None, full: Vec::new() };
        let Connection { session, incoming, .. } = &mut *connection;
        let send = ToSend::default();
        let in_place = buffer.filter(|buffer| {
            let in_place = incoming.is_empty();
            if !in_place {
                incoming.extend_from_slice(buffer);
            }
            in_place
        });
        let append = |content: &[u8]| collector.append(content);
        let progress = if let Some(mut buffer) = in_place {
            let progress = session.process(buffer.bytes_mut(), send, &mut self.wire, append);
            if let Some(rest) = buffer.get(progress.consumed..) {
                incoming.extend_from_slice(rest);
            }
            progress
        } else {
            let progress = session.process(incoming, send, &mut self.wire, append);
            incoming.drain(..progress.consumed);
            if incoming.is_empty() {
                *incoming = Vec::new();
            }
            progress
        };
        let Collector { last, full, .. } = collector;
        self.on_processed(connection, progress, full, last)
    }

    fn on_processed(
        &mut self,
        connection: &mut Connection,
        progress: Progress,
        full: Vec<Buffer>,
        last: Option<Buffer>,
    ) -> Option<CompletionKind> {
        if !self.wire.is_empty() {
            if connection.phase == Phase::Handshake {
                self.turn.handshakes = self.turn.handshakes.saturating_sub(1);
            }
            self.transmit(connection);
        }
        let limit = match connection.session.is_client() {
            true => MAX_INCOMPLETE_SERVER,
            false => MAX_INCOMPLETE_CLIENT,
        };
        let is_open = connection.phase == Phase::Open;
        if is_open
            && full.is_empty()
            && connection.received.is_empty()
            && connection.is_started
            && progress.result.is_ok()
            && !progress.peer_closed
            && connection.incoming.len() <= limit
            && let Some(buffer) = last
        {
            // Sends that completed before may be reported later.
            return Some(CompletionKind::Received(buffer));
        }
        for mut buffer in full.into_iter().chain(last) {
            if !connection.is_started {
                // It may wait for long.
                buffer.detach();
            }
            connection.received.push_back(buffer);
        }
        if let Err(failure) = progress.result {
            self.fail(connection, failure.into());
        } else if connection.incoming.len() > limit {
            let reason = "a message is too long".to_owned();
            self.fail(connection, TlsFailure::Protocol(reason).into());
        } else {
            if connection.phase == Phase::Handshake && !connection.session.is_handshaking() {
                self.on_handshake_complete(connection);
            }
            if progress.peer_closed {
                match connection.phase {
                    Phase::Open => self.end(connection, Ok(())),
                    _ => self.fail(connection, TlsFailure::Handshake.into()),
                }
            }
        }
        self.update_receiving(connection);
        if connection.has_completion() {
            self.mark_ready(connection);
        }
        None
    }

    fn on_handshake_complete(&mut self, connection: &mut Connection) {
        connection.phase = Phase::Open;
        self.end_handshake(connection);
        let Connection { session, .. } = &*connection;
        if let (Some(counters), Some(info)) = (session.handshakes(), session.info()) {
            counters.record_complete(&info);
        }
        if connection.session.is_client() {
            connection.connected = Some(Ok(()));
        }
        self.on_open(connection);
    }

    /// Restores the deadline of the caller.
    fn end_handshake(&mut self, connection: &mut Connection) {
        if let Some(handshake) = connection.handshake.take() {
            self.io.set_deadline(connection.token, handshake.deadline);
        }
    }

    /// Handles the end of the receiving side.
    fn end(&mut self, connection: &mut Connection, result: io::Result<()>) {
        connection.receiving = Receiving::Ended(result);
        connection.incoming = Vec::new();
    }

    /// Fails the connection.
    pub(super) fn fail(&mut self, connection: &mut Connection, error: io::Error) {
        let is_established = connection.phase == Phase::Open || !connection.session.is_client();
        if connection.phase == Phase::Handshake
            && let Some(counters) = connection.session.handshakes()
        {
            counters.record_failure(error.get_ref().and_then(|error| error.downcast_ref()));
        }
        connection.phase = Phase::Failed;
        self.end_handshake(connection);
        if is_established {
            connection.sends.fail(io::ErrorKind::BrokenPipe.into());
            self.end(connection, Err(error));
        } else {
            connection.sends.has_failed = true;
            connection.connected = Some(Err(error));
            connection.receiving = Receiving::Over;
            connection.incoming = Vec::new();
        }
        self.update_receiving(connection);
        self.mark_ready(connection);
    }

    /// Handles the end of the transport's stream, or its failure.
    pub(super) fn on_ended(&mut self, connection: &mut Connection, error: Option<io::Error>) {
        if !matches!(connection.receiving, Receiving::Open) {
            return;
        }
        connection.is_receiving = false;
        let error = error.unwrap_or_else(|| {
            let is_open = connection.phase == Phase::Open;
            let failure = if is_open { TlsFailure::Truncated } else { TlsFailure::Handshake };
            failure.into()
        });
        if connection.phase == Phase::Open && error.kind() != io::ErrorKind::UnexpectedEof {
            // The transport fails the pending sends itself.
            self.end(connection, Err(error));
            self.mark_ready(connection);
        } else {
            self.fail(connection, error);
        }
    }

    /// Handles the deadline of the transport. Returns whether it is reported.
    pub(super) fn on_deadline(&mut self, connection: &mut Connection, now: Time) -> bool {
        let Some(handshake) = &mut connection.handshake else { return true };
        if handshake.ends <= now {
            self.fail(connection, TlsFailure::Timeout.into());
            return false;
        }
        let is_reported = handshake.deadline.take_if(|deadline| *deadline <= now).is_some();
        let next = handshake.deadline.map_or(handshake.ends, |at| at.min(handshake.ends));
        self.io.set_deadline(connection.token, Some(next));
        is_reported
    }

    /// Starts or stops the transport as the state requires.
    pub(super) fn update_receiving(&mut self, connection: &mut Connection) {
        let receives = matches!(connection.receiving, Receiving::Open)
            && match connection.phase {
                Phase::Handshake => !connection.queued.handshakes,
                Phase::Open => connection.is_started,
                Phase::Connecting | Phase::Failed => false,
            };
        if receives != connection.is_receiving {
            connection.is_receiving = receives;
            match receives {
                true => self.io.start(connection.token),
                false => self.io.stop(connection.token),
            }
        }
    }
}
