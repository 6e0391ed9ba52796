//! Sending, and the results of connects.

use std::io;
use std::ptr;

use bytes::Buf;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::completing::failure;
use super::socket::{NONE, State};
use super::submitting::{request_kind, user_data};
use super::{RingKernel, UringIo};
use crate::event::Token;
use crate::io::kernel::KernelSocket;
use crate::io::large_transfers::Queue;
use crate::io::{Body, Completion, CompletionKind, Outgoing};
use crate::ring::{RingInterface, Sqe};
use crate::sys::poll_events;

/// Maximum length of a send with a linked close. A socket that is not full takes this number of
/// bytes at once.
const SHORT: usize = 8 * 1024;

/// The header and parts of a `sendmsg`, needed until it is submitted.
pub(super) struct Message {
    header: libc::msghdr,
    parts: [libc::iovec; 2],
}

impl Message {
    pub(super) const EMPTY: Message = Message {
        // SAFETY: zeros mean no name, no parts and no control data.
        header: unsafe { std::mem::zeroed() },
        parts: [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; 2],
    };
}

/// A pending send.
struct Send {
    outgoing: Outgoing,
    /// Index of the next send on the same socket.
    next: u32,
    /// Index of the last send on the same socket; valid for the first send only.
    last: u32,
    /// Number of bytes of a file that were sent in this turn.
    used: usize,
    /// Whether a close is linked to the send.
    closes: bool,
    /// Number that distinguishes the send from an earlier one at the same index.
    serial: u32,
}

/// The pending sends of all sockets.
#[derive(Default)]
pub(super) struct Sends {
    all: Vec<Option<Send>>,
    free: Vec<u32>,
    /// Sends that started in this turn, with their serial numbers.
    started: Vec<(u32, u32)>,
    /// Sends that started in the previous turn, with their serial numbers.
    submitted: Vec<(u32, u32)>,
    serial: u32,
}

impl Sends {
    fn insert(&mut self, outgoing: Outgoing, closes: bool) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() as u32 - 1
        });
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        self.all[index as usize] =
            Some(Send { outgoing, next: NONE, last: index, used: 0, closes, serial });
        index
    }

    #[inline]
    fn get(&mut self, index: u32) -> Option<&mut Send> {
        self.all.get_mut(index as usize)?.as_mut()
    }

    fn append(&mut self, first: u32, index: u32) {
        let Some(head) = self.get(first) else { return };
        let last = std::mem::replace(&mut head.last, index);
        if let Some(last) = self.get(last) {
            last.next = index;
        }
    }

    /// Detaches from the pool the heads of sends that have been pending for a turn, since they wait
    /// for their peers.
    #[inline]
    pub(super) fn detach_waiting(&mut self) {
        while let Some((index, serial)) = self.submitted.pop() {
            if let Some(send) = self.get(index)
                && send.serial == serial
            {
                send.outgoing.head.detach();
            }
        }
        std::mem::swap(&mut self.started, &mut self.submitted);
    }

    /// Removes the first send. Returns the next one.
    fn remove(&mut self, first: u32) -> u32 {
        let Some(send) = self.all.get_mut(first as usize).and_then(Option::take) else {
            return NONE;
        };
        self.free.push(first);
        let Send { next, last, .. } = send;
        if let Some(send) = self.get(next) {
            send.last = last;
        }
        next
    }

    /// Removes `first` and all sends after it.
    pub(super) fn remove_all(&mut self, mut first: u32) {
        while first != NONE {
            first = self.remove(first);
        }
    }

    /// Removes all sends after `first`, which the kernel has.
    pub(super) fn remove_after(&mut self, first: u32) {
        if let Some(send) = self.get(first) {
            let next = std::mem::replace(&mut send.next, NONE);
            send.last = first;
            self.remove_all(next);
        }
    }

    /// Returns the number of unsent bytes in the head of `first`.
    pub(super) fn head_length(&mut self, first: u32) -> usize {
        self.get(first).map_or(0, |send| send.outgoing.head.len())
    }

    /// Leaks all sends, since the kernel may still read them.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.all));
    }
}

/// The next step of a send.
enum Step {
    /// All bytes were sent.
    Complete,
    /// Send the head, and nothing else.
    Head { closes: bool },
    /// Send the head and the body.
    Both,
    /// Send the body.
    Body,
    /// Wait until the socket has space.
    Wait,
    /// Continue in the next turn.
    Yield,
    /// The send failed.
    Failed(io::Error),
}

/// Returns the user data of the request that sends or connects.
pub(super) const fn send_request(slot: u32) -> u64 {
    user_data(request_kind::SEND, slot)
}

impl<R: RingInterface, K: RingKernel> UringIo<R, K> {
    /// Queues a send, and starts it if it is the first. Returns whether a close is linked to it,
    /// which is possible only if it is the `last` send.
    pub(super) fn queue_send(&mut self, token: Token, mut outgoing: Outgoing, last: bool) -> bool {
        let Some(socket) = self.sockets.get(token) else {
            return false;
        };
        if socket.state.intersects(State::SEND_FAILED | State::CLOSE_LINKED) {
            return false;
        }
        let closes = last
            && matches!(outgoing.body, Body::None)
            && (1..=SHORT).contains(&outgoing.head.len());
        if outgoing.head.is_empty() {
            outgoing.head.release();
        }
        outgoing.head.copy_provided();
        if socket.sends != NONE || socket.state.contains(State::CONNECTING) {
            outgoing.head.detach();
        }
        let index = self.sends.insert(outgoing, closes);
        if socket.sends == NONE {
            socket.sends = index;
            if !socket.state.contains(State::CONNECTING) {
                self.resume_sending(token);
            }
        } else {
            self.sends.append(socket.sends, index);
        }
        closes
    }

    /// Submits the first pending send, unless the kernel has it already.
    pub(super) fn resume_sending(&mut self, token: Token) {
        // An enter must not split a chain, which has at most three entries.
        self.reserve_submissions(3);
        loop {
            let Some(socket) = self.sockets.get(token) else {
                return;
            };
            if socket.sends == NONE || socket.state.intersects(State::SENDING | State::CONNECTING) {
                return;
            }
            let (first, fd) = (socket.sends, socket.raw());
            let Some(send) = self.sends.get(first) else {
                return;
            };
            let body = &send.outgoing.body;
            if self.large_transfers.is_time_up() && matches!(body, Body::File(_)) && body.is_large()
            {
                return self.enqueue(token, Queue::LargeTransfers);
            }
            let before = socket.sent;
            let step = socket.fd.as_ref().map_or(Step::Complete, |fd| {
                send.step(fd, self.settings.turn_bytes, &mut socket.sent)
            });
            self.large_transfers.count((socket.sent - before) as usize, &self.kernel);
            let flags = SendFlags::NOSIGNAL.bits();
            let entry = match step {
                Step::Complete => {
                    socket.sends = self.sends.remove(first);
                    self.done.push_back(Completion { token, kind: CompletionKind::Sent(Ok(())) });
                    continue;
                }
                Step::Failed(error) => {
                    let failed = self.fail_sends(token, error);
                    self.done.extend(failed);
                    return;
                }
                Step::Yield => {
                    send.used = 0;
                    return self.enqueue(token, Queue::NextTurn);
                }
                Step::Wait => {
                    send.used = 0;
                    Sqe::poll(fd, poll_events(PollFlags::OUT), false)
                }
                Step::Head { closes: false } => {
                    Sqe::send(fd, &raw const *send.outgoing.head, flags)
                }
                Step::Head { closes: true } => {
                    // The end of the stream is sent in the packet of the last bytes.
                    let flags = flags | (libc::MSG_WAITALL | libc::MSG_MORE) as u32;
                    Sqe::send(fd, &raw const *send.outgoing.head, flags).link()
                }
                Step::Body => match &send.outgoing.body {
                    Body::Bytes(bytes) => Sqe::send(fd, &raw const **bytes, flags),
                    _ => return,
                },
                Step::Both => {
                    let Body::Bytes(bytes) = &send.outgoing.body else { return };
                    self.message = (self.message + 1) % self.messages.len();
                    let message = &mut self.messages[self.message];
                    for (part, bytes) in
                        message.parts.iter_mut().zip([&send.outgoing.head[..], bytes])
                    {
                        part.iov_base = bytes.as_ptr().cast_mut().cast();
                        part.iov_len = bytes.len();
                    }
                    message.header.msg_iov = message.parts.as_mut_ptr();
                    message.header.msg_iovlen = message.parts.len();
                    Sqe::sendmsg(fd, &raw const message.header, flags)
                }
            };
            let (closes, serial) = (send.closes, send.serial);
            let armed = socket.state.contains(State::ARMED);
            socket.state.insert(State::SENDING);
            socket.state.set(State::CLOSE_LINKED, closes);
            self.sends.started.push((first, serial));
            self.submit(send_request(token.slot()), entry);
            if closes {
                if armed {
                    self.submit_silent(
                        Sqe::cancel(user_data(request_kind::RECEIVE, token.slot())).hard_link(),
                    ); // (a)
                }
                self.submit_silent(Sqe::close(fd));
            }
            return;
        }
    }

    /// Fails the first pending send, and removes all others.
    fn fail_sends(&mut self, token: Token, error: io::Error) -> Option<Completion> {
        let socket = self.sockets.get(token)?;
        socket.state.insert(State::SEND_FAILED);
        let first = std::mem::replace(&mut socket.sends, NONE);
        self.sends.remove_all(first);
        Some(Completion { token, kind: CompletionKind::Sent(Err(error)) })
    }

    /// Handles the end of a send, or of a poll for space or for the result of a connect.
    pub(super) fn on_sent(&mut self, slot: u32, result: i32) -> Option<Completion> {
        self.in_flight -= 1;
        let socket = self.sockets.at_slot(slot)?;
        socket.state.remove(State::SENDING);
        let first = socket.sends;
        let closed = socket.state.contains(State::CLOSE_LINKED)
            && usize::try_from(result).is_ok_and(|sent| sent == self.sends.head_length(first));
        if closed && let Some(fd) = socket.fd.take() {
            self.kernel.release(fd); // The kernel closes it, or has closed it.
        }
        socket.state.remove(State::CLOSE_LINKED);
        if !socket.state.contains(State::OPEN) {
            socket.fd = None;
            socket.sends = NONE;
            self.sends.remove_all(first);
            self.sockets.vacate(slot);
            self.counters.spurious += 1;
            return None;
        }
        let token = Token::new(slot, socket.generation);
        if socket.state.contains(State::CONNECTING) {
            return self.on_connected(token, failure(result));
        }
        if socket.state.contains(State::NEEDS_SPACE) {
            return self.on_space_polled(token, result);
        }
        let send = self.sends.get(first)?;
        let sends_file = matches!(send.outgoing.body, Body::File(_));
        if sends_file && send.outgoing.body.is_large() {
            self.enqueue(token, Queue::LargeTransfers); // A poll request for space has ended.
            return None;
        }
        if result < 0 && !sends_file {
            let errno = Errno::from_raw_os_error(-result);
            if !matches!(errno, Errno::INTR | Errno::AGAIN) {
                return self.fail_sends(token, errno.into());
            }
        } else if !sends_file {
            socket.sent += result as u64;
            send.take(result as usize);
        }
        if closed {
            let state = socket.state;
            if state.intersects(State::RELAY_SOURCE | State::RELAY_TARGET) {
                self.end_relays_of(token, state);
            }
            self.sockets.get(token)?.sends = NONE;
            self.sends.remove_all(first);
            self.wheel.cancel(slot);
            self.sockets.retire(slot);
            self.sockets.vacate(slot);
            return Some(Completion { token, kind: CompletionKind::Sent(Ok(())) });
        }
        let complete = !sends_file && send.is_empty();
        if complete {
            socket.sends = self.sends.remove(first);
            if socket.sends == NONE {
                return Some(Completion { token, kind: CompletionKind::Sent(Ok(())) });
            }
        }
        self.resume_sending(token);
        complete.then_some(Completion { token, kind: CompletionKind::Sent(Ok(())) })
    }

    fn on_connected(&mut self, token: Token, failed: Option<io::Error>) -> Option<Completion> {
        let socket = self.sockets.get(token)?;
        socket.state.remove(State::CONNECTING);
        let result = match (failed, &socket.fd) {
            (Some(error), _) => Err(error),
            (None, Some(fd)) => fd.take_error().map_err(io::Error::from),
            (None, None) => Err(Errno::BADF.into()),
        };
        if result.is_err() {
            socket.state.insert(State::RECEIVE_ENDED | State::SEND_FAILED);
            let first = std::mem::replace(&mut socket.sends, NONE);
            self.sends.remove_all(first);
        } else {
            self.update_later(token);
            self.resume_sending(token);
        }
        Some(Completion { token, kind: CompletionKind::Connected(result) })
    }
}

impl Send {
    fn is_empty(&self) -> bool {
        let body = match &self.outgoing.body {
            Body::None => true,
            Body::Bytes(bytes) => bytes.is_empty(),
            Body::File(part) => part.length == 0,
        };
        body && self.outgoing.head.is_empty()
    }

    /// Removes `sent` bytes from the front.
    fn take(&mut self, sent: usize) {
        let of_head = sent.min(self.outgoing.head.len());
        self.outgoing.head.consume(of_head);
        if self.outgoing.head.is_empty() {
            self.outgoing.head.release(); // The body may take long.
        }
        if let Body::Bytes(bytes) = &mut self.outgoing.body {
            bytes.advance((sent - of_head).min(bytes.len()));
        }
    }

    /// Returns the next step. Sends of files are performed here until the socket is full (g).
    fn step(&mut self, fd: &impl KernelSocket, share: usize, sent: &mut u64) -> Step {
        if self.is_empty() {
            return Step::Complete;
        }
        let Outgoing { head, body } = &mut self.outgoing;
        let part = match body {
            Body::None => return Step::Head { closes: self.closes },
            Body::Bytes(bytes) if bytes.is_empty() => return Step::Head { closes: false },
            Body::Bytes(_) if head.is_empty() => return Step::Body,
            Body::Bytes(_) => return Step::Both,
            Body::File(part) => part,
        };
        loop {
            let left = share.saturating_sub(self.used);
            let taken = if !head.is_empty() {
                let mut flags = SendFlags::NOSIGNAL;
                flags.set(SendFlags::MORE, part.length > 0);
                fd.send(head, flags)
            } else if part.length == 0 {
                return Step::Complete;
            } else if left == 0 {
                return Step::Yield;
            } else {
                let count = usize::try_from(part.length).unwrap_or(usize::MAX).min(left);
                fd.send_file(part, count)
            };
            match taken {
                Ok(0) => return Step::Failed(io::ErrorKind::UnexpectedEof.into()),
                Ok(taken) => {
                    *sent += taken as u64;
                    self.used = self.used.saturating_add(taken);
                    if head.is_empty() {
                        part.length -= taken as u64;
                    } else {
                        head.consume(taken);
                        if head.is_empty() {
                            head.release();
                        }
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Step::Wait,
                Err(errno) => return Step::Failed(errno.into()),
            }
        }
    }
}
