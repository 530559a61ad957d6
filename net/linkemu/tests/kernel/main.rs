//! Compares the emulator with the Linux kernel's netem, which runs in a guest (tests/kernel-sctp).
//!
//! The emulator and netem get the same settings and the same packets. The statistics that ping and iperf3 measure must agree within
//! the tolerances below.

#![forbid(unsafe_code)]

mod guest;
mod statistics;

use guest::Guest;
use statistics::{EmulatedLink, Pings, World};

/// Allowed difference between the median round trips through netem and through linkemu, in milliseconds. The tolerance is needed
/// because the guest is a process, which the host may schedule late.
const MEDIANS_MS: f64 = 2.0;
/// Allowed difference between the interquartile ranges of round trips through netem and through linkemu, in milliseconds. The
/// second constant limits the difference between linkemu's range and the expected range. Chance alone causes a difference of about
/// 0.2 ms.
const SPREADS_MS: f64 = 1.5;
const OUR_SPREAD_MS: f64 = 0.6;
/// Number of pings, and seconds between two pings, in a measurement of delays and in a measurement of losses. Losses need more
/// pings than delays, because a lost ping is rare.
const DELAY_PINGS: (usize, &str) = (1000, "0.003");
const LOSS_PINGS: (usize, &str) = (4000, "0.001");

/// Settings in the syntax of netem and in the syntax of linkemu, and the expected interquartile range of round trips in
/// milliseconds.
const DELAYS: [(&str, &str, f64); 3] = [
    ("delay 20ms", "delay=20ms", 0.0),
    ("delay 20ms 5ms", "delay=20ms,jitter=5ms", 5.0),
    ("delay 20ms 4ms distribution normal", "delay=20ms,jitter=4ms,distribution=normal", 4.0 * 1.349),
];
/// Settings of netem and of linkemu, the expected share of lost packets, and the expected mean length of a burst of losses in
/// packets.
const LOSSES: [(&str, &str, f64, f64); 2] =
    [("loss 6%", "loss=6%", 0.06, 1.06), ("loss gemodel 2% 25%", "loss=ge:2%:25%:100%:0%", 0.074, 4.0)];

#[test]
#[ignore = "needs root: makes network namespaces, and boots a guest"]
fn delays_losses_and_rates_are_those_of_the_kernels_netem() {
    let Some(guest) = Guest::up() else {
        return testbed::skip("/dev/net/tun is missing, or this is not Debian");
    };
    let world = World::new();
    for (theirs, settings, meant) in DELAYS {
        let [theirs, ours] =
            both(&guest, &world, [theirs, settings], DELAY_PINGS).map(|pings| pings.quartiles_ms());
        let (median, spread) = (theirs[1] - ours[1], (theirs[2] - theirs[0]) - (ours[2] - ours[0]));
        assert!(median.abs() < MEDIANS_MS, "{settings}: {theirs:?} and {ours:?} ms");
        assert!(spread.abs() < SPREADS_MS, "{settings}: {theirs:?} and {ours:?} ms");
        assert!((ours[2] - ours[0] - meant).abs() < OUR_SPREAD_MS, "{settings}: {ours:?} ms");
    }
    for (theirs, ours, share, burst) in LOSSES {
        for (who, pings) in ["netem", "linkemu"].iter().zip(both(&guest, &world, [theirs, ours], LOSS_PINGS))
        {
            let (lost, bursts) = (pings.lost_share(), pings.mean_burst());
            // The variance of the lost share grows with the length of the bursts.
            let band = 4.0 * (share * (1.0 - share) * burst * 2.0 / LOSS_PINGS.0 as f64).sqrt();
            assert!((lost - share).abs() < band, "{who}, {ours}: {lost} lost");
            assert!((bursts / burst - 1.0).abs() < 0.4, "{who}, {ours}: bursts of {bursts}");
        }
    }
    // For the rate, linkemu counts the bytes of the IP packet. netem also counts the Ethernet header of 14 bytes, so linkemu gets
    // an overhead of 14.
    guest.set("rate 2mbit limit 20");
    world.set("rate=2mbit,queue=20,overhead=14");
    let [theirs, ours] = [guest.udp_rate(), world.udp_rate()];
    println!("rate 2 Mbit/s, 1,000 bytes of payload: netem {theirs:.0}, linkemu {ours:.0} bit/s");
    assert!((ours / theirs - 1.0).abs() < 0.03, "netem {theirs}, linkemu {ours} bit/s");
}

/// Measures the effect of netem and of linkemu on the same pings. Returns netem's result first.
fn both(
    guest: &Guest,
    world: &World,
    [theirs, ours]: [&str; 2],
    (count, interval): (usize, &str),
) -> [Pings; 2] {
    guest.set(theirs);
    world.set(ours);
    let pings = [guest.ping(count, interval), world.ping(count, interval)];
    for (who, pings) in ["netem", "linkemu"].iter().zip(&pings) {
        let quartiles = pings.quartiles_ms().map(|ms| format!("{ms:.2}")).join(" ");
        let (lost, burst) = (pings.lost_share(), pings.mean_burst());
        println!("{ours:<42} {who:<8} quartiles {quartiles} ms, lost {lost:.4}, bursts of {burst:.2}");
    }
    pings
}
