//! nf_tables over netlink: batches, the host's table, the private namespace's table, set elements.
//!
//! A change is one batch, which the kernel applies wholly or not at all. The host's table is created with `flags owner`, so only
//! the socket that created it can change it. The caller must keep that socket open.

mod elements;
mod expressions;
mod guard;
mod holding;
mod host;
mod pulse;
mod shim;

use std::io;

use netlink_packet_core::NLM_F_REQUEST;

use crate::netlink::{ERROR_KIND, Message, Messages, Netlink, request_answer};

pub(crate) use elements::{delete_diverted, delete_served};
pub use guard::Guard;
pub(crate) use guard::{has_lasting, set as set_guards, set_lasting};
pub use holding::{Destinations, Named, Passed};
pub(crate) use holding::{Holding, stop as stop_queueing};
pub(crate) use host::{TABLE_PART, create_host_table, owner_port};
pub(crate) use pulse::renew;
pub(crate) use shim::create_shim_table;

/// The name of the nf_tables table in both namespaces. None of its rules concerns SCTP.
pub const TABLE: &str = "shim";
/// `NFPROTO_INET`: IPv4 and IPv6 in one table.
const FAMILY_INET: u8 = 1;

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `NFNL_SUBSYS_NFTABLES`: the resource of a batch, and the upper byte of its message types.
const SUBSYSTEM: u16 = 10;

const NEWTABLE: u16 = 0;
const GETTABLE: u16 = 1;
const DELTABLE: u16 = 2;
const NEWCHAIN: u16 = 3;
const NEWRULE: u16 = 6;
const DELRULE: u16 = 8;
const NEWSET: u16 = 9;
const NEWSETELEM: u16 = 12;
const GETSETELEM: u16 = 13;
const DELSETELEM: u16 = 14;

/// `NFTA_LIST_ELEM`: one element of a list.
const LIST_ELEMENT: u16 = 1;
/// `NFTA_DATA_VALUE`: contents of a register.
const DATA_VALUE: u16 = 1;

/// The part of a batch that the kernel refused, and the error. No part of the batch was applied.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Description of the object that the part concerns.
    pub(crate) part: &'static str,
    /// The kernel's error.
    pub(crate) error: io::Error,
}

impl Refusal {
    /// Reports whether `part` was refused with `errno`.
    pub(crate) fn is(&self, part: &str, errno: i32) -> bool {
        self.part == part && self.error.raw_os_error() == Some(errno)
    }
}

/// Messages that the kernel applies together. The kernel acknowledges the last message, and answers each refused message with an
/// error.
struct Batch<'n> {
    netlink: &'n mut Netlink,
    bytes: Vec<u8>,
    /// Offset and sequence number of the last message that was added.
    last: Option<(usize, u32)>,
    /// Sequence number and description of each message.
    parts: Vec<(u32, &'static str)>,
}

impl<'n> Batch<'n> {
    fn new(netlink: &'n mut Netlink) -> Batch<'n> {
        let mut batch = Batch { netlink, bytes: Vec::new(), last: None, parts: Vec::new() };
        batch.frame(BATCH_BEGIN);
        batch
    }

    /// Adds the message that begins or ends the batch. The kernel answers this message only if it refuses the whole batch.
    fn frame(&mut self, kind: u16) {
        self.write("nftables batch", kind, NLM_F_REQUEST, |message| message.netfilter_head(0, SUBSYSTEM));
    }

    /// Adds a message of type `kind` for the table's family. `part` describes the object that the message concerns.
    fn add(&mut self, part: &'static str, kind: u16, flags: u16, fill: impl FnOnce(&mut Message)) {
        let start = self.bytes.len();
        let sequence = self.write(part, SUBSYSTEM << 8 | kind, NLM_F_REQUEST | flags, |message| {
            message.netfilter_head(FAMILY_INET, 0);
            fill(message);
        });
        self.last = Some((start, sequence));
    }

    /// Adds a message, and returns its sequence number.
    fn write(&mut self, part: &'static str, kind: u16, flags: u16, fill: impl FnOnce(&mut Message)) -> u32 {
        let sequence = self.netlink.next_sequence();
        let mut message = Message::after(std::mem::take(&mut self.bytes), kind, flags, sequence);
        fill(&mut message);
        self.bytes = message.finish();
        self.parts.push((sequence, part));
        sequence
    }

    /// Sends the batch, and returns the first refusal.
    fn commit(mut self) -> Result<(), Refusal> {
        let whole = |error| Refusal { part: "nftables batch", error };
        let Some((start, last)) = self.last else { return Ok(()) };
        request_answer(&mut self.bytes, start);
        self.frame(BATCH_END);
        self.netlink.send(&self.bytes).map_err(whole)?;
        let mut refusal = None;
        let mut is_answered = false;
        // The kernel answers in the order of the messages.
        while !is_answered && let Some(datagram) = self.netlink.receive().map_err(whole)? {
            for answer in Messages::new(datagram).filter(|answer| answer.kind == ERROR_KIND) {
                let Some(part) = part_of(&self.parts, answer.sequence) else { continue };
                is_answered |= answer.sequence == last;
                if let Err(error) = answer.outcome() {
                    refusal = refusal.or(Some(Refusal { part, error }));
                }
            }
        }
        match refusal {
            Some(refusal) => Err(refusal),
            None if is_answered => Ok(()),
            None => Err(whole(io::Error::other("the kernel did not acknowledge a batch"))),
        }
    }
}

/// Returns the description of the message with this sequence number. Sequence numbers are consecutive, except where they wrap.
fn part_of(parts: &[(u32, &'static str)], sequence: u32) -> Option<&'static str> {
    let place = sequence.wrapping_sub(parts.first()?.0) as usize;
    let there = parts.get(place).filter(|(found, _)| *found == sequence);
    there.or_else(|| parts.iter().find(|(found, _)| *found == sequence)).map(|(_, part)| *part)
}

/// Adds a rule with the expressions of `fill` at the end of `chain`.
fn add_rule(
    batch: &mut Batch<'_>,
    part: &'static str,
    chain: &str,
    fill: impl FnOnce(&mut expressions::Expressions<'_>),
) {
    add_rule_to(batch, TABLE, part, chain, fill);
}

/// Adds a rule with the expressions of `fill` at the end of `chain` in `table`.
fn add_rule_to(
    batch: &mut Batch<'_>,
    table: &str,
    part: &'static str,
    chain: &str,
    fill: impl FnOnce(&mut expressions::Expressions<'_>),
) {
    use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
    batch.add(part, NEWRULE, NLM_F_CREATE | NLM_F_APPEND, |message| {
        message.string(1, table);
        message.string(2, chain);
        message.nested(4, |list| fill(&mut expressions::Expressions::new(list)));
    });
}

/// A base chain.
struct BaseChain {
    name: &'static str,
    /// The chain's type: "filter" or "route".
    kind: &'static str,
    /// The hook's number: 0 prerouting, 1 input, 2 forward, 3 output.
    hook: u32,
    priority: i32,
}

/// Adds a base chain whose policy is accept.
fn add_chain(batch: &mut Batch<'_>, part: &'static str, chain: &BaseChain) {
    add_chain_to(batch, TABLE, part, chain);
}

/// Adds a base chain to `table`. The chain's policy is accept.
fn add_chain_to(batch: &mut Batch<'_>, table: &str, part: &'static str, chain: &BaseChain) {
    const ACCEPT: u32 = 1;
    batch.add(part, NEWCHAIN, netlink_packet_core::NLM_F_CREATE, |message| {
        message.string(1, table);
        message.string(3, chain.name);
        message.nested(4, |hook| {
            hook.number(1, chain.hook);
            hook.number(2, chain.priority as u32);
        });
        message.number(5, ACCEPT);
        message.string(7, chain.kind);
    });
}

#[cfg(test)]
mod tests {
    use super::part_of;

    #[test]
    fn a_part_is_found_by_its_sequence_number_across_a_wrap() {
        let parts = [(u32::MAX - 1, "a"), (u32::MAX, "b"), (1, "c"), (2, "d")];
        let found = [u32::MAX - 1, u32::MAX, 1, 2, 3, 0].map(|sequence| part_of(&parts, sequence));
        assert_eq!(found, [Some("a"), Some("b"), Some("c"), Some("d"), None, None]);
        assert_eq!(part_of(&[], 1), None);
    }
}
