//! The streams of a connection.

use super::frame::MAX_WINDOW;
use super::priority::Priority;

/// The identifier of a stream. Identifiers of a connection are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(super) u32);

impl StreamId {
    /// Returns the number in frames.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// A stream that is open in at least one direction.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// Position among the incremental streams that wait.
    pub(super) turn: u32,
    /// Number of bytes that may be sent. Negative after the peer reduced the window.
    pub(super) send_window: i64,
    /// Number of bytes that the peer may send.
    pub(super) receive_window: i64,
    /// Number of bytes that were released but not yet announced to the peer.
    pub(super) released: u32,
    /// Number of content bytes that are still expected.
    pub(super) content_left: Option<u64>,
    pub(super) priority: Priority,
    pub(super) flags: u8,
}

impl Stream {
    /// The peer has ended the stream.
    pub(super) const RECEIVE_ENDED: u8 = 1;
    /// We have ended the stream.
    pub(super) const SEND_ENDED: u8 = 2;
    /// The final head of the response was sent or received.
    pub(super) const RESPONDED: u8 = 4;
    /// Content waits for a window.
    pub(super) const WAITING: u8 = 8;
    /// The request is an extended CONNECT.
    pub(super) const UPGRADE: u8 = 16;
    /// The method of the request is HEAD.
    pub(super) const HEAD: u8 = 32;
    /// The method of the request is CONNECT.
    pub(super) const CONNECT: u8 = 64;

    #[inline(always)]
    pub(super) fn new(id: u32, send_window: u32, receive_window: u32, flags: u8) -> Self {
        Self {
            id,
            turn: 0,
            send_window: send_window.into(),
            receive_window: receive_window.into(),
            released: 0,
            content_left: None,
            priority: Priority::default(),
            flags,
        }
    }

    #[inline(always)]
    pub(super) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn set(&mut self, flag: u8) {
        self.flags |= flag;
    }

    /// Returns whether both sides have ended the stream.
    #[inline(always)]
    pub(super) fn is_finished(&self) -> bool {
        const BOTH: u8 = Stream::RECEIVE_ENDED | Stream::SEND_ENDED;
        self.flags & BOTH == BOTH
    }

    /// Subtracts content from what Content-Length announced. Returns false if they contradict each other.
    pub(super) fn count_content(&mut self, count: u64, is_end: bool) -> bool {
        let Some(left) = &mut self.content_left else { return true };
        match left.checked_sub(count) {
            Some(rest) => {
                *left = rest;
                !is_end || rest == 0
            }
            None => false,
        }
    }
}

/// The streams of a connection in the order of their identifiers.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
    /// Number of streams that wait for a window.
    waiting: u32,
    turn: u32,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a stream, whose identifier is the largest.
    #[inline(always)]
    pub(super) fn push(&mut self, stream: Stream) {
        self.all.push(stream);
    }

    /// Returns the index of a stream.
    #[inline(always)]
    fn position(&self, id: u32) -> Option<usize> {
        // Most operations concern the latest stream.
        match self.all.last() {
            Some(last) if last.id == id => Some(self.all.len() - 1),
            _ => self.all.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }

    #[inline(always)]
    pub(super) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        let position = self.position(id)?;
        self.all.get_mut(position)
    }

    /// Removes a stream and returns it.
    #[inline(always)]
    pub(super) fn remove(&mut self, id: u32) -> Option<Stream> {
        let position = self.position(id)?;
        self.remove_at(position)
    }

    #[inline(always)]
    fn remove_at(&mut self, position: usize) -> Option<Stream> {
        let stream = match position + 1 == self.all.len() {
            true => self.all.pop()?,
            false => self.all.remove(position),
        };
        if stream.is(Stream::WAITING) {
            self.waiting -= 1;
        }
        if self.all.is_empty() && self.all.capacity() > MAX_IDLE_STREAMS {
            self.all = Vec::new();
        }
        Some(stream)
    }

    /// Removes a stream whose identifier is larger than `last` and returns it.
    pub(super) fn remove_after(&mut self, last: u32) -> Option<Stream> {
        match self.all.last() {
            Some(stream) if stream.id > last => self.remove_at(self.all.len() - 1),
            _ => None,
        }
    }

    /// Adds `delta` to the windows for sending. Returns false if one becomes too large.
    pub(super) fn adjust_send_windows(&mut self, delta: i64) -> bool {
        self.all.iter_mut().all(|stream| {
            stream.send_window += delta;
            stream.send_window <= MAX_WINDOW
        })
    }

    /// Adds `delta` to the windows for receiving.
    pub(super) fn adjust_receive_windows(&mut self, delta: i64) {
        for stream in &mut self.all {
            stream.receive_window += delta;
        }
    }

    /// Marks a stream as waiting, behind the others of its priority.
    pub(super) fn wait(&mut self, id: u32) {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        if let Some(stream) = self.get(id) {
            stream.turn = turn;
            if !stream.is(Stream::WAITING) {
                stream.set(Stream::WAITING);
                self.waiting += 1;
            }
        }
    }

    /// Marks a stream as no longer waiting.
    #[inline(always)]
    pub(super) fn stop_waiting(&mut self, id: u32) {
        if self.waiting > 0
            && let Some(stream) = self.get(id)
            && stream.is(Stream::WAITING)
        {
            stream.flags &= !Stream::WAITING;
            self.waiting -= 1;
        }
    }

    /// Returns the number of streams that wait.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Returns the waiting stream that may be sent first (RFC 9218 section 10): the one with the lowest
    /// urgency. Streams that are not incremental precede others, in the order of their identifiers.
    pub(super) fn next_waiting(&self) -> Option<u32> {
        if self.waiting == 0 {
            return None;
        }
        let sendable =
            self.all.iter().filter(|stream| stream.is(Stream::WAITING) && stream.send_window > 0);
        let first = sendable.min_by_key(|stream| {
            let Priority { urgency, incremental } = stream.priority;
            // The distance to the current turn survives an overflow of the counter.
            let order = match incremental {
                true => u32::MAX - self.turn.wrapping_sub(stream.turn),
                false => stream.id,
            };
            (urgency, incremental, order)
        });
        first.map(|stream| stream.id)
    }
}

/// Maximum capacity of the table of an idle connection.
const MAX_IDLE_STREAMS: usize = 4;
