//! System calls of IP sockets, each in one small function.
//!
//! Every function borrows its buffers, and builds the kernel's structures on the stack. No pointer to them outlives the call. The
//! results are decoded in safe code, in `cmsg` and `sockaddr`.

#![allow(unsafe_code, reason = "the crate's system calls, each with its SAFETY line")]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::{c_int, c_void, iovec, mmsghdr, msghdr, socklen_t};

use crate::cmsg::Control;
use crate::sockaddr::SockAddr;

/// Limit on the datagrams of one `sendmmsg` or `recvmmsg`.
pub(crate) const MESSAGES_PER_CALL: usize = 64;

/// Bytes with the alignment that control messages and socket addresses need.
#[repr(C, align(8))]
pub(crate) struct Aligned<const N: usize>(pub(crate) [u8; N]);

/// A preallocated place for one received datagram.
pub(crate) struct Slot {
    pub(crate) name: SockAddr,
    control: Aligned<256>,
    control_len: usize,
    data: Box<[u8]>,
    data_len: usize,
    flags: c_int,
}

impl Slot {
    /// Creates a slot for datagrams of up to `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> Slot {
        Slot {
            name: SockAddr::default(),
            control: Aligned([0; 256]),
            control_len: 0,
            data: vec![0; capacity].into_boxed_slice(),
            data_len: 0,
            flags: 0,
        }
    }

    /// Returns the last received datagram.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data[..self.data_len.min(self.data.len())]
    }

    /// Returns the control messages of the last received datagram.
    pub(crate) fn control(&self) -> &[u8] {
        &self.control.0[..self.control_len.min(self.control.0.len())]
    }

    /// Reports whether the last received datagram, or its control messages, did not fit the slot.
    pub(crate) fn is_truncated(&self) -> bool {
        self.flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0
    }

    fn header(&mut self, iov: &mut iovec) -> msghdr {
        *iov = iovec { iov_base: self.data.as_mut_ptr().cast(), iov_len: self.data.len() };
        // SAFETY: msghdr is plain old data; all zeroes is a valid, empty header.
        let mut header: msghdr = unsafe { zeroed() };
        header.msg_name = self.name.as_mut_ptr().cast();
        header.msg_namelen = SockAddr::CAPACITY as socklen_t;
        header.msg_iov = iov;
        header.msg_iovlen = 1;
        header.msg_control = self.control.0.as_mut_ptr().cast();
        header.msg_controllen = self.control.0.len() as _;
        header
    }

    fn take(&mut self, header: &msghdr, len: usize) {
        self.name.set_len(header.msg_namelen as usize);
        self.control_len = header.msg_controllen as _;
        self.data_len = len;
        self.flags = header.msg_flags;
    }
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sets an integer socket option.
pub(crate) fn set_int(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the option value points at a c_int that lives through the call, with its true size.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast::<c_void>(),
            size_of::<c_int>() as socklen_t,
        )
    };
    check(result as isize).map(drop)
}

/// Makes a program of classic BPF choose among the sockets that share this socket's port.
pub(crate) fn steer(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies `len` instructions, which live through the call, and writes nothing.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast::<c_void>(),
            size_of::<libc::sock_fprog>() as socklen_t,
        )
    };
    check(result as isize).map(drop)
}

/// Returns the IP MTU of an interface in bytes. `fd` is any socket of its network namespace.
pub(crate) fn interface_mtu(fd: BorrowedFd<'_>, ifindex: u32) -> io::Result<u32> {
    // SAFETY: ifreq is plain old data; all zeroes is a valid request.
    let mut request: libc::ifreq = unsafe { zeroed() };
    request.ifr_ifru.ifru_ifindex = c_int::try_from(ifindex).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the request lives through the call; SIOCGIFNAME reads the index and writes a name within it.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFNAME as _, &raw mut request) } as isize)?;
    // SAFETY: as before; SIOCGIFMTU reads the name just written and writes the MTU.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) } as isize)?;
    // SAFETY: a successful SIOCGIFMTU leaves the MTU in the union; any bytes are a c_int.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Returns the bytes that were sent from a socket and that have not left the kernel, including the kernel's overhead per packet.
pub(crate) fn waiting(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: SIOCOUTQ, whose number is TIOCOUTQ's, writes one c_int, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ as _, &raw mut bytes) } as isize)?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

fn outgoing(to: &SockAddr, control: &Control, iov: &mut [iovec]) -> msghdr {
    // SAFETY: msghdr is plain old data; all zeroes is a valid, empty header.
    let mut header: msghdr = unsafe { zeroed() };
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len() as socklen_t;
    header.msg_iov = iov.as_mut_ptr();
    header.msg_iovlen = iov.len() as _;
    if !control.bytes().is_empty() {
        header.msg_control = control.bytes().as_ptr().cast_mut().cast();
        header.msg_controllen = control.bytes().len() as _;
    }
    header
}

fn slice(bytes: &[u8]) -> iovec {
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Sends one datagram (or, with a segment size in `control`, one train).
pub(crate) fn send(fd: BorrowedFd<'_>, to: &SockAddr, control: &Control, bytes: &[u8]) -> io::Result<usize> {
    let mut iov = [slice(bytes)];
    let header = outgoing(to, control, &mut iov);
    // SAFETY: name, control and data are borrowed for the call; sendmsg only reads them.
    check(unsafe {
        libc::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    })
}

/// Sends up to [`MESSAGES_PER_CALL`] pieces of `segment_size` bytes as datagrams, each preceded by the result of `head`, which
/// may be empty. Returns the number of sent datagrams.
pub(crate) fn send_many<'a>(
    fd: BorrowedFd<'_>,
    to: &SockAddr,
    control: &Control,
    segment_size: usize,
    bytes: &'a [u8],
    head: impl Fn(&[u8]) -> &'a [u8],
) -> io::Result<usize> {
    let mut iovs: [[iovec; 2]; MESSAGES_PER_CALL] = [[slice(&[]); 2]; MESSAGES_PER_CALL];
    // SAFETY: mmsghdr is plain old data; all zeroes is a valid, empty header.
    let mut headers: [mmsghdr; MESSAGES_PER_CALL] = unsafe { zeroed() };
    let mut count = 0;
    for ((segment, iov), header) in bytes.chunks(segment_size).zip(&mut iovs).zip(&mut headers) {
        let head = head(segment);
        *iov = [slice(head), slice(segment)];
        let first = usize::from(head.is_empty());
        header.msg_hdr = outgoing(to, control, &mut iov[first..]);
        count += 1;
    }
    // SAFETY: the first `count` headers point at iovs, name, control, heads and data that live through the call;
    // sendmmsg writes only the headers' msg_len.
    check(unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _) }
        as isize)
}

/// Behaviour of a receive call on an empty socket: return at once, or wait for the first datagram up to the socket's SO_RCVTIMEO.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    UntilTheFirst,
}

/// Sets the limit on the time that a receive call waits.
pub(crate) fn set_patience(fd: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
    socket2::SockRef::from(&fd).set_read_timeout(Some(time))
}

/// Receives up to `slots.len()` datagrams, with a limit of [`MESSAGES_PER_CALL`]. Returns the number of filled slots.
pub(crate) fn recv_many(fd: BorrowedFd<'_>, slots: &mut [Slot], patience: Patience) -> io::Result<usize> {
    let flags = match patience {
        Patience::None => libc::MSG_DONTWAIT,
        Patience::UntilTheFirst => libc::MSG_WAITFORONE,
    };
    let mut iovs: [iovec; MESSAGES_PER_CALL] = [slice(&[]); MESSAGES_PER_CALL];
    // SAFETY: mmsghdr is plain old data; all zeroes is a valid, empty header.
    let mut headers: [mmsghdr; MESSAGES_PER_CALL] = unsafe { zeroed() };
    let mut count = 0;
    for ((slot, iov), header) in slots.iter_mut().zip(&mut iovs).zip(&mut headers) {
        header.msg_hdr = slot.header(iov);
        count += 1;
    }
    // SAFETY: the first `count` headers point into distinct slots, mutably borrowed for the call, with
    // their true sizes; no time-out is passed.
    let filled = check(unsafe {
        libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, flags as _, std::ptr::null_mut())
    } as isize)?;
    for (slot, header) in slots.iter_mut().zip(&headers).take(filled) {
        slot.take(&header.msg_hdr, header.msg_len as usize);
    }
    Ok(filled)
}

/// Moves one entry from the socket's error queue into `slot`.
pub(crate) fn recv_error(fd: BorrowedFd<'_>, slot: &mut Slot) -> io::Result<()> {
    let mut iov = slice(&[]);
    let mut header = slot.header(&mut iov);
    // SAFETY: name, control and data point into the slot, mutably borrowed for the call, with true sizes.
    let len = check(unsafe {
        libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    })?;
    slot.take(&header, len);
    Ok(())
}
