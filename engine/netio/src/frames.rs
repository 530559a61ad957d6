//! Whole Ethernet frames in and out of one interface: packet sockets (AF_PACKET), as a bridge or a link emulator needs them.
//!
//! Frames come with the time at which the kernel saw them, with the VLAN tag that the kernel took off put back, and with what
//! is still to be done to them: a host hands segments longer than the MTU and unfinished checksums to its interface
//! ([`Offload`]), and a virtual one passes them on. This module does none of that work. It changes nothing of the interface
//! but that it listens to all addresses while the socket lives; the kernel takes that back, however the process ends.
//! Everything belongs to the network namespace of the thread that opened it. Begin with [`FrameSocket::open`].

mod calls;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::cmsg;
use crate::options;
use crate::sys::{self, Patience, Slot};

pub use calls::run_realtime;

/// Frames that one [`FrameSocket::receive`] takes at most, and one [`FrameSocket::send`] call carries.
pub const FRAMES_PER_CALL: usize = 64;

/// Bytes of a slot: the longest segment that the kernel hands over (64 KiB), and its Ethernet and offload headers.
const SLOT_BYTES: usize = (64 << 10) + 64;

/// Wanted size of the kernel's receive buffer in bytes: 200 ms at 1 Gbit/s.
const RECEIVE_BUFFER: libc::c_int = 32 << 20;

/// Bytes of `struct virtio_net_hdr`, which stands before each frame received.
const OFFLOAD_LEN: usize = 10;

/// `ETH_P_ALL`: frames of all kinds.
const ALL_KINDS: u16 = 3;

/// Offset after the destination and source addresses of a frame, at its VLAN tag or type.
const ADDRESSES_LEN: usize = 12;

/// Packet sockets of one interface: one to receive, one to send.
pub struct FrameSocket {
    receiving: Socket,
    sending: Socket,
    ifindex: u32,
    slots: Vec<Slot>,
    /// A frame with its VLAN tag put back.
    tagged: Vec<u8>,
    missed: u64,
}

/// A frame as it was received.
#[derive(Debug)]
pub struct Frame<'a> {
    /// All of it but the checksum at the end (FCS), which the kernel does not hand over.
    pub bytes: &'a [u8],
    /// Time at which the kernel saw it, since 1970; none if it did not say.
    pub seen_at: Option<Duration>,
    /// Offloads still to be done on it.
    pub offload: Offload,
}

/// Work that a host left to its interface. Positions count from the first byte of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// The frame is several, to be cut: the kind, and the bytes of payload in each.
    pub segments: Option<(Segments, usize)>,
    /// A checksum is to be computed from here to the end, and to be put this much later.
    pub checksum: Option<(usize, usize)>,
}

/// The kind of segments that a frame is to be cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segments {
    /// TCP, over IPv4 or IPv6.
    Tcp,
    /// UDP datagrams.
    Udp,
    /// A kind that is not known.
    Unknown,
}

/// Outcome of sending frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SentFrames {
    /// Given to the interface.
    pub sent: usize,
    /// Refused by the kernel, one by one: longer than the interface's MTU, or its queue was full.
    pub refused: usize,
}

impl FrameSocket {
    /// Opens the sockets of the interface with this index in the calling thread's network namespace.
    ///
    /// # Errors
    /// Those of socket(2), setsockopt(2) and bind(2): rights (CAP_NET_RAW) or the interface are missing.
    pub fn open(ifindex: u32) -> io::Result<FrameSocket> {
        // Without a protocol it hears nothing until it is bound, so nothing of other interfaces is in it.
        let receiving = Socket::new(Domain::PACKET, Type::RAW.nonblocking(), None)?;
        for option in [libc::PACKET_VNET_HDR, libc::PACKET_AUXDATA, libc::PACKET_IGNORE_OUTGOING] {
            sys::set_int(receiving.as_fd(), libc::SOL_PACKET, option, 1)?;
        }
        sys::set_int(receiving.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        options::set_receive_buffer(receiving.as_fd(), RECEIVE_BUFFER)?;
        calls::listen_to_all_addresses(receiving.as_fd(), ifindex)?;
        calls::bind(receiving.as_fd(), ifindex, ALL_KINDS)?;
        let sending = Socket::new(Domain::PACKET, Type::RAW.nonblocking(), None)?;
        options::set_send_buffer(sending.as_fd())?;
        calls::bind(sending.as_fd(), ifindex, 0)?;
        let slots = (0..FRAMES_PER_CALL).map(|_| Slot::new(SLOT_BYTES)).collect();
        Ok(FrameSocket { receiving, sending, ifindex, slots, tagged: Vec::new(), missed: 0 })
    }

    /// The interface's MTU in bytes.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn mtu(&self) -> io::Result<u32> {
        sys::interface_mtu(self.sending.as_fd(), self.ifindex)
    }

    /// Reports whether the interface is up, so that frames can pass.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn is_up(&self) -> io::Result<bool> {
        calls::is_up(self.sending.as_fd(), self.ifindex)
    }

    /// Calls `take` with each frame that has come, [`FRAMES_PER_CALL`] at most; tells how many there were.
    ///
    /// # Errors
    /// `ENETDOWN` once when the interface goes down; `EINVAL` for a frame with work left that the kernel cannot put in words.
    /// The next call goes on behind it.
    pub fn receive(&mut self, mut take: impl FnMut(&Frame<'_>)) -> io::Result<usize> {
        let filled = match sys::recv_many(self.receiving.as_fd(), &mut self.slots, Patience::None) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            outcome => outcome?,
        };
        for slot in &self.slots[..filled] {
            let Some((header, bytes)) = slot.data().split_first_chunk::<OFFLOAD_LEN>() else { continue };
            let said = Said::parse(slot.control());
            let mut offload = parse_offload(header);
            let bytes = match said.tag {
                Some(tag) if bytes.len() > ADDRESSES_LEN => {
                    offload.checksum = offload.checksum.map(|(start, offset)| (start + tag.len(), offset));
                    put_tag(&mut self.tagged, bytes, tag);
                    &self.tagged
                }
                _ => bytes,
            };
            take(&Frame { bytes, seen_at: said.seen_at, offload });
        }
        Ok(filled)
    }

    /// Sends frames, in order; a full send buffer ends it early, and the rest is left to the caller.
    ///
    /// # Errors
    /// When the interface is down or gone.
    pub fn send(&mut self, mut frames: &[&[u8]]) -> io::Result<SentFrames> {
        let mut outcome = SentFrames::default();
        while !frames.is_empty() {
            let batch = &frames[..frames.len().min(FRAMES_PER_CALL)];
            match calls::send_each(self.sending.as_fd(), batch) {
                Ok(count) => {
                    outcome.sent += count;
                    frames = &frames[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_of_one_frame(&error) => {
                    outcome.refused += 1;
                    frames = &frames[1..];
                }
                Err(error) => return Err(error),
            }
        }
        Ok(outcome)
    }

    /// Frames that came and found the receive buffer full, since the socket was opened.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn missed(&mut self) -> io::Result<u64> {
        self.missed += u64::from(calls::take_drops(self.receiving.as_fd())?);
        Ok(self.missed)
    }
}

impl AsFd for FrameSocket {
    /// The socket that frames come by.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiving.as_fd()
    }
}

fn is_of_one_frame(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::ENOBUFS | libc::EINVAL))
}

/// Contents of a frame's control messages.
#[derive(Default, Debug, PartialEq, Eq)]
struct Said {
    seen_at: Option<Duration>,
    /// The VLAN tag: its kind, and its contents.
    tag: Option<[u8; 4]>,
}

impl Said {
    fn parse(mut bytes: &[u8]) -> Said {
        let mut said = Said::default();
        while let Some((level, kind, data, rest)) = cmsg::split_message(bytes) {
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => said.seen_at = time_of(data),
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => said.tag = tag_of(data),
                _ => {}
            }
            bytes = rest;
        }
        said
    }
}

/// A `struct timespec`.
fn time_of(data: &[u8]) -> Option<Duration> {
    let seconds = i64::from_ne_bytes(*data.first_chunk()?);
    let nanos = i64::from_ne_bytes(*data.get(8..)?.first_chunk()?);
    Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?))
}

/// The VLAN tag in a `struct tpacket_auxdata`: status, len, snaplen (32 bits each), mac, net, vlan_tci, vlan_tpid (16 each).
fn tag_of(data: &[u8]) -> Option<[u8; 4]> {
    let status = u32::from_ne_bytes(*data.first_chunk()?);
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let contents = u16::from_ne_bytes(*data.get(16..)?.first_chunk()?).to_be_bytes();
    let kind = u16::from_ne_bytes(*data.get(18..)?.first_chunk()?).to_be_bytes();
    Some([kind[0], kind[1], contents[0], contents[1]])
}

fn put_tag(to: &mut Vec<u8>, frame: &[u8], tag: [u8; 4]) {
    to.clear();
    to.extend_from_slice(&frame[..ADDRESSES_LEN]);
    to.extend_from_slice(&tag);
    to.extend_from_slice(&frame[ADDRESSES_LEN..]);
}

/// Reads a `struct virtio_net_hdr`: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset, in the host's byte order.
fn parse_offload(header: &[u8; OFFLOAD_LEN]) -> Offload {
    /// The checksum is to be computed.
    const NEEDS_CHECKSUM: u8 = 1;
    /// A flag beside the kind of segments: TCP with ECN.
    const ECN: u8 = 0x80;
    let &[flags, kind, _, _, size_a, size_b, start_a, start_b, offset_a, offset_b] = header;
    let word = |a, b| usize::from(u16::from_ne_bytes([a, b]));
    let segments = match kind & !ECN {
        0 => None,
        1 | 4 => Some(Segments::Tcp),
        5 => Some(Segments::Udp),
        _ => Some(Segments::Unknown),
    };
    let checksum = (flags & NEEDS_CHECKSUM != 0).then(|| (word(start_a, start_b), word(offset_a, offset_b)));
    Offload { segments: segments.map(|kind| (kind, word(size_a, size_b))), checksum }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + data.len()).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&level.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn auxdata(status: u32, tci: u16, tpid: u16) -> Vec<u8> {
        let mut data = status.to_ne_bytes().to_vec();
        data.extend_from_slice(&[0; 12]);
        data.extend_from_slice(&tci.to_ne_bytes());
        data.extend_from_slice(&tpid.to_ne_bytes());
        data
    }

    #[test]
    fn time_and_vlan_tag_are_read() {
        let mut control = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &{
            let mut time = 7i64.to_ne_bytes().to_vec();
            time.extend_from_slice(&5i64.to_ne_bytes());
            time
        });
        let aux = auxdata(libc::TP_STATUS_VLAN_VALID, 0x2005, 0x8100);
        control.extend(message(libc::SOL_PACKET, libc::PACKET_AUXDATA, &aux));
        let said = Said::parse(&control);
        assert_eq!(said.seen_at, Some(Duration::new(7, 5)));
        assert_eq!(said.tag, Some([0x81, 0x00, 0x20, 0x05]));
        let without = message(libc::SOL_PACKET, libc::PACKET_AUXDATA, &auxdata(1, 5, 0x8100));
        assert_eq!(Said::parse(&without), Said::default());
    }

    #[test]
    fn a_tag_goes_behind_the_addresses() {
        let mut tagged = Vec::new();
        put_tag(&mut tagged, b"destinsource8abc", [1, 2, 3, 4]);
        assert_eq!(tagged, b"destinsource\x01\x02\x03\x048abc");
    }

    #[test]
    fn offloads_left_to_the_interface_are_read() {
        let word = |n: u16| n.to_ne_bytes();
        let header = |flags, kind| {
            let ([a, b], [c, d], [e, f]) = (word(1448), word(34), word(16));
            [flags, kind, 66, 0, a, b, c, d, e, f]
        };
        assert_eq!(parse_offload(&header(0, 0)), Offload::default());
        let checksum = Some((34, 16));
        assert_eq!(parse_offload(&header(1, 0)), Offload { segments: None, checksum });
        for (kind, segments) in
            [(1, Segments::Tcp), (0x84, Segments::Tcp), (5, Segments::Udp), (3, Segments::Unknown)]
        {
            assert_eq!(
                parse_offload(&header(1, kind)),
                Offload { segments: Some((segments, 1448)), checksum }
            );
        }
    }
}
