//! Messages that come whether or not others have left, as calls do, between hosts whose processors others use.
//!
//! Nothing is lost here and the link is never full: what a busy processor adds to a round trip is no queue, and must not keep
//! messages waiting. `cargo test -p sctp-engine --test engine busy -- --nocapture` prints windows as they go.

use std::time::Duration;

use sctp::{AssociationConfig, EndpointConfig, Timing};
use sim::{Change, Conversation, HostId, LinkConfig, Outgoing};

use crate::support::{Two, content, two_with};

const MS: fn(u64) -> Duration = Duration::from_millis;
/// Messages a millisecond, and bytes of one: 2,000 calls a second, of which three messages go each way.
const MESSAGES: u64 = 6;
const LENGTH: u64 = 500;
/// How long both talk before their processors get busy, and afterwards, in milliseconds.
const QUIET: u64 = 1000;
const BUSY: u64 = 4000;

/// Two hosts with an association as signalling asks for it, over a link of 10 Gbit/s with a round trip of 0.1 ms and room for all.
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
    /// The program of `host` has so many messages more for its peer.
    fn tell(&mut self, host: HostId, messages: u64) {
        let talk = self.world.host_mut(host).app.conversations.values_mut().next().expect("a conversation");
        talk.outgoing.extend((0..messages).map(|n| Outgoing {
            stream: (n % 16) as u16,
            unordered: false,
            bytes: content(n as usize, LENGTH as usize),
        }));
    }

    /// Prints one association's windows.
    fn print(&self, period: u64, millisecond: u64, waits: u64) {
        let path = &self.info(self.a).paths[0];
        let (cwnd, ssthresh, srtt, timeouts) = (path.cwnd, path.ssthresh, path.srtt, path.timeouts);
        eprintln!(
            "busy for {period} ms: at {millisecond} cwnd {cwnd}, ssthresh {ssthresh}, srtt {srtt:?}, {timeouts} timeouts, \
             {waits} ms of messages wait"
        );
    }
}

/// Others have both processors for nearly all of each `period` milliseconds, the second host's half a period later. The most that
/// waited for one of the programs in the last second, in milliseconds of what its peer says.
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
fn on_a_busy_processor_messages_wait_for_three_turns_at_most_and_do_not_pile_up() {
    for period in [2, 5, 10, 20, 50, 100] {
        let most = most_that_waits(period);
        assert!(
            most <= 3 * period,
            "{most} ms of messages waited for a program that has {period} ms to wait"
        );
    }
}
