//! The buffer pool.

use hearken::io::Pool;

use crate::suite::{Tests, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        limits_the_buffers_in_use
        a_buffer_is_released_once
        a_buffer_is_consumed_from_its_front
        a_grown_buffer_is_not_reused
        a_detached_buffer_is_not_in_use
    }
}

fn limits_the_buffers_in_use() {
    let pool = Pool::new(2, 100);
    let (first, second) = (pool.lend().unwrap(), pool.lend().unwrap());
    assert!(pool.is_exhausted() && pool.lend().is_none());
    let beyond = pool.lend_beyond();
    assert_eq!(pool.lent(), 3);
    drop(first);
    assert!(pool.lend().is_none(), "the limit is still reached");
    drop((second, beyond));
    assert_eq!(pool.lent(), 0);
    assert!(!pool.is_exhausted());
}

fn a_buffer_is_released_once() {
    let pool = Pool::new(1, 100);
    let mut buffer = pool.lend().unwrap();
    buffer.as_vec().extend_from_slice(b"bytes");
    buffer.release();
    assert_eq!((pool.lent(), buffer.len()), (0, 0));
    let other = pool.lend().unwrap();
    buffer.release();
    drop(buffer);
    assert_eq!(pool.lent(), 1, "the other buffer is in use");
    assert!(other.is_empty(), "it contains bytes of an earlier use");
}

fn a_buffer_is_consumed_from_its_front() {
    let pool = Pool::new(1, 100);
    let mut buffer = pool.lend().unwrap();
    assert_eq!(buffer.room(), 100);
    buffer.as_vec().extend_from_slice(b"head and body");
    assert_eq!(buffer.room(), 87);
    buffer.consume(5);
    assert_eq!(&*buffer, b"and body");
    buffer.as_vec().truncate(3);
    assert_eq!(&*buffer, b"");
    buffer.consume(usize::MAX);
    assert_eq!(&*buffer, b"");
}

fn a_grown_buffer_is_not_reused() {
    let pool = Pool::new(1, 100);
    let mut buffer = pool.lend().unwrap();
    buffer.as_vec().resize(10_000, 1);
    drop(buffer);
    assert_eq!(pool.lend().unwrap().room(), 100);
}

fn a_detached_buffer_is_not_in_use() {
    let pool = Pool::new(1, 100);
    let mut kept = pool.lend().unwrap();
    kept.as_vec().extend_from_slice(b"bytes");
    assert!(pool.is_exhausted());
    kept.keep();
    kept.keep();
    assert_eq!((pool.lent(), &*kept), (0, &b"bytes"[..]));
    let other = pool.lend().unwrap();
    drop(kept);
    assert_eq!(pool.lent(), 1, "the other buffer is in use");
    drop(other);
    assert_eq!(pool.lent(), 0);
}
