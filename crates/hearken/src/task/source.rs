//! The state of listeners and connections, and how completions change it.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};

use super::core::{self, State};
use crate::event::Token;
use crate::io::{Buffer, Completion, CompletionKind, Relay, RelayEnd};

/// The sources of completions, by the slots of their tokens.
#[derive(Debug, Default)]
pub(super) struct Sources(Vec<Source>);

/// A listener or connection.
#[derive(Debug)]
pub(super) struct Source {
    /// The token, or one that no source has.
    token: Token,
    /// Received bytes that no task has taken.
    pub(super) received: Buffer,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// State that most connections never need.
    extra: Option<Box<Extra>>,
    /// Number of sends that yield a completion, and of their completions.
    pub(super) started_sends: u32,
    pub(super) ended_sends: u32,
    /// Number of handles.
    pub(super) handles: u32,
    pub(super) flags: Flags,
}

#[derive(Debug, Default)]
pub(super) struct Extra {
    /// Accepted connections that no task has taken.
    pub(super) accepted: VecDeque<Token>,
    /// Completions that no task has taken.
    pub(super) completions: VecDeque<CompletionKind>,
    /// The error of a failed accept, connect or receive, if no task knows it yet.
    pub(super) receive_error: Option<io::Error>,
    /// The error of a failed send, if no task knows it yet.
    pub(super) send_error: Option<io::Error>,
    /// The target of the relay that receives from the connection.
    pub(super) relay_target: Option<Token>,
    /// The end of that relay, if no task has taken it.
    pub(super) relay_end: Option<(u64, RelayEnd)>,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct Flags: u16 {
        /// The `Io` accepts or receives.
        const STARTED = 1;
        const CONNECTING = 2;
        /// The end of the stream was received.
        const ENDED = 4;
        /// Connecting or receiving failed.
        const RECEIVE_FAILED = 8;
        const SEND_FAILED = 16;
        /// The deadline passed.
        const EXPIRED = 32;
        /// A task waits for bytes, a connection, or the end of a relay.
        const READER_WAITS = 64;
        /// A task waits for the end of sends, a connect or a relay.
        const WRITER_WAITS = 128;
        /// A relay receives from the connection.
        const RELAY_SOURCE = 256;
        /// A relay sends to the connection.
        const RELAY_TARGET = 512;
        const LISTENER = 1024;
        /// A task takes completions as they are.
        const TAKES_COMPLETIONS = 2048;
        /// The driver has closed the connection.
        const CLOSED = 4096;
    }
}

// Each connection has one.
const _: () = assert!(size_of::<Source>() <= 72);

/// The token of a vacant entry. No socket has it.
const VACANT: Token = Token::from_bits(u64::MAX);

impl Default for Source {
    fn default() -> Source {
        Source {
            token: VACANT,
            received: Buffer::default(),
            reader: None,
            writer: None,
            extra: None,
            started_sends: 0,
            ended_sends: 0,
            handles: 0,
            flags: Flags::empty(),
        }
    }
}

impl Sources {
    /// Adds a source with one handle.
    pub(super) fn insert(&mut self, token: Token, flags: Flags) {
        let slot = token.slot() as usize;
        if slot >= self.0.len() {
            self.0.resize_with(slot + 1, Source::default);
        }
        self.0[slot] = Source { token, flags, handles: 1, ..Source::default() };
    }

    /// Removes a source, and returns it.
    pub(super) fn remove(&mut self, token: Token) -> Option<Source> {
        self.get(token).map(std::mem::take)
    }

    #[inline]
    pub(super) fn get(&mut self, token: Token) -> Option<&mut Source> {
        self.0.get_mut(token.slot() as usize).filter(|source| source.token == token)
    }

    /// Reserves space for a number of sources.
    pub(super) fn reserve(&mut self, count: usize) {
        self.0.reserve_exact(count);
    }

    /// Wakes the tasks that wait for connections.
    pub(super) fn wake_listeners(&mut self, foreign: &mut Vec<Waker>) {
        for source in &mut self.0 {
            if source.flags.contains(Flags::LISTENER) {
                source.wake_reader(foreign);
            }
        }
    }
}

impl Source {
    pub(super) fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Returns a part of the state that most connections never need.
    pub(super) fn take_extra<T>(
        &mut self,
        take: impl FnOnce(&mut Extra) -> Option<T>,
    ) -> Option<T> {
        self.extra.as_mut().and_then(|extra| take(extra))
    }

    /// Returns whether a send has not ended.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        self.started_sends != self.ended_sends
    }

    #[inline]
    pub(super) fn wait_to_read<T>(
        &mut self,
        context: &Context<'_>,
        foreign: &mut Vec<Waker>,
    ) -> Poll<T> {
        self.flags.insert(Flags::READER_WAITS);
        core::register(&mut self.reader, context, foreign);
        Poll::Pending
    }

    #[inline]
    pub(super) fn wait_to_write<T>(
        &mut self,
        context: &Context<'_>,
        foreign: &mut Vec<Waker>,
    ) -> Poll<T> {
        self.flags.insert(Flags::WRITER_WAITS);
        core::register(&mut self.writer, context, foreign);
        Poll::Pending
    }

    #[inline]
    pub(super) fn wake_reader(&mut self, foreign: &mut Vec<Waker>) {
        if self.flags.contains(Flags::READER_WAITS) {
            self.flags.remove(Flags::READER_WAITS);
            core::wake(self.reader.as_ref(), foreign);
        }
    }

    #[inline]
    pub(super) fn wake_writer(&mut self, foreign: &mut Vec<Waker>) {
        if self.flags.contains(Flags::WRITER_WAITS) {
            self.flags.remove(Flags::WRITER_WAITS);
            core::wake(self.writer.as_ref(), foreign);
        }
    }

    /// Returns the error of a failed operation in one direction. Only the first caller learns the
    /// cause.
    pub(super) fn receive_error(&mut self) -> io::Error {
        let error = self.take_extra(|extra| extra.receive_error.take());
        error.unwrap_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Returns the error of a failed send like [`receive_error`](Source::receive_error).
    pub(super) fn send_error(&mut self) -> io::Error {
        let error = self.take_extra(|extra| extra.send_error.take());
        error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

/// Returns the error of an operation on a connection that is closed.
pub(super) fn closed() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl<I: Relay + ?Sized> State<I> {
    /// Applies a completion. Returns whether [`put_aside`](State::put_aside) must follow when the
    /// woken tasks have run.
    #[inline]
    pub(super) fn dispatch(&mut self, completion: Completion) -> bool {
        let token = completion.token;
        let Some(source) = self.sources.get(token) else {
            return self.dispatch_unclaimed(completion);
        };
        if source.flags.intersects(Flags::RELAY_SOURCE | Flags::TAKES_COMPLETIONS) {
            return self.dispatch_special(completion);
        }
        match completion.kind {
            CompletionKind::Received(buffer) => {
                if source.received.is_empty() {
                    source.received = buffer;
                } else {
                    source.received.as_vec().extend_from_slice(&buffer);
                }
                source.wake_reader(&mut self.foreign);
                true
            }
            CompletionKind::Sent(Ok(())) => {
                source.ended_sends = source.ended_sends.wrapping_add(1);
                source.wake_writer(&mut self.foreign);
                false
            }
            CompletionKind::Accepted { token: connection, .. } => {
                source.extra().accepted.push_back(connection);
                source.wake_reader(&mut self.foreign);
                true
            }
            rare => {
                source.apply(rare);
                source.wake_reader(&mut self.foreign);
                source.wake_writer(&mut self.foreign);
                false
            }
        }
    }

    /// Applies a completion of a relay, or one that a task takes as it is.
    fn dispatch_special(&mut self, completion: Completion) -> bool {
        let token = completion.token;
        let Some(source) = self.sources.get(token) else { return false };
        if source.flags.contains(Flags::TAKES_COMPLETIONS) {
            source.wake_reader(&mut self.foreign);
            match &mut source.extra {
                Some(extra) if !extra.completions.is_empty() => {
                    extra.completions.push_back(completion.kind);
                }
                _ => self.current = Some(completion),
            }
            return self.current.is_some();
        }
        match completion.kind {
            CompletionKind::Received(_)
            | CompletionKind::End
            | CompletionKind::ReceiveFailed(_)
            | CompletionKind::Relayed { .. } => {
                self.end_relay(token);
                self.dispatch(completion)
            }
            other => {
                let flags = source.flags - Flags::RELAY_SOURCE;
                source.flags = flags;
                let put_aside = self.dispatch(Completion { token, kind: other });
                if let Some(source) = self.sources.get(token) {
                    source.flags.insert(Flags::RELAY_SOURCE);
                }
                put_aside
            }
        }
    }

    /// Marks both sides of the relay from a connection as free.
    pub(super) fn end_relay(&mut self, from: Token) {
        let Some(source) = self.sources.get(from) else { return };
        source.flags.remove(Flags::RELAY_SOURCE);
        if let Some(to) = source.take_extra(|extra| extra.relay_target.take())
            && let Some(target) = self.sources.get(to)
        {
            target.flags.remove(Flags::RELAY_TARGET);
            target.wake_writer(&mut self.foreign);
        }
    }

    /// Keeps a completion of a token that belongs to no stream.
    #[cold]
    fn dispatch_unclaimed(&mut self, completion: Completion) -> bool {
        match &mut self.unclaimed {
            Some(unclaimed) => {
                core::wake(unclaimed.taker.as_ref(), &mut self.foreign);
                unclaimed.completions.push_back(completion);
            }
            None => self.discard(&completion.kind),
        }
        false
    }

    /// Closes the connection of a completion that nothing takes.
    pub(super) fn discard(&mut self, kind: &CompletionKind) {
        if let CompletionKind::Accepted { token, .. } = kind {
            self.io.close(*token);
        }
    }

    /// Stops receiving on a connection, or accepting, whose task has not taken what arrived. Bytes
    /// that wait take no place in the pool of buffers.
    pub(super) fn put_aside(&mut self, token: Token) {
        let current = self.current.take();
        let Some(source) = self.sources.get(token) else { return };
        if let Some(Completion { mut kind, .. }) = current {
            if let CompletionKind::Received(buffer) = &mut kind {
                buffer.detach();
            }
            source.extra().completions.push_back(kind);
            return;
        }
        let waits = match &mut source.extra {
            _ if !source.received.is_empty() => {
                source.received.detach();
                true
            }
            Some(extra) => !extra.accepted.is_empty(),
            None => false,
        };
        if waits && source.flags.contains(Flags::STARTED) {
            source.flags.remove(Flags::STARTED);
            self.io.stop(token);
        }
    }

    /// Fails all operations of a connection that was closed although it has handles.
    pub(super) fn fail(&mut self, token: Token) {
        self.end_relay(token);
        if let Some(source) = self.sources.get(token) {
            source.flags.insert(Flags::RECEIVE_FAILED | Flags::SEND_FAILED);
            source.flags.remove(Flags::STARTED);
            source.ended_sends = source.started_sends;
            source.wake_reader(&mut self.foreign);
            source.wake_writer(&mut self.foreign);
        }
    }

    /// Removes a handle of a source, and closes the source without handles. The result is dropped
    /// when the state is no longer borrowed.
    pub(super) fn release(&mut self, token: Token) -> Option<Source> {
        let source = self.sources.get(token)?;
        source.handles = source.handles.saturating_sub(1);
        if source.handles > 0 {
            return None;
        }
        if source.flags.contains(Flags::RELAY_SOURCE) {
            self.end_relay(token);
        }
        let mut source = self.sources.remove(token)?;
        while let Some(connection) = source.take_extra(|extra| extra.accepted.pop_front()) {
            self.io.close(connection);
        }
        while let Some(kind) = source.take_extra(|extra| extra.completions.pop_front()) {
            self.discard(&kind);
        }
        if !source.flags.contains(Flags::CLOSED) {
            self.io.close(token);
        }
        Some(source)
    }
}

impl Source {
    /// Applies a rare completion.
    #[cold]
    fn apply(&mut self, kind: CompletionKind) {
        match kind {
            CompletionKind::End => {
                self.flags.insert(Flags::ENDED);
                self.flags.remove(Flags::STARTED);
            }
            CompletionKind::ReceiveFailed(error) => {
                self.flags.insert(Flags::RECEIVE_FAILED);
                self.flags.remove(Flags::STARTED);
                self.extra().receive_error = Some(error);
            }
            CompletionKind::AcceptFailed(error) => {
                self.flags.remove(Flags::STARTED);
                self.extra().receive_error = Some(error);
            }
            CompletionKind::Connected(result) => {
                self.flags.remove(Flags::CONNECTING);
                if let Err(error) = result {
                    self.flags.insert(Flags::RECEIVE_FAILED | Flags::SEND_FAILED);
                    self.extra().receive_error = Some(error);
                }
            }
            CompletionKind::Sent(Err(error)) => {
                self.flags.insert(Flags::SEND_FAILED);
                self.ended_sends = self.started_sends;
                self.extra().send_error = Some(error);
            }
            CompletionKind::Relayed { moved, ended } => {
                self.extra().relay_end = Some((moved, ended));
            }
            CompletionKind::Deadline => self.flags.insert(Flags::EXPIRED),
            _ => {}
        }
    }
}
