//! Makes a connection to a local program arrive on the interface on which the client's packets arrived.
//!
//! The connection's packets leave the private namespace over the veth. At the host's end of the veth, a traffic control filter
//! redirects these packets to the client's interface (the connection's *uplink*) before any other processing. Netfilter,
//! reverse-path filters, connection tracking and routing thus see packets that arrived on that interface, from the client, to the
//! address that the client used.
//!
//! - In the private namespace, the mark of the connection's socket is the uplink's index. A program at the veth's egress writes
//!   the index into the source address of the frame ([`bpf::stamp`]).
//! - In the host, at the veth's ingress, the first filter gives frames with this source address the mark "served"
//!   ([`bpf::mark`]), which the nftables table recognises. One filter for each uplink follows (`u32` with `mirred`). The last
//!   filter drops the remaining stamped frames.
//!
//! Invariant: a stamped packet arrives on its uplink or is dropped. A packet without a stamp arrives on the veth. All filters
//! disappear with the veth pair.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST};

use crate::bpf::{self, TAG};
use crate::netlink::{Message, Netlink};

/// Limit on the uplinks that have a filter at the same time.
const UPLINKS_MAX: u16 = 256;

const NEW_QDISC: u16 = 36;
const NEW_FILTER: u16 = 44;
const DELETE_FILTER: u16 = 45;
/// `TC_H_CLSACT` (the parent of the qdisc `clsact`), the handle of this qdisc, and the parents of filters for ingress and egress.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;

/// Preferences of the first and the last filter. The filters of uplinks lie between them.
const FIRST: u16 = 1;
const LAST: u16 = FIRST + UPLINKS_MAX + 1;

const KIND: u16 = 1;
const OPTIONS: u16 = 2;

/// A kernel feature for uplinks that is missing or not allowed.
#[derive(Debug)]
pub(crate) struct Lack {
    pub(crate) part: &'static str,
    pub(crate) error: io::Error,
}

/// The uplinks that have a filter.
pub(crate) struct Uplinks {
    /// Index of the veth's end in the host.
    index: u32,
    /// Preference of each filter, by interface index.
    filters: BTreeMap<u32, u16>,
}

/// Sets up the veth's end in the private namespace. `shim` is a netlink socket of that namespace.
pub(crate) fn stamp_what_leaves(shim: &mut Netlink, index: u32) -> Result<(), Lack> {
    let program = load(&bpf::stamp())?;
    add_qdisc(shim, index)?;
    add_program(shim, index, EGRESS, FIRST, &program)
}

impl Uplinks {
    /// Sets up the veth's end in the host. Stamped packets get the mark `served`.
    pub(crate) fn set_up(host: &mut Netlink, index: u32, served: u32) -> Result<Uplinks, Lack> {
        let (mark, drop) = (load(&bpf::mark(served))?, load(&bpf::drop_stamped())?);
        add_qdisc(host, index)?;
        add_program(host, index, INGRESS, LAST, &drop)?;
        add_program(host, index, INGRESS, FIRST, &mark)?;
        let mut uplinks = Uplinks { index, filters: BTreeMap::new() };
        // A trial filter shows whether the kernel supports `u32` with `mirred`, before the first client needs this support.
        uplinks
            .lead(host, index)
            .map_err(lacking("u32 filters and mirred (CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED)"))?;
        uplinks.forget(host, index).map_err(lacking("deleting a filter"))?;
        Ok(uplinks)
    }

    /// If the interface `uplink` has no filter, creates one. Fails with ENODEV if the interface does not exist, and with
    /// `StorageFull` if [`UPLINKS_MAX`] interfaces have a filter.
    pub(crate) fn lead(&mut self, host: &mut Netlink, uplink: u32) -> io::Result<()> {
        if self.filters.contains_key(&uplink) {
            return Ok(());
        }
        let is_free = |place: &u16| self.filters.values().all(|taken| taken != place);
        let place = (FIRST + 1..LAST).find(is_free).ok_or(io::ErrorKind::StorageFull)?;
        let sequence = host.next_sequence();
        host.request(filter(sequence, self.index, INGRESS, place, "u32", |options| {
            lead_options(options, uplink)
        }))?;
        self.filters.insert(uplink, place);
        Ok(())
    }

    /// Removes the filters of interfaces for which `is_there` returns false.
    pub(crate) fn forget_gone(
        &mut self,
        host: &mut Netlink,
        is_there: impl Fn(&mut Netlink, u32) -> bool,
    ) -> io::Result<()> {
        let known: Vec<u32> = self.filters.keys().copied().collect();
        for uplink in known {
            if !is_there(host, uplink) {
                self.forget(host, uplink)?;
            }
        }
        Ok(())
    }

    fn forget(&mut self, host: &mut Netlink, uplink: u32) -> io::Result<()> {
        let Some(place) = self.filters.remove(&uplink) else { return Ok(()) };
        let sequence = host.next_sequence();
        let mut message = Message::new(DELETE_FILTER, NLM_F_REQUEST | NLM_F_ACK, sequence);
        put_head(&mut message, self.index, 0, INGRESS, filter_info(place));
        host.request(message)
    }
}

fn lacking(part: &'static str) -> impl Fn(io::Error) -> Lack {
    move |error| Lack { part, error }
}

fn load(program: &[bpf::Instruction]) -> Result<OwnedFd, Lack> {
    bpf::load(program).map_err(lacking("eBPF programs (CONFIG_BPF_SYSCALL; CAP_BPF or CAP_SYS_ADMIN)"))
}

fn add_qdisc(netlink: &mut Netlink, index: u32) -> Result<(), Lack> {
    let sequence = netlink.next_sequence();
    let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let mut message = Message::new(NEW_QDISC, flags, sequence);
    put_head(&mut message, index, CLSACT_HANDLE, CLSACT, 0);
    message.string(KIND, "clsact");
    netlink.request(message).map_err(lacking("the qdisc clsact (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_ACT)"))
}

/// Adds an eBPF program as a filter that returns its own action (`direct-action`).
fn add_program(
    netlink: &mut Netlink,
    index: u32,
    parent: u32,
    place: u16,
    program: &OwnedFd,
) -> Result<(), Lack> {
    const DESCRIPTOR: u16 = 6;
    const NAME: u16 = 7;
    const FLAGS: u16 = 8;
    const DIRECT_ACTION: u32 = 1;
    let sequence = netlink.next_sequence();
    let message = filter(sequence, index, parent, place, "bpf", |options| {
        options.attribute(DESCRIPTOR, &program.as_raw_fd().to_ne_bytes());
        options.string(NAME, "sctpify");
        options.attribute(FLAGS, &DIRECT_ACTION.to_ne_bytes());
    });
    netlink.request(message).map_err(lacking("filters by eBPF (CONFIG_NET_CLS_BPF)"))
}

/// Builds the message for a new filter. `place` is its preference in tc.
fn filter(
    sequence: u32,
    index: u32,
    parent: u32,
    place: u16,
    kind: &str,
    options: impl FnOnce(&mut Message),
) -> Message {
    let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let mut message = Message::new(NEW_FILTER, flags, sequence);
    put_head(&mut message, index, 0, parent, filter_info(place));
    message.string(KIND, kind);
    message.nested(OPTIONS, options);
    message
}

/// Returns `tcm_info` of `struct tcmsg`: the place, and the number that matches all protocols.
fn filter_info(place: u16) -> u32 {
    const ETH_P_ALL: u16 = 3;
    u32::from(place) << 16 | u32::from(ETH_P_ALL.to_be())
}

/// Adds a `struct tcmsg`.
fn put_head(message: &mut Message, index: u32, handle: u32, parent: u32, info: u32) {
    message.put(&[0; 4]);
    [index, handle, parent, info].iter().for_each(|word| message.put(&word.to_ne_bytes()));
}

/// Adds the options that redirect frames with the stamp of `uplink` to that interface.
fn lead_options(options: &mut Message, uplink: u32) {
    const SELECTOR: u16 = 5;
    const ACTIONS: u16 = 7;
    const PARAMETERS: u16 = 2;
    options.attribute(SELECTOR, &selector(uplink));
    options.nested(ACTIONS, |actions| {
        actions.nested(1, |action| {
            action.string(KIND, "mirred");
            action.nested(OPTIONS, |options| options.attribute(PARAMETERS, &redirection(uplink)));
        });
    });
}

/// Returns a `struct tc_u32_sel` with two keys. The keys match the frame's source address. This address begins eight octets
/// before the IP header.
fn selector(uplink: u32) -> Vec<u8> {
    const TERMINAL: u8 = 1;
    const KEYS: u8 = 2;
    let mut bytes = vec![TERMINAL, 0, KEYS];
    bytes.resize(16, 0);
    let [a, b, c, d] = uplink.to_ne_bytes();
    put_key(&mut bytes, [0xff; 4], [TAG[0], TAG[1], a, b], -8);
    put_key(&mut bytes, [0xff, 0xff, 0, 0], [c, d, 0, 0], -4);
    bytes
}

/// Appends a `struct tc_u32_key`: mask, value, and offset from the IP header in octets.
fn put_key(bytes: &mut Vec<u8>, mask: [u8; 4], value: [u8; 4], offset: i32) {
    bytes.extend_from_slice(&mask);
    bytes.extend_from_slice(&value);
    bytes.extend_from_slice(&offset.to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]);
}

/// Returns a `struct tc_mirred` that makes the packet arrive on `uplink`.
fn redirection(uplink: u32) -> Vec<u8> {
    const STOLEN: u32 = 4;
    const INGRESS_REDIRECT: u32 = 3;
    let words = [0, 0, STOLEN, 0, 0, INGRESS_REDIRECT, uplink];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Makes the socket's packets arrive on this interface, or on the veth if `uplink` is None.
pub(crate) fn set_uplink(socket: BorrowedFd<'_>, uplink: Option<u32>) -> io::Result<()> {
    const NO_STAMP: u32 = 0;
    socket2::SockRef::from(&socket).set_mark(uplink.unwrap_or(NO_STAMP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_has_the_address_that_the_program_writes() {
        let bytes = selector(0x0102_0304);
        let mut address = TAG.to_vec();
        address.extend_from_slice(&0x0102_0304_u32.to_ne_bytes());
        assert_eq!(bytes.len(), 16 + 2 * 16);
        assert_eq!([&bytes[20..24], &bytes[36..38]].concat(), address);
        assert_eq!(bytes[24..28], (-8_i32).to_ne_bytes());
    }

    #[test]
    fn filter_preferences_leave_room_for_the_maximum_number_of_uplinks() {
        assert_eq!((FIRST + 1..LAST).count(), usize::from(UPLINKS_MAX));
    }
}
