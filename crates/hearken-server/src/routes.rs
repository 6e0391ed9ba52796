//! The handler that selects another handler by the path of a request.

use hearken::io::{Completion, Relay};
use hearken::timer::Time;
use hearken_http::Request;
use hearken_http::path::resolve;

use crate::front::{Context, Deferred, Flow, Handled, Handler, Incoming};
use crate::proxy::Proxy;
use crate::static_files::handler::StaticFiles;
use crate::static_files::{Disk, Files};

/// Handlers and the path prefixes that select them.
pub(crate) struct Routes<F: Files = Disk> {
    /// Prefixes without the first slash, longest first, with the indices of their handlers.
    prefixes: Vec<(Box<[u8]>, u32)>,
    handlers: Vec<Selected<F>>,
    /// Whether there is only one route, for all paths.
    is_single: bool,
    /// Buffer for the normalised path of a request.
    path: Vec<u8>,
}

/// A handler that can be selected.
pub(crate) enum Selected<F: Files = Disk> {
    StaticFiles(Box<StaticFiles<F>>),
    Proxy(Box<Proxy>),
}

macro_rules! dispatch {
    ($selected:expr, $handler:ident => $call:expr) => {
        match $selected {
            Selected::StaticFiles($handler) => $call,
            Selected::Proxy($handler) => $call,
        }
    };
}

impl<F: Files> Routes<F> {
    /// Creates routes from path prefixes and their handlers.
    pub(crate) fn new(routes: Vec<(String, Selected<F>)>) -> Routes<F> {
        let mut prefixes = Vec::new();
        let mut handlers = Vec::new();
        for (number, (prefix, handler)) in routes.into_iter().enumerate() {
            let prefix = prefix.strip_prefix('/').unwrap_or(&prefix);
            prefixes.push((prefix.as_bytes().into(), number as u32));
            handlers.push(handler);
        }
        prefixes.sort_by_key(|(prefix, _): &(Box<[u8]>, u32)| std::cmp::Reverse(prefix.len()));
        let is_single = matches!(&*prefixes, [(prefix, _)] if prefix.is_empty());
        Routes { prefixes, handlers, is_single, path: Vec::new() }
    }

    /// Selects a handler by the normalised path, so that all spellings of a path select the same.
    /// Requests without a path, or with a malformed one, match only the prefix `/`.
    #[inline(never)]
    fn select(&mut self, request: &Request<'_>) -> Option<u32> {
        let target = request.target();
        let resolved = target.path_and_query().map(|(raw, _)| resolve(raw, &mut self.path));
        let is_directory = match resolved {
            Some(Ok(safe)) => safe.trailing_slash && !safe.path.is_empty(),
            _ => {
                self.path.clear();
                false
            }
        };
        if is_directory {
            self.path.push(b'/');
        }
        let matches = |(prefix, _): &&(Box<[u8]>, u32)| self.path.starts_with(prefix);
        self.prefixes.iter().find(matches).map(|(_, number)| *number)
    }
}

impl<I: Relay, F: Files> Handler<I> for Routes<F> {
    const CONNECTS: bool = true;

    #[inline]
    fn on_request(&mut self, mut incoming: Incoming<'_, I>, request: &Request<'_>) -> Handled {
        // A single handler for all paths is by far the most common.
        if !self.is_single {
            match self.select(request) {
                Some(route) => incoming.route = route,
                None => {
                    return incoming.respond_error(request, 404, "no handler for this path");
                }
            }
        }
        match self.handlers.get_mut(incoming.route as usize) {
            Some(handler) => dispatch!(handler, it => it.on_request(incoming, request)),
            None => Handled::Stop,
        }
    }

    fn on_body(&mut self, cx: &mut Context<'_, I>, request: Deferred, bytes: &[u8]) -> Flow {
        match self.handlers.get_mut(request.route as usize) {
            Some(handler) => dispatch!(handler, it => it.on_body(cx, request, bytes)),
            None => Flow::Continue,
        }
    }

    fn on_relay_started(&mut self, cx: &mut Context<'_, I>, request: Deferred) {
        if let Some(handler) = self.handlers.get_mut(request.route as usize) {
            dispatch!(handler, it => it.on_relay_started(cx, request));
        }
    }

    fn on_relay_failed(&mut self, cx: &mut Context<'_, I>, request: Deferred) {
        if let Some(handler) = self.handlers.get_mut(request.route as usize) {
            dispatch!(handler, it => it.on_relay_failed(cx, request));
        }
    }

    fn on_tunnel_ended(&mut self, cx: &mut Context<'_, I>, request: Deferred) {
        if let Some(handler) = self.handlers.get_mut(request.route as usize) {
            dispatch!(handler, it => it.on_tunnel_ended(cx, request));
        }
    }

    fn on_drained(&mut self, cx: &mut Context<'_, I>, request: Deferred) {
        if let Some(handler) = self.handlers.get_mut(request.route as usize) {
            dispatch!(handler, it => it.on_drained(cx, request));
        }
    }

    fn on_timer(&mut self, cx: &mut Context<'_, I>, request: Deferred) {
        if let Some(handler) = self.handlers.get_mut(request.route as usize) {
            dispatch!(handler, it => it.on_timer(cx, request));
        }
    }

    fn on_cancelled(&mut self, cx: &mut Context<'_, I>, request: Deferred) {
        if let Some(handler) = self.handlers.get_mut(request.route as usize) {
            dispatch!(handler, it => it.on_cancelled(cx, request));
        }
    }

    #[inline]
    fn on_own_received(&mut self, cx: &mut Context<'_, I>, owner: (u32, u32), bytes: &[u8]) {
        if let Some(handler) = self.handlers.get_mut(owner.1 as usize) {
            dispatch!(handler, it => it.on_own_received(cx, owner, bytes));
        }
    }

    fn on_own_completion(
        &mut self,
        cx: &mut Context<'_, I>,
        owner: (u32, u32),
        completion: Completion,
    ) {
        if let Some(handler) = self.handlers.get_mut(owner.1 as usize) {
            dispatch!(handler, it => it.on_own_completion(cx, owner, completion));
        }
    }

    fn on_woken(&mut self, cx: &mut Context<'_, I>) {
        for handler in &mut self.handlers {
            dispatch!(handler, it => it.on_woken(cx));
        }
    }

    fn has_pending(&self) -> bool {
        let has_pending =
            |handler: &Selected<F>| dispatch!(handler, it => Handler::<I>::has_pending(&**it));
        self.handlers.iter().any(has_pending)
    }

    fn flush(&mut self, cx: &mut Context<'_, I>) {
        for handler in &mut self.handlers {
            dispatch!(handler, it => it.flush(cx));
        }
    }

    fn begin_turn(&mut self, now: Time) {
        for handler in &mut self.handlers {
            dispatch!(handler, it => Handler::<I>::begin_turn(&mut **it, now));
        }
    }

    fn end_turn(&mut self, now: Time) -> Option<Time> {
        let next = |handler: &mut Selected<F>| dispatch!(handler, it => Handler::<I>::end_turn(&mut **it, now));
        self.handlers.iter_mut().filter_map(next).min()
    }

    fn tick(&mut self, cx: &mut Context<'_, I>) -> bool {
        let mut again = false;
        for handler in &mut self.handlers {
            again |= dispatch!(handler, it => it.tick(cx));
        }
        again
    }

    fn close_idle(&mut self, cx: &mut Context<'_, I>) {
        for handler in &mut self.handlers {
            dispatch!(handler, it => it.close_idle(cx));
        }
    }
}
