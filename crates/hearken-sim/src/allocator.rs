//! Settings of the memory allocator for many short histories.

// The C library's allocator has no other interface.
#![allow(unsafe_code)]

/// Lets the allocator keep memory that a history releases, for the next one. Otherwise glibc returns
/// large blocks to the kernel, and each page of the next history causes a fault.
pub(crate) fn keep_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, bytes) in
        [(libc::M_TRIM_THRESHOLD, 1 << 30), (libc::M_MMAP_THRESHOLD, 32 << 20)]
    {
        // SAFETY: the call changes only when the allocator requests and returns memory.
        unsafe { libc::mallopt(parameter, bytes) };
    }
}
