//! Two ends of a trunk with nothing between them: whatever one says reaches the other.

use std::net::SocketAddr;

use relay::trunk::{LaneEvent, LaneId, Side, Trunk};

/// Two ends that have greeted, and a lane that both have open: opener, its lane, acceptor, its lane.
pub(crate) fn open_lane_to(mut b: Trunk) -> (Trunk, LaneId, Trunk, LaneId) {
    let mut a = Trunk::new(Side::Initiator);
    exchange(&mut a, &mut b);
    let lane = a.open(address(1, 1000), address(2, 80)).unwrap();
    exchange(&mut a, &mut b);
    let (theirs, _) = b.poll_event().unwrap();
    b.accept(theirs);
    exchange(&mut a, &mut b);
    assert_eq!(a.poll_event(), Some((lane, LaneEvent::Accepted)));
    (a, lane, b, theirs)
}

pub(crate) fn exchange(a: &mut Trunk, b: &mut Trunk) {
    for _ in 0..3 {
        pass(a, b);
        pass(b, a);
    }
}

pub(crate) fn pass(from: &mut Trunk, to: &mut Trunk) {
    while let Some((stream, ppid, bytes)) = from.next_out() {
        from.on_out_sent();
        to.on_message(stream, ppid, [bytes], true).unwrap();
    }
}

pub(crate) fn address(last: u8, port: usize) -> SocketAddr {
    ([10, 0, 0, last], u16::try_from(port).unwrap()).into()
}
