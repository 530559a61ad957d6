//! Two directly connected ends of a shared association: each end gets all messages of the other end.

use std::net::SocketAddr;

use relay::mux::{ChannelEvent, ChannelId, Mux, Side};

/// Creates two ends that have greeted, and a channel that is open at both. Returns the opener, its channel, the acceptor and its channel.
pub(crate) fn open_channel_to(mut b: Mux) -> (Mux, ChannelId, Mux, ChannelId) {
    let mut a = Mux::new(Side::Initiator);
    exchange(&mut a, &mut b);
    let channel = a.open(address(1, 1000), address(2, 80)).unwrap();
    exchange(&mut a, &mut b);
    let (theirs, _) = b.poll_event().unwrap();
    b.accept(theirs);
    exchange(&mut a, &mut b);
    assert_eq!(a.poll_event(), Some((channel, ChannelEvent::Accepted)));
    (a, channel, b, theirs)
}

pub(crate) fn exchange(a: &mut Mux, b: &mut Mux) {
    for _ in 0..3 {
        pass(a, b);
        pass(b, a);
    }
}

pub(crate) fn pass(from: &mut Mux, to: &mut Mux) {
    while let Some((stream, ppid, bytes)) = from.next_out() {
        from.on_out_sent();
        to.on_message(stream, ppid, [bytes], true).unwrap();
    }
}

pub(crate) fn address(last: u8, port: usize) -> SocketAddr {
    ([10, 0, 0, last], u16::try_from(port).unwrap()).into()
}
