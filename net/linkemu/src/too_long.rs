//! Handles a packet that is longer than the emulated link's MTU, as a router does. The packet is divided into fragments, or its
//! sender gets an ICMP message.
//!
//! Some packets must not be answered (RFC 1122, section 3.2.2): ICMP errors, fragments except the first, and packets to more than
//! one host. Begin at [`answer`] and [`fragments`].

use bridge::checksum;
use bridge::packet::{Kind, Layout, V6_LEN, put_u16, u16_at};

/// Lengths in bytes of an IPv4 header without options, and of an ICMP header.
const V4_LEN: usize = 20;
const ICMP_LEN: usize = 8;
/// Limits on the length of an IPv4 and an IPv6 packet that carries an ICMP error, in bytes: RFC 1812, section 4.3.2.3, and RFC
/// 4443, section 2.4 (c).
const V4_ANSWER_MAX: usize = 576;
const V6_ANSWER_MAX: usize = 1280;
/// Bits of the flags and the fragment offset in the IPv4 header: "don't fragment", "more fragments", and the offset.
const DF: u16 = 0x4000;
const MF: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
/// Protocol numbers of ICMP and ICMPv6.
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
/// TTL or hop limit of the ICMP messages.
const HOPS: u8 = 64;

/// Returns a frame with an ICMP message that reports the MTU to the sender of a packet. The source address of the message is the
/// packet's destination address, because the link has no address. Returns `None` if the packet must not be answered, or if it may
/// be fragmented.
pub(crate) fn answer(frame: &[u8], layout: &Layout, mtu: usize) -> Option<Vec<u8>> {
    let packet = &frame[layout.at..layout.at + layout.length];
    let is_to_many = frame.first()? & 1 == 1;
    if is_to_many || is_icmp_error(packet, frame, layout) {
        return None;
    }
    let mut answer = Vec::with_capacity(layout.at + V6_ANSWER_MAX);
    answer.extend_from_slice(frame.get(6..12)?);
    answer.extend_from_slice(frame.get(..6)?);
    answer.extend_from_slice(&frame[12..layout.at]);
    match layout.kind {
        Kind::V4 if !may_fragment(packet) => v4_answer(&mut answer, packet, mtu),
        Kind::V6 => v6_answer(&mut answer, layout.at, packet, mtu),
        _ => return None,
    }
    Some(answer)
}

fn may_fragment(packet: &[u8]) -> bool {
    u16_at(packet, 6).is_some_and(|flags| flags & DF == 0)
}

fn is_icmp_error(packet: &[u8], frame: &[u8], layout: &Layout) -> bool {
    let kind = packet.get(layout.header_len(frame)).copied();
    match layout.kind {
        Kind::V4 => {
            let is_later_fragment = u16_at(packet, 6).is_some_and(|word| word & OFFSET != 0);
            is_later_fragment || packet[9] == ICMP && matches!(kind, Some(3 | 4 | 5 | 11 | 12))
        }
        Kind::V6 => packet[6] == ICMP_V6 && kind.is_some_and(|kind| kind < 128),
        Kind::Other => true,
    }
}

/// Appends an ICMP message "destination unreachable, fragmentation needed" to the Ethernet header in `answer`. The low 16 bits of
/// the ICMP header's second 32-bit word are the MTU (RFC 1191, section 4).
fn v4_answer(answer: &mut Vec<u8>, packet: &[u8], mtu: usize) {
    let quoted = &packet[..packet.len().min(V4_ANSWER_MAX - V4_LEN - ICMP_LEN)];
    let length = (V4_LEN + ICMP_LEN + quoted.len()) as u16;
    let mut header = [0; V4_LEN];
    (header[0], header[8], header[9]) = (0x45, HOPS, ICMP);
    put_u16(&mut header, 2, length);
    put_u16(&mut header, 6, DF);
    header[12..16].copy_from_slice(&packet[16..20]);
    header[16..20].copy_from_slice(&packet[12..16]);
    checksum::fill_v4_header(&mut header);
    let mut icmp = vec![3, 4, 0, 0, 0, 0, 0, 0];
    put_u16(&mut icmp, 6, u16::try_from(mtu).unwrap_or(u16::MAX));
    icmp.extend_from_slice(quoted);
    let checksum = !checksum::sum(&icmp, 0);
    put_u16(&mut icmp, 2, checksum);
    answer.extend_from_slice(&header);
    answer.extend_from_slice(&icmp);
}

/// Appends an ICMPv6 message "packet too big" (RFC 4443, section 3.2) to the Ethernet header in `answer`. The ICMPv6 header's
/// second 32-bit word is the MTU. The new IPv6 packet begins at byte `at` of `answer`.
fn v6_answer(answer: &mut Vec<u8>, at: usize, packet: &[u8], mtu: usize) {
    let quoted = &packet[..packet.len().min(V6_ANSWER_MAX - V6_LEN - ICMP_LEN)];
    let length = ICMP_LEN + quoted.len();
    let mut header = [0; V6_LEN];
    (header[0], header[6], header[7]) = (0x60, ICMP_V6, HOPS);
    put_u16(&mut header, 4, length as u16);
    header[8..24].copy_from_slice(&packet[24..40]);
    header[24..40].copy_from_slice(&packet[8..24]);
    let mut icmp = vec![2, 0, 0, 0];
    icmp.extend_from_slice(&u32::try_from(mtu).unwrap_or(u32::MAX).to_be_bytes());
    icmp.extend_from_slice(quoted);
    answer.extend_from_slice(&header);
    let layout = Layout { at, kind: Kind::V6, length: V6_LEN + length };
    let pseudo = checksum::pseudo_header(answer, &layout, ICMP_V6, length);
    let checksum = !checksum::sum(&icmp, pseudo);
    put_u16(&mut icmp, 2, checksum);
    answer.extend_from_slice(&icmp);
}

/// Divides an IPv4 packet into fragments of up to `mtu` bytes (RFC 791, section 3.2), and returns the fragments' frames. Returns an
/// empty list if the packet must not be fragmented, or if the MTU is too small.
pub(crate) fn fragments(frame: &[u8], layout: &Layout, mtu: usize) -> Vec<Vec<u8>> {
    let packet = &frame[layout.at..layout.at + layout.length];
    let header = layout.header_len(frame);
    let room = mtu.saturating_sub(header) & !7;
    if layout.kind != Kind::V4 || !may_fragment(packet) || room == 0 {
        return Vec::new();
    }
    let flags = u16_at(packet, 6).unwrap_or(0);
    let count = (packet.len() - header).div_ceil(room);
    let parts = packet[header..].chunks(room).enumerate();
    parts
        .map(|(n, part)| {
            let mut fragment = frame[..layout.at + header].to_vec();
            let head = &mut fragment[layout.at..];
            let more = if n + 1 < count { MF } else { flags & MF };
            put_u16(head, 2, (header + part.len()) as u16);
            put_u16(head, 6, more | ((flags & OFFSET) + (n * room / 8) as u16));
            checksum::fill_v4_header(head);
            fragment.extend_from_slice(part);
            fragment
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(flags: u16, payload: usize, protocol: u8) -> (Vec<u8>, Layout) {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let mut header = [0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        put_u16(&mut header, 2, (20 + payload) as u16);
        put_u16(&mut header, 6, flags);
        checksum::fill_v4_header(&mut header);
        frame.extend(header);
        frame.extend((0..payload).map(|n| n as u8));
        let layout = Layout::of(&frame);
        (frame, layout)
    }

    fn v6(payload: usize) -> (Vec<u8>, Layout) {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0];
        frame.extend((payload as u16).to_be_bytes());
        frame.extend([17, 64]);
        frame.extend([1; 16].into_iter().chain([2; 16]));
        frame.resize(frame.len() + payload, 9);
        let layout = Layout::of(&frame);
        (frame, layout)
    }

    #[test]
    fn the_sender_of_an_ipv4_packet_with_df_is_told_the_mtu() {
        let (frame, layout) = v4(DF, 1480, 6);
        let answer = answer(&frame, &layout, 1400).unwrap();
        assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]));
        assert_eq!(checksum::sum(&answer[14..34], 0), 0xffff);
        assert_eq!(checksum::sum(&answer[34..], 0), 0xffff);
        assert_eq!(answer[26..34], [10, 0, 0, 2, 10, 0, 0, 1]);
        assert_eq!((&answer[34..36], u16_at(&answer, 40)), (&[3, 4][..], Some(1400)));
        assert_eq!((answer.len(), Layout::of(&answer).length), (14 + 576, 576));
        assert_eq!(answer[42..], frame[14..14 + 548]);
    }

    #[test]
    fn the_sender_of_an_ipv6_packet_is_told_the_mtu() {
        let (frame, layout) = v6(1460);
        let answer = answer(&frame, &layout, 1400).unwrap();
        let found = Layout::of(&answer);
        assert_eq!((found.kind, found.length), (Kind::V6, 1280));
        let pseudo = checksum::pseudo_header(&answer, &found, ICMP_V6, 1240);
        assert_eq!(checksum::sum(&answer[54..], pseudo), 0xffff);
        assert_eq!(answer[54..56], [2, 0]);
        assert_eq!(answer[58..62], [0, 0, 5, 120]);
    }

    #[test]
    fn fragments_icmp_errors_and_multicast_are_not_answered() {
        let (frame, layout) = v4(0, 1480, 6);
        assert_eq!(answer(&frame, &layout, 1400), None, "may be fragmented");
        let (mut frame, layout) = v4(DF, 1480, ICMP);
        frame[34] = 3;
        assert_eq!(answer(&frame, &layout, 1400), None, "an ICMP error");
        frame[34] = 8;
        assert!(answer(&frame, &layout, 1400).is_some(), "an echo request");
        let (frame, layout) = v4(DF | 5, 1480, 17);
        assert_eq!(answer(&frame, &layout, 1400), None, "a later fragment");
        let (mut frame, layout) = v6(1460);
        frame[0] = 0x33;
        assert_eq!(answer(&frame, &layout, 1400), None, "multicast");
    }

    #[test]
    fn fragments_fit_and_make_the_packet_again() {
        let (frame, layout) = v4(0, 2000, 17);
        let fragments = fragments(&frame, &layout, 700);
        assert_eq!(fragments.len(), 3);
        let mut payload = Vec::new();
        for (n, fragment) in fragments.iter().enumerate() {
            let found = Layout::of(fragment);
            assert!(found.length <= 700 && checksum::sum(&fragment[14..34], 0) == 0xffff);
            let word = u16_at(fragment, 20).unwrap();
            assert_eq!(usize::from(word & OFFSET) * 8, payload.len());
            assert_eq!(word & MF != 0, n < 2);
            payload.extend_from_slice(&fragment[34..]);
        }
        assert!(payload == frame[34..]);
        let (frame, layout) = v4(DF, 2000, 17);
        assert!(super::fragments(&frame, &layout, 700).is_empty());
    }
}
