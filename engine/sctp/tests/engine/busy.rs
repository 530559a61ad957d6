//! Tests of programs that send messages at a fixed rate, as telephone calls do, between hosts with busy processors.
//!
//! No packet is lost here, and the link is never full. A busy processor adds delay to a round trip. The engine must not take this delay for
//! a network queue and hold messages back. `cargo test -p sctp-engine --test engine busy -- --nocapture` prints the windows during the run.

use std::time::Duration;

use sctp::{AssociationConfig, EndpointConfig, Timing};
use sim::{Change, Conversation, HostId, LinkConfig, Outgoing};

use crate::support::{Two, content, two_with};

const MS: fn(u64) -> Duration = Duration::from_millis;
/// Messages per millisecond and direction, and bytes per message. They model 2,000 calls per second with three messages each way.
const MESSAGES: u64 = 6;
const LENGTH: u64 = 500;
/// Durations of the quiet phase and of the busy phase after it, in milliseconds.
const QUIET: u64 = 1000;
const BUSY: u64 = 4000;

/// Creates two hosts with an association whose settings suit signalling. Their link has 10 Gbit/s, a round trip of 0.1 ms, and room for all
/// packets.
fn signalling() -> Two {
    let timing = Timing { rto_initial: MS(500), rto_min: MS(200), sack_delay: MS(20), ..Timing::default() };
    let association = AssociationConfig { timing, initial_packets: 10, ..AssociationConfig::default() };
    let link = LinkConfig {
        rate: 10_000_000_000,
        delay: Duration::from_micros(50),
        queue_packets: usize::MAX,
        queue_bytes: usize::MAX,
        ..LinkConfig::default()
    };
    let config = EndpointConfig { association: association.clone(), ..EndpointConfig::default() };
    let mut t = two_with(1, link, config);
    t.world.checks = false;
    t.world.host_mut(t.b).app.template.keeps = false;
    t.connect_with(association, Conversation { keeps: false, ..Conversation::default() });
    t.run_to_established();
    t
}

impl Two {
    /// Queues `messages` more messages at the program of `host`.
    fn tell(&mut self, host: HostId, messages: u64) {
        let talk = self.world.host_mut(host).app.conversations.values_mut().next().expect("a conversation");
        talk.outgoing.extend((0..messages).map(|n| Outgoing {
            stream: (n % 16) as u16,
            unordered: false,
            bytes: content(n as usize, LENGTH as usize),
        }));
    }

    /// Prints the state of `a`'s path.
    fn print(&self, period: u64, millisecond: u64, waits: u64) {
        let path = &self.info(self.a).paths[0];
        let (cwnd, ssthresh, srtt, timeouts) = (path.cwnd, path.ssthresh, path.srtt, path.timeouts);
        eprintln!(
            "busy for {period} ms: at {millisecond} cwnd {cwnd}, ssthresh {ssthresh}, srtt {srtt:?}, {timeouts} timeouts, \
             {waits} ms of messages wait"
        );
    }
}

/// Returns the maximum backlog of either program in the last second, expressed as the number of milliseconds in which the peer sends that
/// backlog. Other processes occupy both processors for nearly all of each `period` milliseconds. The second host's periods begin half a
/// period later.
fn most_that_waits(period: u64) -> u64 {
    let mut t = signalling();
    let hosts = [(t.a, 0), (t.b, period / 2)];
    let (mut told, mut most) = (0, 0);
    for millisecond in 0..QUIET + BUSY {
        for (host, begin) in hosts {
            if millisecond >= QUIET && millisecond % period == begin {
                let now = t.world.now();
                t.world.at(now, Change::Busy(host, MS(period) - Duration::from_micros(1)));
            }
            t.tell(host, MESSAGES);
        }
        told += MESSAGES * LENGTH;
        t.world.run_for(MS(1));
        let waits = hosts.map(|(host, _)| (told - t.talk(host).received_bytes) / (MESSAGES * LENGTH));
        let waits = waits[0].max(waits[1]);
        if millisecond >= QUIET + BUSY - 1000 {
            most = most.max(waits);
        }
        if millisecond % 100 == 99 {
            t.print(period, millisecond, waits);
        }
    }
    most
}

#[test]
fn on_a_busy_processor_messages_wait_for_up_to_three_turns() {
    for period in [2, 5, 10, 20, 50, 100] {
        let most = most_that_waits(period);
        assert!(
            most <= 3 * period,
            "{most} ms of messages waited for a program that has {period} ms to wait"
        );
    }
}
