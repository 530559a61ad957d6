//! Coupled congestion control (RFC 6356): paths that share a bottleneck together take no more than a single
//! path would.
//!
//! A shared bottleneck is not detected. Each path keeps its own window and its own reductions; only growth is
//! coupled, so paths that share nothing still fill their links. Slow start is not coupled. Start at
//! [`Transfer::couple`].

use super::Transfer;
use crate::path::{Coupling, PathIndex};

/// Totals over all paths that carry data.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    /// Bytes per second.
    rate: f64,
    /// The largest quotient of a window and its squared round-trip time.
    best: f64,
}

impl Transfer {
    /// Sets the growth rate of the window of `index`, on which data was acknowledged.
    ///
    /// RFC 6356 section 3: for what was acknowledged a window grows by at most `alpha * bytes_acked * MSS / cwnd_total`, with
    /// `alpha = cwnd_total * MAX(cwnd_i / rtt_i^2) / (SUM(cwnd_i / rtt_i))^2`. The quotient of that and Reno's
    /// `bytes_acked * MSS / cwnd_i` is the growth here: of equal paths with the share s of all that is sent, s^2.
    ///
    /// For CUBIC, a path with the share s must have the s-th part of a single path's window, as late as its losses are
    /// fewer: W'(t) = s W(s t). That is a cubic function whose coefficient is multiplied by s^4, or growth and s^2.
    pub(crate) fn couple(&mut self, index: PathIndex) {
        let Some((window, rtt)) = self.window_and_rtt(index) else { return };
        let all = self.together(index);
        let growth = (window * all.best / (all.rate * all.rate)).min(1.0);
        let share = window / rtt / all.rate;
        let coupling = Coupling { growth, steepness: growth * share * share };
        self.paths.get_mut(index).sending.set_coupling(coupling);
    }

    /// Window in bytes and round trip in seconds; both are positive.
    fn window_and_rtt(&self, index: PathIndex) -> Option<(f64, f64)> {
        let path = self.paths.get(index);
        let rtt = path.srtt()?.as_secs_f64().max(1e-6);
        Some((path.sending.cwnd() as f64, rtt))
    }

    /// Totals over `index`, which has just delivered, and all paths with data in flight.
    fn together(&self, index: PathIndex) -> Together {
        let sends = |&i: &PathIndex| i == index || self.tx.outstanding.flight(i) > 0;
        let paths = self.paths.indices().filter(sends).filter_map(|i| self.window_and_rtt(i));
        paths.fold(Together::default(), |all, (window, rtt)| Together {
            rate: all.rate + window / rtt,
            best: all.best.max(window / (rtt * rtt)),
        })
    }
}
