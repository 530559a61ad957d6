//! Tracks the diverted connections of local programs. A connection is tracked until its program's TIME-WAIT has ended.
//!
//! The kernel adds a connection to its set of diversions when it releases the SYN ([`intercept::Verdict::Divert`]). The kernel
//! removes connections from the set on request; one request covers many connections. This module makes no system call:
//! [`super`] sends the requests. Begin with [`Diversions::begin`].

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use base::Time;
use intercept::FourTuple;

/// Time for which a diversion outlives its connection: the application's TIME-WAIT.
const LINGER: Duration = Duration::from_secs(60);
/// Delay between the end of a diversion and its removal. Other diversions may end within this delay. One request then removes
/// all of them together.
const GATHER: Duration = Duration::from_millis(20);

/// Error: the kernel's set of diverted connections has reached its limit.
#[derive(Debug, thiserror::Error)]
#[error("the set of diverted connections is full ({0})")]
pub(crate) struct Full(usize);

/// The diverted connections.
pub(super) struct Diversions {
    max: usize,
    /// End of each diversion; [`Time::NEVER`] while the diverted connection lives.
    ends: HashMap<FourTuple, Time>,
    /// Ended connections in the order of their ends, each with the time at which its diversion ends. An entry is out of date if
    /// `ends` holds another time for the connection.
    over: VecDeque<(Time, FourTuple)>,
}

impl Diversions {
    /// Creates an empty set for up to `max` connections.
    pub(super) fn new(max: usize) -> Diversions {
        Diversions { max, ends: HashMap::new(), over: VecDeque::new() }
    }

    /// Notes that a connection is diverted from now on.
    ///
    /// # Errors
    /// Fails if the limit is reached.
    pub(super) fn begin(&mut self, flow: FourTuple) -> Result<(), Full> {
        if self.ends.len() >= self.max && !self.ends.contains_key(&flow) {
            return Err(Full(self.max));
        }
        self.ends.insert(flow, Time::NEVER);
        Ok(())
    }

    /// Notes that a connection has ended. Its packets stay diverted during the application's TIME-WAIT. Has no effect on a
    /// connection that is not diverted.
    pub(super) fn end_later(&mut self, now: Time, flow: FourTuple) {
        if let Some(end) = self.ends.get_mut(&flow) {
            *end = now + LINGER;
            self.over.push_back((*end, flow));
        }
    }

    /// Ends a connection's diversion at once. Reports whether the connection was diverted.
    pub(super) fn end(&mut self, flow: &FourTuple) -> bool {
        self.ends.remove(flow).is_some()
    }

    /// Returns the time at which [`Diversions::take_over`] should be called next, or `None` if no diversion has an end.
    pub(super) fn next(&self) -> Option<Time> {
        self.over.front().map(|(end, _)| *end + GATHER)
    }

    /// Removes and returns the diversions that have expired.
    pub(super) fn take_over(&mut self, now: Time) -> Vec<FourTuple> {
        let count = self.over.partition_point(|(end, _)| *end <= now);
        let mut due: Vec<_> = self.over.drain(..count).collect();
        due.retain(|(end, flow)| self.ends.get(flow) == Some(end));
        for (_, flow) in &due {
            self.ends.remove(flow);
        }
        due.into_iter().map(|(_, flow)| flow).collect()
    }

    /// Iterates over all diverted connections.
    pub(super) fn flows(&self) -> impl Iterator<Item = &FourTuple> {
        self.ends.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> FourTuple {
        FourTuple::new(([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 80).into()).expect("one family")
    }

    fn second(number: u64) -> Time {
        Time::from_millis(number * 1_000)
    }

    #[test]
    fn diversions_end_together_a_minute_after_their_connections() {
        let mut diversions = Diversions::new(9);
        (1..=3).for_each(|port| diversions.begin(flow(port)).expect("room"));
        assert_eq!(diversions.next(), None);
        diversions.end_later(second(10), flow(2));
        diversions.end_later(second(10) + GATHER, flow(1));
        assert_eq!(diversions.next(), Some(second(70) + GATHER));
        assert_eq!(diversions.take_over(second(69)), []);
        assert_eq!(diversions.take_over(second(70) + GATHER), [flow(2), flow(1)]);
        assert_eq!((diversions.next(), diversions.flows().collect::<Vec<_>>()), (None, vec![&flow(3)]));
    }

    #[test]
    fn a_diversion_of_a_reused_flow_lasts_as_long_as_the_new_connection() {
        let mut diversions = Diversions::new(9);
        diversions.begin(flow(1)).expect("room");
        diversions.end_later(second(10), flow(1));
        assert!(diversions.end(&flow(1)));
        diversions.begin(flow(1)).expect("room");
        assert_eq!(diversions.take_over(second(80)), []);
        diversions.end_later(second(90), flow(1));
        assert_eq!(diversions.take_over(second(149)), []);
        assert_eq!(diversions.take_over(second(150)), [flow(1)]);
        assert!(!diversions.end(&flow(1)));
    }

    #[test]
    fn a_full_set_takes_an_existing_flow_and_no_new_one() {
        let mut diversions = Diversions::new(2);
        (1..=2).for_each(|port| diversions.begin(flow(port)).expect("room"));
        let full = diversions.begin(flow(3)).expect_err("no room");
        assert_eq!(full.to_string(), "the set of diverted connections is full (2)");
        diversions.begin(flow(2)).expect("the same");
        assert!(diversions.end(&flow(1)));
        diversions.begin(flow(3)).expect("room again");
    }

    #[test]
    fn a_flow_without_a_diversion_does_not_end() {
        let mut diversions = Diversions::new(2);
        diversions.end_later(second(1), flow(1));
        assert_eq!(diversions.next(), None);
        assert!(!diversions.end(&flow(1)));
    }
}
