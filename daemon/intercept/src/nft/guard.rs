//! Destinations that plain TCP must not reach.
//!
//! A first SYN to such a destination is answered with "host unreachable" unless it is diverted. The chain `guard` comes after the
//! queue and the diversion. This chain therefore also refuses SYNs that a verdict, a full queue, or a hung or dead daemon let
//! pass. The chain `guard-forward` refuses SYNs that the host forwards for containers, guests and other hosts. The daemon never
//! diverts forwarded SYNs. Each chain exists in two tables. No other program can change the owned table. The table without an
//! owner outlives the daemon.
//!
//! A forwarded packet may come in fragments. A first fragment that is too short to show the SYN passes. The fragment at offset 8
//! is dropped, so the destination cannot reassemble the packet (RFC 1858 section 3.2.2). In IPv6, other headers may precede the
//! TCP header. Every fragment at an offset of 8 to 248 octets is therefore dropped. Ordinary senders make no fragments at these
//! offsets, because every IPv6 link carries packets of 1,280 octets.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REQUEST};

use super::expressions::{Base, Expressions};
use super::{
    BaseChain, Batch, DELRULE, DELTABLE, FAMILY_INET, GETTABLE, NEWTABLE, Refusal, SUBSYSTEM, TABLE,
    add_chain_to, add_rule_to,
};
use crate::config::Config;
use crate::netlink::{Message, Netlink};

/// Chains for packets that programs of this host send, and for packets that the host forwards.
pub(super) const GUARD_CHAINS: [BaseChain; 2] = [
    BaseChain { name: "guard", kind: "filter", hook: 3, priority: -148 },
    BaseChain { name: "guard-forward", kind: "filter", hook: 2, priority: -148 },
];
/// The name of the table that outlives the daemon.
const LASTING_TABLE: &str = "sctpify-require";
const PART: &str = "nftables rule that refuses plain TCP (CONFIG_NFT_REJECT_INET)";
const HOST_UNREACHABLE: u8 = 2;

/// Treatment of plain TCP to some destinations. The first guard that matches a connection decides. A connection without a match
/// passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guard {
    /// The network's address and prefix length. `None` means every destination.
    pub network: Option<(IpAddr, u8)>,
    /// The first and last port. `None` means every port.
    pub ports: Option<(u16, u16)>,
    /// True if plain TCP is refused, false if it passes.
    pub is_refused: bool,
}

/// Replaces the guards in both tables.
pub(crate) fn set(owner: &mut Netlink, config: &Config, guards: &[Guard]) -> Result<(), Refusal> {
    let mut batch = Batch::new(owner);
    replace_guards(&mut batch, TABLE, config, guards);
    batch.commit()?;
    set_lasting(owner, config, guards)
}

/// Replaces the guards in the table without an owner only. Removes the table if `guards` is empty.
///
/// An existing table keeps its chains, because the kernel drops all held SYNs when a chain is deleted.
pub(crate) fn set_lasting(owner: &mut Netlink, config: &Config, guards: &[Guard]) -> Result<(), Refusal> {
    if guards.is_empty() {
        return remove_lasting(owner);
    }
    let set = |owner: &mut Netlink| {
        let mut batch = Batch::new(owner);
        batch.add(PART, NEWTABLE, NLM_F_CREATE, name_lasting);
        for chain in &GUARD_CHAINS {
            add_chain_to(&mut batch, LASTING_TABLE, PART, chain);
        }
        replace_guards(&mut batch, LASTING_TABLE, config, guards);
        batch.commit()
    };
    // A table that another program has changed may be unusable. In this case, the table is deleted and created anew.
    set(owner).or_else(|_| {
        remove_lasting(owner)?;
        set(owner)
    })
}

fn remove_lasting(owner: &mut Netlink) -> Result<(), Refusal> {
    let mut batch = Batch::new(owner);
    // The deletion of a missing table would fail, so the batch first creates the table.
    batch.add(PART, NEWTABLE, NLM_F_CREATE, name_lasting);
    batch.add(PART, DELTABLE, 0, name_lasting);
    batch.commit()
}

fn name_lasting(message: &mut Message) {
    message.string(1, LASTING_TABLE);
}

/// Replaces the guards in the table's chains.
fn replace_guards(batch: &mut Batch<'_>, table: &str, config: &Config, guards: &[Guard]) {
    for chain in &GUARD_CHAINS {
        batch.add(PART, DELRULE, 0, |message| {
            message.string(1, table);
            message.string(2, chain.name);
        });
    }
    add_guards(batch, table, config, guards);
}

/// Reports whether the table without an owner exists.
pub(crate) fn has_lasting(netlink: &mut Netlink) -> io::Result<bool> {
    let sequence = netlink.next_sequence();
    let mut message = Message::new(SUBSYSTEM << 8 | GETTABLE, NLM_F_REQUEST, sequence);
    message.netfilter_head(FAMILY_INET, 0);
    message.string(1, LASTING_TABLE);
    match netlink.ask(message, |_, _| Some(())) {
        Ok(found) => Ok(found.is_some()),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn add_guards(batch: &mut Batch<'_>, table: &str, config: &Config, guards: &[Guard]) {
    if guards.iter().any(|guard| guard.is_refused) {
        let [_, forward] = &GUARD_CHAINS;
        add_rule_to(batch, table, PART, forward.name, |rule| {
            rule.is_family(libc::AF_INET as u8);
            rule.is_tcp();
            rule.is_second_fragment_v4();
            rule.drop();
        });
        add_rule_to(batch, table, PART, forward.name, |rule| {
            rule.is_family(libc::AF_INET6 as u8);
            rule.is_early_fragment_v6();
            rule.drop();
        });
    }
    for (chain, guard) in GUARD_CHAINS.iter().flat_map(|chain| guards.iter().map(move |guard| (chain, guard)))
    {
        add_rule_to(batch, table, PART, chain.name, |rule| guard_rule(rule, config, guard));
    }
}

fn guard_rule(rule: &mut Expressions<'_>, config: &Config, guard: &Guard) {
    const FIRST_REGISTER: u32 = 8;
    rule.is_tcp();
    rule.is_first_syn();
    rule.is_mark_not(config.marks, config.marks.shim);
    rule.goes_out_not_by("lo");
    if let Some((address, prefix)) = guard.network {
        let (family, offset, bytes) = match address {
            IpAddr::V4(v4) => (libc::AF_INET, 16, v4.octets().to_vec()),
            IpAddr::V6(v6) => (libc::AF_INET6, 24, v6.octets().to_vec()),
        };
        rule.is_family(family as u8);
        rule.payload(FIRST_REGISTER, Base::Network, offset, bytes.len() as u32);
        rule.is_within(&bytes, prefix);
    }
    if let Some((first, last)) = guard.ports {
        rule.payload(FIRST_REGISTER, Base::Transport, 2, 2);
        rule.is_between(&first.to_be_bytes(), &last.to_be_bytes());
    }
    if guard.is_refused { rule.reject_by_icmp(HOST_UNREACHABLE) } else { rule.accept() }
}
