//! The handler that forwards requests to other servers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hearken::io::{Completion, CompletionKind, Relay};
use hearken::timer::Time;
use hearken_http::forward::{self, Rules};
use hearken_http::{Method, Request, Target};

use super::config::Config;
use super::destination::Destination;
use super::exchange::{Attempt, Exchanges, State};
use super::http2::Http2;
use super::upstream::{Connections, Flags, IdleLifetimes};
use crate::front::{Context, Deferred, Flow, Handled, Handler, Incoming, RequestId};
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::{self, Error};

/// The handler of a proxy, for one worker.
pub(crate) struct Proxy {
    pub(super) config: Arc<Config>,
    pub(super) rules: Rules,
    pub(super) destination: Destination,
    pub(super) upstreams: Connections,
    pub(super) http2: Http2,
    pub(super) lifetimes: IdleLifetimes,
    pub(super) exchanges: Exchanges,
    /// Requests that wait for a server, oldest first. May contain requests that have ended.
    pub(super) queue: VecDeque<(u32, RequestId)>,
    /// Upper bound of the number of queue entries whose requests have ended.
    pub(super) stale_entries: usize,
    /// Pending tasks.
    pub(super) ready: VecDeque<Task>,
    pub(super) metrics: Arc<metrics::WorkerMetrics>,
    /// The route that selects the handler.
    pub(super) route: u32,
    /// Buffer for outgoing messages.
    pub(super) out: Vec<u8>,
    pub(super) stopping: bool,
    /// Number of TLS settings that precede those of this proxy in the list of the worker.
    pub(super) tls_offset: u32,
    /// Usage of the workers and the index of this one, if the proxy is simulated.
    #[cfg(feature = "simulation")]
    pub(super) usage: Option<(super::simulation::SharedUsage, usize)>,
}

/// A task to perform after the current event is handled, which avoids recursion.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Select a server for a request.
    Route(u32, RequestId),
    /// Connect to the next address of a request to a forward proxy.
    NextAddress(u32, RequestId),
    /// Select servers for queued requests.
    ServeQueue,
}

pub(super) type Cx<'a, I> = Context<'a, I>;

impl Proxy {
    pub(crate) fn new(
        config: Arc<Config>,
        destination: Destination,
        metrics: Arc<metrics::WorkerMetrics>,
        route: u32,
    ) -> Proxy {
        let fields = &config.fields;
        Proxy {
            rules: Rules::new(
                &fields.via,
                fields.x_forwarded,
                fields.forwarded,
                fields.preserve_host,
            )
            .with_hop_count()
            .with_client_subject(fields.client_subject.as_deref().unwrap_or_default())
            .with_hsts(fields.hsts),
            upstreams: destination.connections(),
            http2: Http2::new(&config, destination.servers()),
            lifetimes: IdleLifetimes::new(destination.servers()),
            destination,
            exchanges: Exchanges::default(),
            queue: VecDeque::new(),
            stale_entries: 0,
            ready: VecDeque::new(),
            metrics,
            route,
            out: Vec::new(),
            stopping: false,
            tls_offset: 0,
            #[cfg(feature = "simulation")]
            usage: None,
            config,
        }
    }

    #[inline]
    pub(super) fn metrics(&self) -> &metrics::WorkerMetrics {
        &self.metrics
    }

    /// Performs pending tasks.
    #[inline(always)]
    fn run_ready<I: Relay>(&mut self, cx: &mut Cx<'_, I>) {
        if !self.ready.is_empty() {
            self.run_tasks(cx);
        }
    }

    #[inline(never)]
    fn run_tasks<I: Relay>(&mut self, cx: &mut Cx<'_, I>) {
        while let Some(task) = self.ready.pop_front() {
            match task {
                Task::Route(key, id) => {
                    if self.is_routing(key, id) {
                        self.find_server(cx, key, None);
                    }
                }
                Task::NextAddress(key, id) => {
                    if self.is_routing(key, id) {
                        self.connect_next(cx, key);
                    }
                }
                Task::ServeQueue => self.serve_queue(cx),
            }
        }
    }

    fn is_routing(&self, key: u32, id: RequestId) -> bool {
        let exchange = &self.exchanges[key];
        exchange.id == id && matches!(exchange.state, State::Routing)
    }

    /// Returns whether to forward a request. Answers it if the proxy itself is its recipient.
    #[cold]
    fn should_forward<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        request: &Request<'_>,
    ) -> bool {
        let is_forward_proxy = self.destination.is_forward();
        let (status, reason) = match request.method {
            Method::Connect if !is_forward_proxy => {
                (405, "CONNECT is not supported by a reverse proxy")
            }
            Method::Connect if request.body != hearken_http::Body::None => {
                (400, "a CONNECT request must not have a body")
            }
            Method::Connect => return true,
            // RFC 9110 section 7.6.2. The request is not echoed, because it may contain secrets.
            Method::Trace if forward::max_forwards(request) == Some(0) => {
                (405, "TRACE is not supported")
            }
            _ if forward::max_forwards(request) == Some(0) => (200, ""),
            _ if matches!(request.target(), Target::Asterisk) && is_forward_proxy => {
                (400, "the request target does not name a server")
            }
            _ => return true,
        };
        let outcome = if status == 200 { Outcome::Complete } else { Outcome::Rejected };
        self.respond_error(cx, key, status, reason, outcome);
        false
    }
}

impl<I: Relay> Handler<I> for Proxy {
    const CONNECTS: bool = true;

    #[inline]
    fn on_request(&mut self, incoming: Incoming<'_, I>, request: &Request<'_>) -> Handled {
        let key = self.exchanges.reserve();
        let limit = self.config.max_body_bytes.unwrap_or(u64::MAX);
        let (mut cx, id) = match incoming.defer(request, key, limit) {
            Ok(deferred) => deferred,
            Err(handled) => {
                self.exchanges.end(key);
                return handled;
            }
        };
        let cx = &mut cx;
        let now = cx.io.now();
        self.exchanges.begin(key, id, request, now);
        let timeout = self.config.timeouts.request;
        if !timeout.is_zero() {
            cx.front.set_request_deadline(cx.io, id, now + timeout);
        }
        if forward::is_loop(&self.rules, request) {
            self.metrics().record_error(Error::Loop);
            self.respond_error(cx, key, 508, "forwarding loop detected", Outcome::Rejected);
        } else if !matches!(request.method, Method::Options | Method::Trace | Method::Connect)
            || self.should_forward(cx, key, request)
        {
            self.find_server(cx, key, Some(request));
        }
        self.run_ready(cx);
        Handled::Deferred
    }

    fn on_body(&mut self, cx: &mut Cx<'_, I>, request: Deferred, bytes: &[u8]) -> Flow {
        let flow = self.upload(cx, request.key, bytes);
        self.run_ready(cx);
        flow
    }

    fn on_relay_started(&mut self, cx: &mut Cx<'_, I>, request: Deferred) {
        self.update_upstream_deadline(cx, request.key);
    }

    fn on_relay_failed(&mut self, cx: &mut Cx<'_, I>, request: Deferred) {
        if let Some(attempt) = self.exchanges[request.key].state.attempt() {
            self.on_send_failed(cx, attempt.connection);
        }
        self.run_ready(cx);
    }

    fn on_tunnel_ended(&mut self, cx: &mut Cx<'_, I>, request: Deferred) {
        self.on_client_ended_tunnel(cx, request.key);
        self.run_ready(cx);
    }

    fn on_drained(&mut self, cx: &mut Cx<'_, I>, request: Deferred) {
        self.on_client_drained(cx, request.key);
        self.run_ready(cx);
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, I>, request: Deferred) {
        self.on_request_timer(cx, request.key);
        self.run_ready(cx);
    }

    fn on_cancelled(&mut self, cx: &mut Cx<'_, I>, request: Deferred) {
        self.cancel(cx, request.key);
        self.run_ready(cx);
    }

    #[inline]
    fn on_own_received(&mut self, cx: &mut Cx<'_, I>, (key, _): (u32, u32), bytes: &[u8]) {
        self.on_received(cx, key, bytes);
        self.run_ready(cx);
    }

    fn on_own_completion(
        &mut self,
        cx: &mut Cx<'_, I>,
        (key, _): (u32, u32),
        completion: Completion,
    ) {
        match completion.kind {
            CompletionKind::Sent(Ok(())) => self.on_sent(cx, key),
            CompletionKind::Sent(Err(_)) => self.on_send_failed(cx, key),
            CompletionKind::Connected(result) => self.on_connected(cx, key, result),
            CompletionKind::End => self.on_end(cx, key),
            CompletionKind::ReceiveFailed(error) => self.on_receive_failed(cx, key, &error),
            CompletionKind::Relayed { moved, ended } => self.on_relayed(cx, key, moved, ended),
            CompletionKind::Deadline => self.on_deadline(cx, key),
            _ => {}
        }
        self.run_ready(cx);
    }

    #[cold]
    fn on_woken(&mut self, cx: &mut Cx<'_, I>) {
        self.on_names_resolved(cx);
        self.run_ready(cx);
    }

    #[inline]
    fn has_pending(&self) -> bool {
        self.http2.has_pending()
    }

    fn flush(&mut self, cx: &mut Cx<'_, I>) {
        self.flush_http2(cx);
        self.run_ready(cx);
    }

    #[cfg(feature = "simulation")]
    fn end_turn(&mut self, _: Time) -> Option<Time> {
        self.record_usage();
        None
    }

    fn tick(&mut self, cx: &mut Cx<'_, I>) -> bool {
        // A server may have recovered.
        self.serve_queue(cx);
        self.run_ready(cx);
        let metrics = self.metrics();
        metrics.requests_queued.set(self.queue.len());
        let idle = self.upstreams.count_idle() + self.http2.count_idle();
        metrics.upstream_connections_idle.set(idle);
        !self.queue.is_empty()
    }

    fn close_idle(&mut self, cx: &mut Cx<'_, I>) {
        self.stopping = true;
        for key in self.upstreams.idle() {
            self.close(cx, key);
        }
    }
}

impl Proxy {
    /// Removes and closes an upstream connection, or removes and ends a stream.
    pub(super) fn close<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        if self.upstreams[key].flags.intersects(Flags::STREAM | Flags::HTTP2) {
            return self.close_http2(cx, key);
        }
        cx.front.close_handler(cx.io, self.upstreams[key].token);
        self.upstreams.remove(key);
    }

    /// Pauses receiving from a server.
    pub(super) fn pause<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let connection = &mut self.upstreams[key];
        if !connection.flags.contains(Flags::PAUSED) {
            connection.flags.insert(Flags::PAUSED);
            // A stream is paused by its window.
            if !connection.flags.contains(Flags::STREAM) {
                cx.io.stop(connection.token);
            }
        }
    }

    /// Pauses receiving from the servers whose responses a client takes too slowly.
    #[cold]
    pub(super) fn pause_others<I: Relay>(&mut self, cx: &mut Cx<'_, I>, id: RequestId) {
        for Deferred { key, .. } in cx.front.hold_back(id) {
            let state = &self.exchanges[key].state;
            if let Some(&Attempt { connection, .. }) = state.attempt()
                && !matches!(state, State::Connecting(_))
            {
                self.pause(cx, connection);
                self.update_upstream_deadline(cx, key);
            }
        }
    }

    /// Resumes receiving from a server, unless the transport relays its bytes.
    #[inline]
    pub(super) fn resume<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let connection = &mut self.upstreams[key];
        if connection.flags & (Flags::PAUSED | Flags::RELAYED) == Flags::PAUSED {
            connection.flags.remove(Flags::PAUSED);
            match connection.flags.contains(Flags::STREAM) {
                true => self.resume_stream(key),
                false => cx.io.start(connection.token),
            }
        }
    }

    /// Sends bytes to a server. Returns whether the send is complete.
    #[inline]
    pub(super) fn send<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        if self.upstreams[key].flags.contains(Flags::STREAM) {
            return self.write_stream(key, bytes);
        }
        self.write_connection(cx, key, bytes)
    }

    /// Sends bytes on a connection that is not a stream. Returns whether the send is complete.
    #[inline]
    fn write_connection<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, bytes: &[u8]) -> bool {
        let connection = &mut self.upstreams[key];
        self.metrics.bytes_sent_upstream.add(bytes.len() as u64);
        let taken = cx.io.send_now(connection.token, bytes);
        if !taken {
            connection.sends = connection.sends.saturating_add(1);
        }
        taken
    }

    /// Sends the buffered message to a server, on a stream or on a connection. Returns whether the send is
    /// complete.
    #[inline]
    pub(super) fn send_buffered<I: Relay, const STREAM: bool>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
    ) -> bool {
        let mut out = std::mem::take(&mut self.out);
        let taken = match STREAM {
            true => self.write_stream(key, &out),
            false => self.write_connection(cx, key, &out),
        };
        out.clear();
        self.out = out;
        taken
    }

    /// Returns the time for which an idle upstream connection stays open.
    pub(super) fn idle_timeout(&self, announced: Option<Duration>) -> Duration {
        let timeout = self.config.timeouts.keepalive;
        announced.map_or(timeout, |announced| announced.min(timeout))
    }

    /// Returns the start time of the turn.
    #[inline]
    pub(super) fn now<I: Relay>(cx: &Cx<'_, I>) -> Time {
        cx.io.now()
    }
}
