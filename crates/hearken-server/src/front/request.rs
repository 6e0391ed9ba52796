//! Requests in progress: what the front remembers of one from its first byte to the end of its
//! response.

use std::time::Duration;

use hearken::Token;
use hearken::timer::Time;
use hearken_http::forward::Relay;
use hearken_http::{BodyReader, Request, RequestParser, RequestParts, Version};

use crate::runtime::access_log::Outcome;

/// Memory of an ended request that is kept for the next one, in bytes for each buffer.
const MAX_RETAINED_BYTES: usize = 16 * 1024;

/// Identifies a request in progress. One connection may have several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestId {
    index: u32,
    serial: u32,
}

impl RequestId {
    /// Returns the number of the request. No other request in progress has the same.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.index)
    }

    /// Returns the identifier with this number.
    pub(crate) fn from_bits(bits: u64) -> RequestId {
        RequestId { index: bits as u32, serial: (bits >> 32) as u32 }
    }
}

/// The stage of a request in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The table's slot holds no request.
    Free,
    /// Receiving the head.
    Head,
    /// Receiving a body that is discarded before the handler is asked.
    Body,
    /// The handler responds.
    Handler,
    /// The handler is done; the client has yet to take the rest of the response.
    Sending,
    /// Bytes pass in both directions: after CONNECT, or after another protocol was agreed on.
    Tunnel,
}

/// The body of a request that a handler receives in pieces.
#[derive(Debug)]
pub(super) enum Upload {
    /// All of it was passed to the handler, or there is none.
    Done,
    /// The rest is received, and passed to the handler once that has asked for it.
    Flowing { relay: Relay, started: bool },
    /// The rest is discarded with the connection.
    Dropped,
}

/// The event that a client is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    Nothing,
    Head,
    Body,
    Send,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct Facts: u8 {
        /// The client asked for the connection to be kept open.
        const KEEP_ALIVE = 1;
        /// The client waits for 100 before it sends the body.
        const EXPECTS_CONTINUE = 2;
        /// The end of the response is the end of the connection.
        const UNTIL_CLOSE = 4;
        /// The response has begun.
        const RESPONDING = 8;
        /// It is a HEAD request.
        const HEAD = 16;
        /// The transport moves the response to the client without showing it.
        const RELAYED = 32;
        /// Part of the body was passed to the handler.
        const UPLOADED = 64;
        /// The response is counted.
        const COUNTED = 128;
    }
}

/// A request in progress. Its memory is used again for another.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    pub(super) token: Token,
    pub(super) serial: u32,
    pub(super) stage: Stage,
    /// The handler's route, and its own key.
    pub(super) route: u32,
    pub(super) key: u32,
    /// Progress through a head that is incomplete.
    pub(super) parser: RequestParser,
    /// Bytes received and not yet used.
    pub(super) received: Vec<u8>,
    /// The head as it came, and what was parsed of it.
    pub(super) head: Vec<u8>,
    pub(super) parts: Option<RequestParts>,
    pub(super) version: Version,
    pub(super) facts: Facts,
    pub(super) upload: Upload,
    /// The body that is being discarded.
    pub(super) discard: Option<BodyReader>,
    /// When the head was complete, and when the response began.
    pub(super) started_at: Time,
    /// When the request must have ended, and when its body must have come.
    pub(super) deadline: Option<Time>,
    pub(super) body_deadline: Option<Time>,
    /// The handler's own timer.
    pub(super) timer: Option<Time>,
    pub(super) wait: Wait,
    pub(super) wait_deadline: Option<Time>,
    /// The connection that the body is relayed to.
    pub(super) relay_to: Option<Token>,
    /// Bytes of the request's body, and of the response's.
    pub(super) uploaded: u64,
    pub(super) sent: u64,
    /// Bytes that the client must have taken, or sent, when its rate is checked next.
    pub(super) min_acknowledged: Option<u64>,
    pub(super) min_uploaded: Option<u64>,
    pub(super) status: u16,
    /// Why the request was rejected.
    pub(super) reason: Option<&'static str>,
    /// How the request ended.
    pub(super) outcome: Outcome,
    /// What is logged of the upstream server.
    pub(super) upstream: Option<Box<UpstreamEntry>>,
}

/// The requests in progress.
#[derive(Debug, Default)]
pub(super) struct ActiveRequests {
    all: Vec<ActiveRequest>,
    free: Vec<u32>,
}

impl ActiveRequests {
    /// Begins a request on a connection.
    #[inline(always)]
    pub(super) fn begin(&mut self, token: Token, now: Time) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(ActiveRequest::new(token, now));
            self.all.len() as u32 - 1
        });
        let request = &mut self[index];
        request.token = token;
        request.stage = Stage::Head;
        request.started_at = now;
        index
    }

    /// Ends a request. Identifiers of it are no longer valid.
    pub(super) fn end(&mut self, index: u32) {
        let request = &mut self[index];
        request.clear();
        request.stage = Stage::Free;
        for memory in [&mut request.received, &mut request.head] {
            memory.clear();
            if memory.capacity() > MAX_RETAINED_BYTES {
                *memory = Vec::new();
            }
        }
        self.free.push(index);
    }

    /// Returns the number of requests in progress.
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Returns the index of a request that is still in progress.
    #[inline]
    pub(super) fn find(&self, id: RequestId) -> Option<u32> {
        let request = self.all.get(id.index as usize)?;
        // An ended request has another serial number already.
        (request.serial == id.serial).then_some(id.index)
    }

    #[inline]
    pub(super) fn id(&self, index: u32) -> RequestId {
        RequestId { index, serial: self[index].serial }
    }
}

impl std::ops::Index<u32> for ActiveRequests {
    type Output = ActiveRequest;

    #[inline]
    fn index(&self, index: u32) -> &ActiveRequest {
        &self.all[index as usize]
    }
}

impl std::ops::IndexMut<u32> for ActiveRequests {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut ActiveRequest {
        &mut self.all[index as usize]
    }
}

impl ActiveRequest {
    fn new(token: Token, now: Time) -> ActiveRequest {
        ActiveRequest {
            token,
            serial: 0,
            stage: Stage::Free,
            route: 0,
            key: 0,
            parser: RequestParser::new(),
            received: Vec::new(),
            head: Vec::new(),
            parts: None,
            version: Version::Http11,
            facts: Facts::empty(),
            upload: Upload::Done,
            discard: None,
            started_at: now,
            deadline: None,
            body_deadline: None,
            timer: None,
            wait: Wait::Nothing,
            wait_deadline: None,
            relay_to: None,
            uploaded: 0,
            sent: 0,
            min_acknowledged: None,
            min_uploaded: None,
            status: 0,
            reason: None,
            outcome: Outcome::Complete,
            upstream: None,
        }
    }

    /// Keeps a request, whose head is `head`.
    #[inline(always)]
    pub(super) fn store(&mut self, request: &Request<'_>, head: &[u8]) {
        self.head.clear();
        self.head.extend_from_slice(head);
        self.parts = Some(request.parts());
        self.version = request.version;
        let is_head = request.method == hearken_http::Method::Head;
        let facts = (u8::from(request.keep_alive) * Facts::KEEP_ALIVE.bits())
            | (u8::from(request.expect_continue) * Facts::EXPECTS_CONTINUE.bits())
            | (u8::from(is_head) * Facts::HEAD.bits());
        self.facts |= Facts::from_bits_retain(facts);
    }

    /// Returns the request that was kept.
    #[inline]
    pub(super) fn request(&self) -> Option<Request<'_>> {
        self.parts.map(|parts| parts.request(&self.head))
    }

    /// Returns whether all of the body was received.
    #[inline]
    pub(super) fn is_uploaded(&self) -> bool {
        matches!(self.upload, Upload::Done)
    }

    /// Returns whether the client has yet to send part of the body, and knows that it may.
    pub(super) fn waits_for_body(&self) -> bool {
        matches!(self.upload, Upload::Flowing { .. }) && !self.facts.contains(Facts::EXPECTS_CONTINUE)
    }

    /// Forgets everything about the request but its buffers.
    pub(super) fn clear(&mut self) {
        self.serial = self.serial.wrapping_add(1);
        self.parser = RequestParser::new();
        self.parts = None;
        self.version = Version::Http11;
        self.facts = Facts::empty();
        self.upload = Upload::Done;
        self.discard = None;
        self.deadline = None;
        self.body_deadline = None;
        self.timer = None;
        self.wait = Wait::Nothing;
        self.wait_deadline = None;
        self.relay_to = None;
        self.uploaded = 0;
        self.sent = 0;
        self.min_acknowledged = None;
        self.min_uploaded = None;
        self.status = 0;
        self.reason = None;
        self.outcome = Outcome::Complete;
        self.upstream = None;
    }
}

/// What is logged of the upstream server that answered a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamEntry {
    /// The server that responded, or that failed last.
    pub(crate) upstream: Option<String>,
    /// Number of servers tried.
    pub(crate) attempts: u32,
    /// Time in the queue for a server.
    pub(crate) queue_time: Duration,
    /// Time to connect to the server; zero for a reused connection.
    pub(crate) connect_time: Duration,
    /// Time until the response head arrived.
    pub(crate) header_time: Duration,
}
