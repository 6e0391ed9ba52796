//! The requests of a simulated ring, and how it performs them.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::rc::Rc;

use rustix::io::Errno;
use rustix::io_uring::{IoringAcceptFlags, IoringAsyncCancelFlags, IoringOp};
use rustix::io_uring::{IoringPollFlags, IoringRecvFlags};

use super::SimRing;
use super::buffers::Buffer;
use crate::event::Readiness;
use crate::io::sim::host::SocketId;
use crate::io::sim::kernel::OpenFile;
use crate::ring::{Cqe, Sqe, cqe_flags, sqe_flags};

/// Maximum number of successive completions of a multishot receive (`MULTISHOT_MAX_RETRY`).
const MAX_RETRIES: usize = 32;

/// A request that was submitted.
#[derive(Debug)]
pub(super) struct Request {
    data: u64,
    number: RawFd,
    operation: Operation,
    /// Whether a success has no completion.
    is_silent: bool,
    pub(super) link: Link,
    /// The requests linked to it, in order.
    pub(super) chain: VecDeque<Request>,
    /// The open file that it holds from its start on.
    file: Option<Rc<OpenFile>>,
    /// Whether a worker thread attempts it.
    has_worker: bool,
    /// The result with which it ends, if it is cancelled or interrupted.
    ending: Option<Errno>,
    /// Whether it is in the list of requests to attempt.
    pub(super) is_runnable: bool,
    /// Number of delays.
    pub(super) delays: u8,
}

/// The dependence of the next entry on a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Link {
    None,
    /// The next entry starts after a success.
    Soft,
    /// The next entry starts in any case.
    Hard,
}

#[derive(Debug)]
enum Operation {
    Poll {
        events: Readiness,
        is_multishot: bool,
    },
    Accept {
        is_multishot: bool,
    },
    Receive {
        group: u16,
        is_multishot: bool,
    },
    Send(Transfer),
    Cancel {
        data: u64,
        all: bool,
    },
    Close,
    /// Unknown to this ring.
    Invalid,
}

/// The bytes that a request sends.
#[derive(Debug)]
struct Transfer {
    parts: Vec<(u64, usize)>,
    sent: usize,
    waits_for_all: bool,
    /// Checksum of the first and the last bytes.
    checksum: u64,
}

/// The state of a request after an attempt.
enum Progress {
    /// The request waits for its socket.
    Blocked,
    /// The request can continue.
    Yielded,
    /// The request has ended with this result and these flags.
    Ended(i32, u32),
}

fn failed(errno: Errno) -> Progress {
    Progress::Ended(-errno.raw_os_error(), 0)
}

impl Request {
    /// Creates the request of an entry.
    ///
    /// # Safety
    /// The memory that the entry points to is valid until the request has ended.
    pub(super) unsafe fn new(entry: &Sqe) -> Request {
        let is_multishot = |flag: u16| entry.ioprio & flag != 0;
        let operation = match entry.opcode {
            opcode if opcode == IoringOp::PollAdd as u8 => {
                // The kernel expects swapped halves on big-endian machines.
                let swaps = if cfg!(target_endian = "big") { 16 } else { 0 };
                let events = entry.op_flags.rotate_left(swaps) as u8;
                Operation::Poll {
                    events: Readiness::from_bits_truncate(events),
                    is_multishot: entry.len & IoringPollFlags::ADD_MULTI.bits() != 0,
                }
            }
            opcode if opcode == IoringOp::Accept as u8 => {
                let is_multishot = is_multishot(IoringAcceptFlags::MULTISHOT.bits());
                Operation::Accept { is_multishot }
            }
            opcode if opcode == IoringOp::Recv as u8 => {
                let is_multishot = is_multishot(IoringRecvFlags::MULTISHOT.bits());
                Operation::Receive { group: entry.buf_group, is_multishot }
            }
            opcode if opcode == IoringOp::Send as u8 => {
                // SAFETY: the caller's promise.
                Operation::Send(unsafe {
                    Transfer::new(vec![(entry.addr, entry.len as usize)], entry.op_flags)
                })
            }
            opcode if opcode == IoringOp::Sendmsg as u8 => {
                // SAFETY: the caller's promise. The header names valid parts.
                unsafe {
                    let header = (entry.addr as *const libc::msghdr).read();
                    let parts = std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen);
                    let parts = parts.iter().map(|part| (part.iov_base as u64, part.iov_len));
                    Operation::Send(Transfer::new(parts.collect(), entry.op_flags))
                }
            }
            opcode if opcode == IoringOp::AsyncCancel as u8 => Operation::Cancel {
                data: entry.addr,
                all: entry.op_flags & IoringAsyncCancelFlags::ANY.bits() != 0,
            },
            opcode if opcode == IoringOp::Close as u8 => Operation::Close,
            _ => Operation::Invalid,
        };
        Request {
            data: entry.user_data,
            number: entry.fd,
            operation,
            is_silent: entry.flags & sqe_flags::SKIP_SUCCESS != 0,
            link: match entry.flags {
                flags if flags & sqe_flags::HARDLINK != 0 => Link::Hard,
                flags if flags & sqe_flags::LINK != 0 => Link::Soft,
                _ => Link::None,
            },
            chain: VecDeque::new(),
            file: None,
            has_worker: false,
            ending: None,
            is_runnable: false,
            delays: 0,
        }
    }

    fn socket(&self) -> Option<SocketId> {
        self.file.as_ref().and_then(|file| file.socket())
    }
}

impl Transfer {
    /// Creates a transfer of `parts`.
    ///
    /// # Safety
    /// The parts are valid until the request has ended.
    unsafe fn new(parts: Vec<(u64, usize)>, flags: u32) -> Transfer {
        let waits_for_all = flags & libc::MSG_WAITALL as u32 != 0;
        let mut transfer = Transfer { parts, sent: 0, waits_for_all, checksum: 0 };
        // SAFETY: the caller's promise.
        transfer.checksum = unsafe { transfer.checksum() };
        transfer
    }

    fn length(&self) -> usize {
        self.parts.iter().map(|(_, length)| length).sum()
    }

    /// Returns the bytes of a part from an index on.
    ///
    /// Returns the bytes of a part, from `from` on.
    ///
    /// # Safety
    /// As in `new`.
    unsafe fn part(&self, part: usize, from: usize) -> &[u8] {
        let (addr, length) = self.parts[part];
        // SAFETY: the caller's promise.
        unsafe { &std::slice::from_raw_parts(addr as *const u8, length)[from..] }
    }

    /// Returns the unsent bytes of the first part that has some.
    ///
    /// # Safety
    /// As in `new`.
    unsafe fn unsent(&self) -> &[u8] {
        let mut before = 0;
        for (index, (_, length)) in self.parts.iter().enumerate() {
            if self.sent < before + length {
                // SAFETY: the caller's promise.
                return unsafe { self.part(index, self.sent - before) };
            }
            before += length;
        }
        &[]
    }

    /// Returns a checksum of the ends of the parts.
    ///
    /// # Safety
    /// As in `new`.
    unsafe fn checksum(&self) -> u64 {
        let mut sum = 0;
        for index in 0..self.parts.len() {
            // SAFETY: the caller's promise.
            let bytes = unsafe { self.part(index, 0) };
            let edge = bytes.len().min(64);
            for &byte in bytes[..edge].iter().chain(&bytes[bytes.len() - edge..]) {
                sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        sum
    }
}

impl SimRing {
    /// Starts a request: looks up its descriptor and attempts it.
    pub(super) fn start(&mut self, mut request: Request) {
        match request.operation {
            Operation::Cancel { data, all } => {
                let result = self.cancel(data, all);
                return self.finish(request, result, 0);
            }
            Operation::Close => {
                let result = match self.kernel.close(request.number) {
                    Ok(()) => 0,
                    Err(errno) => -errno.raw_os_error(),
                };
                return self.finish(request, result, 0);
            }
            Operation::Invalid => {
                return self.finish(request, -Errno::INVAL.raw_os_error(), 0);
            }
            _ => {}
        }
        request.file = self.kernel.file(request.number);
        if request.file.is_none() {
            return self.finish(request, -Errno::BADF.raw_os_error(), 0);
        }
        let number = self.next_request;
        self.next_request += 1;
        request.has_worker = !matches!(request.operation, Operation::Poll { .. })
            && self.has_fault(self.faults.workers);
        let runs_later = request.has_worker;
        request.is_runnable = runs_later;
        self.by_socket.entry(request.socket()).or_default().push(number);
        self.requests.insert(number, request);
        if runs_later {
            self.runnable.push_back(number);
        } else {
            self.run(number);
        }
    }

    /// Attempts a request.
    pub(super) fn run(&mut self, number: u64) {
        let Some(mut request) = self.requests.remove(&number) else { return };
        if request.ending.is_none()
            && !matches!(request.operation, Operation::Poll { .. })
            && self.has_fault(self.faults.interrupted_requests)
        {
            request.ending = Some(Errno::INTR);
        }
        let may_succeed =
            request.ending.is_none() || self.has_fault(self.faults.late_cancellations);
        let progress = if may_succeed { self.attempt(&mut request) } else { Progress::Blocked };
        let (result, flags) = match (progress, request.ending) {
            (Progress::Ended(result, flags), _) => (result, flags),
            (_, Some(errno)) => request.end_with(errno),
            (Progress::Blocked, None) if request.has_worker => {
                // The worker thread has used a buffer, which the completion returns.
                let (result, mut flags) = request.end_with(Errno::AGAIN);
                if let Operation::Receive { group, .. } = request.operation
                    && self.has_fault(self.faults.buffers_at_end)
                    && let Some(buffer) = self.first_buffer(group)
                {
                    flags |= self.take_buffer(buffer);
                }
                (result, flags)
            }
            (Progress::Blocked, None) => {
                self.requests.insert(number, request);
                return;
            }
            (Progress::Yielded, None) => {
                request.is_runnable = true;
                self.requests.insert(number, request);
                self.runnable.push_back(number);
                return;
            }
        };
        if let Some(requests) = self.by_socket.get_mut(&request.socket()) {
            requests.retain(|&other| other != number);
            if requests.is_empty() {
                self.by_socket.remove(&request.socket());
            }
        }
        self.finish(request, result, flags);
    }

    fn attempt(&mut self, request: &mut Request) -> Progress {
        let Request { data, operation, file, .. } = request;
        let socket = file.as_ref().and_then(|file| file.socket());
        match (operation, socket) {
            (Operation::Poll { events, is_multishot }, socket) => {
                self.poll(*data, socket, *events, *is_multishot)
            }
            (Operation::Accept { is_multishot }, Some(socket)) => {
                self.accept(*data, socket, *is_multishot)
            }
            (Operation::Receive { group, is_multishot }, Some(socket)) => {
                self.receive(*data, socket, *group, *is_multishot)
            }
            (Operation::Send(transfer), Some(socket)) => self.send(socket, transfer),
            _ => failed(Errno::INVAL),
        }
    }

    /// Posts the completion of a request, and starts or cancels the linked ones.
    fn finish(&mut self, mut request: Request, result: i32, flags: u32) {
        let mut has_failed = result < 0;
        if let Operation::Send(transfer) = &request.operation {
            has_failed |= transfer.waits_for_all && transfer.sent < transfer.length();
            // SAFETY: the request has not ended for the program.
            let checksum = unsafe { transfer.checksum() };
            assert_eq!(checksum, transfer.checksum, "bytes changed while the kernel sent them");
        }
        if !request.is_silent || has_failed {
            self.post(Cqe { user_data: request.data, result, flags });
        }
        request.file = None;
        let mut chain = std::mem::take(&mut request.chain);
        let Some(mut next) = chain.pop_front() else { return };
        if has_failed && request.link == Link::Soft {
            for cancelled in std::iter::once(next).chain(chain) {
                if !request.is_silent {
                    let result = -Errno::CANCELED.raw_os_error();
                    self.post(Cqe { user_data: cancelled.data, result, flags: 0 });
                }
            }
        } else {
            next.chain = chain;
            self.start(next);
        }
    }

    /// Cancels the first request with this user data, or all. Returns the result.
    fn cancel(&mut self, data: u64, all: bool) -> i32 {
        if all {
            let numbers: Vec<u64> = self.requests.keys().copied().collect();
            for &number in &numbers {
                self.end_later(number, Errno::CANCELED);
            }
            return numbers.len() as i32;
        }
        let found = self.requests.iter().find(|(_, request)| request.data == data);
        let Some((&number, _)) = found else {
            return -Errno::NOENT.raw_os_error();
        };
        if !self.has_fault(self.faults.late_cancellations) {
            self.end_later(number, Errno::CANCELED);
            return 0;
        }
        self.run(number);
        if !self.requests.contains_key(&number) {
            return -Errno::NOENT.raw_os_error();
        }
        let errno = [Errno::CANCELED, Errno::INTR][self.decide(2)];
        self.end_later(number, errno);
        -Errno::ALREADY.raw_os_error()
    }

    /// Ends a request with an error when it runs next.
    fn end_later(&mut self, number: u64, errno: Errno) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        request.ending = Some(errno);
        if !std::mem::replace(&mut request.is_runnable, true) {
            self.runnable.push_back(number);
        }
    }

    /// Posts a completion of a multishot request, unless it must be its last one.
    fn post_one_of_several(&mut self, data: u64, result: i32, flags: u32) -> bool {
        if !self.has_space() || self.has_fault(self.faults.ended_multishots) {
            return false; // (c)
        }
        self.post(Cqe { user_data: data, result, flags: flags | cqe_flags::MORE });
        true
    }

    fn poll(
        &mut self,
        data: u64,
        socket: Option<SocketId>,
        events: Readiness,
        is_multishot: bool,
    ) -> Progress {
        let ready = match socket {
            Some(socket) => self.host().readiness(socket),
            None if self.reported_wake_up.is_none() && self.host().is_woken() => {
                Readiness::READABLE
            }
            None => Readiness::empty(),
        };
        // The bits equal those of poll(2).
        let ready = ready & (events | Readiness::ERROR | Readiness::HANGUP);
        let ready = i32::from(ready.bits());
        if ready == 0 {
            return Progress::Blocked;
        }
        if socket.is_none() {
            self.reported_wake_up = Some(data);
        }
        if is_multishot && self.post_one_of_several(data, ready, 0) {
            return Progress::Blocked;
        }
        Progress::Ended(ready, 0)
    }

    fn accept(&mut self, data: u64, listener: SocketId, is_multishot: bool) -> Progress {
        loop {
            let is_ready = self.host().readiness(listener).contains(Readiness::READABLE);
            if is_ready && self.has_fault(self.faults.accept_failures) {
                let errors =
                    [Errno::CONNABORTED, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
                return failed(errors[self.decide(errors.len())]);
            }
            let accepted = match self.host().accept(listener) {
                Ok((socket, _)) => self.kernel.install(socket),
                Err(Errno::AGAIN) => return Progress::Blocked,
                Err(errno) => return failed(errno),
            };
            if !is_multishot || !self.post_one_of_several(data, accepted, 0) {
                return Progress::Ended(accepted, 0);
            }
        }
    }

    fn receive(&mut self, data: u64, socket: SocketId, group: u16, is_multishot: bool) -> Progress {
        let is_greedy = self.has_fault(self.faults.greedy_receives);
        for _ in 0..if is_greedy { usize::MAX } else { MAX_RETRIES } {
            if self.has_fault(self.faults.missing_buffers) {
                return failed(Errno::NOBUFS);
            }
            // The kernel selects a buffer before it looks for bytes.
            let Some(buffer) = self.first_buffer(group) else {
                return failed(Errno::NOBUFS);
            };
            let available = self.host().readable_bytes(socket);
            if available > 0 && self.has_fault(self.faults.transfer_failures) {
                return failed([Errno::NOMEM, Errno::HOSTUNREACH][self.decide(2)]);
            }
            let is_short = available > 1 && self.has_fault(self.faults.short_receives);
            let max = if is_short { 1 + self.decide(available - 1) } else { usize::MAX };
            // SAFETY: the kernel has the buffer, and the program does not access its memory.
            let memory = unsafe { buffer.memory(max) };
            let count = match self.host().recv(socket, memory) {
                Ok(0) => {
                    let takes_buffer = self.has_fault(self.faults.buffers_at_end);
                    return Progress::Ended(
                        0,
                        if takes_buffer { self.take_buffer(buffer) } else { 0 },
                    );
                }
                Ok(count) => count as i32,
                Err(Errno::AGAIN) => return Progress::Blocked,
                Err(errno) => return failed(errno),
            };
            let flags = self.take_buffer(buffer);
            if !is_multishot || !self.post_one_of_several(data, count, flags) {
                return Progress::Ended(count, flags);
            }
        }
        Progress::Yielded
    }

    fn first_buffer(&self, group: u16) -> Option<Buffer> {
        self.buffers.as_ref()?.first(group)
    }

    /// Uses a buffer. Returns the flags of the completion that passes it to the program.
    fn take_buffer(&mut self, buffer: Buffer) -> u32 {
        if let Some(buffers) = &mut self.buffers {
            buffers.take(buffer);
        }
        cqe_flags::BUFFER | u32::from(buffer.number) << cqe_flags::BUFFER_SHIFT
    }

    fn send(&mut self, socket: SocketId, transfer: &mut Transfer) -> Progress {
        if self.has_fault(self.faults.transfer_failures) {
            return transfer.end_with([Errno::NOMEM, Errno::HOSTUNREACH][self.decide(2)]);
        }
        loop {
            // SAFETY: the request has not ended, so the program keeps the bytes.
            let unsent = unsafe { transfer.unsent() };
            let (length, before) = (unsent.len(), transfer.sent);
            match self.host().send(socket, unsent) {
                Ok(count) => transfer.sent += count,
                Err(Errno::AGAIN) if transfer.waits_for_all || before == 0 => {
                    return Progress::Blocked;
                }
                Err(Errno::AGAIN) => {}
                Err(errno) => return transfer.end_with(errno),
            }
            let is_short = transfer.sent - before < length;
            if transfer.sent == transfer.length() || (is_short && !transfer.waits_for_all) {
                return Progress::Ended(transfer.sent as i32, 0);
            }
        }
    }
}

impl Request {
    /// Returns the result and the flags of a request that ends with an error. A send that was
    /// partly performed reports that.
    fn end_with(&self, errno: Errno) -> (i32, u32) {
        match &self.operation {
            Operation::Send(transfer) if transfer.sent > 0 => (transfer.sent as i32, 0),
            _ => (-errno.raw_os_error(), 0),
        }
    }
}

impl Transfer {
    fn end_with(&self, errno: Errno) -> Progress {
        if self.sent > 0 { Progress::Ended(self.sent as i32, 0) } else { failed(errno) }
    }
}
