//! Names of the policies of the crate `sched` on the command line.

use std::fmt;

use clap::ValueEnum;
use sched::{Classifier, Finish, FqCodelConfig, Policy, ServedConfig, SfqConfig};

/// Queueing discipline, which selects the next packet and the packet to drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PolicyName {
    /// First in, first out. Limit: 127 packets
    Fifo,
    /// Stochastic fair queueing, as in Linux. Limit: 127 packets
    Sfq,
    /// Two classes with equal shares, each with sfq: packets without data, and all others. Limit per class: 127 packets
    SfqControl,
    /// Fair queueing with CoDel, as in Linux. Limit: 10,240 packets
    FqCodel,
    /// Classes by advertised occupancy in steps of 10 %, each with sfq. A class of a higher occupancy gets a larger share.
    /// From the report of the 2016 project (docs/sba.md). Limit per class: 127 packets
    Htb,
    /// For senders with `advertise=seed-compat`, which advertise their occupancy in tenths. Each tenth from 1 to 9 has a class
    /// with sfq. All other packets share one more class. All classes get equal shares. From the script of the 2016 project.
    /// Limit per class: 127 packets
    HtbSeed,
    /// Least served flow first. Each flow has its own queue, and its past service counts. Limit: 1,000 packets with data
    Ltf,
    /// As ltf for one tenth of the packets with data. The others come from the flow with the fewest bytes served recently.
    /// Limit: 2,000 packets with data
    Las,
    /// As ltf for one tenth of the packets with data. The others come from the flow with the least data left, if less than 2 MB
    /// are left. The data left follows from the flow's advertisements. If these are missing or contradict the flow's past
    /// service, the past service counts instead. Limit: 2,000 packets with data
    Finish,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // clap returns a name for each variant, because no variant is hidden.
        self.to_possible_value().map_or(Ok(()), |value| f.pad(value.get_name()))
    }
}

impl PolicyName {
    /// Returns the settings of the policy. `packets` replaces the default limit on waiting packets. The limit applies to each
    /// class of a policy with classes. For [`PolicyName::Ltf`], [`PolicyName::Las`] and [`PolicyName::Finish`], it applies to
    /// packets with data. With `marks`, [`PolicyName::FqCodel`] marks ECN-capable packets instead of dropping them. The other
    /// policies ignore `marks`.
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
    fn a_given_limit_on_packets_is_in_the_settings_of_each_policy() {
        for name in PolicyName::value_variants() {
            let report = format!("{:?}", name.with(Some(77), false));
            assert!(report.contains("packets: 77,") || report == "Fifo(77)", "{name}: {report}");
        }
    }
}
