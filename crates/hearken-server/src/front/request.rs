//! Requests in progress, from the first byte of the request to the end of the response.

use std::time::Duration;

use hearken::Token;
use hearken::timer::Time;
use hearken_http::forward::Relay;
use hearken_http::{BodyReader, Request, RequestParser, RequestParts, Version};

use crate::runtime::access_log::Outcome;

/// Maximum capacity in bytes of a buffer that is retained for the next request.
const MAX_RETAINED_BYTES: usize = 16 * 1024;

/// The identifier of a request in progress. A connection may have several requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestId {
    index: u32,
    serial: u32,
}

impl RequestId {
    /// Returns the identifier as a number.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.index)
    }

    /// Creates the identifier from its number.
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
    /// Receiving a body that is discarded before the handler gets the request.
    Body,
    /// The handler responds.
    Handler,
    /// The handler has finished, and the rest of the response is being sent.
    Sending,
    /// Bytes pass in both directions, after CONNECT or a protocol upgrade.
    Tunnel,
}

/// The body of a request that a handler receives in pieces.
#[derive(Debug)]
pub(super) enum Upload {
    /// The complete body was passed to the handler, or there is none.
    Done,
    /// The rest is received. It is passed to the handler after the handler has started the body.
    Flowing { relay: Relay, started: bool },
    /// The rest is discarded with the connection.
    Dropped,
}

/// The event of a client that the front waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    Nothing,
    Head,
    Body,
    Send,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct Facts: u16 {
        /// The client requested a persistent connection.
        const KEEP_ALIVE = 1;
        /// The client waits for 100 (Continue) before it sends the body.
        const EXPECTS_CONTINUE = 2;
        /// The end of the connection delimits the response.
        const UNTIL_CLOSE = 4;
        /// The response has begun.
        const RESPONDING = 8;
        /// The method is HEAD.
        const HEAD = 16;
        /// The transport relays the response.
        const RELAYED = 32;
        /// Part of the body was passed to the handler.
        const UPLOADED = 64;
        /// The response was counted.
        const COUNTED = 128;
        /// The request is a stream of an HTTP/2 connection.
        const STREAM = 256;
    }
}

/// A request in progress. Its memory is reused.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    pub(super) token: Token,
    pub(super) serial: u32,
    pub(super) stage: Stage,
    /// The route of the handler, and the handler's key.
    pub(super) route: u32,
    pub(super) key: u32,
    /// Parser of an incomplete head.
    pub(super) parser: RequestParser,
    /// Received bytes that were not used yet.
    pub(super) received: Vec<u8>,
    /// The head as received, and its parsed parts.
    pub(super) head: Vec<u8>,
    pub(super) parts: Option<RequestParts>,
    pub(super) version: Version,
    pub(super) facts: Facts,
    pub(super) upload: Upload,
    /// The body that is being discarded.
    pub(super) discard: Option<BodyReader>,
    /// Start time of the request.
    pub(super) started_at: Time,
    /// Deadlines of the request and of its body.
    pub(super) deadline: Option<Time>,
    pub(super) body_deadline: Option<Time>,
    /// Deadline set by the handler.
    pub(super) timer: Option<Time>,
    pub(super) wait: Wait,
    pub(super) wait_deadline: Option<Time>,
    /// The connection that the body is relayed to.
    pub(super) relay_to: Option<Token>,
    /// Number of bytes of the request body, and of the response body.
    pub(super) uploaded: u64,
    pub(super) sent: u64,
    /// Number of bytes that the client must have acknowledged, and sent, at the next rate check.
    pub(super) min_acknowledged: Option<u64>,
    pub(super) min_uploaded: Option<u64>,
    pub(super) status: u16,
    /// Reason of a rejection.
    pub(super) reason: Option<&'static str>,
    /// Outcome of the request.
    pub(super) outcome: Outcome,
    /// Logged data about the upstream server.
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

    /// Ends a request and invalidates its identifier.
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

    /// Returns the number of slots of the table.
    #[cfg(feature = "simulation")]
    pub(super) fn slots(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of buffered bytes of all requests.
    #[cfg(feature = "simulation")]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.all.iter().map(|request| request.received.len() + request.head.len()).sum()
    }

    /// Returns the index of a request that is still in progress.
    #[inline]
    pub(super) fn find(&self, id: RequestId) -> Option<u32> {
        let request = self.all.get(id.index as usize)?;
        // The serial number changes when a request ends.
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

    /// Stores a request with the given head.
    #[inline(always)]
    pub(super) fn store(&mut self, request: &Request<'_>, head: &[u8]) {
        self.head.clear();
        self.head.extend_from_slice(head);
        self.parts = Some(request.parts());
        self.version = request.version;
        let is_head = request.method == hearken_http::Method::Head;
        let facts = (u16::from(request.keep_alive) * Facts::KEEP_ALIVE.bits())
            | (u16::from(request.expect_continue) * Facts::EXPECTS_CONTINUE.bits())
            | (u16::from(is_head) * Facts::HEAD.bits());
        self.facts |= Facts::from_bits_retain(facts);
    }

    /// Returns the stored request.
    #[inline]
    pub(super) fn request(&self) -> Option<Request<'_>> {
        self.parts.map(|parts| parts.request(&self.head))
    }

    /// Returns whether the complete body was received.
    #[inline]
    pub(super) fn is_uploaded(&self) -> bool {
        matches!(self.upload, Upload::Done)
    }

    /// Returns the earliest deadline.
    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let all = [self.wait_deadline, self.timer, self.deadline, self.body_deadline];
        all.into_iter().flatten().min()
    }

    /// Returns whether the request is a stream of an HTTP/2 connection.
    #[inline]
    pub(super) fn is_stream(&self) -> bool {
        self.facts.contains(Facts::STREAM)
    }

    /// Returns whether the client is expected to send more of the body.
    pub(super) fn waits_for_body(&self) -> bool {
        matches!(self.upload, Upload::Flowing { .. })
            && !self.facts.contains(Facts::EXPECTS_CONTINUE)
    }

    /// Resets everything except the buffers.
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

/// The logged data about the upstream server of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamEntry {
    /// Server that responded or failed last.
    pub(crate) upstream: Option<String>,
    /// Number of attempts.
    pub(crate) attempts: u32,
    /// Time in the queue.
    pub(crate) queue_time: Duration,
    /// Time to connect to the server; zero for a reused connection.
    pub(crate) connect_time: Duration,
    /// Time until the head of the response was received.
    pub(crate) header_time: Duration,
}
