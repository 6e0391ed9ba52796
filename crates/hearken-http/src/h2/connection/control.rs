//! Frames that transfer neither fields nor content.

use super::Connection;
use super::receive::Step;
use crate::h2::error::{ConnectionError, ErrorCode};
use crate::h2::event::Event;
use crate::h2::frame::{self, DEFAULT_WINDOW, FrameHeader, MAX_WINDOW, flag, kind};
use crate::h2::priority::Priority;
use crate::h2::stream::{Stream, StreamId};

impl Connection {
    #[inline]
    pub(super) fn on_window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let id = header.stream;
        let increment = i64::from(number(payload, "WINDOW_UPDATE frame of invalid size")? & !SIGN);
        if id == 0 {
            self.send_window += increment;
            return match increment {
                0 => Err(ConnectionError::protocol("window increment of 0")),
                _ if self.send_window > MAX_WINDOW => {
                    Err(ConnectionError::flow_control("window of the connection is too large"))
                }
                _ => Ok(Step::Continue),
            };
        }
        if self.is_unused(id) {
            return Err(ConnectionError::protocol("WINDOW_UPDATE on an unused stream"));
        }
        let Some(stream) = self.streams.get(id) else {
            return Ok(Step::Continue);
        };
        stream.send_window += increment;
        let (code, reason) = match increment {
            0 => (ErrorCode::PROTOCOL_ERROR, "window increment of 0"),
            _ if stream.send_window > MAX_WINDOW => {
                (ErrorCode::FLOW_CONTROL_ERROR, "window of a stream is too large")
            }
            _ => return Ok(Step::Continue),
        };
        self.stream_error(id, code, reason, out).map(Step::Event)
    }

    pub(super) fn on_reset(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        let code = ErrorCode(number(payload, "RST_STREAM frame of invalid size")?);
        if self.is_unused(header.stream) {
            return Err(ConnectionError::protocol("RST_STREAM on an unused stream"));
        }
        let Some(stream) = self.streams.remove(header.stream) else {
            return Ok(Step::Continue);
        };
        if self.is_server && !stream.is(Stream::SEND_ENDED) {
            self.budgets.count_reset()?;
        }
        Ok(Step::Event(Event::Reset { stream: StreamId(stream.id), code, reason: "" }))
    }

    pub(super) fn on_settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        check_connection_frame(header)?;
        if header.has(flag::ACK) {
            return self.on_settings_acknowledged(payload);
        }
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(ConnectionError::frame_size("SETTINGS frame of invalid size"));
        }
        let (window, table_bytes) = (self.peer.stream_window, self.peer.table_bytes);
        for &[a, b, c, d, e, f] in settings {
            let (id, value) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
            self.peer.apply(id, value, !self.is_server)?;
            if self.peer.table_bytes != table_bytes {
                // The smallest of several values counts.
                self.encoder.set_limit(self.peer.table_bytes as usize);
            }
        }
        let delta = i64::from(self.peer.stream_window) - i64::from(window);
        if !self.streams.adjust_send_windows(delta) {
            return Err(ConnectionError::flow_control("window of a stream is too large"));
        }
        self.budgets.acknowledge(&self.config.limits)?;
        frame::write_header(out, 0, kind::SETTINGS, flag::ACK, 0);
        Ok(Step::Event(Event::Settings))
    }

    /// Applies our settings.
    fn on_settings_acknowledged(&mut self, payload: &[u8]) -> Result<Step, ConnectionError> {
        if !payload.is_empty() {
            return Err(ConnectionError::frame_size("acknowledgement of SETTINGS with a payload"));
        }
        if !self.is_acknowledged {
            self.is_acknowledged = true;
            let limits = &self.config.limits;
            self.decoder.set_limit(limits.decoder_table_bytes);
            // Streams were created with the larger of both windows.
            let delta = i64::from(limits.stream_window) - i64::from(DEFAULT_WINDOW);
            self.streams.adjust_receive_windows(delta.min(0));
        }
        Ok(Step::Continue)
    }

    pub(super) fn on_ping(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        check_connection_frame(header)?;
        let payload: [u8; 8] = payload
            .try_into()
            .map_err(|_| ConnectionError::frame_size("PING frame of invalid size"))?;
        if header.has(flag::ACK) {
            return Ok(Step::Event(Event::Pong { payload }));
        }
        self.budgets.acknowledge(&self.config.limits)?;
        frame::write_ping(out, flag::ACK, payload);
        Ok(Step::Continue)
    }

    /// Checks a PRIORITY frame of RFC 7540, which has no effect.
    pub(super) fn on_priority(
        &mut self,
        header: FrameHeader,
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        const SIZE: &str = "PRIORITY frame of invalid size";
        match header {
            FrameHeader { stream: 0, .. } => {
                Err(ConnectionError::protocol("PRIORITY on the connection"))
            }
            FrameHeader { len: 5, .. } => Ok(Step::Continue),
            FrameHeader { stream, .. } if self.is_unused(stream) => {
                Err(ConnectionError::frame_size(SIZE))
            }
            FrameHeader { stream, .. } => {
                self.stream_error(stream, ErrorCode::FRAME_SIZE_ERROR, SIZE, out).map(Step::Event)
            }
        }
    }

    pub(super) fn on_priority_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        check_connection_frame(header)?;
        let Some((id, value)) = payload.split_first_chunk() else {
            return Err(ConnectionError::frame_size("PRIORITY_UPDATE frame of invalid size"));
        };
        let id = u32::from_be_bytes(*id) & !SIGN;
        if !self.is_server || id.is_multiple_of(2) {
            return Err(ConnectionError::protocol("PRIORITY_UPDATE for an invalid stream"));
        }
        let priority = Priority::parse(value).unwrap_or_default();
        if let Some(stream) = self.streams.get(id) {
            stream.priority = priority;
        } else if id > self.last_stream {
            let early = &mut self.early_priorities;
            early.retain(|(stream, _)| *stream != id);
            if early.len() < self.config.limits.max_early_priorities {
                early.push((id, priority));
            }
        }
        Ok(Step::Continue)
    }

    pub(super) fn on_goaway(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        check_connection_frame(header)?;
        let &[a, b, c, d, e, f, g, h, ..] = payload else {
            return Err(ConnectionError::frame_size("GOAWAY frame of invalid size"));
        };
        let last = u32::from_be_bytes([a, b, c, d]) & !SIGN;
        self.is_shutting_down = true;
        if !self.is_server {
            self.last_accepted = self.last_accepted.min(last);
            self.refuses = true;
        }
        let code = ErrorCode(u32::from_be_bytes([e, f, g, h]));
        Ok(Step::Event(Event::Goaway { code }))
    }

    /// Returns the next request that the server will not process.
    #[cold]
    pub(super) fn next_refused(&mut self) -> Option<Event<'static>> {
        let stream = self.streams.remove_after(self.last_accepted);
        self.refuses = stream.is_some();
        stream.map(|stream| Event::Reset {
            stream: StreamId(stream.id),
            code: ErrorCode::REFUSED_STREAM,
            reason: "server does not process the request",
        })
    }
}

/// The reserved bit of identifiers and increments.
const SIGN: u32 = 1 << 31;

/// Reads a payload that consists of one number.
#[inline(always)]
fn number(payload: &[u8], reason: &'static str) -> Result<u32, ConnectionError> {
    match payload.try_into() {
        Ok(bytes) => Ok(u32::from_be_bytes(bytes)),
        Err(_) => Err(ConnectionError::frame_size(reason)),
    }
}

/// Checks that a frame concerns the connection.
fn check_connection_frame(header: FrameHeader) -> Result<(), ConnectionError> {
    match header.stream {
        0 => Ok(()),
        _ => Err(ConnectionError::protocol("stream identifier in a frame of the connection")),
    }
}
