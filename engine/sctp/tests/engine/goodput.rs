//! Tests of goodput in virtual time: the share of a link that congestion control uses.
//!
//! `cargo test -p sctp-engine --test engine goodput -- --nocapture` prints the measured goodputs. The bounds of the tests are far below
//! these values.

use std::time::Duration;

use base::Time;
use sctp::{AssociationConfig, CongestionAlgorithm, EndpointConfig, Timing};
use sim::{Conversation, LinkConfig, Loss, LossPlace};

use crate::support::{seconds, two_with};

/// Returns the goodput in bit/s over a link of 100 Mbit/s with a round trip of 20 ms, measured for `measured` after `warm_up`.
fn goodput(seed: u64, loss: Loss, warm_up: Duration, measured: Duration) -> f64 {
    let association =
        AssociationConfig { send_buffer: 2 << 20, receive_buffer: 2 << 20, ..AssociationConfig::default() };
    let link =
        LinkConfig { rate: 100_000_000, delay: Duration::from_millis(10), loss, ..LinkConfig::default() };
    let config = EndpointConfig { association: association.clone(), ..EndpointConfig::default() };
    let mut t = two_with(seed, link, config);
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.connect_with(association, Conversation { bulk: 1 << 40, ..Conversation::default() });
    t.run_to_established();
    t.world.run_for(warm_up);
    let before = t.talk(t.b).received_bytes;
    t.world.run_for(measured);
    (t.talk(t.b).received_bytes - before) as f64 * 8.0 / measured.as_secs_f64()
}

#[test]
fn goodput_without_loss_fills_four_fifths_of_the_link() {
    let rate = goodput(1, Loss::None, seconds(5), seconds(10));
    eprintln!("100 Mbit/s, 20 ms, no loss: {:.1} Mbit/s", rate / 1e6);
    assert!(rate >= 80e6, "{rate} bit/s");
}

#[test]
fn goodput_under_one_percent_of_loss_is_not_below_half_of_the_square_root_law() {
    let rates: Vec<f64> =
        (1..=3).map(|seed| goodput(seed, Loss::Uniform(0.01), seconds(5), seconds(60))).collect();
    let rate = rates.iter().sum::<f64>() / 3.0;
    let law = 1.22 * 1452.0 * 8.0 / (0.020 * 0.1);
    eprintln!("1 % loss: {:.2} Mbit/s, {:.2} of 1.22 MSS/(RTT sqrt p)", rate / 1e6, rate / law);
    assert!(rate >= law / 2.0, "{rate} bit/s where the law says {law}");
}

/// Transfers `bytes` bytes over a link of 1.5 Mbit/s with 35 ms per direction and a queue of 50 packets. Returns the time from the connect
/// command to the last byte, and the number of T3 timeouts.
fn slow_link(
    seed: u64,
    congestion: CongestionAlgorithm,
    initial_packets: u8,
    loss: f64,
    bytes: u64,
) -> (Duration, u64) {
    let timing = Timing { rto_min: Duration::from_millis(150), ..Timing::default() };
    let association =
        AssociationConfig { timing, congestion, initial_packets, ..AssociationConfig::default() };
    let link = LinkConfig {
        rate: 1_500_000,
        delay: Duration::from_millis(35),
        queue_packets: 50,
        queue_bytes: usize::MAX,
        loss: if loss > 0.0 { Loss::Uniform(loss) } else { Loss::None },
        loss_place: LossPlace::BeforeQueue,
        ..LinkConfig::default()
    };
    let config = EndpointConfig { association: association.clone(), ..EndpointConfig::default() };
    let mut t = two_with(seed, link, config);
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.connect_with(association, Conversation { bulk: bytes, ..Conversation::default() });
    t.run_to_established();
    let (a, b) = (t.a, t.b);
    let is_there = t.world.run_until(t.world.now() + seconds(3600), |world| {
        world.host(b).app.conversations.values().all(|talk| talk.received_bytes >= bytes)
    });
    assert!(is_there);
    let host = t.world.host(a);
    let id = *host.app.conversations.keys().next().expect("an association");
    let timeouts = host.endpoint.info(id).expect("an association").counters.timeouts;
    (t.world.now() - Time::ZERO, timeouts)
}

#[test]
fn a_queue_that_fills_in_slow_start_makes_no_timeout() {
    for seed in 1..=5 {
        let (took, timeouts) = slow_link(seed, CongestionAlgorithm::Rfc9260, 0, 0.0, 512_000);
        assert_eq!(timeouts, 0, "seed {seed}: {took:?}");
    }
}

#[test]
fn with_ten_percent_loss_a_loss_tolerant_transfer_takes_up_to_a_fifth_longer() {
    let took = |seed| slow_link(seed, CongestionAlgorithm::LossTolerant, 0, 0.1, 2_000_000).0;
    let mean = (1..=5).map(took).sum::<Duration>() / 5;
    // Of each IP packet of 1,500 bytes, 1,444 bytes are user data.
    let link = Duration::from_secs_f64(2_000_000.0 * 8.0 / 1.5e6 * 1500.0 / 1444.0);
    assert!(mean < link * 6 / 5, "{mean:?}, the link alone {link:?}");
}

#[test]
fn ten_packets_at_first_save_a_short_transfer_half_a_round_trip() {
    let took = |packets| slow_link(1, CongestionAlgorithm::Cubic, packets, 0.0, 14_000).0;
    let (usual, ten) = (took(0), took(10));
    let saved = usual - ten;
    assert!(saved > Duration::from_millis(35), "{usual:?} and {ten:?} with ten packets at first");
}
