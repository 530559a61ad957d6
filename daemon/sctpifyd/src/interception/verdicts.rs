//! Remembers the verdicts on the latest SYNs, so a retransmitted SYN gets the same verdict as its first copy.
//!
//! Invariant: up to [`VERDICTS_MAX`] verdicts are kept. At the limit, the oldest verdict is dropped. Begin at
//! [`Verdicts::find`].

use std::collections::{HashMap, VecDeque};

use intercept::{FourTuple, Verdict};

/// Limit on the verdicts kept for retransmitted SYNs.
const VERDICTS_MAX: usize = 8192;

/// The verdicts by flow, each with its SYN's initial sequence number.
#[derive(Default)]
pub(super) struct Verdicts {
    known: HashMap<FourTuple, (u32, Verdict)>,
    order: VecDeque<(FourTuple, u32)>,
}

impl Verdicts {
    pub(super) fn find(&self, flow: &FourTuple, isn: u32) -> Option<Verdict> {
        self.known.get(flow).filter(|(known, _)| *known == isn).map(|(_, verdict)| *verdict)
    }

    pub(super) fn remember(&mut self, flow: FourTuple, isn: u32, verdict: Verdict) {
        self.known.insert(flow, (isn, verdict));
        self.order.push_back((flow, isn));
        if self.order.len() > VERDICTS_MAX
            && let Some((flow, isn)) = self.order.pop_front()
            && self.known.get(&flow).is_some_and(|(known, _)| *known == isn)
        {
            self.known.remove(&flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> FourTuple {
        FourTuple::new(([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 80).into()).expect("one family")
    }

    #[test]
    fn a_syn_that_is_sent_again_gets_its_verdict_and_a_new_one_none() {
        let mut verdicts = Verdicts::default();
        verdicts.remember(flow(1), 7, Verdict::Accept);
        assert_eq!(verdicts.find(&flow(1), 7), Some(Verdict::Accept));
        assert_eq!((verdicts.find(&flow(1), 8), verdicts.find(&flow(2), 7)), (None, None));
        verdicts.remember(flow(1), 8, Verdict::Divert);
        assert_eq!((verdicts.find(&flow(1), 7), verdicts.find(&flow(1), 8)), (None, Some(Verdict::Divert)));
    }

    #[test]
    fn the_oldest_verdicts_go_first_but_not_a_newer_one_with_the_same_addresses() {
        let mut verdicts = Verdicts::default();
        let ports = 1..=VERDICTS_MAX as u16;
        ports.clone().for_each(|port| verdicts.remember(flow(port), 1, Verdict::Accept));
        verdicts.remember(flow(1), 2, Verdict::Divert);
        assert_eq!(verdicts.find(&flow(1), 2), Some(Verdict::Divert));
        verdicts.remember(flow(9_000), 1, Verdict::Accept);
        assert_eq!((verdicts.find(&flow(2), 1), verdicts.find(&flow(3), 1)), (None, Some(Verdict::Accept)));
        assert!(verdicts.order.len() == VERDICTS_MAX && verdicts.known.len() == VERDICTS_MAX);
    }
}
