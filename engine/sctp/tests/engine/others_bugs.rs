//! Tests of faults that were found in other SCTP stacks. The table names the test for each fault:
//!
//! | seen elsewhere | tested by |
//! |---|---|
//! | reads past the end of address parameters (CVE-2019-20503) | here: truncated addresses |
//! | use after free on FORWARD TSN, reset and abort (CVE-2020-15969, CVE-2021-30523, CVE-2022-46871) | `pr_sctp`: FORWARD TSN over half messages; here: commands from within event handling |
//! | pointers visible in the cookie | `attacks`: altered bits, no tags; here: heartbeats |
//! | blind termination by forged chunks (CVE-2021-3772) | `tags`, `attacks`: wrong, zero and reflected tags in each state |
//! | duplicate COOKIE ECHO (CVE-2013-2206) | `setup`: duplicates of the handshake; here: each chunk twice in each state |
//! | AUTH with absent, empty and unknown keys (CVE-2026-23125) | `authentication` |
//! | UDP encapsulation much slower than IP (CVE-2026-53070) | here: both carriers fill a link |
//! | FORWARD TSN with a huge jump uses much CPU time | `pr_sctp`: jumps of any width |
//! | parameter without value; panic at TSN wrap | here: empty parameters; `data`: TSNs and SSNs pass their wrap |
//! | crafted MIDs and FSNs, forged cookies, miscounted bytes | `hostile`, `attacks`; `check_invariants` after each input |
//! | endless loop on a SACK | `data`: reversed, overlapping, unsorted and unsent gap blocks |
//! | HEARTBEAT without Heartbeat Information (pion) | `obeyed`: it is answered |
//! | zero window never reopens | `data`: a window closed for minutes, a lost update |

use base::Carrier;
use sctp::{AbortCause, AssociationConfig, StateName};
use sim::{Conversation, InTheClear, packet};
use wire::{ChecksumMode, Chunk, Packet, Parameter};

use crate::states::{STATES, Subject};
use crate::stranger::{Stranger, address, init};
use crate::support::{Two, UDP, messages, seconds, sends, two};

/// Returns the first `length` octets of the packet, with the length of the first chunk adjusted and a correct checksum.
fn cut(packet: &[u8], length: usize) -> Vec<u8> {
    let mut packet = packet[..length].to_vec();
    let chunk = u16::try_from(length - 12).unwrap();
    packet[14..16].copy_from_slice(&chunk.to_be_bytes());
    packet[8..12].fill(0);
    let crc = wire::crc32c(&packet);
    packet[8..12].copy_from_slice(&crc.to_le_bytes());
    packet
}

#[test]
fn an_init_cut_anywhere_in_an_address_is_refused_or_dropped() {
    let parameters = [address("192.0.2.7"), address("2001:db8::7"), Parameter::HostName(b"host.example")];
    for last in 1..=3 {
        let whole = packet(9, 7, 0, &[init(77, &parameters[..last])]);
        let begin = packet(9, 7, 0, &[init(77, &parameters[..last - 1])]).len();
        for length in begin + 1..whole.len() {
            let mut t = two(1);
            let stranger = Stranger::new(t.b, "10.0.1.2", "192.0.2.1", 9);
            let answers = stranger.send_raw(&mut t.world, &cut(&whole, length));
            let names: Vec<_> = answers.iter().map(|(_, p)| sim::chunk_names(p)).collect();
            assert!(!names.contains(&"INIT ACK".to_owned()), "cut at {length} of {}", whole.len());
            assert_eq!(t.world.host(t.b).endpoint.associations().count(), 0);
        }
    }
}

#[test]
fn a_parameter_without_a_value_in_last_place_is_no_harm() {
    for kind in
        [5u16, 6, 7, 9, 11, 12, 0x8000, 0x8002, 0x8003, 0x8004, 0x8008, 0xc000, 0xc001, 0xc006, 0x7fff]
    {
        let empty = Parameter::Unknown { ptype: 0xffff, value: &[] };
        let mut raw = packet(9, 7, 0, &[init(77, &[empty])]);
        raw[32..34].copy_from_slice(&kind.to_be_bytes());
        let length = raw.len();
        let mut t = two(1);
        Stranger::new(t.b, "10.0.1.2", "192.0.2.1", 9).send_raw(&mut t.world, &cut(&raw, length));
        t.connect(Conversation::default());
        t.run_to_established();
    }
}

#[test]
fn in_each_state_a_repeated_chunk_changes_the_state_again_only_to_closed() {
    let _clear = InTheClear::begin();
    for state in STATES {
        for name in Subject::chunks() {
            let mut subject = Subject::in_state(state);
            subject.with_chunk(name, |s, tag, chunk| {
                s.answer_to(tag, chunk);
                let after_one = s.state();
                s.answer_to(tag, chunk);
                let both = [after_one, s.state()];
                assert!(both[1] == both[0] || both[1] == StateName::Closed, "{name} in {state:?}: {both:?}");
            });
        }
    }
}

#[test]
fn every_command_may_be_given_at_every_event() {
    for command in 0..3 {
        for nth in 0..8 {
            let mut t = two(1);
            t.connect(sends(messages(50, 3000, 3)));
            let mut seen = 0;
            // The command is given after the first input that brings the number of events above `nth`.
            t.world.run_until(t.world.now() + seconds(2), |w| {
                seen = w.host(sim::HostId(0)).app.log.len() + w.host(sim::HostId(1)).app.log.len();
                seen > nth
            });
            let now = t.world.now();
            for host in [t.a, t.b] {
                let endpoint = &mut t.world.host_mut(host).endpoint;
                let Some(id) = endpoint.associations().next() else { continue };
                match command {
                    0 => endpoint.abort(now, id, AbortCause::default()),
                    1 => endpoint.shutdown(now, id),
                    _ => endpoint.release(now, id),
                }
                endpoint.check_invariants();
            }
            t.world.run_for(seconds(30));
            for host in [t.a, t.b] {
                let endpoint = &t.world.host(host).endpoint;
                let live =
                    endpoint.associations().filter(|&id| endpoint.state(id) != Some(StateName::Closed));
                assert_eq!(live.count(), 0, "command {command} after {seen} events");
            }
        }
    }
}

#[test]
fn a_heartbeat_carries_a_path_number_and_a_nonce_and_nothing_else() {
    let _clear = InTheClear::begin();
    let mut t = Two::established(1);
    t.world.run_for(seconds(100));
    let mut infos = Vec::new();
    for record in &t.world.records {
        let parsed = Packet::parse(&record.packet, ChecksumMode::Verify).unwrap();
        infos.extend(parsed.chunks().filter_map(|c| match c {
            Ok(Chunk::Heartbeat(h)) => Some(h.info.to_vec()),
            _ => None,
        }));
    }
    assert!(infos.len() > 2);
    for (n, info) in infos.iter().enumerate() {
        // Octets 0 to 3 hold the path number, and octets 4 to 11 the nonce. Any later octets must be zero.
        assert_eq!(info[..4], [0; 4], "the first path");
        assert!(info[12..].iter().all(|b| *b == 0), "{info:?}");
        assert!(infos[..n].iter().all(|other| other[4..12] != info[4..12]), "a nonce comes once");
    }
}

#[test]
fn both_carriers_fill_a_link() {
    for carrier in [Carrier::Ip, UDP] {
        let mut t = two(1);
        t.world.checks = false;
        t.world.host_mut(t.b).app.template.keeps = false;
        let bulk = Conversation { bulk: u64::MAX, ..Conversation::default() };
        t.world.connect(t.a, t.b, carrier, AssociationConfig::default(), bulk);
        t.world.run_for(seconds(4));
        let before = t.talk(t.b).received_bytes;
        t.world.run_for(seconds(2));
        let mbit = (t.talk(t.b).received_bytes - before) * 8 / 2_000_000;
        assert!(mbit > 85, "{mbit} of 100 Mbit/s by {carrier:?}");
    }
}
