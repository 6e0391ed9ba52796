//! Moving bytes from one stream to another.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use super::connection::Connection;
use super::core::State;
use super::source::{Flags, closed};
use super::stream::Stream;
use crate::io::{Body, Outgoing, RelayEnd};

/// The result of [`Stream::relay_to`].
#[derive(Debug)]
pub struct Relayed {
    /// Number of bytes that the transport of the target took.
    pub moved: u64,
    /// The reason for the end.
    pub ended: RelayEnd,
}

/// The next thing that a relay does.
enum Step {
    /// Received bytes are on their way to the target, as many as this.
    Sent(u64),
    Ended(u64, RelayEnd),
}

impl<N> Stream<N> {
    /// Moves up to `max` bytes to another stream, until one of the two ends or fails.
    ///
    /// The `Io` moves the bytes without handing them to the task, within the kernel if they are
    /// many. If it cannot do so, the bytes are sent from the buffers that received them. In the
    /// meantime other tasks that receive from this stream or send to the target wait.
    ///
    /// A relay continues after its future is dropped, until a stream ends, fails or closes. The next
    /// call then continues it, and reports all that it moved, whatever target and `max` are.
    pub async fn relay_to<T>(&self, target: &Stream<T>, max: u64) -> Relayed {
        let (from, to) = (self.connection(), target.connection());
        let mut moved = 0;
        loop {
            match poll_fn(|context| from.poll_relay(context, to, max - moved)).await {
                Step::Ended(count, ended) => return Relayed { moved: moved + count, ended },
                Step::Sent(count) => {
                    if let Err(error) = poll_fn(|context| to.poll_flush(context)).await {
                        return Relayed { moved, ended: RelayEnd::SendFailed(error) };
                    }
                    moved += count;
                }
            }
        }
    }

    /// Returns the number of bytes that the relay from this stream has moved so far.
    pub fn relayed(&self) -> u64 {
        self.connection().with_io(|io, token| io.relayed(token))
    }

    /// Returns whether the relay to this stream waits until its peer reads.
    pub fn is_relay_blocked(&self) -> bool {
        self.connection().with_io(|io, token| io.relay_is_blocked(token))
    }
}

impl Connection {
    fn poll_relay(&self, context: &Context<'_>, to: &Connection, max: u64) -> Poll<Step> {
        let State { sources, foreign, io, .. } = &mut *self.core.state.borrow_mut();
        let Some(source) = sources.get(self.token) else {
            return Poll::Ready(Step::Ended(0, RelayEnd::ReceiveFailed(closed())));
        };
        if let Some((moved, ended)) = source.take_extra(|extra| extra.relay_end.take()) {
            match ended {
                RelayEnd::End => source.flags.insert(Flags::ENDED),
                RelayEnd::ReceiveFailed(_) => source.flags.insert(Flags::RECEIVE_FAILED),
                _ => {}
            }
            return Poll::Ready(Step::Ended(moved, ended));
        }
        if source.flags.contains(Flags::RELAY_SOURCE) {
            return source.wait_to_read(context, foreign);
        }
        if max == 0 {
            return Poll::Ready(Step::Ended(0, RelayEnd::Complete));
        }
        let has_bytes = !source.received.is_empty();
        if !has_bytes && source.flags.contains(Flags::ENDED) {
            return Poll::Ready(Step::Ended(0, RelayEnd::End));
        }
        if !has_bytes && source.flags.contains(Flags::RECEIVE_FAILED) {
            let error = source.receive_error();
            return Poll::Ready(Step::Ended(0, RelayEnd::ReceiveFailed(error)));
        }
        let Some(target) = sources.get(to.token) else {
            return Poll::Ready(Step::Ended(0, RelayEnd::SendFailed(closed())));
        };
        if let Err(error) = ready!(Connection::poll_may_send(target, context, foreign)) {
            return Poll::Ready(Step::Ended(0, RelayEnd::SendFailed(error)));
        }
        if has_bytes {
            target.started_sends = target.started_sends.wrapping_add(1);
            let Some(source) = sources.get(self.token) else { return Poll::Pending };
            let count = source.received.len().min(usize::try_from(max).unwrap_or(usize::MAX));
            let outgoing = if count == source.received.len() {
                Outgoing { head: std::mem::take(&mut source.received), body: Body::None }
            } else {
                let outgoing = Outgoing::copy(io.pool(), &source.received[..count]);
                source.received.consume(count);
                outgoing
            };
            io.send(to.token, outgoing);
            return Poll::Ready(Step::Sent(count as u64));
        }
        let relays = io.relay(self.token, to.token, max);
        if relays {
            target.flags.insert(Flags::RELAY_TARGET);
        }
        let Some(source) = sources.get(self.token) else { return Poll::Pending };
        if relays {
            source.extra().relay_target = Some(to.token);
            source.flags.insert(Flags::RELAY_SOURCE);
            source.flags.remove(Flags::STARTED);
        } else if !source.flags.contains(Flags::STARTED) {
            source.flags.insert(Flags::STARTED);
            io.start(self.token);
        }
        source.wait_to_read(context, foreign)
    }
}
