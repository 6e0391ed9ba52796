//! Frames from bytes.

use super::Connection;
use super::headers::Head;
use crate::h2::error::{ConnectionError, ErrorCode};
use crate::h2::event::Event;
use crate::h2::frame::{self, FrameHeader, HEADER_BYTES, PREFACE, flag, kind};
use crate::h2::head_buffer::HeadBuffer;

/// The next part of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inbound {
    /// The client's preface, of which this many bytes were received.
    Preface(usize),
    /// The first frame, which must be SETTINGS.
    FirstFrame,
    Frame,
    /// The content of a DATA frame and the padding after it.
    Data {
        stream: u32,
        left: u32,
        padding: u32,
        end: bool,
    },
    /// Bytes that are ignored.
    Skip(u32),
}

/// The result of processing one frame.
pub(super) enum Step {
    Continue,
    Event(Event<'static>),
    /// A decoded field section.
    Head(Head),
}

impl Connection {
    /// Processes received bytes until the next event, and removes them from `input`. Appends frames for the
    /// peer to `out`. Returns `None` after all bytes; the connection stores an incomplete frame.
    ///
    /// # Errors
    ///
    /// The connection has failed, and `out` contains a GOAWAY frame. The caller sends it and closes the
    /// connection.
    #[inline]
    pub fn receive<'s, 'i: 's>(
        &mut self,
        input: &mut &'i [u8],
        head: &'s mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'s>>, ConnectionError> {
        let result = self.next_event(input, head, out);
        if let Err(error) = &result {
            *input = &[];
            self.fail(*error, out);
        }
        result
    }

    #[inline(always)]
    fn next_event<'s, 'i: 's>(
        &mut self,
        input: &mut &'i [u8],
        head: &'s mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'s>>, ConnectionError> {
        loop {
            if self.refuses
                && let Some(event) = self.next_refused()
            {
                return Ok(Some(event));
            }
            let step = match self.inbound {
                Inbound::Frame if self.partial.is_empty() => match next_frame(input) {
                    Some((header, payload)) => self.on_frame(header, payload, head, out)?,
                    None if input.is_empty() => return Ok(None),
                    None => self.on_partial_frame(input, head, out)?,
                },
                Inbound::Data { .. } => match self.next_data(input, out)? {
                    Some(event) => return Ok(Some(event)),
                    None if input.is_empty() => return Ok(None),
                    None => Step::Continue,
                },
                _ if input.is_empty() => return Ok(None),
                Inbound::Frame | Inbound::FirstFrame => self.on_partial_frame(input, head, out)?,
                Inbound::Preface(received) => self.on_preface(received, input)?,
                Inbound::Skip(left) => {
                    self.inbound = match left - take(input, left).len() as u32 {
                        0 => Inbound::Frame,
                        left => Inbound::Skip(left),
                    };
                    Step::Continue
                }
            };
            match step {
                Step::Continue => {}
                Step::Event(event) => return Ok(Some(event)),
                Step::Head(section) => return self.on_head(&section, head, out).map(Some),
            }
        }
    }

    /// Reads the client's preface.
    #[cold]
    fn on_preface(&mut self, received: usize, input: &mut &[u8]) -> Result<Step, ConnectionError> {
        let want = PREFACE.get(received..).unwrap_or_default();
        let bytes = take(input, want.len() as u32);
        if !want.starts_with(bytes) {
            return Err(ConnectionError::protocol("invalid connection preface"));
        }
        self.inbound = match received + bytes.len() {
            len if len == PREFACE.len() => Inbound::FirstFrame,
            len => Inbound::Preface(len),
        };
        Ok(Step::Continue)
    }

    /// Collects the bytes of a frame that is not complete in the input, or the first frame.
    #[cold]
    #[inline(never)]
    fn on_partial_frame(
        &mut self,
        input: &mut &[u8],
        head: &mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        if self.partial.is_empty() && self.block.is_none() {
            self.incomplete = self.incomplete.wrapping_add(1);
        }
        let missing = HEADER_BYTES.saturating_sub(self.partial.len());
        self.partial.extend_from_slice(take(input, missing as u32));
        let Some((bytes, payload)) = self.partial.split_first_chunk() else {
            return Ok(Step::Continue);
        };
        let header = FrameHeader::parse(bytes);
        self.check_header(header)?;
        if self.inbound == Inbound::FirstFrame {
            if header.kind != kind::SETTINGS || header.has(flag::ACK) {
                return Err(ConnectionError::protocol("first frame is not SETTINGS"));
            }
            self.inbound = Inbound::Frame;
        }
        let needed = buffered_len(header);
        let missing = needed.saturating_sub(payload.len());
        self.partial.extend_from_slice(take(input, missing as u32));
        if self.partial.len() < HEADER_BYTES + needed {
            return Ok(Step::Continue);
        }
        let frame = std::mem::take(&mut self.partial);
        let payload = frame.get(HEADER_BYTES..).unwrap_or_default();
        self.on_frame(header, payload, head, out)
    }

    /// Checks a header as soon as it is complete.
    #[inline(always)]
    fn check_header(&self, header: FrameHeader) -> Result<(), ConnectionError> {
        if header.len > self.config.limits.max_frame_bytes as usize {
            return Err(ConnectionError::frame_size("frame exceeds the maximum size"));
        }
        if let Some(block) = &self.block
            && (header.kind != kind::CONTINUATION || header.stream != block.stream())
        {
            return Err(ConnectionError::protocol("field block is interrupted by another frame"));
        }
        Ok(())
    }

    /// Processes a frame. `payload` contains as many bytes as [`buffered_len`] returns.
    #[inline(always)]
    fn on_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        head: &mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        self.check_header(header)?;
        match header.kind {
            kind::HEADERS => self.on_headers(header, payload, head, out),
            kind::DATA => self.on_data(header, payload, out),
            _ => self.on_other_frame(header, payload, head, out),
        }
    }

    #[inline(never)]
    fn on_other_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        head: &mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        if header.kind == kind::CONTINUATION {
            return self.on_continuation(header, payload, head, out);
        }
        self.budgets.spend(header.len)?;
        match header.kind {
            kind::WINDOW_UPDATE => self.on_window_update(header, payload, out),
            kind::RST_STREAM => self.on_reset(header, payload),
            kind::SETTINGS => self.on_settings(header, payload, out),
            kind::PING => self.on_ping(header, payload, out),
            kind::PRIORITY => self.on_priority(header, out),
            kind::PRIORITY_UPDATE => self.on_priority_update(header, payload),
            kind::GOAWAY => self.on_goaway(header, payload),
            kind::PUSH_PROMISE => Err(ConnectionError::protocol("push is disabled")),
            _ => {
                self.skip(header.len as u32);
                Ok(Step::Continue)
            }
        }
    }

    /// Ignores the next bytes.
    pub(super) fn skip(&mut self, len: u32) {
        self.inbound = if len == 0 { Inbound::Frame } else { Inbound::Skip(len) };
    }

    /// Ends the connection and appends GOAWAY.
    #[cold]
    pub(super) fn fail(&mut self, error: ConnectionError, out: &mut Vec<u8>) {
        if self.error.replace(error).is_none() {
            let last = if self.is_server { self.last_stream } else { 0 };
            frame::write_goaway(out, last.min(self.last_accepted), error.code, error.reason);
        }
        self.is_shutting_down = true;
        self.inbound = Inbound::Skip(u32::MAX);
        (self.partial, self.block) = (Vec::new(), None);
        while self.streams.remove_after(0).is_some() {}
    }
}

/// Returns the number of payload bytes that are needed before a frame is processed: all, but for frames
/// whose payload is processed or ignored piece by piece.
#[inline(always)]
fn buffered_len(header: FrameHeader) -> usize {
    match header.kind {
        kind::DATA => usize::from(header.has(flag::PADDED)).min(header.len),
        kind::HEADERS..=kind::CONTINUATION | kind::PRIORITY_UPDATE => header.len,
        _ => 0,
    }
}

/// Removes a frame from the input if it is complete as far as needed.
#[inline(always)]
fn next_frame<'i>(input: &mut &'i [u8]) -> Option<(FrameHeader, &'i [u8])> {
    let (bytes, rest) = input.split_first_chunk()?;
    let header = FrameHeader::parse(bytes);
    let (payload, rest) = rest.split_at_checked(buffered_len(header))?;
    *input = rest;
    Some((header, payload))
}

/// Removes up to `max` bytes from the input.
#[inline(always)]
pub(super) fn take<'i>(input: &mut &'i [u8], max: u32) -> &'i [u8] {
    let (taken, rest) = input.split_at(input.len().min(max as usize));
    *input = rest;
    taken
}

impl From<crate::h2::hpack::HpackError> for ConnectionError {
    fn from(error: crate::h2::hpack::HpackError) -> Self {
        Self::new(ErrorCode::COMPRESSION_ERROR, error.0)
    }
}
