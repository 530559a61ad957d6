//! Coupled congestion control (RFC 6356): at a shared bottleneck, the paths together take no more of the capacity than
//! a single path would.
//!
//! The engine does not detect whether paths share a bottleneck. Each path has its own window and its own reductions.
//! Only growth is coupled, so paths without a common bottleneck still fill their links. Slow start is not coupled.
//! Start at [`Transfer::couple`].

use super::Transfer;
use crate::path::{Coupling, PathIndex};

/// Totals over all paths that carry data.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    /// Sum of the rates, which are the windows divided by their round-trip times, in bytes per second.
    rate: f64,
    /// The largest quotient of a window and its squared round-trip time, in bytes per square second.
    best: f64,
}

impl Transfer {
    /// Sets the growth rate of the window of `index`, on which data was acknowledged.
    ///
    /// RFC 6356 section 3 limits the growth of a window for acknowledged bytes:
    ///
    /// - The limit is `alpha * bytes_acked * MSS / cwnd_total`.
    /// - `alpha` is `cwnd_total * MAX(cwnd_i / rtt_i^2) / (SUM(cwnd_i / rtt_i))^2`.
    ///
    /// `growth` is the quotient of this limit and Reno's growth, `bytes_acked * MSS / cwnd_i`. For equal paths, each
    /// with the share s of the total rate, `growth` is s^2.
    ///
    /// For CUBIC, a path with the share s must have s times the window of a single path. Its losses are rarer by the
    /// same factor, so its window function is W'(t) = s W(s t). This is a cubic function with its coefficient
    /// multiplied by s^4, which is `growth` times s^2.
    pub(crate) fn couple(&mut self, index: PathIndex) {
        let Some((window, rtt)) = self.window_and_rtt(index) else { return };
        let all = self.together(index);
        let growth = (window * all.best / (all.rate * all.rate)).min(1.0);
        let share = window / rtt / all.rate;
        let coupling = Coupling { growth, steepness: growth * share * share };
        self.paths.get_mut(index).sending.set_coupling(coupling);
    }

    /// Returns the window in bytes and the round-trip time in seconds. Both are positive.
    fn window_and_rtt(&self, index: PathIndex) -> Option<(f64, f64)> {
        let path = self.paths.get(index);
        let rtt = path.srtt()?.as_secs_f64().max(1e-6);
        Some((path.sending.cwnd() as f64, rtt))
    }

    /// Returns the totals over `index`, which has just delivered data, and all paths with data in flight.
    fn together(&self, index: PathIndex) -> Together {
        let sends = |&i: &PathIndex| i == index || self.tx.outstanding.flight(i) > 0;
        let paths = self.paths.indices().filter(sends).filter_map(|i| self.window_and_rtt(i));
        paths.fold(Together::default(), |all, (window, rtt)| Together {
            rate: all.rate + window / rtt,
            best: all.best.max(window / (rtt * rtt)),
        })
    }
}
