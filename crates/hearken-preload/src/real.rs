//! The functions of libc that this library replaces.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Finds a function behind this library in the order of the dynamic linker, once.
fn find(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = cache.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    cache.store(found, Ordering::Relaxed);
    found
}

extern "C" fn missing() -> c_int {
    // SAFETY: the pointer refers to the thread's error number.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => { $(
        /// Calls the function of libc.
        ///
        /// # Safety
        /// Its contract.
        pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
            static CACHE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
            let mut function = find(&CACHE, NAME);
            if function.is_null() {
                function = missing as *mut c_void;
            }
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            // SAFETY: libc's function has this type. `missing` ignores its arguments.
            let function = unsafe { std::mem::transmute::<*mut c_void, Function>(function) };
            // SAFETY: the caller's contract.
            unsafe { function($($argument),*) }
        }
    )* };
}

real! {
    syscall(number: c_long, a: *mut c_void, b: *mut c_void, c: *mut c_void, d: *mut c_void,
            e: *mut c_void, f: *mut c_void) -> c_long;
    open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    write(fd: c_int, bytes: *const c_void, count: usize) -> isize;
    writev(fd: c_int, vector: *const libc::iovec, count: c_int) -> isize;
    pwrite64(fd: c_int, bytes: *const c_void, count: usize, offset: i64) -> isize;
    ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom(first: c_int) -> ();
    fclose(stream: *mut libc::FILE) -> c_int;
    pclose(stream: *mut libc::FILE) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, number: c_int) -> c_int;
    dup3(fd: c_int, number: c_int, flags: c_int) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize;
    poll(list: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    ppoll(list: *mut libc::pollfd, count: libc::nfds_t, timeout: *const libc::timespec,
          mask: *const libc::sigset_t) -> c_int;
    select(bound: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set,
           except: *mut libc::fd_set, timeout: *mut libc::timeval) -> c_int;
    pselect(bound: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set,
            except: *mut libc::fd_set, timeout: *const libc::timespec,
            mask: *const libc::sigset_t) -> c_int;
    epoll_create1(flags: c_int) -> c_int;
    epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int;
    epoll_wait(epoll: c_int, events: *mut libc::epoll_event, max: c_int, timeout: c_int) -> c_int;
    epoll_pwait(epoll: c_int, events: *mut libc::epoll_event, max: c_int, timeout: c_int,
                mask: *const libc::sigset_t) -> c_int;
    epoll_pwait2(epoll: c_int, events: *mut libc::epoll_event, max: c_int,
                 timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int;
}
