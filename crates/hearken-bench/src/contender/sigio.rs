//! SIGIO with an asynchronous handler, which Banga, Mogul and Druschel (1999) describe: the kernel
//! interrupts the program for each event, and the handler records the descriptor.
//!
//! The signal is a real-time signal, because the kernel merges pending signals below these, and such
//! a signal names only one descriptor. It needs no system call to receive an event, but one to return
//! from the handler.

// Signal handlers, and the owner of a descriptor's signals.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use crate::measure::Dispatcher;
use crate::pairs::read_byte;

/// `F_SETSIG` (asm-generic/fcntl.h).
const F_SETSIG: libc::c_int = 10;

/// Maximum number of recorded descriptors, a power of two.
const CAPACITY: usize = 1 << 14;

/// The descriptors that the handler has recorded: a queue with one writer, the handler, and one reader,
/// the thread that it interrupts.
struct Recorded {
    descriptors: [AtomicI32; CAPACITY],
    written: AtomicUsize,
    read: AtomicUsize,
    overflowed: AtomicBool,
}

static RECORDED: Recorded = Recorded {
    descriptors: [const { AtomicI32::new(0) }; CAPACITY],
    written: AtomicUsize::new(0),
    read: AtomicUsize::new(0),
    overflowed: AtomicBool::new(false),
};

impl Recorded {
    fn push(&self, descriptor: i32) {
        let written = self.written.load(Ordering::Relaxed);
        if written.wrapping_sub(self.read.load(Ordering::Relaxed)) == CAPACITY {
            self.overflowed.store(true, Ordering::Relaxed);
            return;
        }
        self.descriptors[written % CAPACITY].store(descriptor, Ordering::Relaxed);
        self.written.store(written.wrapping_add(1), Ordering::Release);
    }

    fn pop(&self) -> Option<i32> {
        let read = self.read.load(Ordering::Relaxed);
        if self.is_empty() {
            return None;
        }
        let descriptor = self.descriptors[read % CAPACITY].load(Ordering::Relaxed);
        self.read.store(read.wrapping_add(1), Ordering::Relaxed);
        Some(descriptor)
    }

    fn is_empty(&self) -> bool {
        self.written.load(Ordering::Acquire) == self.read.load(Ordering::Relaxed)
    }
}

/// The beginning of a `siginfo_t` for signals of descriptors.
#[repr(C)]
struct DescriptorSignal {
    number: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    band: libc::c_long,
    descriptor: libc::c_int,
}

extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a siginfo_t, which begins like this for signals of descriptors.
    let descriptor = unsafe { (*info.cast::<DescriptorSignal>()).descriptor };
    RECORDED.push(descriptor);
}

pub(super) struct Sigio {
    readers: Vec<OwnedFd>,
    /// The index of each reader, by descriptor number.
    indices: Vec<u32>,
    signal: libc::c_int,
}

impl Sigio {
    pub(super) fn new(readers: Vec<OwnedFd>) -> io::Result<Sigio> {
        let signal = libc::SIGRTMIN();
        // SAFETY: zeros are a valid action. The handler only uses atomics.
        let installed = unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, ptr::null_mut())
        };
        check(installed)?;
        let mut indices = Vec::new();
        for (reader, index) in readers.iter().zip(0..) {
            let fd = reader.as_raw_fd();
            indices.resize(indices.len().max(fd as usize + 1), 0);
            indices[fd as usize] = index;
            // SAFETY: the calls take no pointers, and the descriptor is open.
            unsafe {
                check(libc::fcntl(fd, F_SETSIG, signal))?;
                check(libc::fcntl(fd, libc::F_SETOWN, libc::getpid()))?;
                let flags = libc::fcntl(fd, libc::F_GETFL);
                check(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_ASYNC))?;
            }
        }
        Ok(Sigio { readers, indices, signal })
    }

    /// Sleeps until the handler has recorded a descriptor.
    fn sleep(&self) -> io::Result<()> {
        // SAFETY: the sets are initialised before they are used, and outlive the calls.
        unsafe {
            let mut blocked = MaybeUninit::uninit();
            let mut before = MaybeUninit::uninit();
            libc::sigemptyset(blocked.as_mut_ptr());
            libc::sigaddset(blocked.as_mut_ptr(), self.signal);
            check(libc::sigprocmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr()))?;
            while RECORDED.is_empty() {
                libc::sigsuspend(before.as_ptr());
            }
            check(libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()))
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Dispatcher for Sigio {
    #[inline]
    fn dispatch(&mut self, round: &[u32]) -> io::Result<()> {
        let mut remaining = round.len();
        while remaining > 0 {
            let Some(descriptor) = RECORDED.pop() else {
                self.sleep()?;
                continue;
            };
            let index = self.indices[descriptor as usize];
            remaining -= usize::from(read_byte(&self.readers[index as usize])?);
        }
        match RECORDED.overflowed.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the handler has recorded too many descriptors")),
            false => Ok(()),
        }
    }
}
