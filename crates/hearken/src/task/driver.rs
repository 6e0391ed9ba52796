//! Access to the `Io` below: for protocol engines that operate connections by their tokens.
//!
//! An engine without I/O of its own, such as the front of a server, needs the operations of an `Io`
//! and its completions. [`IoHandle::with`] lends the `Io` with its type. [`Completions`] passes the
//! completions of one connection to its task as they are.

use std::fmt;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll};

use super::connection::Connection;
use super::core::{self, Core, SharedCore, State, Unclaimed};
use super::source::Flags;
use super::stream::Stream;
use crate::event::Token;
use crate::io::{Buffer, Completion, CompletionKind, Relay};

/// A handle by which tasks use the `Io` of their executor.
pub struct IoHandle<I>(Rc<Core<I>>);

impl<I: Relay + 'static> IoHandle<I> {
    pub(super) fn new(core: Rc<Core<I>>) -> IoHandle<I> {
        IoHandle(core)
    }

    /// Calls a function with the `Io`.
    ///
    /// The function must not use streams, listeners or timers, nor drop them: they panic. The
    /// caller operates only connections whose completions it takes by
    /// [`Completions`] or [`unclaimed`](IoHandle::unclaimed).
    #[inline]
    pub fn with<R>(&self, call: impl FnOnce(&mut I) -> R) -> R {
        call(&mut self.0.state.borrow_mut().io)
    }

    /// Takes over a connection or listener of the `Io`, whose completions the caller receives from
    /// now on. It closes when the result is dropped, except after [`end`](IoHandle::end).
    pub fn adopt(&self, token: Token) -> Completions {
        let connection = Connection::new(self.0.clone(), token, Flags::TAKES_COMPLETIONS);
        Completions { connection }
    }

    /// Ends the [`Completions`] of a connection that was closed by its token, or that the `Io`
    /// closes. Those that are stored are dropped.
    pub fn end(&self, token: Token) {
        let State { sources, foreign, .. } = &mut *self.0.state.borrow_mut();
        if let Some(source) = sources.get(token) {
            source.flags.insert(Flags::CLOSED);
            source.wake_reader(foreign);
        }
    }

    /// Passes a completion to the [`Completions`] of a connection, after those that are stored. An
    /// engine can so continue a connection in its own task.
    pub fn pass(&self, token: Token, kind: CompletionKind) {
        let State { sources, foreign, .. } = &mut *self.0.state.borrow_mut();
        if let Some(source) = sources.get(token) {
            source.extra().completions.push_back(kind);
            source.wake_reader(foreign);
        }
    }

    /// Returns the completions of tokens that belong to no stream, listener or [`Completions`], and
    /// [`Woken`](CompletionKind::Woken). Without the result they are discarded. There is one at a
    /// time: another replaces it.
    pub fn unclaimed(&self) -> UnclaimedCompletions {
        self.0.state.borrow_mut().unclaimed = Some(Unclaimed::default());
        UnclaimedCompletions(self.0.clone())
    }
}

impl<I> Clone for IoHandle<I> {
    fn clone(&self) -> IoHandle<I> {
        IoHandle(Rc::clone(&self.0))
    }
}

impl<I> fmt::Debug for IoHandle<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IoHandle").field(&self.0).finish()
    }
}

/// The completions that concern no stream, listener or [`Completions`].
#[derive(Debug)]
pub struct UnclaimedCompletions(SharedCore);

impl UnclaimedCompletions {
    /// Removes and returns the next completion that has arrived.
    #[inline]
    pub fn take(&mut self) -> Option<Completion> {
        let mut state = self.0.state.borrow_mut();
        state.unclaimed.as_mut().and_then(|unclaimed| unclaimed.completions.pop_front())
    }

    /// Waits for the next completion. Dropping the future loses none.
    pub async fn next(&mut self) -> Completion {
        poll_fn(|context| {
            let State { unclaimed, foreign, .. } = &mut *self.0.state.borrow_mut();
            let unclaimed = unclaimed.get_or_insert_default();
            match unclaimed.completions.pop_front() {
                Some(completion) => Poll::Ready(completion),
                None => {
                    core::register(&mut unclaimed.taker, context, foreign);
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for UnclaimedCompletions {
    fn drop(&mut self) {
        let mut state = self.0.state.borrow_mut();
        let mut unclaimed = state.unclaimed.take();
        while let Some(unclaimed) = &mut unclaimed
            && let Some(completion) = unclaimed.completions.pop_front()
        {
            state.discard(&completion.kind);
        }
        drop(state);
        // Its waker may be foreign.
        drop(unclaimed);
    }
}

/// The completions of a connection or listener, as its `Io` yields them.
///
/// A completion is passed on directly if its task takes it before the next one, and stored
/// otherwise. Buffers that are stored take no place in the pool. The task decides when to
/// [start](crate::io::Io::start) and [stop](crate::io::Io::stop) receiving.
#[derive(Debug)]
pub struct Completions {
    connection: Connection,
}

impl Completions {
    /// Returns the token of the connection.
    pub fn token(&self) -> Token {
        self.connection.token
    }

    /// Waits for the next completion. Returns `None` after [`IoHandle::end`], and after the place of
    /// the closed connection was taken by another. Dropping the future loses no completion.
    // An `async fn` would add its states to those of the task.
    #[inline]
    pub fn next(&self) -> impl Future<Output = Option<CompletionKind>> {
        poll_fn(|context| self.poll_next(context))
    }

    /// Waits for the next completion like [`next`](Completions::next).
    #[inline]
    pub fn poll_next(&self, context: &Context<'_>) -> Poll<Option<CompletionKind>> {
        let token = self.connection.token;
        let state = &mut *self.connection.core.state.borrow_mut();
        let State { sources, foreign, current, .. } = state;
        let Some(source) = sources.get(token) else { return Poll::Ready(None) };
        if source.flags.contains(Flags::CLOSED) {
            return Poll::Ready(None);
        }
        if let Some(kind) = source.take_extra(|extra| extra.completions.pop_front()) {
            return Poll::Ready(Some(kind));
        }
        if let Some(completion) = current.take_if(|completion| completion.token == token) {
            return Poll::Ready(Some(completion.kind));
        }
        source.wait_to_read(context, foreign)
    }
}

impl<N> Stream<N> {
    /// Returns the completions of the connection, for a task that operates it through an
    /// [`IoHandle`]. Bytes that the stream has received come first. Other clones must not be used.
    pub fn into_completions(self) -> Completions {
        let connection = self.connection().clone();
        if let Some(source) = connection.core.state.borrow_mut().sources.get(connection.token) {
            source.flags.insert(Flags::TAKES_COMPLETIONS);
            let received: Buffer = std::mem::take(&mut source.received);
            if !received.is_empty() {
                source.extra().completions.push_back(CompletionKind::Received(received));
            }
            if source.flags.contains(Flags::ENDED) {
                source.extra().completions.push_back(CompletionKind::End);
            }
        }
        Completions { connection }
    }
}
