//! The submission and completion entries of a ring: linux/io_uring.h.

use std::ffi::c_void;
use std::os::fd::RawFd;

use rustix::io_uring::{
    IoringAcceptFlags, IoringAsyncCancelFlags, IoringOp, IoringPollFlags, IoringRecvFlags,
};

/// A submission.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sqe {
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    pub(crate) ioprio: u16,
    pub(crate) fd: RawFd,
    pub(crate) offset: u64,
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) op_flags: u32,
    pub(crate) user_data: u64,
    pub(crate) buf_group: u16,
    pub(crate) personality: u16,
    pub(crate) file_index: u32,
    pub(crate) addr3: u64,
    pub(crate) reserved: u64,
}

const _: () = assert!(size_of::<Sqe>() == 64 && size_of::<Cqe>() == 16);

/// The numbers of operations whose support is checked.
pub(crate) mod op {
    use rustix::io_uring::IoringOp;

    /// Introduced together with multishot receive, whose support cannot be checked: Linux 6.0.
    pub(crate) const SEND_ZC: u8 = IoringOp::SendZc as u8;
    pub(crate) const EPOLL_CTL: u8 = IoringOp::EpollCtl as u8;
    /// `IORING_OP_EPOLL_WAIT`, which the system-call crate lacks.
    pub(crate) const EPOLL_WAIT: u8 = 59;
}

/// `IOSQE_*`.
pub(crate) mod sqe_flags {
    pub(crate) const LINK: u8 = 1 << 2;
    pub(crate) const HARDLINK: u8 = 1 << 3;
    pub(crate) const BUFFER_SELECT: u8 = 1 << 5;
    pub(crate) const SKIP_SUCCESS: u8 = 1 << 6;
}

// Always inlined, so that an entry is written only once, directly to the queue.
#[allow(clippy::inline_always)]
impl Sqe {
    #[inline(always)]
    const fn new(opcode: u8, fd: RawFd) -> Sqe {
        Sqe {
            opcode,
            flags: 0,
            ioprio: 0,
            fd,
            offset: 0,
            addr: 0,
            len: 0,
            op_flags: 0,
            user_data: 0,
            buf_group: 0,
            personality: 0,
            file_index: 0,
            addr3: 0,
            reserved: 0,
        }
    }

    /// Reports the `events` of poll(2), once or until it is cancelled.
    #[inline(always)]
    pub(crate) fn poll(fd: RawFd, events: u32, multishot: bool) -> Sqe {
        let len = if multishot { IoringPollFlags::ADD_MULTI.bits() } else { 0 };
        // The kernel expects swapped halves on big-endian machines.
        let op_flags = if cfg!(target_endian = "big") { events.rotate_left(16) } else { events };
        Sqe { len, op_flags, ..Sqe::new(IoringOp::PollAdd as u8, fd) }
    }

    /// Cancels the request that was submitted with this user data.
    #[inline(always)]
    pub(crate) fn cancel(user_data: u64) -> Sqe {
        Sqe { addr: user_data, ..Sqe::new(IoringOp::AsyncCancel as u8, -1) }
    }

    /// Calls epoll_ctl(2). The kernel reads the event when the entry is submitted.
    #[inline(always)]
    pub(crate) fn epoll_ctl(epoll: RawFd, op: u32, fd: RawFd, event: *const c_void) -> Sqe {
        let (addr, offset) = (event as u64, fd as u64);
        Sqe { addr, len: op, offset, ..Sqe::new(op::EPOLL_CTL, epoll) }
    }

    /// Calls epoll_wait(2). The kernel writes the events before it completes.
    #[inline(always)]
    pub(crate) fn epoll_wait(epoll: RawFd, events: *mut c_void, room: u32) -> Sqe {
        Sqe { addr: events as u64, len: room, ..Sqe::new(op::EPOLL_WAIT, epoll) }
    }

    /// Cancels all submitted requests.
    #[inline(always)]
    pub(crate) fn cancel_all() -> Sqe {
        let flags = IoringAsyncCancelFlags::ANY | IoringAsyncCancelFlags::ALL;
        Sqe { op_flags: flags.bits(), ..Sqe::cancel(0) }
    }

    /// Accepts one connection with `flags`, or all connections until it is cancelled or fails.
    #[inline(always)]
    pub(crate) fn accept(listener: RawFd, flags: u32, multishot: bool) -> Sqe {
        let ioprio = if multishot { IoringAcceptFlags::MULTISHOT.bits() } else { 0 };
        Sqe { ioprio, op_flags: flags, ..Sqe::new(IoringOp::Accept as u8, listener) }
    }

    /// Receives into provided buffers, once or until it is cancelled, fails or runs out of buffers.
    #[inline(always)]
    pub(crate) fn receive(fd: RawFd, group: u16, multishot: bool) -> Sqe {
        let ioprio = if multishot { IoringRecvFlags::MULTISHOT.bits() } else { 0 };
        let receive = Sqe::new(IoringOp::Recv as u8, fd);
        Sqe { flags: sqe_flags::BUFFER_SELECT, ioprio, buf_group: group, ..receive }
    }

    /// Sends `bytes`, which stay valid until the completion.
    #[inline(always)]
    pub(crate) fn send(fd: RawFd, bytes: *const [u8], flags: u32) -> Sqe {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX >> 1);
        let addr = bytes.cast::<u8>() as u64;
        Sqe { addr, len, op_flags: flags, ..Sqe::new(IoringOp::Send as u8, fd) }
    }

    /// Sends `message`. The kernel reads it when the entry is submitted. The memory that it names
    /// stays valid until the completion.
    #[inline(always)]
    pub(crate) fn sendmsg(fd: RawFd, message: *const libc::msghdr, flags: u32) -> Sqe {
        let addr = message as u64;
        Sqe { addr, len: 1, op_flags: flags, ..Sqe::new(IoringOp::Sendmsg as u8, fd) }
    }

    /// Calls close(2).
    #[inline(always)]
    pub(crate) fn close(fd: RawFd) -> Sqe {
        Sqe::new(IoringOp::Close as u8, fd)
    }

    /// Links the next entry: it starts after this one has succeeded, or is cancelled if this one
    /// fails.
    #[inline(always)]
    pub(crate) fn link(self) -> Sqe {
        Sqe { flags: self.flags | sqe_flags::LINK, ..self }
    }

    /// Links the next entry: it starts after this one has ended, successfully or not.
    #[inline(always)]
    pub(crate) fn hard_link(self) -> Sqe {
        Sqe { flags: self.flags | sqe_flags::HARDLINK, ..self }
    }

    /// Sets the user data that the completion carries.
    #[inline(always)]
    pub(crate) fn user_data(self, user_data: u64) -> Sqe {
        Sqe { user_data, ..self }
    }

    /// Suppresses the completion of a success.
    #[inline(always)]
    pub(crate) fn skip_success(self) -> Sqe {
        Sqe { flags: self.flags | sqe_flags::SKIP_SUCCESS, ..self }
    }
}

/// A completion.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Cqe {
    pub(crate) user_data: u64,
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

/// `IORING_CQE_F_*`, and the position of the buffer ID.
pub(crate) mod cqe_flags {
    pub(crate) const BUFFER: u32 = 1;
    pub(crate) const MORE: u32 = 1 << 1;
    pub(crate) const BUFFER_SHIFT: u32 = 16;
}

impl Cqe {
    /// Returns the user data of the submission.
    #[inline]
    pub(crate) fn user_data(&self) -> u64 {
        self.user_data
    }

    /// Returns the result of the call. Errors are negative numbers.
    #[inline]
    pub(crate) fn result(&self) -> i32 {
        self.result
    }

    /// Returns the ID of the provided buffer that was used, if any.
    #[inline]
    pub(crate) fn buffer(&self) -> Option<u16> {
        (self.flags & cqe_flags::BUFFER != 0)
            .then_some((self.flags >> cqe_flags::BUFFER_SHIFT) as u16)
    }

    /// Returns whether the request will have more completions.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.flags & cqe_flags::MORE != 0
    }
}
