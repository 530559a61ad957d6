//! System calls on `AF_UNIX` sockets: pairs, the listener, and messages with and without descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

use rustix::cmsg_space;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, listen as listen_on,
    recv, recvmsg, sendmsg, socket_with, socketpair, sockopt,
};
use sockets::Delivery;
use sockproto::{DATA_HEADER, DataHeader, Kind, MANY_NAME_PREFIX, Peer, SOCKET_NAME_PREFIX};

/// Requested send buffer of the server's end, in bytes. This buffer has room for several messages with the greatest payload
/// (`PART_MAX`).
const SEND_BUFFER: usize = 1 << 20;
/// Limit on the length of a message that fills a buffer, in bytes. The kernel may refuse longer messages even if the buffer is larger.
const FILLING_MAX: usize = 512 << 10;
/// Limit on the number of messages that fill a buffer. This number of messages fills up to 64 MiB.
const FILLINGS_MAX: usize = 128;
/// Limit on the number of examined messages in one queue. With the default of `net.core.wmem_max`, the sender's buffer has room for
/// fewer messages.
const QUEUED_MAX: usize = 1024;
/// Greatest number of descriptors in one message (`SCM_MAX_FD`). If the buffer had less room, the kernel would close the other
/// descriptors during recvmsg(2). Such a close might block the server.
const DESCRIPTORS_MAX: usize = 253;
const BACKLOG: i32 = 1024;
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Listens on an abstract name.
pub(crate) fn listen(name: &str) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen_on(&socket, BACKLOG)?;
    Ok(socket)
}

/// Creates the two ends of a socket: the program's end, which is blocking, and the server's end, which is nonblocking.
pub(crate) fn make(number: u64, is_one_to_many: bool) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (program, server) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let prefix = if is_one_to_many { MANY_NAME_PREFIX } else { SOCKET_NAME_PREFIX };
    let name = format!("{}{number:016x}", String::from_utf8_lossy(&prefix[1..]));
    bind(&program, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::io::ioctl_fionbio(&server, true)?;
    // A size beyond net.core.wmem_max requires CAP_NET_ADMIN. Without this capability, the kernel limits the size to
    // net.core.wmem_max, and the buffer has room for fewer messages.
    if sockopt::set_socket_send_buffer_size_force(&server, SEND_BUFFER).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(&server, SEND_BUFFER);
    }
    Ok((program, server))
}

/// Fills the send buffer of a program's end, so the program's end is not writable.
pub(crate) fn fill(program: BorrowedFd<'_>) {
    // Header and payload together must be at least 32 bytes shorter than the buffer. The kernel refuses longer messages (EMSGSIZE).
    // The payload is therefore shorter by 32 bytes and by the header.
    let room = sockopt::socket_send_buffer_size(program).unwrap_or(0).saturating_sub(2 * DATA_HEADER);
    let bytes = vec![0; room.min(FILLING_MAX)];
    for _ in 0..FILLINGS_MAX {
        if send(program, &DataHeader::new(Kind::Filling), &bytes, None).is_err() {
            return;
        }
    }
}

/// Sends a message without waiting. If a descriptor is given, the message carries a copy of it.
pub(crate) fn send(
    to: BorrowedFd<'_>,
    header: &DataHeader,
    payload: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    send_parts(to, &[IoSlice::new(&header.to_bytes()), IoSlice::new(payload)], descriptor)
}

/// Sends a delivery to the program's end without waiting.
pub(crate) fn deliver(to: BorrowedFd<'_>, delivery: &Delivery, is_one_to_many: bool) -> Result<(), Errno> {
    let header = delivery.header.to_bytes();
    let peer = Peer { address: delivery.peer, ..Peer::default() }.to_bytes();
    let peer: &[u8] = if is_one_to_many { &peer } else { &[] };
    send_parts(to, &[IoSlice::new(&header), IoSlice::new(peer), IoSlice::new(&delivery.bytes)], None)
}

/// Sends a message of several parts without waiting. If a descriptor is given, the message carries a copy of it.
pub(crate) fn send_parts(
    to: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(to, parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}

/// A message that was received.
pub(crate) struct Received {
    pub(crate) length: usize,
    /// True if the message was longer than the buffer.
    pub(crate) is_cut: bool,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Reports whether a message in the queue of a socket has descriptors. Returns true if the answer is unknown. Discards the messages
/// before the first message with descriptors. The caller must have shut the socket down.
pub(crate) fn has_descriptors(socket: &OwnedFd) -> bool {
    // With this option, each message has its sender's credentials, even an empty message. The end of the queue has no credentials,
    // so it differs from an empty message.
    if sockopt::set_socket_passcred(socket, true).is_err() {
        return true;
    }
    for _ in 0..QUEUED_MAX {
        match peek(socket) {
            Ok(Peeked::Descriptors) => return true,
            Ok(Peeked::End) => return false,
            Ok(Peeked::Message) => drop(recv(socket, &mut [0], RecvFlags::DONTWAIT)),
            // The program has closed its end with unread messages. The messages that the program has sent before the close remain
            // in the queue.
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::ECONNRESET) => {}
            Err(_) => return false,
        }
    }
    true
}

/// The next item of a queue.
enum Peeked {
    Message,
    /// A message with descriptors.
    Descriptors,
    End,
}

/// Examines the next message, and leaves it in the queue. Uses nix instead of rustix, because rustix cannot represent the process
/// ID 0. A message that was sent before SO_PASSCRED was set has this ID.
fn peek(socket: &OwnedFd) -> nix::Result<Peeked> {
    use nix::sys::socket::{MsgFlags, UnixCredentials, recvmsg};
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut control = nix::cmsg_space!(UnixCredentials);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    let seen = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    // The buffer has no room for descriptors, so the kernel passes none and sets MSG_CTRUNC.
    Ok(match seen.flags.contains(MsgFlags::MSG_CTRUNC) {
        true => Peeked::Descriptors,
        false if seen.cmsgs()?.next().is_none() => Peeked::End,
        false => Peeked::Message,
    })
}

/// Receives a message without waiting. A length of 0 means that the other end was closed or shut down. An empty message is handled
/// in the same way.
pub(crate) fn receive(from: impl AsFd, room: &mut [u8]) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(from, &mut [IoSliceMut::new(room)], &mut control, flags)?;
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    let descriptors = descriptors.collect();
    Ok(Received { length: received.bytes, is_cut: received.flags.contains(ReturnFlags::TRUNC), descriptors })
}
