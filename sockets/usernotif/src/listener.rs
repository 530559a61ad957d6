//! The kernel's interface of user notification: ioctls on the listener (seccomp_unotify(2)).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_ulong, seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp, sock_fprog};

use crate::filter;

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`.
const SYNC_WAKE_UP: c_ulong = 1;

/// Reason why programs cannot be supervised.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Another supervisor is already notified of this process's calls.
    #[error(
        "another seccomp supervisor has this process already (a container runtime, or `sctpify run --sctp --seccomp` around this one): \
         a filter tree has one listener"
    )]
    Supervised,
    /// The kernel is too old.
    #[error("the kernel does not have SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, which Linux 5.19 brings")]
    Kernel,
    /// Any other error.
    #[error("seccomp: {0}")]
    Other(#[from] io::Error),
}

/// A system call of a program, which waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    pub(crate) id: u64,
    /// Number of the thread in this process's PID namespace.
    pub(crate) thread: i32,
    pub(crate) call: i64,
    pub(crate) arguments: [u64; 6],
}

impl Notice {
    /// Returns an argument of type `int`.
    #[allow(clippy::cast_possible_truncation, reason = "the kernel takes the lower half")]
    pub(crate) fn int(&self, number: usize) -> c_int {
        self.arguments[number] as c_int
    }
}

/// Descriptor through which the supervisor is notified of calls.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Installs the filter for the calling thread, and for its later threads and children. The filter cannot be removed.
    ///
    /// Without `CAP_SYS_ADMIN`, the thread and its children can no longer gain privileges through `exec` (`PR_SET_NO_NEW_PRIVS`).
    ///
    /// # Errors
    /// See [`InstallError`].
    pub fn install() -> Result<Listener, InstallError> {
        match Listener::set_filter() {
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
                rustix::thread::set_no_new_privs(true).map_err(io::Error::from)?;
                Listener::set_filter()
            }
            other => other,
        }
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => InstallError::Supervised,
            Some(libc::EINVAL) => InstallError::Kernel,
            _ => error.into(),
        })
    }

    fn set_filter() -> io::Result<Listener> {
        let mut filter = filter::program();
        let length = u16::try_from(filter.len()).map_err(io::Error::other)?;
        let program = sock_fprog { len: length, filter: filter.as_mut_ptr() };
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
        // SAFETY: the filter program lives during the call.
        let result = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
        };
        let fd = RawFd::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just made the descriptor.
        let listener = Listener(unsafe { OwnedFd::from_raw_fd(fd) });
        // With this flag, the supervisor runs on the program's processor, which is faster than to wake a sleeping processor. An error is
        // ignored, because the flag requires Linux 6.6.
        // SAFETY: the argument is a number.
        unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
        Ok(listener)
    }

    /// Receives the next call. Returns `None` if the call has ended meanwhile, or if a signal interrupts this function.
    pub(crate) fn receive(&self) -> io::Result<Option<Notice>> {
        // SAFETY: a structure of zeroes is valid, and the kernel requires zeroes.
        let mut notice: seccomp_notif = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the structure is the one that this request fills in.
        match unsafe { self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, (&raw mut notice).cast()) } {
            Ok(_) => Ok(Some(Notice {
                id: notice.id,
                thread: notice.pid.cast_signed(),
                call: notice.data.nr.into(),
                arguments: notice.data.args,
            })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reports whether a call still waits. While a call waits, no other thread gets the number of the call's thread.
    pub(crate) fn is_waiting(&self, id: u64) -> bool {
        let mut id = id;
        // SAFETY: the request reads the number.
        unsafe { self.control(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, (&raw mut id).cast()) }.is_ok()
    }

    /// Ends a call with a result, or with errno.
    pub(crate) fn answer(&self, id: u64, outcome: Result<i64, c_int>) {
        let (value, error) = match outcome {
            Ok(value) => (value, 0),
            Err(error) => (0, -error),
        };
        self.send(seccomp_notif_resp { id, val: value, error, flags: 0 });
    }

    /// Lets the kernel execute a call as if there were no filter.
    pub(crate) fn pass(&self, id: u64) {
        // The constant's type differs from the field's type.
        let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(0);
        self.send(seccomp_notif_resp { id, val: 0, error: 0, flags });
    }

    fn send(&self, mut response: seccomp_notif_resp) {
        // An error is ignored, because the program may have been killed meanwhile.
        // SAFETY: the structure is the one that this request reads.
        let _ = unsafe { self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, (&raw mut response).cast()) };
    }

    /// Puts a copy of a descriptor into the program under this number, and ends the call with the number.
    pub(crate) fn give(&self, id: u64, fd: BorrowedFd<'_>, number: u32, is_cloexec: bool) -> io::Result<()> {
        let flags = libc::SECCOMP_ADDFD_FLAG_SETFD | libc::SECCOMP_ADDFD_FLAG_SEND;
        let mut wanted = seccomp_notif_addfd {
            id,
            flags: u32::try_from(flags).unwrap_or(0),
            srcfd: fd.as_raw_fd().cast_unsigned(),
            newfd: number,
            newfd_flags: if is_cloexec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
        };
        // SAFETY: the structure is the one that this request reads.
        unsafe { self.control(libc::SECCOMP_IOCTL_NOTIF_ADDFD, (&raw mut wanted).cast()) }.map(|_| ())
    }

    /// # Safety
    /// The argument must be a pointer that is valid for this request.
    unsafe fn control(&self, request: libc::Ioctl, argument: *mut libc::c_void) -> io::Result<c_int> {
        // SAFETY: the caller guarantees a valid argument.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) } {
            result if result < 0 => Err(io::Error::last_os_error()),
            result => Ok(result),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
