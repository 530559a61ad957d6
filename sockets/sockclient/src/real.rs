//! The C library's own functions, which `libsctpify` hides behind functions of the same names.

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
#[cfg(not(target_feature = "crt-static"))]
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, iovec, loff_t, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

/// A function that is looked up at its first use.
#[cfg(not(target_feature = "crt-static"))]
struct Function {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

#[cfg(not(target_feature = "crt-static"))]
impl Function {
    const fn new(name: &'static CStr) -> Function {
        Function { name, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // A program does not call functions that its C library lacks, so this code is not reached.
            // SAFETY: abort(3) has no preconditions.
            unsafe { libc::abort() };
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls a function behind the one that this process or its preloaded library defines.
#[cfg(not(target_feature = "crt-static"))]
macro_rules! call {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {{
        static FUNCTION: Function = Function::new(
            // SAFETY: the name of a function has no zero byte, and the macro appends one.
            unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) },
        );
        // SAFETY: the C library has the function with these types.
        let function: unsafe extern "C" fn($($type),*) -> $result =
            unsafe { core::mem::transmute(FUNCTION.address()) };
        // SAFETY: the caller fulfils the requirements of the C library's function.
        unsafe { function($($argument),*) }
    }};
}

/// Calls a function of the C library, which is part of this static program.
#[cfg(target_feature = "crt-static")]
macro_rules! call {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {{
        // SAFETY: the C library has the function with these types.
        unsafe extern "C" {
            fn $name($($argument: $type),*) -> $result;
        }
        // SAFETY: the caller fulfils the requirements of the C library's function.
        unsafe { $name($($argument),*) }
    }};
}

macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of the C library.")]
            ///
            /// # Safety
            /// The caller must fulfil the requirements of the C library's function of this name.
            pub unsafe fn $name($($argument: $type),*) -> $result {
                call!($name($($argument: $type),*) -> $result)
            }
        )*
    };
}

real! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    close(fd: c_int) -> c_int;
    fork() -> libc::pid_t;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom(first: c_int) -> ();
    fclose(stream: *mut FILE) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int;
    ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int;
    poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t;
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int, address: *mut sockaddr, size: *mut socklen_t) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    sendto(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int, address: *const sockaddr, size: socklen_t) -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    sendfile64(to: c_int, from: c_int, offset: *mut loff_t, count: size_t) -> ssize_t;
    splice(from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, length: size_t, flags: c_uint) -> ssize_t;
    __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t) -> ssize_t;
    __recv_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t, flags: c_int) -> ssize_t;
    __recvfrom_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t, flags: c_int, address: *mut sockaddr, size: *mut socklen_t) -> ssize_t;
}

/// Returns the value of an environment variable. The C library's `getenv` takes no lock.
pub(crate) fn environment(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name is a C string. The result is null or a C string.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: the value is a C string. The value stays valid until the program changes its environment. Such a change also
    // invalidates the results of the program's own calls of getenv.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}
