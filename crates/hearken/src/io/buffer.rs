//! Buffers, lent by a bounded pool.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// Lends out [`Buffer`]s of one size, a bounded number at a time. Cheap to clone.
///
/// Memory is allocated when it is first needed and kept for the next borrower; an idle connection
/// holds none.
#[derive(Clone)]
pub struct Pool(Rc<Inner>);

struct Inner {
    free: RefCell<Vec<Vec<u8>>>,
    lent: Cell<usize>,
    limit: usize,
    size: usize,
}

/// How many free buffers a pool keeps for the next borrowers.
const KEPT: usize = 64;

impl Pool {
    /// A pool that lends up to `limit` buffers of `size` bytes.
    pub fn new(limit: usize, size: usize) -> Pool {
        let free = RefCell::new(Vec::with_capacity(KEPT));
        Pool(Rc::new(Inner { free, lent: Cell::new(0), limit: limit.max(1), size: size.max(64) }))
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
        let bytes = self.0.free.borrow_mut().pop();
        let bytes = bytes.unwrap_or_else(|| Vec::with_capacity(self.0.size));
        Buffer { bytes, start: 0, lent: true, pool: self.clone() }
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

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { lent, limit, size, .. } = &*self.0;
        write!(f, "Pool({} of {limit} x {size} B lent)", lent.get())
    }
}

/// Bytes on loan from a [`Pool`], to which they return when dropped.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    lent: bool,
    pool: Pool,
}

impl Buffer {
    /// Drops the first `count` bytes (all, if there are fewer). O(1).
    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.bytes.len());
    }

    /// The whole as a vector to append to. What was consumed is still in front; a buffer that was
    /// never consumed from is just what was appended. It may grow past the pool's size.
    #[inline]
    pub fn as_vec(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Gives the memory back to the pool and leaves the buffer empty. O(1).
    #[inline]
    pub fn release(&mut self) {
        if !std::mem::take(&mut self.lent) {
            return;
        }
        self.start = 0;
        let mut bytes = std::mem::take(&mut self.bytes);
        let pool = &*self.pool.0;
        pool.lent.set(pool.lent.get() - 1);
        let mut free = pool.free.borrow_mut();
        // One that has grown is let go, or a single long answer would be kept for ever.
        if free.len() < KEPT && bytes.capacity() == pool.size {
            bytes.clear();
            free.push(bytes);
        }
    }

    /// How many more bytes it takes before it has to grow.
    #[inline]
    pub fn room(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // A caller of as_vec may have shortened it.
        self.bytes.get(self.start..).unwrap_or(&[])
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
