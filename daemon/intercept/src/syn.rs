//! Parser of held SYNs: addresses, ports, initial sequence number, window and MSS option.

use std::net::SocketAddr;

use etherparse::{LaxNetSlice, LaxSlicedPacket, TcpOptionElement, TransportSlice};

use crate::flow::FourTuple;

/// The contents of a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Syn {
    pub(crate) flow: FourTuple,
    pub(crate) isn: u32,
    pub(crate) window: u16,
    pub(crate) mss: Option<u16>,
}

/// Parses a SYN that begins with the IP header. The copy in `packet` may lack the end of the SYN's payload. Returns None for a
/// packet that is no SYN.
pub(crate) fn parse(packet: &[u8]) -> Option<Syn> {
    let packet = LaxSlicedPacket::from_ip(packet).ok()?;
    let (source, destination) = match packet.net? {
        LaxNetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Arp(_) => return None,
    };
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else { return None };
    if !tcp.syn() || tcp.ack() || tcp.rst() || tcp.fin() {
        return None;
    }
    let mss = tcp.options_iterator().filter_map(Result::ok).find_map(|option| match option {
        TcpOptionElement::MaximumSegmentSize(mss) => Some(mss),
        _ => None,
    });
    let local = SocketAddr::new(source, tcp.source_port());
    let remote = SocketAddr::new(destination, tcp.destination_port());
    let flow = FourTuple::new(local, remote)?;
    Some(Syn { flow, isn: tcp.sequence_number(), window: tcp.window_size(), mss })
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, TcpOptionElement};

    use super::*;

    fn syn4() -> Vec<u8> {
        let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1000, 80, 0xdead_beef, 4096)
            .syn()
            .options(&[TcpOptionElement::MaximumSegmentSize(1460)])
            .expect("options that fit");
        write(builder, &[])
    }

    fn write(builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        builder.write(&mut packet, payload).expect("a packet that fits");
        packet
    }

    #[test]
    fn a_syn_of_ipv4_is_read() {
        let syn = parse(&syn4()).expect("a SYN");
        assert_eq!(syn.flow.local(), "10.0.0.1:1000".parse().expect("an address"));
        assert_eq!(syn.flow.remote(), "10.0.0.2:80".parse().expect("an address"));
        assert_eq!((syn.isn, syn.window, syn.mss), (0xdead_beef, 4096, Some(1460)));
    }

    #[test]
    fn a_syn_of_ipv6_whose_data_is_cut_off_is_read() {
        let builder = PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(1000, 80, 7, 4096).syn();
        let packet = write(builder, &[0; 500]);
        let syn = parse(&packet[..256]).expect("a SYN");
        assert!(!syn.flow.is_ipv4());
        assert_eq!(syn.isn, 7);
    }

    #[test]
    fn a_syn_ack_is_not_taken_for_a_syn() {
        let builder =
            PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1000, 80, 7, 4096).syn().ack(8);
        assert_eq!(parse(&write(builder, &[])), None);
    }

    #[test]
    fn no_cut_of_a_header_is_taken_for_a_syn() {
        let packet = syn4();
        for cut in 0..packet.len() {
            assert_eq!(parse(&packet[..cut]), None, "cut at {cut}");
        }
    }
}
