//! Channels between tasks of one executor.
//!
//! They need no atomic operations, and sending allocates nothing. Tasks and other threads exchange
//! values through any asynchronous channel, such as those of futures-channel, since the wakers of
//! tasks work on all threads.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The error of a send whose receiver was dropped. It contains the value.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the receiver of the channel was dropped")]
pub struct SendError<T>(pub T);

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError")
    }
}

/// The error of [`Sender::try_send`]. It contains the value.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError<T> {
    /// The channel contains as many values as it may.
    #[error("the channel is full")]
    Full(T),
    /// The receiver was dropped.
    #[error("the receiver of the channel was dropped")]
    Closed(T),
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full",
            TrySendError::Closed(_) => "Closed",
        })
    }
}

/// Creates a channel that contains up to `capacity` values, at least one. It has many senders and
/// one receiver.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Rc::new(RefCell::new(Shared {
        values: VecDeque::new(),
        capacity: capacity.max(1),
        senders: 1,
        closed: false,
        receiver: None,
        waiting: VecDeque::new(),
        next_ticket: 0,
    }));
    (Sender(Rc::clone(&shared)), Receiver(shared))
}

struct Shared<T> {
    values: VecDeque<T>,
    capacity: usize,
    senders: usize,
    /// Whether the receiver was dropped.
    closed: bool,
    receiver: Option<Waker>,
    /// Senders that wait for space, in order, with the numbers of their sends.
    waiting: VecDeque<(u64, Waker)>,
    next_ticket: u64,
}

impl<T> Shared<T> {
    /// Returns the wakers of as many waiting senders as there is space for values.
    fn first_waiting(&self) -> Option<Waker> {
        let space = self.capacity.saturating_sub(self.values.len());
        self.waiting.get(space.checked_sub(1)?).map(|(_, waker)| waker.clone())
    }
}

/// The sending side of a channel. It is cloned for each sender.
pub struct Sender<T>(Rc<RefCell<Shared<T>>>);

impl<T> Sender<T> {
    /// Waits for space, and sends a value. Senders that wait are served in order. Dropping the
    /// future before it is ready drops the value.
    ///
    /// # Errors
    /// [`SendError`] with the value if the receiver was dropped.
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        Sending { shared: &self.0, value: Some(value), ticket: None }.await
    }

    /// Sends a value if there is space, and no sender waits.
    ///
    /// # Errors
    /// [`TrySendError`] with the value.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut shared = self.0.borrow_mut();
        if shared.closed {
            return Err(TrySendError::Closed(value));
        }
        if shared.values.len() + shared.waiting.len() >= shared.capacity {
            return Err(TrySendError::Full(value));
        }
        shared.values.push_back(value);
        let receiver = shared.receiver.take();
        drop(shared);
        receiver.into_iter().for_each(Waker::wake);
        Ok(())
    }
}

/// The future of a send. Its place in the list of waiting senders is kept until it is dropped.
struct Sending<'a, T> {
    shared: &'a RefCell<Shared<T>>,
    value: Option<T>,
    ticket: Option<u64>,
}

// The value is never pinned.
impl<T> Unpin for Sending<'_, T> {}

impl<T> Future for Sending<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut guard = self.shared.borrow_mut();
        let shared = &mut *guard;
        let Some(value) = self.value.take() else { return Poll::Ready(Ok(())) };
        if shared.closed {
            return Poll::Ready(Err(SendError(value)));
        }
        let position = shared.waiting.iter().position(|(ticket, _)| Some(*ticket) == self.ticket);
        let before = position.unwrap_or(shared.waiting.len());
        if shared.values.len() + before < shared.capacity {
            position.and_then(|position| shared.waiting.remove(position));
            shared.values.push_back(value);
            let receiver = shared.receiver.take();
            drop(guard);
            receiver.into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(()));
        }
        let waker = context.waker().clone();
        match position {
            Some(position) => shared.waiting[position].1 = waker,
            None => {
                let ticket = shared.next_ticket;
                shared.next_ticket += 1;
                shared.waiting.push_back((ticket, waker));
                self.ticket = Some(ticket);
            }
        }
        self.value = Some(value);
        Poll::Pending
    }
}

impl<T> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut shared = self.shared.borrow_mut();
        if let Some(place) = shared.waiting.iter().position(|(other, _)| *other == ticket) {
            shared.waiting.remove(place);
            // The space that the sender was woken for is for the next one.
            let next = shared.first_waiting();
            drop(shared);
            next.into_iter().for_each(Waker::wake);
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.borrow_mut().senders += 1;
        Sender(Rc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut shared = self.0.borrow_mut();
        shared.senders -= 1;
        let receiver = if shared.senders == 0 { shared.receiver.take() } else { None };
        drop(shared);
        receiver.into_iter().for_each(Waker::wake);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

/// The receiving side of a channel.
pub struct Receiver<T>(Rc<RefCell<Shared<T>>>);

impl<T> Receiver<T> {
    /// Waits for the next value. Returns `None` when there is none and all senders were dropped.
    /// Dropping the future loses no value.
    pub async fn receive(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_receive(context)).await
    }

    /// Waits for the next value like [`receive`](Receiver::receive).
    pub fn poll_receive(&mut self, context: &Context<'_>) -> Poll<Option<T>> {
        let mut shared = self.0.borrow_mut();
        if let Some(value) = shared.values.pop_front() {
            let sender = shared.first_waiting();
            drop(shared);
            sender.into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(value));
        }
        if shared.senders == 0 {
            return Poll::Ready(None);
        }
        shared.receiver = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut shared = self.0.borrow_mut();
        shared.closed = true;
        let values = std::mem::take(&mut shared.values);
        let waiting = std::mem::take(&mut shared.waiting);
        drop(shared);
        drop(values);
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

/// Creates a channel for one value.
pub fn oneshot<T>() -> (OneSender<T>, OneReceiver<T>) {
    let (sender, receiver) = bounded(1);
    (OneSender(sender), OneReceiver(receiver))
}

/// The sending side of a channel for one value.
#[derive(Debug)]
pub struct OneSender<T>(Sender<T>);

impl<T> OneSender<T> {
    /// Sends the value, without waiting.
    ///
    /// # Errors
    /// [`SendError`] with the value if the receiver was dropped.
    pub fn send(self, value: T) -> Result<(), SendError<T>> {
        self.0.try_send(value).map_err(|error| match error {
            TrySendError::Full(value) | TrySendError::Closed(value) => SendError(value),
        })
    }
}

/// The receiving side of a channel for one value: a future that yields it, or `None` if the sender
/// was dropped without sending.
#[derive(Debug)]
pub struct OneReceiver<T>(Receiver<T>);

impl<T> Future for OneReceiver<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_receive(context)
    }
}
