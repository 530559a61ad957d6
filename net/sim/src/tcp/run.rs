//! One connection over one link in virtual time.

use std::time::Duration;

use base::{Ecn, Time};
use netem::{DirectionConfig, Line};

use super::config::TcpConfig;
use super::end::End;
use super::segment::Segment;
use super::sender::TcpCounters;
use crate::exchange::{Exchange, Side};

/// Result of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpRun {
    /// Time from the first SYN until both sides had received all data.
    pub elapsed: Duration,
    /// Counters of the client's sender.
    pub client: TcpCounters,
    /// Counters of the server's sender.
    pub server: TcpCounters,
}

/// Both ends, and the segments on their way to each.
struct Connection {
    now: Time,
    ends: [End; 2],
    lines: [Line<Segment>; 2],
    header: usize,
}

/// Runs one connection, whose ends have the settings `config` and exchange the bytes of `exchange`. The link has the same
/// settings in both directions. The same seed gives the same run. Returns `None` if the run would take longer than `limit`.
pub fn run(
    config: &TcpConfig,
    exchange: &Exchange,
    link: &DirectionConfig,
    seed: u64,
    limit: Duration,
) -> Option<TcpRun> {
    let end = Time::ZERO + limit;
    let mut connection = Connection::new(config, link, seed);
    loop {
        connection.speak(exchange);
        if connection.is_over(exchange) {
            return Some(connection.outcome());
        }
        let next = connection.next_time();
        if next > end {
            return None;
        }
        connection.now = connection.now.max(next);
        connection.work();
    }
}

impl Connection {
    fn new(config: &TcpConfig, link: &DirectionConfig, seed: u64) -> Connection {
        let line = |direction: u64| Line::new(link.clone(), seed.wrapping_mul(2).wrapping_add(direction));
        Connection {
            now: Time::ZERO,
            ends: [End::new(Side::Client, config), End::new(Side::Server, config)],
            // To the client, and to the server.
            lines: [line(0), line(1)],
            header: config.header,
        }
    }

    /// Sends all segments that may leave. The link may lose them.
    fn speak(&mut self, exchange: &Exchange) {
        for from in 0..2 {
            while let Some(segment) = self.ends[from].poll(self.now, exchange) {
                let length = segment.length(self.header);
                let _ = self.lines[1 - from].enqueue(self.now, length, Ecn::NotEct, segment);
            }
        }
    }

    fn is_over(&self, exchange: &Exchange) -> bool {
        exchange.is_over(self.ends[0].received(), self.ends[1].received())
    }

    fn next_time(&self) -> Time {
        let ends = self.ends.iter().map(End::next_timeout);
        ends.chain(self.lines.iter().map(Line::next_wakeup)).fold(Time::NEVER, Time::min)
    }

    /// Handles arrivals, then timers.
    fn work(&mut self) {
        for to in 0..2 {
            if let Some(delivery) = self.lines[to].dequeue(self.now) {
                self.ends[to].on_segment(self.now, &delivery.packet);
            } else if self.ends[to].next_timeout() <= self.now {
                self.ends[to].on_timeout(self.now);
            }
        }
    }

    fn outcome(&self) -> TcpRun {
        TcpRun {
            elapsed: self.now.since(Time::ZERO),
            client: self.ends[0].counters(),
            server: self.ends[1].counters(),
        }
    }
}

#[cfg(test)]
mod tests {
    use netem::{Loss, LossPlace};

    use super::super::config::Growth;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(7200);

    fn link(loss: f64) -> DirectionConfig {
        DirectionConfig {
            rate: 1_500_000,
            delay: Duration::from_millis(35),
            queue_packets: 50,
            queue_bytes: usize::MAX,
            loss: if loss > 0.0 { Loss::Uniform(loss) } else { Loss::None },
            loss_place: LossPlace::BeforeQueue,
            ..DirectionConfig::default()
        }
    }

    fn seconds(config: &TcpConfig, bytes: u64, loss: f64, seed: u64) -> f64 {
        let run = run(config, &Exchange::upload(bytes), &link(loss), seed, LIMIT).expect("an end");
        run.elapsed.as_secs_f64()
    }

    #[test]
    fn without_loss_a_transfer_takes_what_the_link_takes() {
        for (config, wire) in
            [(TcpConfig::linux(Growth::Cubic), 1500.0 / 1448.0), (TcpConfig::freebsd_4_10(), 1500.0 / 1460.0)]
        {
            let least = 1_000_000.0 * wire * 8.0 / 1.5e6;
            let took = seconds(&config, 1_000_000, 0.0, 1);
            assert!(
                (least..least * 1.1 + 0.4).contains(&took),
                "{took} s, {least} s at the least: {config:?}"
            );
        }
    }

    #[test]
    fn one_seed_gives_one_run() {
        let config = TcpConfig::linux(Growth::Cubic);
        let once = |seed| run(&config, &Exchange::upload(200_000), &link(0.05), seed, LIMIT);
        assert!(once(1) == once(1) && once(1) != once(2));
    }

    #[test]
    fn a_conversation_takes_a_round_trip_for_each_answer() {
        let steps = vec![crate::Step { client: 100, server: 100 }, crate::Step { client: 100, server: 0 }];
        let steps = [steps, vec![crate::Step { client: 0, server: 100 }]].concat();
        let run =
            run(&TcpConfig::freebsd_4_10(), &Exchange::new(steps), &link(0.0), 1, LIMIT).expect("an end");
        let millis = run.elapsed.as_millis();
        // Three round trips: SYN and SYN ACK, the first data of both sides, the client's answer and the server's answer. The
        // server's first data leaves half a round trip after the client's.
        assert!((210..240).contains(&millis), "{millis} ms");
    }

    #[test]
    fn a_lost_syn_costs_the_first_time_out() {
        let took =
            |config: &TcpConfig| (0..200).map(|seed| seconds(config, 1, 0.3, seed)).sum::<f64>() / 200.0;
        let (bsd, linux) = (took(&TcpConfig::freebsd_4_10()), took(&TcpConfig::linux(Growth::Reno)));
        assert!(bsd > 2.0 * linux, "{bsd} s on average after three seconds, {linux} s after one");
    }

    #[test]
    fn with_loss_sack_is_faster_than_newreno_and_a_1_s_rto_floor_slower_than_200_ms() {
        let mean =
            |config: &TcpConfig| (0..10).map(|seed| seconds(config, 500_000, 0.06, seed)).sum::<f64>() / 10.0;
        let [bsd, old, linux] =
            [TcpConfig::freebsd_4_10(), TcpConfig::linux_without_sack(), TcpConfig::linux(Growth::Cubic)]
                .map(|config| mean(&config));
        assert!(linux < old && old < bsd, "{linux} s, {old} s, {bsd} s");
    }

    #[test]
    fn a_link_that_loses_all_ends_at_the_limit() {
        let config = TcpConfig::linux(Growth::Reno);
        assert_eq!(run(&config, &Exchange::upload(1), &link(1.0), 1, Duration::from_secs(60)), None);
    }
}
