//! The requests of an HTTP/2 connection: streams in flight, requests that wait for a stream, and the
//! frames to send.

use std::collections::VecDeque;
use std::mem;
use std::num::NonZeroU32;
use std::sync::Arc;

use hearken::timer::Time;
use hearken_http::h2::{Config, Connection, ErrorCode, Event, Limits, StreamId};
use hearken_http::{Limits as HeadLimits, Request as Head, RequestParser};

use crate::config::LoadError;
use crate::connection::Request;
use crate::reply::{CompleteReply, LIMITS};
use crate::worker::NEVER;
use crate::workload::{Message, ReplyCheck, Workload};

/// Window for received content in bytes. Content is not stored, so nothing is gained by a smaller one.
const WINDOW: u32 = 1 << 30;
/// Maximum number of bytes of content that are appended to frames that wait to be sent.
const MAX_CONTENT_AHEAD: usize = 256 * 1024;
/// Limits for parsing the generator's own requests.
const NO_LIMITS: HeadLimits =
    HeadLimits { max_head_bytes: usize::MAX, max_fields: usize::MAX, max_target_bytes: usize::MAX };

/// Settings of all HTTP/2 connections of a thread.
#[derive(Debug)]
pub(crate) struct Settings {
    config: Arc<Config>,
    /// Maximum number of concurrent streams of a connection.
    max_streams: usize,
}

impl Settings {
    pub(crate) fn new(max_streams: NonZeroU32, is_https: bool) -> Settings {
        let limits = Limits {
            head: LIMITS,
            stream_window: WINDOW,
            connection_window: WINDOW,
            // Servers are measured, not validated.
            max_overhead_bytes: u32::MAX,
            max_acknowledgements: u32::MAX,
            max_continuations: u32::MAX,
            ..Limits::default()
        };
        Settings {
            config: Arc::new(Config { limits, is_https, ..Config::default() }),
            max_streams: max_streams.get() as usize,
        }
    }

    /// Begins a connection.
    pub(crate) fn connect(&self) -> Box<Streams> {
        let mut out = Vec::new();
        let connection = Connection::client(Arc::clone(&self.config), &mut out);
        Box::new(Streams {
            connection,
            max_streams: self.max_streams,
            has_settings: false,
            is_draining: false,
            in_flight: VecDeque::new(),
            waiting: VecDeque::new(),
            out,
            is_unsent: false,
            pending_sends: 0,
            last_received: Time::from_nanos(0),
            deadline: NEVER,
        })
    }
}

/// A request that waits for a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingRequest {
    pub(crate) request: Request,
    /// Time from which its timeout runs.
    pub(crate) issued_at: Time,
    /// Whether a server has refused it before without processing it.
    pub(crate) is_resent: bool,
}

impl WaitingRequest {
    pub(crate) fn new(request: Request, issued_at: Time) -> WaitingRequest {
        WaitingRequest { request, issued_at, is_resent: false }
    }
}

/// A request in flight on a stream.
#[derive(Debug)]
pub(crate) struct Stream {
    id: StreamId,
    pub(crate) sent: WaitingRequest,
    /// Number of bytes of the request's content that are not sent yet.
    unsent_content: usize,
    pub(crate) awaits_first_byte: bool,
    pub(crate) reply: CompleteReply,
    pub(crate) check: Option<ReplyCheck>,
}

/// The state of an HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) connection: Connection,
    max_streams: usize,
    /// Whether the server's settings were received. Until then there is one stream.
    has_settings: bool,
    /// Whether no further requests may be sent.
    pub(crate) is_draining: bool,
    /// The requests in flight, in the order of their streams.
    in_flight: VecDeque<Stream>,
    /// Requests that wait for a stream, or for another connection if this one is draining.
    pub(crate) waiting: VecDeque<WaitingRequest>,
    /// Frames that wait for the end of the turn.
    pub(crate) out: Vec<u8>,
    /// Whether the connection is in the list of those with frames to send.
    pub(crate) is_unsent: bool,
    /// Number of sends that the transport has not completed.
    pub(crate) pending_sends: u32,
    /// Time at which something was last received.
    pub(crate) last_received: Time,
    /// The deadline that was set for the requests, if any is in flight.
    pub(crate) deadline: Time,
}

impl Streams {
    /// Returns whether a request can be sent.
    pub(crate) fn is_free(&self) -> bool {
        let max = if self.has_settings { self.max_streams } else { 1 };
        !self.is_draining && self.in_flight.len() < max && self.connection.free_streams() > 0
    }

    /// Returns whether the server's settings were received.
    pub(crate) fn has_settings(&self) -> bool {
        self.has_settings
    }

    /// Applies an event of the connection, except for resets. Returns the request whose reply is complete.
    pub(crate) fn on_event(&mut self, event: &Event<'_>) -> Option<Stream> {
        let ended = match *event {
            Event::Response { stream, ref response, end } => {
                let of = self.get(stream)?;
                of.awaits_first_byte = false;
                if response.status < 200 {
                    return None;
                }
                of.reply.status = response.status;
                end.then_some(stream)
            }
            Event::Data { stream, data, end } => {
                self.connection.release(stream, data.len(), &mut self.out);
                let of = self.get(stream)?;
                of.reply.content_bytes += data.len() as u64;
                if let Some(check) = &mut of.check {
                    check.update(data);
                }
                end.then_some(stream)
            }
            Event::Trailers { stream, .. } => Some(stream),
            Event::Goaway { .. } => {
                self.is_draining = true;
                None
            }
            Event::Settings => {
                self.has_settings = true;
                None
            }
            _ => None,
        };
        self.remove(ended?)
    }

    /// Returns whether no request is in flight or waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }

    /// Returns whether requests are in flight.
    pub(crate) fn has_streams(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns the number of requests without an outcome.
    pub(crate) fn outstanding(&self) -> u64 {
        (self.in_flight.len() + self.waiting.len()) as u64
    }

    /// Returns the requests without an outcome.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        let in_flight = self.in_flight.iter().map(|stream| &stream.sent);
        in_flight.chain(&self.waiting).map(|waiting| &waiting.request)
    }

    /// Removes the requests without an outcome, except with `keeps_refused` those that a server that
    /// goes away refused.
    pub(crate) fn remove_failed(&mut self, keeps_refused: bool) {
        let keeps_refused = keeps_refused && self.is_draining;
        self.in_flight.clear();
        self.waiting.retain(|waiting| keeps_refused && waiting.is_resent);
    }

    /// Appends a request of a workload to the frames. `bytes` is its message, or the message with
    /// cookies. Returns false if it cannot be sent.
    pub(crate) fn send(&mut self, sent: WaitingRequest, bytes: &[u8], workload: &Workload) -> bool {
        let Some((head, content)) = split(bytes) else { return false };
        let is_last = content.is_empty();
        let Ok(id) = self.connection.send_request(&head, is_last, &mut self.out) else {
            return false;
        };
        let expect = workload.message(sent.request.message).expect.as_deref();
        self.in_flight.push_back(Stream {
            id,
            sent,
            unsent_content: content.len(),
            awaits_first_byte: true,
            reply: CompleteReply::default(),
            check: expect.map(ReplyCheck::new),
        });
        if !is_last {
            self.connection.wait_for_turn(id);
            self.send_content(workload);
        }
        true
    }

    /// Appends content of requests to the frames, as far as windows and the transport permit.
    pub(crate) fn send_content(&mut self, workload: &Workload) {
        while self.pending_sends == 0
            && self.out.len() < MAX_CONTENT_AHEAD
            && let Some(id) = self.connection.next_writable()
        {
            let Some(index) = self.position(id) else { return };
            let stream = &mut self.in_flight[index];
            let bytes = &workload.message(stream.sent.request.message).bytes;
            let sent = bytes.len().saturating_sub(stream.unsent_content);
            let content = bytes.get(sent..).unwrap_or_default();
            let room = MAX_CONTENT_AHEAD - self.out.len();
            let piece = content.get(..room).unwrap_or(content);
            let is_last = piece.len() == content.len();
            let count = self.connection.send_data(id, piece, is_last, &mut self.out);
            stream.unsent_content -= count;
            if !is_last {
                self.connection.wait_for_turn(id);
            }
        }
    }

    /// Returns the request in flight on a stream.
    pub(crate) fn get(&mut self, id: StreamId) -> Option<&mut Stream> {
        let index = self.position(id)?;
        self.in_flight.get_mut(index)
    }

    /// Removes the request that has ended on a stream. Ends the stream if content of the request
    /// remains.
    pub(crate) fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let stream = self.in_flight.remove(self.position(id)?)?;
        if stream.unsent_content > 0 {
            self.connection.reset(id, ErrorCode::CANCEL, &mut self.out);
        }
        Some(stream)
    }

    /// Removes the requests in flight for which `is_expired` returns true and ends their streams. Passes
    /// each to `expired`.
    pub(crate) fn cancel(
        &mut self,
        is_expired: impl Fn(&Stream) -> bool,
        mut expired: impl FnMut(Stream),
    ) {
        let (before, mut left) = (mem::take(&mut self.in_flight), VecDeque::new());
        for stream in before {
            if is_expired(&stream) {
                self.connection.reset(stream.id, ErrorCode::CANCEL, &mut self.out);
                expired(stream);
            } else {
                left.push_back(stream);
            }
        }
        self.in_flight = left;
    }

    /// Returns the earliest of the times that `deadline` and `waiting` return for the requests.
    pub(crate) fn next_deadline(
        &self,
        deadline: impl Fn(&Stream) -> Time,
        waiting: impl Fn(&WaitingRequest) -> Time,
    ) -> Option<Time> {
        let in_flight = self.in_flight.iter().map(deadline);
        in_flight.chain(self.waiting.iter().map(waiting)).min()
    }

    fn position(&self, id: StreamId) -> Option<usize> {
        // Most replies arrive in the order of the requests.
        match self.in_flight.front() {
            Some(first) if first.id == id => Some(0),
            _ => self.in_flight.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }
}

/// Splits an encoded request into its head and its content.
fn split(bytes: &[u8]) -> Option<(Head<'_>, &[u8])> {
    let head = RequestParser::new().parse(bytes, &NO_LIMITS).ok().flatten()?;
    let content = bytes.get(head.head_len..)?;
    Some((head, content))
}

/// Checks that all requests of a workload can be sent on streams.
pub(crate) fn check(workload: &Workload) -> Result<(), LoadError> {
    let can_be_sent =
        |message: &Message| split(&message.bytes).is_some_and(|(head, _)| head.upgrade().is_none());
    match workload.messages().iter().all(can_be_sent) {
        true => Ok(()),
        false => Err(LoadError::Config(
            "a request is not valid in HTTP/2; omit the Upgrade field, and check the fields Host and \
             Connection",
        )),
    }
}
