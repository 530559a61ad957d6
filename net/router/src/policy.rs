//! Queues of `sched`, by their names on the command line.

use std::fmt;

use clap::ValueEnum;
use sched::{Classifier, Finish, FqCodelConfig, Policy, ServedConfig, SfqConfig};

/// Queueing discipline: selects the next packet, and the packet to drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PolicyName {
    /// First in, first out (127 packets)
    Fifo,
    /// Stochastic fair queueing, as in Linux (127 packets)
    Sfq,
    /// sfq, with a separate class for packets without data
    SfqControl,
    /// Fair queueing with CoDel, as in Linux (10,240 packets)
    FqCodel,
    /// The 2016 project's classes by tens of percent, each with SFQ: fuller classes get more of the link
    Htb,
    /// The classes of the 2016 project's script, by tenths, each with SFQ: all get equal shares
    HtbSeed,
    /// Least served flow first, with exact flows and a memory of past service (1,000 packets)
    Ltf,
    /// Nine tenths of the link for the flow that was served least lately, the rest as ltf (2,000 packets)
    Las,
    /// Nine tenths of the link for the flow with the least data left (its advertisement, audited), the rest as ltf (2,000
    /// packets)
    Finish,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every policy has a name, because no variant is hidden.
        self.to_possible_value().map_or(Ok(()), |value| f.pad(value.get_name()))
    }
}

impl PolicyName {
    /// Returns the queue's settings, with this limit on packets if one is given. `marks` applies to [`PolicyName::FqCodel`].
    pub(crate) fn with(self, packets: Option<usize>, marks: bool) -> Policy {
        let sfq = SfqConfig::default();
        let depth = packets.unwrap_or(sfq.depth).max(sfq.depth);
        // As in `tc`, an explicit limit on packets also limits the slots.
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
