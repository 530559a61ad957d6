//! Removes elements from the sets that the kernel fills from packets. The sets `flows4` and `flows6` have one element for each
//! diverted connection. The sets `served4` and `served6` have one element for each connection to a local program.

use super::host::{FLOWS4, FLOWS6, FlowSet, SERVED4, SERVED6};
use super::{Batch, DATA_VALUE, DELSETELEM, LIST_ELEMENT, Refusal, TABLE};
use crate::flow::{FourTuple, put_octets};
use crate::netlink::Netlink;

const PART: &str = "element of the set of diverted connections";
/// Limit on removals in one batch.
const AT_ONCE: usize = 64;

/// Length of an IPv6 connection's key, in bytes.
const KEY_LENGTH_MAX: usize = 40;

/// The sets of one kind, for IPv4 and for IPv6.
type Sets = [&'static FlowSet; 2];

/// Removes `flows` from the sets of diverted connections. A missing flow is no error.
pub(crate) fn delete_diverted(owner: &mut Netlink, flows: &[FourTuple]) -> Result<(), Refusal> {
    delete(owner, [&FLOWS4, &FLOWS6], flows)
}

/// Removes `flows`, as seen by the local programs, from the sets of connections to local programs. A missing flow is no error.
pub(crate) fn delete_served(owner: &mut Netlink, flows: &[FourTuple]) -> Result<(), Refusal> {
    delete(owner, [&SERVED4, &SERVED6], flows)
}

fn delete(owner: &mut Netlink, sets: Sets, flows: &[FourTuple]) -> Result<(), Refusal> {
    flows.chunks(AT_ONCE).try_for_each(|some| match delete_all(owner, sets, some) {
        // If the set lacks one of the flows, the kernel removes no flow of the batch. Each flow then needs its own batch.
        Err(refusal) if is_absent(&refusal) => {
            let mut each = some.iter().map(std::slice::from_ref);
            each.try_for_each(|flow| delete_all(owner, sets, flow).or_else(unless_absent))
        }
        outcome => outcome,
    })
}

fn is_absent(refusal: &Refusal) -> bool {
    refusal.error.raw_os_error() == Some(libc::ENOENT)
}

fn unless_absent(refusal: Refusal) -> Result<(), Refusal> {
    if is_absent(&refusal) { Ok(()) } else { Err(refusal) }
}

/// Removes all `flows`, or none. Fails with ENOENT if a flow is missing.
fn delete_all(owner: &mut Netlink, sets: Sets, flows: &[FourTuple]) -> Result<(), Refusal> {
    let mut batch = Batch::new(owner);
    flows.iter().for_each(|flow| add_end(&mut batch, sets, flow));
    batch.commit()
}

fn add_end(batch: &mut Batch<'_>, [v4, v6]: Sets, flow: &FourTuple) {
    let set = if flow.is_ipv4() { v4 } else { v6 };
    batch.add(PART, DELSETELEM, 0, |message| {
        message.string(1, TABLE);
        message.string(2, set.name);
        message.nested(3, |elements| {
            elements.nested(LIST_ELEMENT, |element| {
                element.nested(1, |value| value.attribute(DATA_VALUE, &key(flow)));
            });
        });
    });
}

/// Returns a flow's key: source address, source port, destination address, destination port. Each port is padded to the 4 bytes
/// of a register.
fn key(flow: &FourTuple) -> Vec<u8> {
    let mut key = Vec::with_capacity(KEY_LENGTH_MAX);
    for end in [flow.local(), flow.remote()] {
        put_octets(&mut key, end.ip());
        key.extend_from_slice(&end.port().to_be_bytes());
        key.extend_from_slice(&[0, 0]);
    }
    key
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
