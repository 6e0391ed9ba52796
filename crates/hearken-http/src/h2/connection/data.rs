//! Received content and flow control of the peer.

use super::Connection;
use super::receive::{Inbound, Step, take};
use crate::h2::error::{ConnectionError, ErrorCode};
use crate::h2::event::Event;
use crate::h2::frame::{self, FrameHeader, flag};
use crate::h2::stream::{Stream, StreamId};

impl Connection {
    /// Processes the header of a DATA frame. `payload` contains the length of the padding, if any.
    #[inline]
    pub(super) fn on_data(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let id = header.stream;
        if self.is_unused(id) {
            return Err(ConnectionError::protocol("DATA on an invalid stream"));
        }
        let len = header.len as u32;
        self.receive_window -= i64::from(len);
        if self.receive_window < 0 {
            return Err(ConnectionError::flow_control("content exceeds the connection's window"));
        }
        let padding = match header.has(flag::PADDED) {
            false => 0,
            true => match payload {
                [padding] if usize::from(*padding) < header.len => u32::from(*padding) + 1,
                _ => return Err(ConnectionError::protocol("padding is longer than the frame")),
            },
        };
        // The length of the padding was already removed from the input.
        let unread = len - u32::from(padding > 0);
        let content = len - padding;
        let end = header.has(flag::END_STREAM);
        if padding > 0 || (content == 0 && !end) {
            self.budgets.spend(padding as usize)?;
        }
        self.budgets.earn(content as usize, &self.config.limits);

        let is_ignored = self.ignores(id);
        let is_server = self.is_server;
        let error = match self.streams.get(id) {
            None if is_ignored => None,
            None => Some((ErrorCode::STREAM_CLOSED, "DATA on a closed stream")),
            Some(stream) => {
                stream.receive_window -= i64::from(len);
                if stream.is(Stream::RECEIVE_ENDED) {
                    Some((ErrorCode::STREAM_CLOSED, "DATA after the end of the stream"))
                } else if stream.receive_window < 0 {
                    Some((ErrorCode::FLOW_CONTROL_ERROR, "content exceeds the stream's window"))
                } else if !is_server && !stream.is(Stream::RESPONDED) {
                    Some((ErrorCode::PROTOCOL_ERROR, "DATA before the head of the response"))
                } else if !stream.count_content(content.into(), end) {
                    Some((ErrorCode::PROTOCOL_ERROR, "content differs from Content-Length"))
                } else {
                    self.release_bytes(id, padding, out);
                    let padding = padding.saturating_sub(1);
                    self.inbound = Inbound::Data { stream: id, left: content, padding, end };
                    return Ok(Step::Continue);
                }
            }
        };
        self.skip(unread);
        self.release_bytes(id, len, out);
        match error {
            None => Ok(Step::Continue),
            Some((code, reason)) => self.stream_error(id, code, reason, out).map(Step::Event),
        }
    }

    /// Returns the next content of the current DATA frame, or `None` if the input or the frame has ended.
    #[inline]
    pub(super) fn next_data<'i>(
        &mut self,
        input: &mut &'i [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'i>>, ConnectionError> {
        let Inbound::Data { stream: id, left, padding, end } = self.inbound else {
            return Ok(None);
        };
        if self.streams.get(id).is_none() {
            // The stream was reset since the header was received.
            self.skip(left + padding);
            self.release_bytes(id, left, out);
            return Ok(None);
        }
        if left > 0 && input.is_empty() {
            return Ok(None);
        }
        let data = take(input, left);
        let left = left - data.len() as u32;
        if left > 0 {
            self.inbound = Inbound::Data { stream: id, left, padding, end };
            return Ok(Some(Event::Data { stream: StreamId(id), data, end: false }));
        }
        self.skip(padding);
        if end {
            if let Some(stream) = self.streams.get(id) {
                stream.set(Stream::RECEIVE_ENDED);
            }
            self.remove_if_finished(id);
        } else if data.is_empty() {
            return Ok(None);
        }
        Ok(Some(Event::Data { stream: StreamId(id), data, end }))
    }

    /// Returns bytes of content to the peer's windows after the caller has processed them.
    ///
    /// The caller releases the bytes of each [`Event::Data`] once, even if the stream has ended.
    #[inline]
    pub fn release(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>) {
        self.release_bytes(stream.0, bytes as u32, out);
    }

    /// Returns bytes to the windows, and announces them when they amount to half of a window.
    #[inline]
    pub(super) fn release_bytes(&mut self, id: u32, bytes: u32, out: &mut Vec<u8>) {
        if bytes == 0 || self.error.is_some() {
            return;
        }
        self.released = self.released.saturating_add(bytes);
        if self.released >= self.config.limits.connection_window / 2 {
            frame::write_window_update(out, 0, self.released);
            self.receive_window += i64::from(self.released);
            self.released = 0;
        }
        if let Some(stream) = self.streams.get(id)
            && !stream.is(Stream::RECEIVE_ENDED)
        {
            stream.released = stream.released.saturating_add(bytes);
            if stream.released >= self.config.limits.stream_window / 2 {
                frame::write_window_update(out, id, stream.released);
                stream.receive_window += i64::from(stream.released);
                stream.released = 0;
            }
        }
    }
}
