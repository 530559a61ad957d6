//! The queues of `sched`, by the names of the command line.

use std::fmt;

use clap::ValueEnum;
use sched::{Classifier, Finish, FqCodelConfig, Policy, ServedConfig, SfqConfig};

/// Which packet goes next, and which is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PolicyName {
    /// First in, first out (127 packets)
    Fifo,
    /// Stochastic fair queueing, as Linux has it (127 packets)
    Sfq,
    /// The same, beside a class for what has no data
    SfqControl,
    /// Fair queueing with CoDel, as Linux has it (10,240 packets)
    FqCodel,
    /// The 2016 project's classes by tens of percent, with SFQ: the fuller the more
    Htb,
    /// The same as its script has them: by tenths, all alike
    HtbSeed,
    /// The flow served least goes first, exact flows, with memory (1,000 packets)
    Ltf,
    /// Nine tenths of the link go to who was served least lately, the rest as ltf (2,000 packets)
    Las,
    /// Nine tenths go to who has least left by its own word, audited; the rest as ltf (2,000 packets)
    Finish,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All have a name: none is hidden.
        self.to_possible_value().map_or(Ok(()), |value| f.pad(value.get_name()))
    }
}

impl PolicyName {
    /// The queue, for so many packets if that is said.
    pub(crate) fn with(self, packets: Option<usize>, marks: bool) -> Policy {
        let sfq = SfqConfig::default();
        let depth = packets.unwrap_or(sfq.depth).max(sfq.depth);
        // As `tc` has it: a limit that is given is one for slots, too.
        let slots = packets.map_or(sfq.slots, |packets| packets.min(sfq.slots));
        let sfq = SfqConfig { packets: packets.unwrap_or(sfq.packets), depth, slots, ..sfq };
        let served = |default: ServedConfig| {
            let packets = packets.unwrap_or(default.packets);
            Policy::Served(ServedConfig { packets, ..default })
        };
        match self {
            PolicyName::Fifo => Policy::Fifo(sfq.packets),
            PolicyName::Sfq => Policy::Sfq(sfq),
            PolicyName::SfqControl => Policy::Classes(Classifier::Control, sfq),
            PolicyName::Htb => Policy::Classes(Classifier::Rising, sfq),
            PolicyName::HtbSeed => Policy::Classes(Classifier::SeedTenths, sfq),
            PolicyName::FqCodel => {
                let default = FqCodelConfig::default();
                Policy::FqCodel(FqCodelConfig {
                    packets: packets.unwrap_or(default.packets),
                    marks,
                    ..default
                })
            }
            PolicyName::Ltf => served(ServedConfig::default()),
            PolicyName::Las => served(ServedConfig::finishing(Finish::LEAST_SERVED)),
            PolicyName::Finish => served(ServedConfig::finishing(Finish::AUDITED)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_for_each_policy() {
        for name in PolicyName::value_variants() {
            let report = format!("{:?}", name.with(Some(77), false));
            assert!(report.contains("packets: 77,") || report == "Fifo(77)", "{name}: {report}");
        }
    }
}
