//! HTTP/2 connections to upstream servers.
//!
//! A stream takes the place of a connection: it is an entry in the table of upstream connections, and an
//! exchange uses it like a connection in HTTP/1.1. Requests are translated from the form of HTTP/1.1, in
//! which they are forwarded, and responses into it. The end of a stream is the end of a connection.
//!
//! | part | contents |
//! |---|---|
//! | `connection` | the state of a connection and of its streams |
//! | `open` | choosing a connection, connecting, requests that wait for it |
//! | `send` | requests as frames |
//! | `receive` | frames of the server: responses, resets, the end of the connection |
//! | `flush` | sends the frames of a turn at once; deadlines; closing |

mod connection;
mod flush;
mod open;
mod receive;
mod send;

use std::sync::Arc;

use hearken::timer::Time;
use hearken_http::h2::{self, HeadBuffer};

use super::config::Config;
use connection::{ServerConnection, Stream};

/// Maximum number of received bytes of a response that wait for the client. The connection's window does
/// not limit streams, so that slow clients do not delay others.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = i32::MAX as u32;
/// Size in bytes of the frames of a connection at which no more content is added to them.
const MAX_OUT: usize = 64 * 1024;
/// Maximum number of requests that wait for a connection to be established.
const MAX_WAITING: usize = 100;

/// The HTTP/2 connections of a proxy in one worker.
pub(super) struct Http2 {
    /// Settings of connections without and with TLS.
    configs: [Arc<h2::Config>; 2],
    /// Connections by their keys.
    connections: Vec<Option<Box<ServerConnection>>>,
    /// Streams by the keys of their entries.
    streams: Vec<Stream>,
    /// Keys of the connections to each server that accept further requests.
    open: Vec<Vec<u32>>,
    /// Whether each server last selected HTTP/1.1 by ALPN. Then requests do not wait for each other.
    selects_http1: Vec<bool>,
    /// Memory for the heads of responses, except while one is processed.
    head: Option<Box<HeadBuffer>>,
    /// Keys of the connections that continue at the end of the turn.
    pending: Vec<u32>,
}

impl Http2 {
    pub(super) fn new(config: &Config, servers: usize) -> Http2 {
        let limits = h2::Limits {
            head: config.limits,
            stream_window: STREAM_WINDOW,
            connection_window: CONNECTION_WINDOW,
            ..h2::Limits::default()
        };
        let config = |is_https| Arc::new(h2::Config { limits, is_https, ..h2::Config::default() });
        Http2 {
            configs: [config(false), config(true)],
            connections: Vec::new(),
            streams: Vec::new(),
            open: vec![Vec::new(); servers],
            selects_http1: vec![false; servers],
            head: None,
            pending: Vec::new(),
        }
    }

    /// Returns whether a connection continues at the end of the turn.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns an upper bound of the number of idle connections.
    pub(super) fn count_idle(&self) -> usize {
        self.connections.iter().flatten().filter(|connection| connection.is_idle()).count()
    }

    fn get(&mut self, key: u32) -> Option<&mut ServerConnection> {
        self.connections.get_mut(key as usize)?.as_deref_mut()
    }

    fn insert(&mut self, key: u32, connection: ServerConnection) {
        let index = key as usize;
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(Box::new(connection));
    }

    /// Removes a connection, whose streams have ended.
    fn remove(&mut self, key: u32) -> Option<Box<ServerConnection>> {
        self.open.iter_mut().for_each(|keys| keys.retain(|&open| open != key));
        self.pending.retain(|&pending| pending != key);
        self.connections.get_mut(key as usize)?.take()
    }

    /// Sends no further requests on a connection.
    fn drain(&mut self, key: u32) {
        if let Some(connection) = self.get(key) {
            connection.is_draining = true;
            self.open.iter_mut().for_each(|keys| keys.retain(|&open| open != key));
            self.mark_pending(key);
        }
    }

    /// Makes a connection continue at the end of the turn.
    fn mark_pending(&mut self, key: u32) {
        if let Some(connection) = self.get(key)
            && !std::mem::replace(&mut connection.is_pending, true)
        {
            self.pending.push(key);
        }
    }

    /// Returns the state of the stream with this key.
    fn stream(&mut self, key: u32) -> &mut Stream {
        let index = key as usize;
        if index >= self.streams.len() {
            self.streams.resize_with(index + 1, Stream::default);
        }
        &mut self.streams[index]
    }

    /// Returns a stream and its connection.
    fn pair(&mut self, key: u32) -> Option<(&mut ServerConnection, &mut Stream)> {
        let stream = self.streams.get_mut(key as usize)?;
        let connection = self.connections.get_mut(stream.connection as usize)?.as_deref_mut()?;
        Some((connection, stream))
    }

    /// Sets the deadline of a stream. Returns the deadline of its connection if that becomes earlier.
    fn set_deadline(&mut self, key: u32, deadline: Option<Time>) -> Option<Time> {
        let (connection, stream) = self.pair(key)?;
        stream.deadline = deadline;
        let deadline = deadline?;
        let is_earlier = connection.deadline.is_none_or(|earliest| deadline < earliest);
        is_earlier.then(|| *connection.deadline.insert(deadline))
    }

    /// Returns the number of buffered bytes of all connections.
    #[cfg(feature = "simulation")]
    pub(super) fn buffered_bytes(&self) -> usize {
        let connections = self.connections.iter().flatten();
        let streams =
            self.streams.iter().map(|stream| stream.pending().len() + stream.received.len());
        connections.map(|connection| connection.buffered_bytes()).chain(streams).sum()
    }
}
