//! Plan of an interface's classes, and the commands that create them.

use crate::args::{Flags, Leaves, Matcher, Shape};
use crate::tc::program::{self, Instruction, by_flow, by_occupancy};

/// Major number of our queueing discipline and classes. An interface with another root is left unchanged.
pub(crate) const MAJOR: u32 = 0x5ba;
/// Minor number of the class that has the whole rate.
pub(crate) const WHOLE: u32 = 0xfff;
/// Minor number of the class for packets without an advertisement.
pub(crate) const DEFAULT: u32 = 1;
/// Limit on packets in a leaf with a single queue.
const LEAF_PACKETS: u32 = 127;
/// Limit on packets in each of 256 leaves.
const SMALL_LEAF_PACKETS: u32 = 8;
/// Number of leaves in a class that hashes flows.
pub(crate) const HASHED: u32 = 256;
/// First minor number of the leaves of hashed classes.
const FIRST_HASHED: u32 = 0x1000;
/// Quantum of a class: one full packet, in bytes.
const QUANTUM: u32 = 1514;
/// Priority of the first filter of each parent. The kernel tries lower numbers first.
const PRIORITY: u32 = 10;
/// Priority of the filter that hashes flows at the root.
const HASH_PRIORITY: u32 = 20;

/// A class below the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Class {
    /// Minor number of the class.
    pub(crate) minor: u32,
    /// Minor number of the parent; 0 for the root.
    pub(crate) parent: u32,
    /// Guaranteed rate, in bit/s.
    pub(crate) rate: u64,
    /// Ceiling of the rate, in bit/s.
    pub(crate) ceil: u64,
    pub(crate) prio: u32,
    /// Quantum of HTB, in bytes.
    quantum: u32,
}

/// Plan of an interface's classes, leaves and filters.
#[derive(Clone, Debug)]
pub struct Plan {
    shape: Shape,
    leaves: Leaves,
}

impl Plan {
    /// Creates a plan with the requested classes. `leaves` must be a kind that the kernel supports, not [`Leaves::Auto`].
    pub fn of(shape: &Shape, leaves: Leaves) -> Plan {
        Plan { shape: shape.clone(), leaves }
    }

    pub(crate) fn interface(&self) -> &str {
        &self.shape.interface
    }

    /// Returns the class of packets that no filter matches.
    pub(crate) fn default_class(&self) -> u32 {
        if self.leaves == Leaves::Hashed { first_hashed(DEFAULT) } else { DEFAULT }
    }

    /// Returns all classes, parents first.
    pub(crate) fn classes(&self) -> Vec<Class> {
        let (rate, quantum) = (self.shape.rate, QUANTUM);
        let mut classes = vec![Class { minor: WHOLE, parent: 0, rate, ceil: rate, prio: 0, quantum }];
        for (minor, parts) in tens() {
            let part = (rate * parts / 56).max(8);
            let is_default = minor == DEFAULT;
            let ceil = self.shape.default_ceil.filter(|_| is_default).unwrap_or(rate).max(part);
            let prio = u32::from(!is_default);
            classes.push(Class { minor, parent: WHOLE, rate: part, ceil, prio, quantum });
            if self.leaves == Leaves::Hashed {
                let part = (part / u64::from(HASHED)).max(8);
                classes.extend((0..HASHED).map(|n| Class {
                    minor: first_hashed(minor) + n,
                    parent: minor,
                    rate: part,
                    ceil,
                    prio,
                    quantum,
                }));
            }
        }
        classes
    }

    /// Returns the queueing discipline of a class; `None` if the class has child classes.
    fn queue(&self, class: &Class) -> Option<String> {
        match (self.leaves, class.parent) {
            (_, 0) | (Leaves::Hashed, WHOLE) => None,
            (Leaves::Hashed, _) => Some(format!("pfifo limit {SMALL_LEAF_PACKETS}")),
            (Leaves::Pfifo, _) => Some(format!("pfifo limit {LEAF_PACKETS}")),
            (Leaves::Sfq | Leaves::Auto, _) => Some("sfq perturb 10".to_owned()),
        }
    }

    /// Returns the kind of the queueing discipline in each leaf, with the leaf's minor number.
    pub(crate) fn queue_kinds(&self) -> Vec<(u32, &'static str)> {
        let kind = if matches!(self.leaves, Leaves::Sfq | Leaves::Auto) { "sfq" } else { "pfifo" };
        let leaves = self.classes().into_iter().filter(|class| self.queue(class).is_some());
        leaves.map(|class| (class.minor, kind)).collect()
    }

    /// Returns the BPF filters: parent (0 is the root), priority, instructions.
    pub(crate) fn programs(&self) -> Vec<(u32, u32, Vec<Instruction>)> {
        let Shape { udp_port, chunk_type, flags, .. } = self.shape;
        let mut programs = Vec::new();
        if self.shape.matcher == Matcher::Bpf {
            programs.push((0, PRIORITY, by_occupancy(MAJOR, udp_port, chunk_type, flags)));
        }
        if self.leaves == Leaves::Hashed {
            let flows = |minor| by_flow(MAJOR << 16 | first_hashed(minor), udp_port);
            programs.push((0, HASH_PRIORITY, flows(DEFAULT)));
            programs.extend(tens().skip(1).map(|(minor, _)| (minor, PRIORITY, flows(minor))));
        }
        programs
    }

    /// Returns the entries of the u32 table: a value of the chunk's flags, and its class. The list is empty if BPF classifies.
    pub(crate) fn places(&self) -> Vec<(u8, u32)> {
        match (self.shape.matcher, self.shape.flags) {
            (Matcher::Bpf, _) => Vec::new(),
            (Matcher::U32, Flags::Percent) => {
                (0..=100).map(|v: u8| (v, minor_of(u32::from(v) / 10 + 1))).collect()
            }
            (Matcher::U32, Flags::Tenths) => (1..=9).map(|v: u8| (v, minor_of(u32::from(v)))).collect(),
        }
    }

    /// Returns all commands as input lines of `tc -batch`.
    pub fn commands(&self) -> Vec<String> {
        let interface = &self.shape.interface;
        let default = self.default_class();
        let mut commands =
            vec![format!("qdisc add dev {interface} root handle {MAJOR:x}: htb default {default:x} r2q 100")];
        for class in self.classes() {
            let Class { minor, parent, rate, ceil, prio, quantum } = class;
            let parent = if parent == 0 { String::new() } else { format!("{parent:x}") };
            commands.push(format!(
                "class add dev {interface} parent {MAJOR:x}:{parent} classid {MAJOR:x}:{minor:x} htb rate {rate}bit ceil {ceil}bit \
                 prio {prio} quantum {quantum}"
            ));
            let queue = self.queue(&class);
            commands.extend(queue.map(|queue| {
                // Explicit handles cannot collide with handles that the kernel assigns.
                format!(
                    "qdisc add dev {interface} parent {MAJOR:x}:{minor:x} handle {:x}: {queue}",
                    0x5000 + minor
                )
            }));
        }
        commands.extend(self.u32_commands());
        for (parent, priority, instructions) in self.programs() {
            let parent = if parent == 0 { String::new() } else { format!("{parent:x}") };
            let bytecode = program::bytecode(&instructions);
            commands.push(format!(
                "filter add dev {interface} parent {MAJOR:x}:{parent} protocol all prio {priority} bpf bytecode \"{bytecode}\""
            ));
        }
        commands
    }

    /// Returns the commands of the u32 filters. Tables for SCTP (1:) and UDP (3:) lead to table 2, which has 256 buckets. Table 2
    /// finds the class from the chunk's flags in one step.
    fn u32_commands(&self) -> Vec<String> {
        if self.shape.matcher != Matcher::U32 {
            return Vec::new();
        }
        let Shape { interface, udp_port, chunk_type, .. } = &self.shape;
        let v4 = |words: &str| {
            format!("filter add dev {interface} parent {MAJOR:x}: protocol ip prio {PRIORITY} {words}")
        };
        let v6 = |words: &str| {
            let priority = PRIORITY + 1;
            format!("filter add dev {interface} parent {MAJOR:x}: protocol ipv6 prio {priority} u32 {words}")
        };
        let header = "offset at 0 mask 0x0f00 shift 6 plus 0 eat";
        let first_fragment = "match u16 0 0x1fff at 6";
        let mut commands: Vec<String> =
            [(1, 1), (2, 256), (3, 1)].map(|(n, size)| v4(&format!("handle {n}: u32 divisor {size}"))).into();
        for (protocol, table) in [(132, 1), (17, 3)] {
            commands.push(v4(&format!(
                "u32 match ip protocol {protocol} 0xff {first_fragment} link {table}: {header}"
            )));
        }
        for at in [2, 0] {
            commands.push(v4(&format!(
                "u32 ht 3: match u16 {udp_port} 0xffff at {at} link 1: offset plus 8 eat"
            )));
        }
        for length in [4, 8] {
            commands.push(v4(&format!(
                "u32 ht 1: match u8 {chunk_type} 0xff at 12 match u16 {length} 0xffff at 14 link 2: hashkey mask 0x00ff0000 at 12"
            )));
        }
        commands.extend(self.places().into_iter().map(|(value, minor)| {
            v4(&format!("u32 ht 2:{value:x} match u32 0 0 at 0 flowid {MAJOR:x}:{minor:x}"))
        }));
        for (protocol, table) in [(132, 1), (17, 3)] {
            commands
                .push(v6(&format!("match ip6 protocol {protocol} 0xff link {table}: offset plus 40 eat")));
        }
        commands
    }
}

/// Returns the minor number of each class for packets, and its guaranteed share in 56ths of the rate.
pub(crate) fn tens() -> impl Iterator<Item = (u32, u64)> {
    std::iter::once((DEFAULT, 1)).chain((1..=10).map(|n| (minor_of(n), u64::from(n))))
}

/// Returns the minor number of the `n`th class by occupancy. In hexadecimal, it reads as 10 times `n`.
fn minor_of(n: u32) -> u32 {
    if n >= 10 { 0x100 } else { 0x10 * n }
}

/// Returns the minor number of the first of a class's 256 leaves.
pub(crate) fn first_hashed(minor: u32) -> u32 {
    FIRST_HASHED + minor / 0x10 * HASHED
}

/// Returns the command that removes all classes and filters.
pub(crate) fn removal(interface: &str) -> String {
    format!("qdisc del dev {interface} root handle {MAJOR:x}:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(matcher: Matcher, leaves: Leaves) -> Plan {
        let shape = Shape {
            interface: "eth1".to_owned(),
            rate: 100_000_000,
            default_ceil: None,
            matcher,
            leaves,
            flags: Flags::Percent,
            udp_port: 9899,
            chunk_type: 150,
        };
        Plan::of(&shape, leaves)
    }

    #[test]
    fn eleven_classes_rise_with_the_occupancy_and_share_the_whole_rate() {
        let classes = plan(Matcher::Bpf, Leaves::Sfq).classes();
        let rates: Vec<u64> = classes.iter().map(|class| class.rate).collect();
        assert_eq!((rates.len(), rates[0], rates[1], rates[11]), (12, 100_000_000, 1_785_714, 17_857_142));
        let sum: u64 = rates[1..].iter().sum();
        assert!(sum <= rates[0] && rates[0] - sum < 11, "{sum}");
        assert!(classes.iter().all(|class| class.ceil == 100_000_000));
    }

    #[test]
    fn the_default_class_may_be_limited() {
        let mut limited = plan(Matcher::Bpf, Leaves::Pfifo);
        limited.shape.default_ceil = Some(10_000_000);
        let class = limited.classes()[1];
        assert_eq!((class.minor, class.ceil, class.prio), (DEFAULT, 10_000_000, 0));
    }

    #[test]
    fn the_u32_form_has_a_place_for_each_percentage() {
        let commands = plan(Matcher::U32, Leaves::Pfifo).commands();
        let flowids = commands.iter().filter(|line| line.contains("flowid")).count();
        assert_eq!(flowids, 101);
        let last = "filter add dev eth1 parent 5ba: protocol ip prio 10 u32 ht 2:64 match u32 0 0 at 0 flowid 5ba:100";
        assert!(commands.iter().any(|line| line == last), "{commands:#?}");
        assert!(!commands.iter().any(|line| line.contains("bpf")));
    }

    #[test]
    fn the_substitute_for_sfq_has_256_leaves_in_each_class_and_all_packets_reach_one() {
        let plan = plan(Matcher::Bpf, Leaves::Hashed);
        let (classes, commands) = (plan.classes(), plan.commands());
        assert_eq!(classes.len(), 1 + 11 * 257);
        assert_eq!(commands.iter().filter(|line| line.starts_with("qdisc")).count(), 1 + 11 * 256);
        assert!(commands[0].contains("default 1000 "), "{}", commands[0]);
        let minors: std::collections::BTreeSet<u32> = classes.iter().map(|class| class.minor).collect();
        assert_eq!(minors.len(), classes.len(), "no number twice");
        assert_eq!(plan.programs().len(), 12);
    }
}
