//! Tests of packets that wait in the sender's own host. The driver reports the number of waiting bytes. The congestion window must stay
//! just large enough to keep the link busy.

use std::time::Duration;

use sctp::{AssociationConfig, CongestionAlgorithm, EndpointConfig, PathError};
use sim::{Conversation, InTheClear, LinkConfig};

use crate::support::{Two, a_route, describe, seconds, two_with};

const MS: fn(u64) -> Duration = Duration::from_millis;
const ALL: [CongestionAlgorithm; 3] =
    [CongestionAlgorithm::Cubic, CongestionAlgorithm::Rfc9260, CongestionAlgorithm::LossTolerant];

/// Limit on the smoothed round trip. It is about twice the sum of 20 ms and the time that 64 KiB of queue take at 2 Mbit/s.
const BOUND: Duration = Duration::from_millis(600);

/// Creates hosts of which `a` sends without end, over a link of this rate with a round trip of 20 ms. The queue drops nothing.
fn bulk(rate: u64, congestion: CongestionAlgorithm, queues_are_local: bool) -> Two {
    let link = LinkConfig { rate, delay: MS(10), queue_bytes: 1 << 30, ..LinkConfig::default() };
    let config = AssociationConfig {
        congestion,
        send_buffer: 8 << 20,
        receive_buffer: 8 << 20,
        ..AssociationConfig::default()
    };
    let endpoint = EndpointConfig { association: config.clone(), ..EndpointConfig::default() };
    let mut t = two_with(1, link, endpoint);
    t.world.checks = false;
    t.world.queues_are_local = queues_are_local;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.connect_with(config, Conversation { bulk: 1 << 40, ..Conversation::default() });
    t.run_to_established();
    t
}

/// Returns the smoothed round trip of `a`'s path.
fn round_trip(t: &Two) -> Duration {
    t.info(t.a).paths[0].srtt.expect("a round trip was measured")
}

#[test]
fn a_queue_of_the_host_itself_stays_short_and_the_link_busy() {
    for congestion in ALL {
        let mut t = bulk(2_000_000, congestion, true);
        t.world.run_for(seconds(10));
        let before = t.talk(t.b).received_bytes;
        for _ in 0..30 {
            t.world.run_for(seconds(1));
            assert!(round_trip(&t) < BOUND, "{congestion:?}: {:?}", round_trip(&t));
        }
        let info = t.info(t.a);
        assert_eq!((info.counters.timeouts, info.counters.data_retransmitted), (0, 0), "{congestion:?}");
        let kbit = (t.talk(t.b).received_bytes - before) * 8 / 30_000;
        assert!(kbit > 1700, "{congestion:?}: {kbit} kbit/s\n{}", describe(&t.world));
    }
}

#[test]
fn without_reports_of_the_local_queue_the_queue_grows_and_no_window_is_reduced() {
    let _clear = InTheClear::begin();
    let mut t = bulk(2_000_000, CongestionAlgorithm::Cubic, false);
    t.world.run_for(seconds(80));
    assert!(round_trip(&t) > BOUND, "{:?}", round_trip(&t));
    assert_eq!(t.info(t.a).counters.local_queue_reductions, 0);
}

#[test]
fn a_path_with_short_round_trips_ignores_the_queue_of_others_on_its_socket() {
    // The link carries a full send buffer in 7 ms.
    let mut t = bulk(10_000_000_000, CongestionAlgorithm::Cubic, false);
    for _ in 0..20 {
        t.world.run_for(MS(10));
        let quoted = sim::packet(40_000, 7, t.info(t.a).peer_tag, &[]);
        t.world.inject_path_error(t.a, a_route(), PathError::LocalQueue { bytes: 1 << 30 }, &quoted);
    }
    assert!(round_trip(&t) < MS(50), "{}", describe(&t.world));
    assert_eq!(t.info(t.a).counters.local_queue_reductions, 0, "{}", describe(&t.world));
}
