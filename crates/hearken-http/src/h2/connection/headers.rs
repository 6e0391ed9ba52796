//! Field sections: requests, responses and trailer sections.

use super::Connection;
use super::receive::Step;
use crate::framing::ResponseBody;
use crate::h2::error::{ConnectionError, ErrorCode};
use crate::h2::event::Event;
use crate::h2::frame::{FrameHeader, flag};
use crate::h2::head_buffer::{HeadBuffer, Kind, Problem};
use crate::h2::priority::Priority;
use crate::h2::request_head::Form;
use crate::h2::stream::{Stream, StreamId};
use crate::method::Method;

/// A field block of which CONTINUATION frames are missing.
#[derive(Debug)]
pub(super) struct Block {
    stream: u32,
    end: bool,
    bytes: Vec<u8>,
    continuations: u32,
}

impl Block {
    pub(super) fn stream(&self) -> u32 {
        self.stream
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// A decoded field section.
pub(super) struct Head {
    stream: u32,
    /// Whether the peer has ended the stream.
    end: bool,
    kind: Kind,
}

/// The treatment of a field section.
enum Section {
    Deliver(Kind),
    Ignore,
    /// A request beyond the maximum number of streams.
    Refuse,
    /// A stream error.
    Error(ErrorCode, &'static str),
}

impl Connection {
    #[inline(always)]
    pub(super) fn on_headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        head: &mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let block = match header.flags & (flag::PADDED | flag::PRIORITY) {
            0 => payload,
            _ => self.without_padding(header, payload)?,
        };
        let end = header.has(flag::END_STREAM);
        if !header.has(flag::END_HEADERS) {
            return self.begin_block(header.stream, end, block);
        }
        self.on_block(header.stream, end, block, head, out)
    }

    /// Returns the fragment of a HEADERS frame without padding and priority. The priority of RFC 7540 is
    /// ignored.
    #[inline(never)]
    fn without_padding<'p>(
        &mut self,
        header: FrameHeader,
        payload: &'p [u8],
    ) -> Result<&'p [u8], ConnectionError> {
        let mut fragment = payload;
        if header.has(flag::PADDED) {
            let (&padding, rest) = fragment
                .split_first()
                .ok_or(ConnectionError::frame_size("HEADERS frame is too short"))?;
            let len = rest
                .len()
                .checked_sub(padding.into())
                .ok_or(ConnectionError::protocol("padding is longer than the frame"))?;
            fragment = rest.get(..len).unwrap_or_default();
            self.budgets.spend(padding.into())?;
        }
        if header.has(flag::PRIORITY) {
            const TOO_SHORT: &str = "HEADERS frame is too short for its priority";
            fragment = fragment.get(5..).ok_or(ConnectionError::frame_size(TOO_SHORT))?;
        }
        Ok(fragment)
    }

    #[cold]
    fn begin_block(
        &mut self,
        stream: u32,
        end: bool,
        fragment: &[u8],
    ) -> Result<Step, ConnectionError> {
        let bytes = fragment.to_vec();
        self.incomplete = self.incomplete.wrapping_add(1);
        self.block = Some(Box::new(Block { stream, end, bytes, continuations: 0 }));
        Ok(Step::Continue)
    }

    #[cold]
    pub(super) fn on_continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        head: &mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let limits = &self.config.limits;
        let Some(mut block) = self.block.take() else {
            return Err(ConnectionError::protocol("CONTINUATION without HEADERS"));
        };
        block.continuations += 1;
        if block.continuations > limits.max_continuations {
            return Err(ConnectionError::excess("too many CONTINUATION frames"));
        }
        if block.bytes.len() + payload.len() > limits.max_block_bytes {
            return Err(ConnectionError::excess("field block exceeds the maximum size"));
        }
        block.bytes.extend_from_slice(payload);
        if !header.has(flag::END_HEADERS) {
            self.block = Some(block);
            return Ok(Step::Continue);
        }
        self.on_block(block.stream, block.end, &block.bytes, head, out)
    }

    /// Decodes a complete field block.
    #[inline(always)]
    fn on_block(
        &mut self,
        stream: u32,
        end: bool,
        block: &[u8],
        head: &mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let section = match self.is_server && stream > self.last_stream && stream % 2 == 1 {
            true => self.new_stream(stream),
            false => self.section_of_known(stream, end)?,
        };
        let kind = match section {
            Section::Deliver(kind) => kind,
            _ => Kind::Discarded,
        };
        head.begin(kind, &self.config.limits.head);
        self.decoder.decode(block, head)?;
        self.budgets.earn(block.len(), &self.config.limits);
        match section {
            Section::Deliver(kind) => Ok(Step::Head(Head { stream, end, kind })),
            Section::Ignore => Ok(Step::Continue),
            Section::Refuse => {
                self.drop_stream(stream, ErrorCode::REFUSED_STREAM, out);
                self.budgets.count_reset().map(|()| Step::Continue)
            }
            Section::Error(code, reason) => {
                self.stream_error(stream, code, reason, out).map(Step::Event)
            }
        }
    }

    /// Begins a stream of the client.
    #[inline(always)]
    fn new_stream(&mut self, stream: u32) -> Section {
        self.last_stream = stream;
        if stream > self.last_accepted {
            return Section::Ignore;
        }
        match self.streams.len() < self.config.limits.max_streams as usize {
            true => Section::Deliver(Kind::Request),
            false => Section::Refuse,
        }
    }

    /// Returns the treatment of a field section on a stream that is not new.
    #[cold]
    #[inline(never)]
    fn section_of_known(&mut self, id: u32, end: bool) -> Result<Section, ConnectionError> {
        let (is_unused, is_ignored) = (self.is_unused(id), self.ignores(id));
        let Some(stream) = self.streams.get(id) else {
            return match () {
                () if is_unused => Err(ConnectionError::protocol("HEADERS on an invalid stream")),
                () if is_ignored => Ok(Section::Ignore),
                () => Err(ConnectionError::new(
                    ErrorCode::STREAM_CLOSED,
                    "HEADERS on a closed stream",
                )),
            };
        };
        Ok(if stream.is(Stream::RECEIVE_ENDED) {
            Section::Error(ErrorCode::STREAM_CLOSED, "HEADERS after the end of the stream")
        } else if !self.is_server && !stream.is(Stream::RESPONDED) {
            Section::Deliver(Kind::Response)
        } else if end {
            Section::Deliver(Kind::Trailers)
        } else {
            Section::Error(ErrorCode::PROTOCOL_ERROR, "trailer section does not end the stream")
        })
    }

    /// Converts a decoded section to an event.
    #[inline(always)]
    pub(super) fn on_head<'s>(
        &mut self,
        section: &Head,
        head: &'s mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Event<'s>, ConnectionError> {
        match section.kind {
            Kind::Request => self.on_request(section, head, out),
            Kind::Response => self.on_response(section, head, out),
            Kind::Trailers | Kind::Discarded => self.on_trailers(section, head, out),
        }
    }

    #[inline(always)]
    fn on_request<'s>(
        &mut self,
        section: &Head,
        head: &'s mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Event<'s>, ConnectionError> {
        let &Head { stream: id, end, .. } = section;
        let config = &*self.config;
        let nonce = config.seed.wrapping_add(id.into());
        let translated = head.request(&config.limits.head, !end, nonce);
        let flags = if end { Stream::RECEIVE_ENDED } else { 0 };
        // A client may rely on the default window until it has seen the settings.
        let window = match self.is_acknowledged {
            true => config.limits.stream_window,
            false => config.limits.stream_window.max(crate::h2::frame::DEFAULT_WINDOW),
        };
        let mut stream = Stream::new(id, self.peer.stream_window, window, flags);
        let event = match translated {
            Ok(translated) => {
                if translated.form != Form::Plain {
                    if translated.form == Form::Upgrade && !config.extended_connect {
                        let reason = "extended CONNECT is disabled";
                        return self.stream_error(id, ErrorCode::PROTOCOL_ERROR, reason, out);
                    }
                    stream.set(match translated.form {
                        Form::Upgrade => Stream::UPGRADE,
                        _ => Stream::CONNECT,
                    });
                }
                if translated.request.method == Method::Head {
                    stream.set(Stream::HEAD);
                }
                stream.content_left = translated.content_length;
                if let Some(priority) = translated.priority {
                    stream.priority = priority;
                }
                Event::Request { stream: StreamId(id), request: translated.request, end }
            }
            Err(Problem::Rejected(reject)) => Event::Rejected { stream: StreamId(id), reject },
            Err(Problem::Malformed(reason)) => {
                return self.stream_error(id, ErrorCode::PROTOCOL_ERROR, reason, out);
            }
        };
        if !self.early_priorities.is_empty()
            && let Some(priority) = self.take_early_priority(id)
        {
            stream.priority = priority;
        }
        self.streams.push(stream);
        Ok(event)
    }

    /// Returns the priority that a PRIORITY_UPDATE frame set before the request, and forgets older ones.
    #[cold]
    fn take_early_priority(&mut self, id: u32) -> Option<Priority> {
        let found = self.early_priorities.iter().find(|(stream, _)| *stream == id);
        let priority = found.map(|(_, priority)| *priority);
        self.early_priorities.retain(|(stream, _)| *stream > id);
        priority
    }

    #[inline(never)]
    fn on_response<'s>(
        &mut self,
        section: &Head,
        head: &'s mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Event<'s>, ConnectionError> {
        let &Head { stream: id, end, .. } = section;
        let flags = self.streams.get(id).map_or(0, |stream| stream.flags);
        let is = |flag| flags & flag != 0;
        let method = match () {
            () if is(Stream::HEAD) => Method::Head,
            () if is(Stream::CONNECT) => Method::Connect,
            () => Method::Get,
        };
        let response = match head.response(method, is(Stream::UPGRADE), !end) {
            Ok(response) => response,
            Err(Problem::Malformed(reason)) => {
                return self.stream_error(id, ErrorCode::PROTOCOL_ERROR, reason, out);
            }
            Err(Problem::Rejected(reject)) => {
                return self.stream_error(id, ErrorCode::CANCEL, reject.reason, out);
            }
        };
        if let Some(stream) = self.streams.get(id)
            && (response.status >= 200 || response.status == 101)
        {
            let is_tunnel = match response.status {
                101 => true,
                status => method == Method::Connect && status < 300,
            };
            stream.set(Stream::RESPONDED);
            stream.content_left = match response.body {
                _ if is_tunnel => None,
                ResponseBody::None => Some(0),
                ResponseBody::Length(length) => Some(length),
                ResponseBody::Chunked | ResponseBody::UntilClose => None,
            };
            if end {
                stream.set(Stream::RECEIVE_ENDED);
                self.remove_if_finished(id);
            }
        }
        Ok(Event::Response { stream: StreamId(id), response, end })
    }

    #[cold]
    fn on_trailers<'s>(
        &mut self,
        section: &Head,
        head: &'s mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Event<'s>, ConnectionError> {
        let id = section.stream;
        let is_complete = self.streams.get(id).is_some_and(|stream| stream.count_content(0, true));
        match head.trailers() {
            Ok(fields) if is_complete => {
                if let Some(stream) = self.streams.get(id) {
                    stream.set(Stream::RECEIVE_ENDED);
                }
                self.remove_if_finished(id);
                Ok(Event::Trailers { stream: StreamId(id), fields })
            }
            result => {
                let reason = match result {
                    Err(Problem::Malformed(reason)) => reason,
                    Err(Problem::Rejected(reject)) => reject.reason,
                    Ok(_) => "content is shorter than Content-Length",
                };
                self.stream_error(id, ErrorCode::PROTOCOL_ERROR, reason, out)
            }
        }
    }
}
