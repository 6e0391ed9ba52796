//! Buffers, lent by a bounded pool.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use super::uring::Provided;

/// Lends out [`Buffer`]s of one size, a bounded number at a time. Cheap to clone.
///
/// Memory is allocated when it is first needed and kept for the next borrower; an idle connection
/// holds none.
#[derive(Clone)]
pub struct Pool(Rc<Inner>);

struct Inner {
    // Boxed, so that a buffer moves as one word.
    #[expect(clippy::vec_box, reason = "what is lent is the box")]
    free: RefCell<Vec<Box<Lent>>>,
    /// What provided memory was lent in, which is none of the pool's.
    #[expect(clippy::vec_box, reason = "what is lent is the box")]
    shells: RefCell<Vec<Box<Lent>>>,
    lent: Cell<usize>,
    limit: usize,
    size: usize,
}

#[derive(Default)]
struct Lent {
    bytes: Vec<u8>,
    /// In the place of `bytes`.
    provided: Option<Provided>,
    start: usize,
    /// To which it returns; none while it is there.
    pool: Option<Rc<Inner>>,
}

/// How many free buffers a pool keeps for the next borrowers.
const KEPT: usize = 64;

impl Pool {
    /// A pool that lends up to `limit` buffers of `size` bytes.
    pub fn new(limit: usize, size: usize) -> Pool {
        let free = RefCell::new(Vec::with_capacity(KEPT));
        Pool(Rc::new(Inner {
            free,
            shells: RefCell::default(),
            lent: Cell::new(0),
            limit: limit.max(1),
            size: size.max(64),
        }))
    }

    /// Lends an empty buffer, or none if `limit` are out. O(1).
    #[inline]
    pub fn lend(&self) -> Option<Buffer> {
        (!self.is_exhausted()).then(|| self.lend_beyond())
    }

    /// Lends an empty buffer even if `limit` are out: for an answer that frees more than it takes.
    #[inline]
    pub fn lend_beyond(&self) -> Buffer {
        self.0.lent.set(self.0.lent.get() + 1);
        let free = self.0.free.borrow_mut().pop();
        let mut lent = free.unwrap_or_else(|| self.0.make());
        lent.pool = Some(Rc::clone(&self.0));
        Buffer(Some(lent))
    }

    /// Counts what the kernel has filled as lent.
    #[inline]
    pub(super) fn lend_provided(&self, provided: Provided) -> Buffer {
        self.0.lent.set(self.0.lent.get() + 1);
        let shell = self.0.shells.borrow_mut().pop();
        let mut lent = shell.unwrap_or_default();
        lent.provided = Some(provided);
        lent.pool = Some(Rc::clone(&self.0));
        Buffer(Some(lent))
    }

    /// True if no buffer can be lent now.
    #[inline]
    pub fn is_exhausted(&self) -> bool {
        self.0.lent.get() >= self.0.limit
    }

    /// How many buffers are out.
    pub fn lent(&self) -> usize {
        self.0.lent.get()
    }

    /// The size of a buffer, in bytes.
    pub fn size(&self) -> usize {
        self.0.size
    }
}

impl Lent {
    /// All of it, with what was consumed.
    #[inline]
    fn whole(&self) -> &[u8] {
        match &self.provided {
            None => &self.bytes,
            Some(provided) => provided,
        }
    }
}

impl Inner {
    #[cold]
    fn make(&self) -> Box<Lent> {
        Box::new(Lent { bytes: Vec::with_capacity(self.size), ..Lent::default() })
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { lent, limit, size, .. } = &*self.0;
        write!(f, "Pool({} of {limit} x {size} B lent)", lent.get())
    }
}

/// Bytes on loan from a [`Pool`], to which they return when dropped. One word.
pub struct Buffer(Option<Box<Lent>>);

impl Buffer {
    /// Drops the first `count` bytes (all, if there are fewer). O(1).
    #[inline]
    pub fn consume(&mut self, count: usize) {
        if let Some(lent) = &mut self.0 {
            lent.start = lent.start.saturating_add(count).min(lent.whole().len());
        }
    }

    /// The whole as a vector to append to. What was consumed is still in front; a buffer that was
    /// never consumed from is just what was appended. It may grow past the pool's size. One that
    /// was received through io_uring is copied for it.
    #[inline]
    pub fn as_vec(&mut self) -> &mut Vec<u8> {
        self.own();
        &mut self.0.get_or_insert_default().bytes
    }

    /// Copies what is in memory that the kernel is to have again.
    #[inline]
    pub(super) fn own(&mut self) {
        if let Some(lent) = &mut self.0
            && let Some(provided) = lent.provided.take()
        {
            lent.bytes.extend_from_slice(&provided);
        }
    }

    /// Gives the memory back to the pool and leaves the buffer empty. O(1).
    #[inline]
    pub fn release(&mut self) {
        let Some(mut lent) = self.0.take() else { return };
        let Some(pool) = lent.pool.take() else { return };
        pool.lent.set(pool.lent.get() - 1);
        if lent.provided.take().is_some() {
            lent.start = 0;
            let mut shells = pool.shells.borrow_mut();
            if shells.len() < KEPT {
                shells.push(lent);
            }
            return;
        }
        let mut free = pool.free.borrow_mut();
        // One that has grown is let go, or a single long answer would be kept for ever.
        if free.len() < KEPT && lent.bytes.capacity() == pool.size {
            lent.start = 0;
            lent.bytes.clear();
            free.push(lent);
        }
    }

    /// Keeps the memory, and gives its place in the pool to another: for bytes that may stay for long
    /// because of a slow peer, who is not to keep others from being lent to. O(1).
    #[inline]
    pub fn keep(&mut self) {
        self.own();
        if let Some(pool) = self.0.as_mut().and_then(|lent| lent.pool.take()) {
            pool.lent.set(pool.lent.get() - 1);
        }
    }

    /// How many more bytes it takes before it has to grow.
    #[inline]
    pub fn room(&self) -> usize {
        self.0.as_ref().map_or(0, |lent| lent.bytes.capacity() - lent.bytes.len())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // A caller of as_vec may have shortened it.
        self.0.as_ref().and_then(|lent| lent.whole().get(lent.start..)).unwrap_or(&[])
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}
