//! Creates the host's table: the chain that holds SYNs, the diversion rules, and the mark for returning packets. Begin with
//! [`create_host_table`].
//!
//! - Chain `q` (output, −155) sends each first SYN to chain `held` while the daemon renews its sign of life (`pulse`). SYNs with
//!   [`Marks::own`] are exempt. SYNs that leave through `lo` are exempt too, unless `Config::loopback` is set. A packet that a
//!   verdict accepts continues at the *next* base chain, so the diversion rules are in another chain than `q`. `holding` decides
//!   which SYNs are held.
//! - Chain `out` (output, −150, type route) adds each SYN that was released with [`Marks::shim`] to the set of diverted
//!   connections. It sets this mark on later packets of these connections, which reroutes them. If another program rejects a
//!   packet with [`Marks::served`] before chain `in`, the answer carries this mark, and is also rerouted. Every leaving packet
//!   traverses this chain, so the chain ends as early as possible for each kind of packet.
//! - Chains `guard` (output, −148) and `guard-forward` (forward, −148) refuse plain TCP to destinations that must be reached over
//!   SCTP (`guard`).
//! - Chain `pre` (prerouting, −310) sets [`Marks::shim`] on packets from the veth, because packets lose their marks when they
//!   cross the veth. A packet that a filter of `uplinks` redirects to a client's interface has [`Marks::served`] from that
//!   filter. For the SYN of a connection to a local program, the chain adds the flow of the program's replies to a set. Chain
//!   `out` also diverts packets of the flows in this set, because the program may set another mark on its socket, in place of the
//!   mark that the socket got from the SYN.
//! - Chain `in` (input, −310) replaces [`Marks::served`] with [`Marks::shim`]. The reverse-path lookup has ended by then. Replies
//!   need the route to the private namespace, even if the host has another route to the client.
//! - Chain `deny` (output, −140), in an enclosed namespace only, answers denied SYNs.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST};

use super::expressions::{Base, Expressions};
use super::guard::GUARD_CHAINS;
use super::holding::{QUEUE_CHAIN, add_holding};
use super::pulse::add_alive_set;
use super::{
    BaseChain, Batch, FAMILY_INET, GETTABLE, NEWSET, NEWTABLE, Refusal, SUBSYSTEM, TABLE, add_chain, add_rule,
};
use crate::config::{Config, Marks};
use crate::netlink::{Attributes, Message, Netlink, be_u32};

const OUT_CHAIN: BaseChain = BaseChain { name: "out", kind: "route", hook: 3, priority: -150 };
const PRE_CHAIN: BaseChain = BaseChain { name: "pre", kind: "filter", hook: 0, priority: -310 };

const IN_CHAIN: BaseChain = BaseChain { name: "in", kind: "filter", hook: 1, priority: -310 };

const DENY_CHAIN: BaseChain = BaseChain { name: "deny", kind: "filter", hook: 3, priority: -140 };

/// Name of the part of the batch that creates the table.
pub(crate) const TABLE_PART: &str = "nftables table with an owner (CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET)";
pub(super) const SET_PART: &str = "nftables set (CONFIG_NF_TABLES)";
pub(super) const CHAIN_PART: &str = "nftables chain (CONFIG_NF_TABLES_INET)";
const MARK_RULE_PART: &str = "nftables rule that sets a mark (CONFIG_NF_TABLES)";
const SET_RULE_PART: &str = "nftables rule that adds to a set (nft_dynset)";
const DENY_PART: &str = "nftables rule that rejects (CONFIG_NFT_REJECT)";

/// The set of flows of one address family, and the offsets of addresses in the IP header, in octets.
pub(super) struct FlowSet {
    pub(super) name: &'static str,
    /// AF_INET or AF_INET6.
    pub(super) family: u8,
    /// Type of the key: four 6-bit type numbers, which `nft` needs to print elements.
    key_type: u32,
    key_length: u32,
    address_length: u32,
    source_offset: u32,
    destination_offset: u32,
    id: u32,
}

pub(super) const IPV4_ADDR: u32 = 7;
pub(super) const IPV6_ADDR: u32 = 8;
pub(super) const INET_SERVICE: u32 = 13;

pub(super) const FLOWS4: FlowSet = FlowSet {
    name: "flows4",
    family: libc::AF_INET as u8,
    key_type: IPV4_ADDR << 18 | INET_SERVICE << 12 | IPV4_ADDR << 6 | INET_SERVICE,
    key_length: 16,
    address_length: 4,
    source_offset: 12,
    destination_offset: 16,
    id: 1,
};

pub(super) const FLOWS6: FlowSet = FlowSet {
    name: "flows6",
    family: libc::AF_INET6 as u8,
    key_type: IPV6_ADDR << 18 | INET_SERVICE << 12 | IPV6_ADDR << 6 | INET_SERVICE,
    key_length: 40,
    address_length: 16,
    source_offset: 8,
    destination_offset: 24,
    id: 2,
};

/// Flows of local programs on connections that came from the private namespace.
pub(super) const SERVED4: FlowSet = FlowSet { name: "served4", id: 11, ..FLOWS4 };
pub(super) const SERVED6: FlowSet = FlowSet { name: "served6", id: 12, ..FLOWS6 };

/// Creates the whole table except the rules that hold SYNs, in one batch. `owner` owns the table.
pub(crate) fn create_host_table(owner: &mut Netlink, config: &Config) -> Result<(), Refusal> {
    const OWNER: u32 = 2;
    let mut batch = Batch::new(owner);
    batch.add(TABLE_PART, NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, |message| {
        message.string(1, TABLE);
        message.number(2, OWNER);
    });
    for set in [&FLOWS4, &FLOWS6, &SERVED4, &SERVED6] {
        add_set(&mut batch, set, config.set_size);
    }
    add_alive_set(&mut batch);
    add_holding(&mut batch);
    for chain in [&QUEUE_CHAIN, &OUT_CHAIN, &PRE_CHAIN, &IN_CHAIN].into_iter().chain(&GUARD_CHAINS) {
        add_chain(&mut batch, CHAIN_PART, chain);
    }
    // Another program's reject in prerouting answers before chain `in` replaces the mark, so chain `out` has this rule too.
    for chain in [&IN_CHAIN, &OUT_CHAIN] {
        add_rule(&mut batch, MARK_RULE_PART, chain.name, |rule| {
            rule.is_mark(config.marks, config.marks.served);
            rule.set_shim_mark(config.marks);
            rule.accept();
        });
    }
    // The remaining rules of `out` are for TCP. A first SYN with the mark for the private namespace adds its flow to the set. A
    // rule then accepts all packets with this mark, before the diversion rules.
    add_rule(&mut batch, MARK_RULE_PART, OUT_CHAIN.name, |rule| {
        rule.is_not_tcp();
        rule.accept();
    });
    for set in [&FLOWS4, &FLOWS6] {
        add_rule(&mut batch, SET_RULE_PART, OUT_CHAIN.name, |rule| begin_rule(rule, set, config));
    }
    add_rule(&mut batch, MARK_RULE_PART, OUT_CHAIN.name, |rule| {
        rule.is_mark(config.marks, config.marks.shim);
        rule.accept();
    });
    for set in [&FLOWS4, &FLOWS6, &SERVED4, &SERVED6] {
        add_rule(&mut batch, MARK_RULE_PART, OUT_CHAIN.name, |rule| divert_rule(rule, set, config));
    }
    // Every packet that arrives at the host traverses this chain. The first rule accepts packets that neither come from the veth
    // nor carry [`Marks::served`].
    add_rule(&mut batch, MARK_RULE_PART, PRE_CHAIN.name, |rule| {
        rule.came_in_not_by(&config.host_interface);
        rule.is_mark_not(config.marks, config.marks.served);
        rule.accept();
    });
    add_rule(&mut batch, MARK_RULE_PART, PRE_CHAIN.name, |rule| {
        rule.came_in_by(&config.host_interface);
        rule.set_shim_mark(config.marks);
    });
    for set in [&SERVED4, &SERVED6] {
        add_rule(&mut batch, SET_RULE_PART, PRE_CHAIN.name, |rule| serve_rule(rule, set));
    }
    if config.encloses {
        add_denials(&mut batch, config.marks);
    }
    batch.commit()
}

/// Adds the rules that answer denied SYNs. An answer leaves through `lo` with the SYN's own mark (fwmark_reflect). The rules
/// exempt packets that leave through `lo`, so the answer itself gets no answer.
fn add_denials(batch: &mut Batch<'_>, marks: Marks) {
    const NO_ROUTE: u8 = 0;
    const HOST_UNREACHABLE: u8 = 2;
    add_chain(batch, CHAIN_PART, &DENY_CHAIN);
    let [refused, host, network] = marks.denials;
    add_rule(batch, DENY_PART, DENY_CHAIN.name, |rule| {
        rule.is_tcp();
        rule.is_mark(marks, refused);
        rule.goes_out_not_by("lo");
        rule.reject_by_reset();
    });
    for (mark, code) in [(host, HOST_UNREACHABLE), (network, NO_ROUTE)] {
        add_rule(batch, DENY_PART, DENY_CHAIN.name, |rule| {
            rule.is_mark(marks, mark);
            rule.goes_out_not_by("lo");
            rule.reject_by_icmp(code);
        });
    }
}

fn add_set(batch: &mut Batch<'_>, set: &FlowSet, size: u32) {
    /// NFT_SET_EVAL: packets change the set.
    const EVALUATED: u32 = 0x20;
    batch.add(SET_PART, NEWSET, NLM_F_CREATE, |message| {
        message.string(1, TABLE);
        message.string(2, set.name);
        message.number(3, EVALUATED);
        message.number(4, set.key_type);
        message.number(5, set.key_length);
        message.nested(9, |description| description.number(1, size));
        message.number(10, set.id);
    });
}

/// Diverts TCP packets whose addresses and ports are in the set.
fn divert_rule(rule: &mut Expressions<'_>, set: &FlowSet, config: &Config) {
    rule.is_family(set.family);
    rule.is_tcp();
    is_flow_in(rule, set);
    rule.set_shim_mark(config.marks);
    rule.accept();
}

/// Continues only with packets whose addresses and ports are in the set. The rule must already have selected TCP of the set's
/// family.
pub(super) fn is_flow_in(rule: &mut Expressions<'_>, set: &FlowSet) {
    load_key(rule, set, [set.source_offset, set.destination_offset], [SOURCE_PORT, DESTINATION_PORT]);
    rule.is_in_set(set.name);
}

/// If a packet is a first SYN with [`Marks::shim`], adds its connection to the set. A full set stays unchanged.
fn begin_rule(rule: &mut Expressions<'_>, set: &FlowSet, config: &Config) {
    rule.is_mark(config.marks, config.marks.shim);
    rule.is_family(set.family);
    rule.is_tcp();
    rule.is_first_syn();
    load_key(rule, set, [set.source_offset, set.destination_offset], [SOURCE_PORT, DESTINATION_PORT]);
    rule.add_to_set(set.name);
}

/// If a packet is a first SYN, adds the flow of its answers to the set. A full set stays unchanged.
fn serve_rule(rule: &mut Expressions<'_>, set: &FlowSet) {
    rule.is_family(set.family);
    rule.is_tcp();
    rule.is_first_syn();
    load_key(rule, set, [set.destination_offset, set.source_offset], [DESTINATION_PORT, SOURCE_PORT]);
    rule.add_to_set(set.name);
}

/// Offsets of the ports in the TCP header, in octets.
const SOURCE_PORT: u32 = 0;
pub(super) const DESTINATION_PORT: u32 = 2;

/// Loads the set's key into consecutive registers: an address and its port, then the other address and its port.
fn load_key(rule: &mut Expressions<'_>, set: &FlowSet, addresses: [u32; 2], ports: [u32; 2]) {
    const FIRST_REGISTER: u32 = 8;
    const PORT_LENGTH: u32 = 2;
    let words = set.address_length / 4;
    let mut register = FIRST_REGISTER;
    for (address, port) in addresses.into_iter().zip(ports) {
        rule.payload(register, Base::Network, address, set.address_length);
        rule.payload(register + words, Base::Transport, port, PORT_LENGTH);
        register += words + 1;
    }
}

/// Returns the netlink port of the table's owner, or None if the table has no owner or does not exist.
pub(crate) fn owner_port(netlink: &mut Netlink) -> Option<u32> {
    const TABLE_OWNER: u16 = 7;
    const HEAD: usize = 4;
    let sequence = netlink.next_sequence();
    let mut message = Message::new(SUBSYSTEM << 8 | GETTABLE, NLM_F_REQUEST, sequence);
    message.netfilter_head(FAMILY_INET, 0);
    message.string(1, TABLE);
    let read = |_, body: &[u8]| {
        Attributes::new(body.get(HEAD..)?)
            .find(|(kind, _)| *kind == TABLE_OWNER)
            .and_then(|(_, data)| be_u32(data))
    };
    netlink.ask(message, read).ok().flatten()
}
