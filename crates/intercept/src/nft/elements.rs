//! The elements of the sets `flows4` and `flows6`, one for each diverted connection, and the end of those of `served4` and
//! `served6`, which the kernel adds by itself, one for each connection to a local program.

use netlink_packet_core::NLM_F_CREATE;

use super::host::{FLOWS4, FLOWS6, FlowSet, SERVED4, SERVED6};
use super::{Batch, DATA_VALUE, DELSETELEM, LIST_ELEMENT, NEWSETELEM, Refusal, TABLE};
use crate::flow::{FourTuple, octets};
use crate::netlink::Netlink;

const PART: &str = "element of the set of diverted connections";

/// The sets of one kind, for IPv4 and for IPv6.
type Sets = [&'static FlowSet; 2];
const FLOWS: Sets = [&FLOWS4, &FLOWS6];
const SERVED: Sets = [&SERVED4, &SERVED6];

/// Adds `flow` to its set; one that is there already is no error. ENFILE: the set is full.
pub(crate) fn add_flow(owner: &mut Netlink, flow: &FourTuple) -> Result<(), Refusal> {
    change(owner, FLOWS, flow, NEWSETELEM, NLM_F_CREATE)
}

/// Takes `flow` out of its set. ENOENT: it was not there.
pub(crate) fn delete_flow(owner: &mut Netlink, flow: &FourTuple) -> Result<(), Refusal> {
    change(owner, FLOWS, flow, DELSETELEM, 0)
}

/// Takes `flows`, as the local programs see them, out of the sets of those from the private namespace. ENOENT: one was not
/// there, and none was taken out.
pub(crate) fn delete_served(owner: &mut Netlink, flows: &[FourTuple]) -> Result<(), Refusal> {
    let mut batch = Batch::new(owner);
    flows.iter().for_each(|flow| add_change(&mut batch, SERVED, flow, DELSETELEM, 0));
    batch.commit()
}

fn change(owner: &mut Netlink, sets: Sets, flow: &FourTuple, kind: u16, flags: u16) -> Result<(), Refusal> {
    let mut batch = Batch::new(owner);
    add_change(&mut batch, sets, flow, kind, flags);
    batch.commit()
}

fn add_change(batch: &mut Batch<'_>, [v4, v6]: Sets, flow: &FourTuple, kind: u16, flags: u16) {
    let set = if flow.is_ipv4() { v4 } else { v6 };
    batch.add(PART, kind, flags, |message| {
        message.string(1, TABLE);
        message.string(2, set.name);
        message.nested(3, |elements| {
            elements.nested(LIST_ELEMENT, |element| {
                element.nested(1, |value| value.attribute(DATA_VALUE, &key(flow)));
            });
        });
    });
}

/// Source address, source port, destination address, destination port, each filled up to a 4-byte register.
fn key(flow: &FourTuple) -> Vec<u8> {
    [flow.local(), flow.remote()]
        .into_iter()
        .flat_map(|end| [octets(end.ip()), end.port().to_be_bytes().to_vec(), vec![0, 0]].concat())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(local: &str, remote: &str) -> FourTuple {
        let parse = |text: &str| text.parse().expect("a socket address");
        FourTuple::new(parse(local), parse(remote)).expect("one family")
    }

    #[test]
    fn a_key_of_ipv4_is_four_registers() {
        let key = key(&flow("10.1.2.3:258", "10.4.5.6:80"));
        assert_eq!(key, [10, 1, 2, 3, 1, 2, 0, 0, 10, 4, 5, 6, 0, 80, 0, 0]);
    }

    #[test]
    fn a_key_of_ipv6_is_ten_registers() {
        let key = key(&flow("[::1:2]:258", "[2001:db8::5]:80"));
        assert_eq!(key.len(), 40);
        assert_eq!(key[12..20], [0, 1, 0, 2, 1, 2, 0, 0]);
        assert_eq!(key[32..], [0, 0, 0, 5, 0, 80, 0, 0]);
    }
}
