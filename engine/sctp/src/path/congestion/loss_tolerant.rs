//! Congestion control for paths that lose packets without congestion: opt-in, and limited by delay.
//!
//! The controller models the path as a pipe, as BBR does. The pipe holds the highest recent delivery rate
//! times the shortest round trip. The controller sends at the highest recent delivery rate. It periodically
//! probes for a higher rate, and then drains the resulting queue. It limits the data in flight to about
//! twice the pipe's capacity, and to three times this capacity at the start.
//!
//! **Losses of up to [`MAX_NOISE_PERCENT`] without delay do not slow the controller down.** Losses indicate
//! congestion in two cases:
//!
//! * They exceed [`MAX_QUEUED_PERCENT`], and occur together with delay, that is, with a standing queue.
//! * They are too many to be noise ([`MAX_NOISE_PERCENT`]). An overflow of a short queue is such a case.
//!
//! Each round with congestion sets a ceiling for the bytes in flight: [`BACK_OFF`] times the most bytes in
//! flight during the round. The ceiling rises slowly in rounds without congestion.
//!
//! The cost: in a deep queue that it shares with loss-based flows, the controller uses about as much
//! bandwidth as the queue permits, not an equal share. Therefore this controller is not the default. Start
//! at [`LossTolerant::on_ack`](CongestionControl::on_ack).

use std::time::Duration;

use base::Time;

use super::{Ack, CongestionControl, initial_window, window_rate};

/// Number of recent rounds from which the highest rate is taken.
const RATE_ROUNDS: usize = 10;
/// Age at which the shortest round trip is measured again.
const MIN_RTT_SPAN: Duration = Duration::from_secs(10);
/// Minimum duration of a measurement of the shortest round trip, during which little data is in flight.
const PROBE_RTT: Duration = Duration::from_millis(200);
/// Pacing gain, in percent, that fills the pipe within a few rounds: 2 / ln 2.
const STARTUP_PERCENT: u64 = 289;
/// Pacing gains, in percent, one for each round trip of a cycle. The first gain probes for a higher rate,
/// and the second gain drains the queue.
const CYCLE_PERCENT: [u64; 8] = [125, 75, 100, 100, 100, 100, 100, 100];
/// Loss rate, in percent, up to which losses without a standing queue count as noise.
const MAX_NOISE_PERCENT: usize = 10;
/// Loss rate, in percent, that is tolerated even with a standing queue.
const MAX_QUEUED_PERCENT: usize = 2;
/// Number of standard deviations by which the losses of a round must exceed the losses expected at the
/// tolerated rate. At a loss rate of 10 %, for example, a round of ten packets often loses no packet, and
/// often two packets.
const CHANCE_DEVIATIONS: f64 = 2.0;
/// Factor on the bytes in flight: the product is the ceiling after a round of congestion.
const BACK_OFF: f64 = 0.7;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The rate still grows. `best` is the rate after its last growth by more than a quarter, in bytes per
    /// second. `rounds` is the number of rounds since this growth.
    Startup { best: u64, rounds: u32 },
    /// The queue from startup drains.
    Drain,
    /// The gains of [`CYCLE_PERCENT`] are used in turn. `place` is the index of the current gain, and
    /// `since` is the time at which this gain came into use.
    Cruise { place: usize, since: Time },
    /// Little data is in flight until `until`, so the round trip is measured without a queue.
    ProbeRtt { until: Time },
}

/// Observations of the current round so far.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// User bytes acknowledged.
    delivered: usize,
    /// User bytes lost.
    lost: usize,
    least_rtt: Option<Duration>,
    /// Maximum of the user bytes in flight.
    most_flight: usize,
}

/// Model of one path.
#[derive(Clone, Debug)]
pub(crate) struct LossTolerant {
    mtu: usize,
    cwnd: usize,
    phase: Phase,
    /// Highest rate of each of the last rounds, in bytes per second.
    rates: [u64; RATE_ROUNDS],
    rounds: usize,
    round: Round,
    /// Shortest round trip, and the time of the last sample close to this round trip.
    min_rtt: Option<(Duration, Time)>,
    /// Limit on the bytes in flight after congestion.
    ceiling: Option<usize>,
    /// Window in bytes before the last timeout.
    before_timeout: Option<usize>,
}

impl LossTolerant {
    pub(crate) fn new(mtu: usize) -> LossTolerant {
        LossTolerant {
            mtu,
            cwnd: initial_window(mtu),
            phase: Phase::Startup { best: 0, rounds: 0 },
            rates: [0; RATE_ROUNDS],
            rounds: 0,
            round: Round::default(),
            min_rtt: None,
            ceiling: None,
            before_timeout: None,
        }
    }

    fn rate(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }

    /// Returns the capacity of the pipe in bytes; `None` before rate and round trip are known.
    fn pipe(&self) -> Option<usize> {
        let (rtt, _) = self.min_rtt?;
        let bytes = u128::from(self.rate()) * rtt.as_nanos() / 1_000_000_000;
        usize::try_from(bytes).ok().filter(|&b| b > 0)
    }

    fn take_samples(&mut self, ack: &Ack) {
        if let Some(sample) = ack.rate.filter(|s| !s.app_limited || s.rate > self.rate()) {
            let place = &mut self.rates[self.rounds % RATE_ROUNDS];
            *place = (*place).max(sample.rate);
        }
        if let Some(rtt) = ack.rtt {
            // A sample close to the shortest round trip counts as a new measurement of the shortest round
            // trip. Therefore a cycle that empties the queue makes a separate measurement needless.
            match &mut self.min_rtt {
                Some((least, at)) if rtt < *least + *least / 32 => {
                    *least = rtt.min(*least);
                    *at = ack.now;
                }
                Some(_) => {}
                None => self.min_rtt = Some((rtt, ack.now)),
            }
            self.round.least_rtt = Some(self.round.least_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        self.round.delivered += ack.bytes;
        self.round.lost += ack.lost;
        self.round.most_flight = self.round.most_flight.max(ack.flight + ack.bytes + ack.lost);
    }

    fn end_round(&mut self) {
        self.judge_losses();
        if let Phase::Startup { best, rounds } = self.phase {
            let rate = self.rate();
            self.phase = if rate > best + best / 4 {
                Phase::Startup { best: rate, rounds: 0 }
            } else if rounds < 2 {
                Phase::Startup { best, rounds: rounds + 1 }
            } else {
                Phase::Drain
            };
        }
        self.round = Round::default();
        self.rounds += 1;
        self.rates[self.rounds % RATE_ROUNDS] = 0;
    }

    /// Classifies the losses of the round as noise or congestion.
    fn judge_losses(&mut self) {
        let round = self.round;
        let queued = match (round.least_rtt, self.min_rtt) {
            (Some(now), Some((least, _))) => now > least + least / 4,
            _ => false,
        };
        let most = if queued { MAX_QUEUED_PERCENT } else { MAX_NOISE_PERCENT };
        if exceeds(round.lost / self.mtu, (round.lost + round.delivered) / self.mtu, most) {
            self.lower_ceiling(round.most_flight);
        } else if let Some(ceiling) = &mut self.ceiling {
            *ceiling += (*ceiling / 16).max(self.mtu);
            let ceiling = *ceiling;
            if self.pipe().is_some_and(|pipe| ceiling > 2 * pipe) {
                self.ceiling = None;
            }
        }
    }

    /// Sets the ceiling after congestion with `flight` bytes in flight.
    fn lower_ceiling(&mut self, flight: usize) {
        let lower = (flight as f64 * BACK_OFF) as usize;
        self.ceiling = Some(lower.max(4 * self.mtu));
        if matches!(self.phase, Phase::Startup { .. }) {
            self.phase = Phase::Drain;
        }
    }

    /// Moves to the next phase if the time or the bytes in flight require it.
    fn advance(&mut self, ack: &Ack) {
        let (Some(pipe), Some((rtt, measured))) = (self.pipe(), self.min_rtt) else { return };
        match self.phase {
            Phase::Startup { .. } => {}
            Phase::Drain if ack.flight > pipe => {}
            Phase::Drain => self.phase = Phase::Cruise { place: 2, since: ack.now },
            Phase::Cruise { .. } if ack.now - measured > MIN_RTT_SPAN => {
                self.phase = Phase::ProbeRtt { until: ack.now + PROBE_RTT.max(rtt * 2) };
                self.min_rtt = ack.rtt.map(|rtt| (rtt, ack.now)).or(self.min_rtt);
            }
            Phase::Cruise { place, since } => {
                let drained = CYCLE_PERCENT[place] < 100 && ack.flight <= pipe;
                if drained || ack.now - since > rtt {
                    self.phase = Phase::Cruise { place: (place + 1) % CYCLE_PERCENT.len(), since: ack.now };
                }
            }
            Phase::ProbeRtt { until } if ack.now < until => {}
            Phase::ProbeRtt { .. } => {
                self.min_rtt = Some((rtt, ack.now));
                self.phase = Phase::Cruise { place: 0, since: ack.now };
            }
        }
    }

    /// Returns the target of the window in bytes; `None` before the pipe is known.
    fn target(&self) -> Option<usize> {
        let pipe = self.pipe()?;
        let target = match self.phase {
            Phase::Startup { .. } | Phase::Drain => 3 * pipe,
            Phase::Cruise { .. } => 2 * pipe,
            Phase::ProbeRtt { .. } => pipe / 2,
        };
        // Three packets are added to the target, because SACKs may arrive late or together.
        Some((target + 3 * self.mtu).min(self.ceiling.unwrap_or(usize::MAX)).max(4 * self.mtu))
    }
}

/// Reports whether `lost` of `all` packets are clearly more than the losses that a loss rate of `percent`
/// makes likely. The excess must be more than [`CHANCE_DEVIATIONS`] standard deviations, because the losses
/// in a round of few packets vary by chance.
fn exceeds(lost: usize, all: usize, percent: usize) -> bool {
    let p = percent as f64 / 100.0;
    let expected = all as f64 * p;
    let deviation = (expected * (1.0 - p)).sqrt();
    lost as f64 > expected + CHANCE_DEVIATIONS * deviation
}

impl CongestionControl for LossTolerant {
    fn cwnd(&self) -> usize {
        self.cwnd
    }

    fn begin_with(&mut self, window: usize) {
        self.cwnd = self.cwnd.max(window);
    }

    fn ssthresh(&self) -> usize {
        self.ceiling.unwrap_or(usize::MAX)
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.take_samples(ack);
        if ack.round_over {
            self.end_round();
        }
        self.advance(ack);
        let filling = matches!(self.phase, Phase::Startup { .. });
        let grown = self.cwnd + ack.bytes;
        self.cwnd = match self.target() {
            Some(target) if !filling || self.ceiling.is_some() => grown.min(target),
            Some(target) if self.cwnd < target => grown,
            _ => self.cwnd.max(grown.min(initial_window(self.mtu) * 8)),
        };
    }

    /// Sets the ceiling: a mark is never noise, because it proves a queue even without delay.
    fn on_mark(&mut self, _now: Time) {
        self.lower_ceiling(self.round.most_flight.max(self.cwnd.min(2 * self.pipe().unwrap_or(self.cwnd))));
    }

    /// Does nothing: at the end of each round, the controller judges the round's losses together with the
    /// round's delay.
    fn on_congestion(&mut self, _now: Time) -> bool {
        false
    }

    fn on_timeout(&mut self) {
        self.before_timeout = Some(self.cwnd);
        self.cwnd = self.mtu;
    }

    fn on_spurious(&mut self) {
        if let Some(before) = self.before_timeout.take() {
            self.cwnd = self.cwnd.max(before);
        }
    }

    /// Does nothing: the rate is still known, so pacing prevents a burst after a pause.
    fn on_idle(&mut self, _rtos: u32, _least: usize) {}

    fn on_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.cwnd = self.cwnd.max(mtu);
    }

    fn pacing_rate(&self, srtt: Duration) -> u64 {
        let percent = match self.phase {
            Phase::Startup { .. } => STARTUP_PERCENT,
            Phase::Drain => 10_000 / STARTUP_PERCENT,
            Phase::Cruise { place, .. } => CYCLE_PERCENT[place],
            Phase::ProbeRtt { .. } => 100,
        };
        let by_model = self.rate().saturating_mul(percent) / 100;
        let by_window = window_rate(initial_window(self.mtu), srtt, STARTUP_PERCENT);
        let by_ceiling = self.ceiling.map_or(u64::MAX, |c| window_rate(c, srtt, 100));
        by_model.min(by_ceiling).max(by_window.min(by_ceiling))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::full;
    use super::*;
    use crate::tx::RateSample;

    const MTU: usize = 1000;
    const RATE: u64 = 1_000_000;

    fn round(c: &mut LossTolerant, n: u64, rtt_ms: u64, lost: usize) {
        let rtt = Duration::from_millis(rtt_ms);
        c.on_ack(&Ack {
            flight: 100_000,
            lost,
            rtt: Some(rtt),
            srtt: rtt,
            round_over: true,
            rate: Some(RateSample { rate: RATE, app_limited: false }),
            ..full(Time::from_millis(n * 100), 100_000 - lost)
        });
    }

    /// Returns a controller in its cruise phase. Its pipe of 1 MB/s and 100 ms holds 100 kB.
    fn cruising() -> LossTolerant {
        let mut c = LossTolerant::new(MTU);
        (0..8).for_each(|n| round(&mut c, n, 100, 0));
        assert!(matches!(c.phase, Phase::Cruise { .. }), "{:?}", c.phase);
        assert_eq!(c.pipe(), Some(100_000));
        c
    }

    #[test]
    fn the_window_settles_at_twice_the_bdp_and_the_pacing_rate_at_the_paths_rate() {
        let mut c = cruising();
        (8..20).for_each(|n| round(&mut c, n, 100, 0));
        assert_eq!(c.cwnd(), 200_000 + 3 * MTU);
        let rate = c.pacing_rate(Duration::from_millis(100));
        assert!((RATE * 3 / 4..=RATE * 5 / 4).contains(&rate), "{rate}");
    }

    #[test]
    fn five_percent_of_loss_without_delay_are_ignored_and_with_delay_they_are_not() {
        let mut c = cruising();
        (8..20).for_each(|n| round(&mut c, n, 100, 5000));
        assert_eq!(c.ceiling, None);
        (20..22).for_each(|n| round(&mut c, n, 150, 5000));
        assert!(c.ceiling.is_some() && c.cwnd() < 200_000, "{} {:?}", c.cwnd(), c.ceiling);
    }

    #[test]
    fn a_tenth_of_lost_packets_counts_as_noise_despite_scatter_in_short_rounds() {
        assert!(!exceeds(2, 10, MAX_NOISE_PERCENT) && exceeds(3, 10, MAX_NOISE_PERCENT));
        assert!(!exceeds(115, 1000, MAX_NOISE_PERCENT) && exceeds(120, 1000, MAX_NOISE_PERCENT));
        assert!(!exceeds(0, 0, MAX_NOISE_PERCENT));
    }

    #[test]
    fn more_loss_than_noise_makes_is_congestion_even_without_delay() {
        let mut c = cruising();
        (8..10).for_each(|n| round(&mut c, n, 100, 20_000));
        assert!(c.ceiling.is_some());
        (10..60).for_each(|n| round(&mut c, n, 100, 0));
        assert_eq!(c.ceiling, None);
    }
}
