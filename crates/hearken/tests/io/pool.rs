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
    let (first, second) = (pool.acquire().unwrap(), pool.acquire().unwrap());
    assert!(pool.is_exhausted() && pool.acquire().is_none());
    let beyond = pool.acquire_over_limit();
    assert_eq!(pool.in_use(), 3);
    drop(first);
    assert!(pool.acquire().is_none(), "the limit is still reached");
    drop((second, beyond));
    assert_eq!(pool.in_use(), 0);
    assert!(!pool.is_exhausted());
}

fn a_buffer_is_released_once() {
    let pool = Pool::new(1, 100);
    let mut buffer = pool.acquire().unwrap();
    buffer.as_vec().extend_from_slice(b"bytes");
    buffer.release();
    assert_eq!((pool.in_use(), buffer.len()), (0, 0));
    let other = pool.acquire().unwrap();
    buffer.release();
    drop(buffer);
    assert_eq!(pool.in_use(), 1, "the other buffer is in use");
    assert!(other.is_empty(), "it contains bytes of an earlier use");
}

fn a_buffer_is_consumed_from_its_front() {
    let pool = Pool::new(1, 100);
    let mut buffer = pool.acquire().unwrap();
    assert_eq!(buffer.spare_capacity(), 100);
    buffer.as_vec().extend_from_slice(b"head and body");
    assert_eq!(buffer.spare_capacity(), 87);
    buffer.consume(5);
    assert_eq!(&*buffer, b"and body");
    buffer.as_vec().truncate(3);
    assert_eq!(&*buffer, b"");
    buffer.consume(usize::MAX);
    assert_eq!(&*buffer, b"");
}

fn a_grown_buffer_is_not_reused() {
    let pool = Pool::new(1, 100);
    let mut buffer = pool.acquire().unwrap();
    buffer.as_vec().resize(10_000, 1);
    drop(buffer);
    assert_eq!(pool.acquire().unwrap().spare_capacity(), 100);
}

fn a_detached_buffer_is_not_in_use() {
    let pool = Pool::new(1, 100);
    let mut kept = pool.acquire().unwrap();
    kept.as_vec().extend_from_slice(b"bytes");
    assert!(pool.is_exhausted());
    kept.detach();
    kept.detach();
    assert_eq!((pool.in_use(), &*kept), (0, &b"bytes"[..]));
    let other = pool.acquire().unwrap();
    drop(kept);
    assert_eq!(pool.in_use(), 1, "the other buffer is in use");
    drop(other);
    assert_eq!(pool.in_use(), 0);
}
