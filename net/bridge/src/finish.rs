//! The work that a host leaves to its interface: segmentation and checksums.
//!
//! A host passes up to 64 KiB of TCP or UDP with one header to its interface (TSO, GSO), and expects the interface to cut this data into
//! segments. A virtual interface forwards the data uncut. Queue and loss must act on packets of the size that a wire would carry, so this
//! module cuts the data. It refuses offloads other than TCP and UDP segments ([`Unfinishable`]). Begin at [`finish`].

use netio::{Offload, Segments};

use crate::checksum;
use crate::packet::{Kind, Layout, put_u16, u16_at};

/// Error for a frame whose segments or headers this module does not support. The caller drops the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfinishable;

/// Protocol numbers of IP.
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// TCP flag that only the first segment keeps.
const TCP_CWR: u8 = 0x80;
/// TCP flags that only the last segment keeps: FIN and PSH.
const TCP_FIN_PSH: u8 = 0x09;

/// Cuts a frame into packets and computes their checksums. Calls `take` with each packet in a separate frame.
///
/// # Errors
/// Returns [`Unfinishable`] if the kind of segments is unknown, or the headers are invalid.
pub fn finish(frame: &[u8], offload: Offload, mut take: impl FnMut(Vec<u8>)) -> Result<(), Unfinishable> {
    match (offload.segments, offload.checksum) {
        (None, None) => take(frame.to_vec()),
        (None, Some((start, offset))) => {
            let mut frame = frame.to_vec();
            fill(&mut frame, start, offset).ok_or(Unfinishable)?;
            take(frame);
        }
        // If the kernel leaves segmentation to the interface, it always leaves the checksums to the interface, too.
        (Some((kind, size)), Some((start, offset))) if size > 0 => {
            let cut = Cut::new(frame, kind, size, start, offset).ok_or(Unfinishable)?;
            (0..cut.count()).for_each(|n| take(cut.piece(n)));
        }
        (Some(_), _) => return Err(Unfinishable),
    }
    Ok(())
}

/// Computes and writes a checksum. The checksum field holds the sum over the pseudo header, except with SCTP (RFC 9260, appendix A).
/// Returns `None` if the frame is too short.
fn fill(frame: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let layout = Layout::of(frame);
    let end = (layout.at + layout.length).min(frame.len());
    let is_sctp = protocol(&layout, frame) == Some(SCTP);
    let field = if is_sctp { 4 } else { 2 };
    let covered = frame.get_mut(start..end).filter(|covered| covered.len() >= offset + field)?;
    if is_sctp {
        covered[offset..offset + field].fill(0);
        let crc = wire::crc32c(covered);
        covered[offset..offset + field].copy_from_slice(&crc.to_le_bytes());
        return Some(());
    }
    let checksum = match !checksum::sum(covered, 0) {
        // RFC 768: a computed checksum of zero is sent as all ones. For TCP, zero and all ones are equivalent.
        0 => 0xffff,
        other => other,
    };
    put_u16(covered, offset, checksum);
    Some(())
}

fn protocol(layout: &Layout, frame: &[u8]) -> Option<u8> {
    match layout.kind {
        Kind::V4 => frame.get(layout.at + 9).copied(),
        Kind::V6 => frame.get(layout.at + 6).copied(),
        Kind::Other => None,
    }
}

/// A frame that will be cut.
struct Cut<'a> {
    frame: &'a [u8],
    layout: Layout,
    kind: Segments,
    /// Bytes of payload in each piece. The last piece may have fewer.
    size: usize,
    /// Offset of the TCP or UDP header in the frame.
    start: usize,
    /// Offset of the checksum in the TCP or UDP header.
    offset: usize,
    /// Offset of the payload in the frame.
    payload: usize,
}

impl<'a> Cut<'a> {
    /// Checks the headers. Returns `None` if they are missing or inconsistent.
    fn new(frame: &'a [u8], kind: Segments, size: usize, start: usize, offset: usize) -> Option<Cut<'a>> {
        let layout = Layout::of(frame);
        let header_len = match kind {
            Segments::Tcp => usize::from(*frame.get(start + 12)? >> 4) * 4,
            Segments::Udp => 8,
            Segments::Unknown => return None,
        };
        let payload = start + header_len;
        let is_sound = layout.kind != Kind::Other
            && start >= layout.at + layout.header_len(frame)
            && offset + 2 <= header_len
            && payload <= frame.len();
        is_sound.then_some(Cut { frame, layout, kind, size, start, offset, payload })
    }

    fn count(&self) -> usize {
        (self.frame.len() - self.payload).div_ceil(self.size).max(1)
    }

    /// Returns piece number `n`, from 0, as a frame with its own headers.
    fn piece(&self, n: usize) -> Vec<u8> {
        let from = self.payload + n * self.size;
        let payload = &self.frame[from..self.frame.len().min(from + self.size)];
        let mut piece = Vec::with_capacity(self.payload + payload.len());
        piece.extend_from_slice(&self.frame[..self.payload]);
        piece.extend_from_slice(payload);
        self.write_ip(&mut piece, n);
        let protocol = match self.kind {
            Segments::Tcp => {
                self.write_tcp(&mut piece, n);
                TCP
            }
            _ => {
                let length = piece.len() - self.start;
                put_u16(&mut piece, self.start + 4, length as u16);
                UDP
            }
        };
        let pseudo = checksum::pseudo_header(&piece, &self.layout, protocol, piece.len() - self.start);
        put_u16(&mut piece, self.start + self.offset, pseudo);
        fill(&mut piece, self.start, self.offset).map_or_else(Vec::new, |()| piece)
    }

    /// Writes the lengths. With IPv4, also writes the identification, which increases with `n`, and the header checksum.
    fn write_ip(&self, piece: &mut [u8], n: usize) {
        let packet = &mut piece[self.layout.at..];
        if self.layout.kind == Kind::V4 {
            let id = u16_at(packet, 4).unwrap_or(0).wrapping_add(n as u16);
            put_u16(packet, 2, packet.len() as u16);
            put_u16(packet, 4, id);
            checksum::fill_v4_header(packet);
        } else {
            put_u16(packet, 4, (packet.len() - crate::packet::V6_LEN) as u16);
        }
    }

    /// Writes the sequence number, and clears the flags that belong to another segment.
    fn write_tcp(&self, piece: &mut [u8], n: usize) {
        let header = &mut piece[self.start..];
        let [a, b, c, d] = [header[4], header[5], header[6], header[7]];
        let sequence = u32::from_be_bytes([a, b, c, d]).wrapping_add((n * self.size) as u32);
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        if n > 0 {
            header[13] &= !TCP_CWR;
        }
        if n + 1 < self.count() {
            header[13] &= !TCP_FIN_PSH;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a frame with a TCP or UDP segment of `payload` bytes. A TCP header has 20 bytes. The checksum is left to the interface. Also
    /// returns the offset of the TCP or UDP header.
    fn segment(kind: Segments, is_v4: bool, payload: usize) -> (Vec<u8>, usize) {
        let (protocol, header) = if kind == Segments::Tcp { (TCP, 20) } else { (UDP, 8) };
        let mut frame = vec![2; 12];
        if is_v4 {
            frame.extend([0x08, 0, 0x45, 0]);
            frame.extend(((20 + header + payload) as u16).to_be_bytes());
            frame.extend([0xff, 0xff, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(((header + payload) as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend((0..32).map(|n| n as u8));
        }
        let start = frame.len();
        frame.extend([0x30, 0x39, 0, 80]);
        if kind == Segments::Tcp {
            frame.extend([0xff, 0xff, 0xff, 0x00, 0, 0, 0, 1, 0x50, 0x99, 0x10, 0, 0, 0, 0, 0]);
        } else {
            frame.extend(((header + payload) as u16).to_be_bytes());
            frame.extend([0, 0]);
        }
        frame.extend((0..payload).map(|n| n as u8));
        (frame, start)
    }

    fn pieces(kind: Segments, is_v4: bool, payload: usize, size: usize) -> Vec<Vec<u8>> {
        let (frame, start) = segment(kind, is_v4, payload);
        let offset = if kind == Segments::Tcp { 16 } else { 6 };
        let offload = Offload { segments: Some((kind, size)), checksum: Some((start, offset)) };
        let mut pieces = Vec::new();
        finish(&frame, offload, |piece| pieces.push(piece)).unwrap();
        pieces
    }

    /// Reports whether the lengths and checksums of a piece are right. With a right checksum, the sum over pseudo header and segment is all
    /// ones.
    fn is_right(piece: &[u8], kind: Segments) -> bool {
        let layout = Layout::of(piece);
        let start = layout.at + layout.header_len(piece);
        let protocol = if kind == Segments::Tcp { TCP } else { UDP };
        let pseudo = checksum::pseudo_header(piece, &layout, protocol, piece.len() - start);
        let header = layout.kind == Kind::V6 || checksum::sum(&piece[layout.at..start], 0) == 0xffff;
        header && layout.at + layout.length == piece.len() && checksum::sum(&piece[start..], pseudo) == 0xffff
    }

    #[test]
    fn pieces_are_packets_with_right_lengths_and_checksums_and_all_of_the_payload() {
        for kind in [Segments::Tcp, Segments::Udp] {
            for is_v4 in [true, false] {
                let (whole, start) = segment(kind, is_v4, 3000);
                let payload_at = start + if kind == Segments::Tcp { 20 } else { 8 };
                let pieces = pieces(kind, is_v4, 3000, 1400);
                assert_eq!(pieces.len(), 3, "{kind:?}");
                assert!(pieces.iter().all(|piece| is_right(piece, kind)), "{kind:?} over IPv4: {is_v4}");
                let payload: Vec<u8> = pieces.iter().flat_map(|piece| piece[payload_at..].to_vec()).collect();
                assert!(payload == whole[payload_at..], "{kind:?}");
            }
        }
    }

    #[test]
    fn sequence_numbers_and_identifications_count_up_and_wrap() {
        let pieces = pieces(Segments::Tcp, true, 3000, 1400);
        let sequence = |piece: &[u8]| u32::from_be_bytes(*piece[38..].first_chunk().unwrap());
        let numbers: Vec<u32> = pieces.iter().map(|piece| sequence(piece)).collect();
        let first = 0xffff_ff00_u32;
        assert_eq!(numbers, [first, first.wrapping_add(1400), first.wrapping_add(2800)]);
        let ids: Vec<_> = pieces.iter().map(|piece| u16_at(piece, 18).unwrap()).collect();
        assert_eq!(ids, [0xffff, 0, 1]);
    }

    #[test]
    fn cwr_is_in_the_first_segment_only_and_fin_and_psh_in_the_last() {
        let flags: Vec<u8> = pieces(Segments::Tcp, true, 3000, 1400).iter().map(|piece| piece[47]).collect();
        assert_eq!(flags, [0x90, 0x10, 0x19]);
    }

    #[test]
    fn a_checksum_left_to_the_interface_is_computed() {
        let (mut frame, start) = segment(Segments::Udp, true, 101);
        checksum::fill_v4_header(&mut frame[14..]);
        let layout = Layout::of(&frame);
        let pseudo = checksum::pseudo_header(&frame, &layout, UDP, 109);
        put_u16(&mut frame, start + 6, pseudo);
        let offload = Offload { segments: None, checksum: Some((start, 6)) };
        let mut out = Vec::new();
        finish(&frame, offload, |frame| out = frame).unwrap();
        assert!(is_right(&out, Segments::Udp));
    }

    #[test]
    fn sctp_gets_its_crc() {
        let (mut frame, start) = segment(Segments::Udp, true, 20);
        frame[23] = SCTP;
        let offload = Offload { segments: None, checksum: Some((start, 8)) };
        let mut out = Vec::new();
        finish(&frame, offload, |frame| out = frame).unwrap();
        let crc = u32::from_le_bytes(*out[start + 8..].first_chunk().unwrap());
        out[start + 8..start + 12].fill(0);
        assert_eq!(crc, wire::crc32c(&out[start..]));
    }

    #[test]
    fn an_unfinishable_frame_is_refused_and_no_header_causes_a_panic() {
        let (frame, start) = segment(Segments::Tcp, true, 100);
        let unknown = Offload { segments: Some((Segments::Unknown, 50)), checksum: Some((start, 16)) };
        assert_eq!(finish(&frame, unknown, |_| {}), Err(Unfinishable));
        for length in 0..frame.len() {
            for (start, offset) in [(0, 0), (14, 10), (start, 16), (start, 18), (65_535, 65_535)] {
                for segments in
                    [None, Some((Segments::Tcp, 7)), Some((Segments::Udp, 0)), Some((Segments::Udp, 3))]
                {
                    let offload = Offload { segments, checksum: Some((start, offset)) };
                    let _ = finish(&frame[..length], offload, |_| {});
                }
            }
        }
    }
}
