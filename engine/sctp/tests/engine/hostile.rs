//! Tests of a hostile peer: packets altered at random, with correct checksums and tags.
//!
//! The packets may change the delivered data in any way. No packet may make the engine panic, stop its timers, or exceed its limits on
//! memory.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use sctp::{AssociationConfig, EndpointConfig, Extension, Extensions, Reliability};
use sim::{Close, Conversation, Fate, LinkConfig};

use crate::support::{Two, at_seconds, messages, seconds, sends, two_with};

/// Returns the packet with a few octets after the common header changed, perhaps truncated, and with a correct checksum.
fn altered(packet: &[u8], r: &mut ChaCha12Rng) -> Vec<u8> {
    let mut packet = packet.to_vec();
    for _ in 0..r.random_range(1..4) {
        // The first octets carry most of the meaning.
        let reach = if r.random_bool(0.7) { packet.len().min(44) } else { packet.len() };
        let place = r.random_range(12..reach.max(13)).min(packet.len() - 1);
        packet[place] = [0, 1, 0x7f, 0x80, 0xff, r.random()][r.random_range(0..6)];
    }
    if r.random_bool(0.1) {
        packet.truncate(r.random_range(12..=packet.len()));
    }
    packet[8..12].fill(0);
    let crc = wire::crc32c(&packet);
    packet[8..12].copy_from_slice(&crc.to_le_bytes());
    packet
}

fn world_of_lies(seed: u64) -> Two {
    let partial = Extensions::NONE.with(Extension::PartialReliability);
    let association = AssociationConfig {
        receive_buffer: 50_000,
        send_buffer: 200_000,
        extensions: [Extensions::NONE, partial, partial.with(Extension::Interleaving)][seed as usize % 3],
        ..AssociationConfig::default()
    };
    let config = EndpointConfig { association: association.clone(), ..EndpointConfig::default() };
    let mut t = two_with(seed, LinkConfig::default(), config);
    let mut r = ChaCha12Rng::seed_from_u64(seed);
    let often = r.random_range(0.01..0.3);
    t.world.set_filter(move |record| {
        if r.random_bool(often) { Fate::Replace(altered(&record.packet, &mut r)) } else { Fate::Pass }
    });
    // The content of altered messages cannot be predicted, so the programs count the messages and do not keep them.
    t.world.host_mut(t.b).app.template = Conversation { keeps: false, ..sends(messages(60, 2500, 3)) };
    let talk = Conversation {
        keeps: false,
        close: Close::Never,
        reliability: Reliability::Retransmissions(0),
        ..sends(messages(60, 2500, 3))
    };
    t.connect_with(association, talk);
    t
}

#[test]
fn packets_altered_under_a_good_checksum_never_panic_stall_or_grow_the_engine() {
    for seed in 0..400 {
        let mut t = world_of_lies(seed);
        t.world.run_until(at_seconds(60), |w| {
            for host in [t.a, t.b] {
                let endpoint = &w.host(host).endpoint;
                for info in endpoint.associations().filter_map(|id| endpoint.info(id)) {
                    assert!(info.send_buffered <= 200_000 && info.receive_buffered <= 152_000, "seed {seed}");
                }
            }
            false
        });
        assert!(t.world.packets() < 100_000, "seed {seed}: {} packets in a minute", t.world.packets());
        t.world.clear_filter();
        t.world.run_for(seconds(10));
    }
}
