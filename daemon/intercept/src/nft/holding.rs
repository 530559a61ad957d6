//! Controls which SYNs are held: all SYNs, or SYNs that the sets `named4` and `named6` select. Each element of these sets is a
//! *name*: a range of addresses with a range of ports.
//!
//! Chain `q` has one rule, which jumps to chain `held`. To hold a selection, chain `held` tests packets in the following order.
//! The chain queues packets of these kinds, and lets other packets pass:
//!
//! - packets whose whole mark equals the mark that the caller of `hold_by_name` gave
//! - packets of a diverted connection, because a program may reuse the connection's ports
//! - packets to the destinations in the sets (`Named::Held`), or packets to all other destinations (`Named::Passed`)
//!
//! The set `passed` has one element, which counts packets that pass because no name matches. With `Named::Passed`, each element
//! of the other sets counts the packets that it lets pass.
//!
//! Invariant: the sets of names change only while all SYNs are held, for two reasons. A lookup may miss an element while another
//! processor finishes the batch that adds it. A large set needs several batches.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST};

use super::expressions::{Base, Expressions};
use super::host::{
    CHAIN_PART, DESTINATION_PORT, FLOWS4, FLOWS6, INET_SERVICE, IPV4_ADDR, IPV6_ADDR, SET_PART, is_flow_in,
};
use super::pulse::ALIVE;
use super::{
    BaseChain, Batch, DATA_VALUE, DELRULE, DELSETELEM, FAMILY_INET, GETSETELEM, LIST_ELEMENT, NEWCHAIN,
    NEWSET, NEWSETELEM, Refusal, SUBSYSTEM, TABLE, add_rule,
};
use crate::config::Config;
use crate::flow::octets;
use crate::netlink::{Attributes, Message, Netlink, be_u64};

pub(super) const QUEUE_CHAIN: BaseChain = BaseChain { name: "q", kind: "filter", hook: 3, priority: -155 };
/// The chain that `q` jumps to.
const HELD: &str = "held";
/// The set whose element counts packets that pass because no name matches.
const PASSED: &str = "passed";

const QUEUE_PART: &str = "nftables rule that queues (CONFIG_NFT_QUEUE, or CONFIG_NFT_COMPAT with CONFIG_NETFILTER_XT_TARGET_NFQUEUE)";
const NAME_PART: &str = "element of the set of named destinations (CONFIG_NFT_COUNTER)";
const SWITCH_PART: &str = "nftables rule that looks named destinations up (CONFIG_NF_TABLES)";
/// IPPROTO_TCP, the key of the element of [`PASSED`].
const TCP: u8 = 6;

/// Limit on the named destinations in one message. The list in a message must be shorter than 64 KiB.
const NAMES_PER_MESSAGE: usize = 256;

/// Destinations of connections: a range of addresses of one family, with a range of ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destinations {
    /// The first and last address, both included.
    pub addresses: (IpAddr, IpAddr),
    /// The first and last port, both included.
    pub ports: (u16, u16),
}

/// Treatment of SYNs to named destinations. SYNs to other destinations get the opposite treatment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// SYNs to named destinations are held.
    Held,
    /// SYNs to named destinations pass, and each name counts them.
    Passed,
}

/// Numbers of SYNs that were not held.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// SYNs that passed because no name matches their destination.
    pub unnamed: u64,
    /// SYNs that passed because a name matches. Each entry has the first address and port of the name, and the count.
    pub named: Vec<(SocketAddr, u64)>,
}

/// Form of the rule that queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueueForm {
    /// nftables' own expression.
    Native,
    /// The xtables target NFQUEUE inside an nftables rule, for kernels without the native expression.
    Target,
}

/// The set of names of one address family.
struct NameSet {
    name: &'static str,
    family: u8,
    key_type: u32,
    address_length: u32,
    destination_offset: u32,
    id: u32,
}

const NAMES: [NameSet; 2] = [
    NameSet {
        name: "named4",
        family: libc::AF_INET as u8,
        key_type: IPV4_ADDR << 6 | INET_SERVICE,
        address_length: 4,
        destination_offset: 16,
        id: 21,
    },
    NameSet {
        name: "named6",
        family: libc::AF_INET6 as u8,
        key_type: IPV6_ADDR << 6 | INET_SERVICE,
        address_length: 16,
        destination_offset: 24,
        id: 22,
    },
];

/// Length of a port in a key, where the port is padded to a register, and length of the port itself, in bytes.
const PORT_REGISTER: u32 = 4;
const PORT_LENGTH: u32 = 2;

/// Adds chain `held` and the sets.
pub(super) fn add_holding(batch: &mut Batch<'_>) {
    batch.add(CHAIN_PART, NEWCHAIN, NLM_F_CREATE, |message| {
        message.string(1, TABLE);
        message.string(3, HELD);
    });
    for set in &NAMES {
        add_name_set(batch, set);
    }
    batch.add(SET_PART, NEWSET, NLM_F_CREATE, |message| {
        /// NFT_SET_EVAL. Without this flag, the kernel stores the set as a bitmap, whose elements cannot have counters.
        const EVALUATED: u32 = 0x20;
        const INET_PROTO: u32 = 12;
        const ID: u32 = 23;
        message.string(1, TABLE);
        message.string(2, PASSED);
        message.number(3, EVALUATED);
        message.number(4, INET_PROTO);
        message.number(5, size_of_val(&TCP) as u32);
        message.nested(9, |description| description.number(1, 1));
        message.number(10, ID);
    });
}

/// Adds a set of non-overlapping ranges in two dimensions: address and port.
fn add_name_set(batch: &mut Batch<'_>, set: &NameSet) {
    const INTERVAL: u32 = 0x04;
    const CONCATENATION: u32 = 0x80;
    batch.add(SET_PART, NEWSET, NLM_F_CREATE, |message| {
        message.string(1, TABLE);
        message.string(2, set.name);
        message.number(3, INTERVAL | CONCATENATION);
        message.number(4, set.key_type);
        message.number(5, set.address_length + PORT_REGISTER);
        message.nested(9, |description| {
            description.nested(2, |fields| {
                for length in [set.address_length, PORT_LENGTH] {
                    fields.nested(LIST_ELEMENT, |field| field.number(1, length));
                }
            });
        });
        message.number(10, set.id);
    });
}

/// Removes the rule of chain `q`. No SYN is held from now on.
pub(crate) fn stop(owner: &mut Netlink) -> Result<(), Refusal> {
    let mut batch = Batch::new(owner);
    empty_chain(&mut batch, QUEUE_CHAIN.name);
    batch.commit()
}

fn empty_chain(batch: &mut Batch<'_>, chain: &str) {
    batch.add(QUEUE_PART, DELRULE, 0, |message| {
        message.string(1, TABLE);
        message.string(2, chain);
    });
}

/// State of the rules that hold SYNs, and the kernel's counts of other SYNs.
pub(crate) struct Holding {
    queue_number: u16,
    form: QueueForm,
    holds_all: bool,
    /// True if names with counters have been added.
    names_count: bool,
    /// The counts at the last reading, by set and key.
    counted: BTreeMap<(&'static str, Vec<u8>), u64>,
}

impl Holding {
    /// Holds all SYNs from now on, with the form of the queue rule that the kernel supports. The queue must already be bound and
    /// configured, because an unconfigured queue drops its packets.
    pub(crate) fn start(owner: &mut Netlink, config: &Config) -> Result<Holding, Refusal> {
        let form = match add_rules(owner, config, QueueForm::Native) {
            Err(refusal) if refusal.is(QUEUE_PART, libc::ENOENT) => {
                add_rules(owner, config, QueueForm::Target)?;
                QueueForm::Target
            }
            outcome => outcome.map(|()| QueueForm::Native)?,
        };
        let queue_number = config.queue_number;
        Ok(Holding { queue_number, form, holds_all: true, names_count: false, counted: BTreeMap::new() })
    }

    /// Holds all SYNs, regardless of names.
    pub(crate) fn hold_all(&mut self, owner: &mut Netlink) -> Result<(), Refusal> {
        if self.holds_all {
            return Ok(());
        }
        let mut batch = Batch::new(owner);
        empty_chain(&mut batch, HELD);
        add_rule(&mut batch, QUEUE_PART, HELD, |rule| queue(rule, self.queue_number, self.form));
        batch.commit()?;
        self.holds_all = true;
        Ok(())
    }

    /// Forgets all names, and holds all SYNs.
    pub(crate) fn forget_names(&mut self, owner: &mut Netlink) -> Result<(), Refusal> {
        self.hold_all(owner)?;
        let mut batch = Batch::new(owner);
        for set in &NAMES {
            batch.add(NAME_PART, DELSETELEM, 0, |message| {
                message.string(1, TABLE);
                message.string(2, set.name);
            });
        }
        batch.commit()?;
        self.counted.retain(|(set, _), _| *set == PASSED);
        self.names_count = false;
        Ok(())
    }

    /// Adds names of destinations, which must not overlap. All SYNs are held.
    pub(crate) fn name(
        &mut self,
        owner: &mut Netlink,
        destinations: &[Destinations],
        named: Named,
    ) -> Result<(), Refusal> {
        self.hold_all(owner)?;
        let mut batch = Batch::new(owner);
        for set in &NAMES {
            let is_of_set = |d: &&Destinations| octets(d.addresses.0).len() == set.address_length as usize;
            let of_set: Vec<&Destinations> = destinations.iter().filter(is_of_set).collect();
            for some in of_set.chunks(NAMES_PER_MESSAGE) {
                add_names(&mut batch, set, some, named == Named::Passed);
            }
        }
        batch.commit()?;
        self.names_count |= named == Named::Passed;
        Ok(())
    }

    /// Holds packets to named destinations, or packets to all others. Always holds packets whose whole mark is `mark`, and
    /// packets of diverted connections.
    pub(crate) fn hold_by_name(
        &mut self,
        owner: &mut Netlink,
        named: Named,
        mark: Option<u32>,
    ) -> Result<(), Refusal> {
        let (number, form) = (self.queue_number, self.form);
        let mut batch = Batch::new(owner);
        add_counter(&mut batch);
        empty_chain(&mut batch, HELD);
        if let Some(mark) = mark {
            add_rule(&mut batch, SWITCH_PART, HELD, |rule| {
                rule.is_whole_mark(mark);
                queue(rule, number, form);
            });
        }
        for set in [&FLOWS4, &FLOWS6] {
            add_rule(&mut batch, SWITCH_PART, HELD, |rule| {
                rule.is_family(set.family);
                is_flow_in(rule, set);
                queue(rule, number, form);
            });
        }
        for set in &NAMES {
            add_rule(&mut batch, SWITCH_PART, HELD, |rule| {
                is_named(rule, set);
                match named {
                    Named::Held => queue(rule, number, form),
                    Named::Passed => rule.accept(),
                }
            });
        }
        add_rule(&mut batch, SWITCH_PART, HELD, |rule| match named {
            Named::Held => rule.is_protocol_in_set(PASSED),
            Named::Passed => queue(rule, number, form),
        });
        batch.commit()?;
        self.holds_all = false;
        Ok(())
    }

    /// Returns the numbers of SYNs that passed since the last call.
    pub(crate) fn passed(&mut self, owner: &mut Netlink) -> io::Result<Passed> {
        let mut passed = Passed::default();
        let names = if self.names_count { &NAMES[..] } else { &[] };
        for set in names.iter().map(|set| set.name).chain([PASSED]) {
            for (key, count) in read_counts(owner, set)? {
                let before = self.counted.insert((set, key.clone()), count).unwrap_or(0);
                let since = count.saturating_sub(before);
                match destination(&key) {
                    _ if since == 0 => {}
                    Some(first) => passed.named.push((first, since)),
                    None => passed.unnamed += since,
                }
            }
        }
        Ok(passed)
    }
}

/// Adds the rule of chain `q`, and the rule of chain `held` that holds all SYNs.
fn add_rules(owner: &mut Netlink, config: &Config, form: QueueForm) -> Result<(), Refusal> {
    let mut batch = Batch::new(owner);
    add_rule(&mut batch, QUEUE_PART, HELD, |rule| queue(rule, config.queue_number, form));
    add_rule(&mut batch, QUEUE_PART, QUEUE_CHAIN.name, |rule| {
        rule.is_tcp();
        rule.is_first_syn();
        rule.is_mark_not(config.marks, config.marks.own);
        if !config.loopback {
            rule.goes_out_not_by("lo");
        }
        rule.is_protocol_in_set(ALIVE);
        rule.jump(HELD);
    });
    batch.commit()
}

fn queue(rule: &mut Expressions<'_>, number: u16, form: QueueForm) {
    match form {
        QueueForm::Native => rule.queue(number),
        QueueForm::Target => rule.queue_by_target(number),
    }
}

/// Continues only with packets to a destination in the set.
fn is_named(rule: &mut Expressions<'_>, set: &NameSet) {
    const FIRST_REGISTER: u32 = 8;
    rule.is_family(set.family);
    rule.payload(FIRST_REGISTER, Base::Network, set.destination_offset, set.address_length);
    let port_register = FIRST_REGISTER + set.address_length / 4;
    rule.payload(port_register, Base::Transport, DESTINATION_PORT, PORT_LENGTH);
    rule.is_in_set(set.name);
}

fn add_names(batch: &mut Batch<'_>, set: &NameSet, some: &[&Destinations], is_counted: bool) {
    batch.add(NAME_PART, NEWSETELEM, NLM_F_CREATE, |message| {
        message.string(1, TABLE);
        message.string(2, set.name);
        message.nested(3, |elements| {
            for Destinations { addresses: (first, last), ports: (low, high) } in some {
                elements.nested(LIST_ELEMENT, |element| {
                    element.nested(1, |value| value.attribute(DATA_VALUE, &key(*first, *low)));
                    element.nested(10, |value| value.attribute(DATA_VALUE, &key(*last, *high)));
                    if is_counted {
                        counter(element);
                    }
                });
            }
        });
    });
}

/// Adds the element of [`PASSED`]. An existing element keeps its count.
fn add_counter(batch: &mut Batch<'_>) {
    batch.add(NAME_PART, NEWSETELEM, NLM_F_CREATE, |message| {
        message.string(1, TABLE);
        message.string(2, PASSED);
        message.nested(3, |elements| {
            elements.nested(LIST_ELEMENT, |element| {
                element.nested(1, |value| value.attribute(DATA_VALUE, &[TCP]));
                counter(element);
            });
        });
    });
}

/// Makes an element count the packets whose lookup finds it.
fn counter(element: &mut Message) {
    element.nested(ELEMENT_EXPRESSION, |expression| {
        expression.string(1, COUNTER);
        expression.nested(2, |_| {});
    });
}

/// `NFTA_SET_ELEM_EXPR`.
const ELEMENT_EXPRESSION: u16 = 7;
const COUNTER: &str = "counter";

/// Returns the key of an address and a port. The port is padded to a register.
fn key(address: IpAddr, port: u16) -> Vec<u8> {
    [octets(address), port.to_be_bytes().to_vec(), vec![0, 0]].concat()
}

/// Returns the address and port of a key, or None if the key has no address.
fn destination(key: &[u8]) -> Option<SocketAddr> {
    let (address, port) = key.split_at_checked(key.len().checked_sub(PORT_REGISTER as usize)?)?;
    let address = match address.len() {
        4 => IpAddr::from(Ipv4Addr::from(*address.first_chunk()?)),
        16 => IpAddr::from(Ipv6Addr::from(*address.first_chunk()?)),
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_be_bytes(*port.first_chunk()?)))
}

/// Reads the packet counts of a set's elements. The result lists each element's first key and count.
fn read_counts(netlink: &mut Netlink, set: &str) -> io::Result<Vec<(Vec<u8>, u64)>> {
    let sequence = netlink.next_sequence();
    let mut message = Message::new(SUBSYSTEM << 8 | GETSETELEM, NLM_F_REQUEST | NLM_F_DUMP, sequence);
    message.netfilter_head(FAMILY_INET, 0);
    message.string(1, TABLE);
    message.string(2, set);
    let mut counts = Vec::new();
    netlink.dump(message, |body| {
        let lists = Attributes::new(body).filter(|(kind, _)| *kind == 3);
        let elements = lists.flat_map(|(_, list)| Attributes::new(list));
        counts.extend(elements.filter_map(|(_, element)| count_of(element)));
    })?;
    Ok(counts)
}

/// Returns an element's first key and its count of packets, or None if the element has no counter.
fn count_of(element: &[u8]) -> Option<(Vec<u8>, u64)> {
    const PACKETS: u16 = 2;
    let find = |bytes, wanted| Attributes::new(bytes).find(|(kind, _)| *kind == wanted).map(|(_, data)| data);
    let key = find(find(element, 1)?, DATA_VALUE)?;
    let data = find(find(element, ELEMENT_EXPRESSION)?, 2)?;
    Some((key.to_vec(), be_u64(find(data, PACKETS)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_an_address_and_a_port_and_is_read_back() {
        for text in ["10.1.2.3:258", "[2001:db8::5]:65535"] {
            let address: SocketAddr = text.parse().expect("a socket address");
            let key = key(address.ip(), address.port());
            assert_eq!((key.len() % 4, destination(&key)), (0, Some(address)));
        }
        assert_eq!(destination(&[TCP]), None);
        assert_eq!(destination(&[TCP, 0, 0, 0]), None);
    }

    #[test]
    fn an_element_without_a_counter_counts_nothing() {
        let element = |is_counted| {
            let mut message = Message::new(0, 0, 1);
            message.nested(1, |value| value.attribute(DATA_VALUE, &[TCP]));
            if is_counted {
                message.nested(ELEMENT_EXPRESSION, |expression| {
                    expression.string(1, COUNTER);
                    expression.nested(2, |data| data.attribute(2, &7u64.to_be_bytes()));
                });
            }
            message.finish()[16..].to_vec()
        };
        assert_eq!(count_of(&element(true)), Some((vec![TCP], 7)));
        assert_eq!(count_of(&element(false)), None);
    }
}
