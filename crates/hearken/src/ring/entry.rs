//! What goes into a ring and what comes out of it: linux/io_uring.h.

use std::ffi::c_void;
use std::os::fd::RawFd;

use rustix::io_uring::{IoringOp, IoringPollFlags};

/// A submission.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sqe {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: RawFd,
    offset: u64,
    addr: u64,
    len: u32,
    op_flags: u32,
    user_data: u64,
    buf_group: u16,
    personality: u16,
    file_index: u32,
    addr3: u64,
    reserved: u64,
}

const _: () = assert!(size_of::<Sqe>() == 64 && size_of::<Cqe>() == 16);

/// Operations that are named where support for them is asked for.
pub(crate) mod op {
    use rustix::io_uring::IoringOp;

    pub(crate) const EPOLL_CTL: u8 = IoringOp::EpollCtl as u8;
    /// `IORING_OP_EPOLL_WAIT`, which the system-call crate lacks.
    pub(crate) const EPOLL_WAIT: u8 = 59;
}

/// `IOSQE_CQE_SKIP_SUCCESS`.
const SKIP_SUCCESS: u8 = 1 << 6;

impl Sqe {
    #[inline]
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

    /// Tells of poll(2)'s `events`: once, or until it is cancelled.
    #[inline]
    pub(crate) fn poll(fd: RawFd, events: u32, multishot: bool) -> Sqe {
        let len = if multishot { IoringPollFlags::ADD_MULTI.bits() } else { 0 };
        // The kernel wants the halves swapped where the low one is not first.
        let op_flags = if cfg!(target_endian = "big") { events.rotate_left(16) } else { events };
        Sqe { len, op_flags, ..Sqe::new(IoringOp::PollAdd as u8, fd) }
    }

    /// Cancels the request that was submitted with this user data.
    #[inline]
    pub(crate) fn cancel(user_data: u64) -> Sqe {
        Sqe { addr: user_data, ..Sqe::new(IoringOp::AsyncCancel as u8, -1) }
    }

    /// epoll_ctl(2); the kernel reads the event when this is handed over.
    #[inline]
    pub(crate) fn epoll_ctl(epoll: RawFd, op: u32, fd: RawFd, event: *const c_void) -> Sqe {
        let (addr, offset) = (event as u64, fd as u64);
        Sqe { addr, len: op, offset, ..Sqe::new(op::EPOLL_CTL, epoll) }
    }

    /// epoll_wait(2); the kernel writes the events before it completes.
    #[inline]
    pub(crate) fn epoll_wait(epoll: RawFd, events: *mut c_void, room: u32) -> Sqe {
        Sqe { addr: events as u64, len: room, ..Sqe::new(op::EPOLL_WAIT, epoll) }
    }

    /// With what comes back with the completion.
    #[inline]
    pub(crate) fn user_data(self, user_data: u64) -> Sqe {
        Sqe { user_data, ..self }
    }

    /// Only a failure is told.
    #[inline]
    pub(crate) fn skip_success(self) -> Sqe {
        Sqe { flags: self.flags | SKIP_SUCCESS, ..self }
    }
}

/// A completion.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Cqe {
    user_data: u64,
    result: i32,
    flags: u32,
}

/// `IORING_CQE_F_MORE`.
const MORE: u32 = 1 << 1;

impl Cqe {
    /// What was submitted with it.
    #[inline]
    pub(crate) fn user_data(&self) -> u64 {
        self.user_data
    }

    /// What the call would have returned; an error as a negative number.
    #[inline]
    pub(crate) fn result(&self) -> i32 {
        self.result
    }

    /// True if there are to be more completions of the same request.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.flags & MORE != 0
    }
}
