//! Whole Ethernet frames to and from one interface over packet sockets (AF_PACKET), for a bridge or a link emulator.
//!
//! A received frame has the time at which the kernel saw the frame. This module puts back a VLAN tag that the kernel removed. A
//! host may leave segmentation and checksums to its interface. Virtual interfaces do not do this work. The caller must do it
//! ([`Offload`]).
//!
//! The only change to the interface is promiscuous mode, which lasts while the socket exists. The kernel ends the promiscuous
//! mode when the process ends, even after a crash. Sockets belong to the network namespace of the thread that opened them. Begin
//! with [`FrameSocket::open`].

mod calls;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::cmsg;
use crate::options;
use crate::sys::{self, Patience, Slot};

pub use calls::run_realtime;

/// Limit on the frames of one [`FrameSocket::receive`], and on the frames of one system call in [`FrameSocket::send`].
pub const FRAMES_PER_CALL: usize = 64;

/// Size of the buffer for one frame: an unsegmented packet of up to 64 KiB, with its Ethernet and offload
/// headers.
const SLOT_BYTES: usize = (64 << 10) + 64;

/// Wanted size of the kernel's receive buffer in bytes. The buffer holds the frames of more than 200 ms at 1 Gbit/s.
const RECEIVE_BUFFER: libc::c_int = 32 << 20;

/// Bytes of `struct virtio_net_hdr`, which precedes each received frame.
const OFFLOAD_LEN: usize = 10;

/// `ETH_P_ALL`: frames of all kinds.
const ALL_KINDS: u16 = 3;

/// Offset of the VLAN tag or type in a frame, behind the destination and source addresses.
const ADDRESSES_LEN: usize = 12;

/// Packet sockets of one interface: one to receive, one to send.
pub struct FrameSocket {
    receiving: Socket,
    sending: Socket,
    ifindex: u32,
    slots: Vec<Slot>,
    /// Buffer for a frame with its VLAN tag put back.
    tagged: Vec<u8>,
    missed: u64,
}

/// A received frame.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The frame without the checksum at its end (FCS), which the kernel does not deliver.
    pub bytes: &'a [u8],
    /// Time at which the kernel saw the frame, since 1970. None if the kernel did not report it.
    pub seen_at: Option<Duration>,
    /// Offloads that remain to be done.
    pub offload: Offload,
}

/// Work that a host left to its interface. Positions are in bytes from the start of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// Segmentation: the kind of segments that the frame must be cut into, and the payload bytes of each.
    pub segments: Option<(Segments, usize)>,
    /// Checksum that must be computed. The first number is the position at which the checksummed bytes begin. These bytes reach
    /// to the end of the frame. The second number is the offset of the checksum's field from that position.
    pub checksum: Option<(usize, usize)>,
}

/// Kind of segments that a frame must be cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segments {
    /// TCP, over IPv4 or IPv6.
    Tcp,
    /// UDP datagrams.
    Udp,
    /// An unknown kind.
    Unknown,
}

/// Outcome of sending frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SentFrames {
    /// Frames that the interface accepted.
    pub sent: usize,
    /// Frames that the kernel refused, because the frame was invalid, exceeded the interface's MTU, or found the interface's
    /// queue full.
    pub refused: usize,
}

impl FrameSocket {
    /// Opens the sockets of the interface with this index in the calling thread's network namespace.
    ///
    /// # Errors
    /// The errors of socket(2), setsockopt(2) and bind(2). These calls fail without CAP_NET_RAW, and if the interface does not
    /// exist.
    pub fn open(ifindex: u32) -> io::Result<FrameSocket> {
        // A socket without a protocol receives nothing before it is bound. The receiving socket thus never queues frames of other
        // interfaces.
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

    /// Returns the interface's MTU in bytes.
    ///
    /// # Errors
    /// Fails if the interface is gone.
    pub fn mtu(&self) -> io::Result<u32> {
        sys::interface_mtu(self.sending.as_fd(), self.ifindex)
    }

    /// Reports whether the interface is up. An interface that is down passes no frames.
    ///
    /// # Errors
    /// Fails if the interface is gone.
    pub fn is_up(&self) -> io::Result<bool> {
        calls::is_up(self.sending.as_fd(), self.ifindex)
    }

    /// Calls `take` with each received frame, up to [`FRAMES_PER_CALL`]. Returns the number of frames.
    ///
    /// # Errors
    /// `ENETDOWN` once when the interface goes down. `EINVAL` if the kernel cannot describe the remaining offloads of a frame.
    /// The next call continues behind that frame.
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

    /// Sends frames in order. If the send buffer is full, the call ends early, and the caller keeps the rest.
    ///
    /// # Errors
    /// Fails if the interface is down or gone.
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

    /// Returns the number of frames that were lost since the socket was opened, because the receive buffer was full.
    ///
    /// # Errors
    /// The errors of getsockopt(2).
    pub fn missed(&mut self) -> io::Result<u64> {
        self.missed += u64::from(calls::take_drops(self.receiving.as_fd())?);
        Ok(self.missed)
    }
}

impl AsFd for FrameSocket {
    /// Returns the socket that receives frames.
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
    /// The VLAN tag: its type (TPID), then its contents (TCI).
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

/// Reads a `struct timespec`.
fn time_of(data: &[u8]) -> Option<Duration> {
    let seconds = i64::from_ne_bytes(*data.first_chunk()?);
    let nanos = i64::from_ne_bytes(*data.get(8..)?.first_chunk()?);
    Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?))
}

/// Reads the VLAN tag in a `struct tpacket_auxdata`. The fields are status, len and snaplen of 32 bits, then mac, net, vlan_tci
/// and vlan_tpid of 16 bits.
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

/// Reads a `struct virtio_net_hdr`. The fields are flags, gso_type, hdr_len, gso_size, csum_start and csum_offset, in the host's
/// byte order.
fn parse_offload(header: &[u8; OFFLOAD_LEN]) -> Offload {
    /// Flag that means that the checksum must be computed.
    const NEEDS_CHECKSUM: u8 = 1;
    /// Flag in `gso_type`, next to the kind of segments. The flag means TCP with ECN.
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
    fn a_vlan_tag_is_inserted_after_the_mac_addresses() {
        let mut tagged = Vec::new();
        put_tag(&mut tagged, b"destinsource8abc", [1, 2, 3, 4]);
        assert_eq!(tagged, b"destinsource\x01\x02\x03\x048abc");
    }

    #[test]
    fn pending_checksum_and_segmentation_offloads_are_parsed() {
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
