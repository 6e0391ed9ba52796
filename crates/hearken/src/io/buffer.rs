//! A bounded pool of buffers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use super::uring::Provided;

/// A pool of [`Buffer`]s of one size, of which a limited number is in use at a time. Cheap to
/// clone.
///
/// Memory is allocated when it is first needed, and retained for later buffers. An idle connection
/// holds no buffer.
#[derive(Clone)]
pub struct Pool(Rc<Inner>);

struct Inner {
    // Boxed, so that a buffer moves as one word.
    #[expect(clippy::vec_box, reason = "a buffer owns the box")]
    free: RefCell<Vec<Box<Storage>>>,
    /// Free storage for memory that the kernel provided, without memory of its own.
    #[expect(clippy::vec_box, reason = "a buffer owns the box")]
    free_provided: RefCell<Vec<Box<Storage>>>,
    in_use: Cell<usize>,
    limit: usize,
    size: usize,
}

/// The contents of a buffer.
#[derive(Default)]
struct Storage {
    bytes: Vec<u8>,
    /// Memory that the kernel filled, which replaces `bytes`.
    provided: Option<Provided>,
    start: usize,
    /// The pool to which the storage returns. `None` while it is free or detached.
    pool: Option<Rc<Inner>>,
}

/// Maximum number of free buffers that a pool retains.
const MAX_FREE: usize = 64;

impl Pool {
    /// Creates a pool of up to `limit` buffers of `size` bytes.
    pub fn new(limit: usize, size: usize) -> Pool {
        let free = RefCell::new(Vec::with_capacity(MAX_FREE));
        Pool(Rc::new(Inner {
            free,
            free_provided: RefCell::default(),
            in_use: Cell::new(0),
            limit: limit.max(1),
            size: size.max(64),
        }))
    }

    /// Returns an empty buffer, or `None` if `limit` buffers are in use. O(1).
    #[inline]
    pub fn acquire(&self) -> Option<Buffer> {
        (!self.is_exhausted()).then(|| self.acquire_over_limit())
    }

    /// Returns an empty buffer even if `limit` buffers are in use: for a response that releases
    /// more memory than it needs. O(1).
    #[inline]
    pub fn acquire_over_limit(&self) -> Buffer {
        self.0.in_use.set(self.0.in_use.get() + 1);
        let free = self.0.free.borrow_mut().pop();
        let mut storage = free.unwrap_or_else(|| self.0.make());
        storage.pool = Some(Rc::clone(&self.0));
        Buffer(Some(storage))
    }

    /// Returns a buffer of memory that the kernel filled. It counts as in use.
    #[inline]
    pub(super) fn acquire_provided(&self, provided: Provided) -> Buffer {
        self.0.in_use.set(self.0.in_use.get() + 1);
        let free = self.0.free_provided.borrow_mut().pop();
        let mut storage = free.unwrap_or_default();
        storage.provided = Some(provided);
        storage.pool = Some(Rc::clone(&self.0));
        Buffer(Some(storage))
    }

    /// Returns whether `limit` buffers are in use.
    #[inline]
    pub fn is_exhausted(&self) -> bool {
        self.0.in_use.get() >= self.0.limit
    }

    /// Returns whether more than half of `limit` buffers are in use.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        self.0.in_use.get() > self.0.limit / 2
    }

    /// Returns the number of buffers in use.
    pub fn in_use(&self) -> usize {
        self.0.in_use.get()
    }

    /// Returns the size of a buffer in bytes.
    pub fn size(&self) -> usize {
        self.0.size
    }
}

impl Storage {
    /// Returns all bytes, including those that were consumed.
    #[inline]
    fn all(&self) -> &[u8] {
        match &self.provided {
            None => &self.bytes,
            Some(provided) => provided,
        }
    }
}

impl Inner {
    #[cold]
    fn make(&self) -> Box<Storage> {
        Box::new(Storage { bytes: Vec::with_capacity(self.size), ..Storage::default() })
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { in_use, limit, size, .. } = &*self.0;
        write!(f, "Pool({} of {limit} x {size} B in use)", in_use.get())
    }
}

/// A buffer of a [`Pool`], to which its memory returns on drop. The size of one word. The default is
/// an empty buffer without memory, of no pool.
#[derive(Default)]
pub struct Buffer(Option<Box<Storage>>);

impl Buffer {
    /// Removes the first `count` bytes, or all if there are fewer. O(1).
    #[inline]
    pub fn consume(&mut self, count: usize) {
        if let Some(storage) = &mut self.0 {
            storage.start = storage.start.saturating_add(count).min(storage.all().len());
        }
    }

    /// Returns all bytes as a vector, to append to. Consumed bytes are still at its front. The
    /// vector may grow beyond the size of the pool's buffers. The bytes of a buffer that io_uring
    /// received are copied first.
    #[inline]
    pub fn as_vec(&mut self) -> &mut Vec<u8> {
        self.copy_provided();
        &mut self.0.get_or_insert_default().bytes
    }

    /// Returns the bytes, to change them in place.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let Some(storage) = &mut self.0 else { return &mut [] };
        let Storage { bytes, provided, start, .. } = &mut **storage;
        let all = provided.as_deref_mut().unwrap_or(bytes);
        all.get_mut(*start..).unwrap_or_default()
    }

    /// Copies the bytes out of memory that the kernel provided, which then returns to the kernel.
    #[inline]
    pub(super) fn copy_provided(&mut self) {
        if let Some(storage) = &mut self.0
            && let Some(provided) = storage.provided.take()
        {
            storage.bytes.extend_from_slice(&provided);
        }
    }

    /// Returns the memory to the pool and leaves the buffer empty. O(1).
    #[inline]
    pub fn release(&mut self) {
        let Some(mut storage) = self.0.take() else { return };
        let Some(pool) = storage.pool.take() else { return };
        pool.in_use.set(pool.in_use.get() - 1);
        if storage.provided.take().is_some() {
            storage.start = 0;
            let mut free_provided = pool.free_provided.borrow_mut();
            if free_provided.len() < MAX_FREE {
                free_provided.push(storage);
            }
            return;
        }
        let mut free = pool.free.borrow_mut();
        // A buffer that has grown is freed. Otherwise one long response would occupy its memory
        // indefinitely.
        if free.len() < MAX_FREE && storage.bytes.capacity() == pool.size {
            storage.start = 0;
            storage.bytes.clear();
            free.push(storage);
        }
    }

    /// Detaches the memory from the pool, so that the buffer no longer counts as in use. Bytes for
    /// a slow peer then do not prevent other connections from receiving. O(1).
    #[inline]
    pub fn detach(&mut self) {
        self.copy_provided();
        if let Some(pool) = self.0.as_mut().and_then(|storage| storage.pool.take()) {
            pool.in_use.set(pool.in_use.get() - 1);
        }
    }

    /// Returns the number of bytes that fit before the buffer grows.
    #[inline]
    pub fn spare_capacity(&self) -> usize {
        self.0.as_ref().map_or(0, |storage| storage.bytes.capacity() - storage.bytes.len())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // A caller of `as_vec` may have shortened the vector.
        self.0.as_ref().and_then(|storage| storage.all().get(storage.start..)).unwrap_or(&[])
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
