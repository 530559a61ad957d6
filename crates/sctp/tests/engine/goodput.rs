//! Goodput in virtual time: what congestion control makes of a link.
//!
//! The numbers are printed (`cargo test -p sctp --test engine goodput -- --nocapture`); the bounds are far below them.

use std::time::Duration;

use sctp::{AssociationConfig, EndpointConfig};
use sim::{Conversation, LinkConfig, Loss};

use crate::support::{seconds, two_with};

/// Bits of user data per second over a link of 100 Mbit/s and a round trip of 20 ms, after `warm_up`.
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
