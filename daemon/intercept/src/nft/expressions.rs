//! Expressions of nf_tables rules. Register 1 has 16 bytes, and consists of the 4-byte registers 8 to 11.

use super::{DATA_VALUE, LIST_ELEMENT};
use crate::config::Marks;
use crate::netlink::Message;

/// The register for single values.
const R1: u32 = 1;
/// The register for verdicts.
const VERDICT_REGISTER: u32 = 0;
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
/// IPPROTO_TCP.
const TCP: u8 = 6;
/// IPPROTO_UDP.
const UDP: u8 = 17;

/// Keys of the expression `meta`.
#[derive(Clone, Copy)]
pub(super) enum Meta {
    Mark = 3,
    InInterface = 6,
    OutInterface = 7,
    Family = 15,
    Transport = 16,
}

#[derive(Clone, Copy)]
enum Comparison {
    Equal = 0,
    NotEqual = 1,
    AtMost = 3,
    AtLeast = 5,
}

/// The header from which the offset of `payload` counts.
#[derive(Clone, Copy)]
pub(super) enum Base {
    Network = 1,
    Transport = 2,
}

/// The expressions of a rule under construction. If a packet fails a test, the kernel continues with the next rule.
pub(super) struct Expressions<'m> {
    list: &'m mut Message,
}

impl<'m> Expressions<'m> {
    pub(super) fn new(list: &'m mut Message) -> Expressions<'m> {
        Expressions { list }
    }

    fn expression(&mut self, name: &str, fill: impl FnOnce(&mut Message)) {
        self.list.nested(LIST_ELEMENT, |element| {
            element.string(1, name);
            element.nested(2, fill);
        });
    }

    fn load(&mut self, key: Meta) {
        self.expression("meta", |data| {
            data.number(1, R1);
            data.number(2, key as u32);
        });
    }

    fn compare(&mut self, comparison: Comparison, value: &[u8]) {
        self.expression("cmp", |data| {
            data.number(1, R1);
            data.number(2, comparison as u32);
            data.nested(3, |operand| operand.attribute(DATA_VALUE, value));
        });
    }

    fn bitwise(&mut self, mask: &[u8], xor: &[u8]) {
        self.expression("bitwise", |data| {
            data.number(1, R1);
            data.number(2, R1);
            data.number(3, mask.len() as u32);
            data.nested(4, |operand| operand.attribute(DATA_VALUE, mask));
            data.nested(5, |operand| operand.attribute(DATA_VALUE, xor));
        });
    }

    fn immediate(&mut self, value: &[u8]) {
        self.expression("immediate", |data| {
            data.number(1, R1);
            data.nested(2, |operand| operand.attribute(DATA_VALUE, value));
        });
    }

    /// Loads `length` bytes of the packet into `register`. `offset` counts in bytes from the start of the header `base`.
    pub(super) fn payload(&mut self, register: u32, base: Base, offset: u32, length: u32) {
        self.expression("payload", |data| {
            data.number(1, register);
            data.number(2, base as u32);
            data.number(3, offset);
            data.number(4, length);
        });
    }

    /// Continues only with TCP.
    pub(super) fn is_tcp(&mut self) {
        self.load(Meta::Transport);
        self.compare(Comparison::Equal, &[TCP]);
    }

    /// Continues only with protocols other than TCP.
    pub(super) fn is_not_tcp(&mut self) {
        self.load(Meta::Transport);
        self.compare(Comparison::NotEqual, &[TCP]);
    }

    /// Continues only with UDP.
    pub(super) fn is_udp(&mut self) {
        self.load(Meta::Transport);
        self.compare(Comparison::Equal, &[UDP]);
    }

    /// Continues only with echo requests: protocol 1 with type 8, or protocol 58 with type 128.
    pub(super) fn is_echo_request(&mut self, protocol: u8, kind: u8) {
        self.load(Meta::Transport);
        self.compare(Comparison::Equal, &[protocol]);
        self.payload(R1, Base::Transport, 0, 1);
        self.compare(Comparison::Equal, &[kind]);
    }

    /// Continues only if `set` contains the number of the packet's protocol.
    pub(super) fn is_protocol_in_set(&mut self, set: &str) {
        self.load(Meta::Transport);
        self.is_in_set(set);
    }

    /// Continues only with packets of the address family (2 IPv4, 10 IPv6).
    pub(super) fn is_family(&mut self, family: u8) {
        self.load(Meta::Family);
        self.compare(Comparison::Equal, &[family]);
    }

    /// Continues only if the loaded bytes begin with the first `prefix` bits of `network`. The other bits of `network` must be
    /// zero.
    pub(super) fn is_within(&mut self, network: &[u8], prefix: u8) {
        let bits = |index: usize| usize::from(prefix).saturating_sub(8 * index).min(8) as u32;
        let mask: Vec<u8> =
            (0..network.len()).map(|i| 0xff_u8.checked_shl(8 - bits(i)).unwrap_or(0)).collect();
        self.bitwise(&mask, &vec![0; network.len()]);
        self.compare(Comparison::Equal, network);
    }

    /// Continues only if the loaded bytes, as a big-endian number, are between `first` and `last`, both included.
    pub(super) fn is_between(&mut self, first: &[u8], last: &[u8]) {
        self.compare(Comparison::AtLeast, first);
        self.compare(Comparison::AtMost, last);
    }

    /// Continues only with IPv4 fragments at an offset of 8 octets.
    pub(super) fn is_second_fragment_v4(&mut self) {
        const FLAGS_AND_OFFSET: u32 = 6;
        self.payload(R1, Base::Network, FLAGS_AND_OFFSET, 2);
        self.bitwise(&[0x1f, 0xff], &[0, 0]);
        self.compare(Comparison::Equal, &[0, 1]);
    }

    /// Continues only with IPv6 fragments, of any protocol, at an offset of 8 to 248 octets.
    pub(super) fn is_early_fragment_v6(&mut self) {
        const FRAGMENT_HEADER: u8 = 44;
        const OFFSET_AND_FLAGS: u32 = 2;
        self.expression("exthdr", |data| {
            data.number(1, R1);
            data.attribute(2, &[FRAGMENT_HEADER]);
            data.number(3, OFFSET_AND_FLAGS);
            data.number(4, 2);
        });
        self.bitwise(&[0xff, 0xf8], &[0, 0]);
        self.is_between(&[0, 8], &[0, 0xf8]);
    }

    /// Continues only with packets that begin a connection: SYN is set, and FIN, RST and ACK are not.
    pub(super) fn is_first_syn(&mut self) {
        const FLAGS_OFFSET: u32 = 13;
        const FIN_SYN_RST_ACK: u8 = 0x17;
        const SYN: u8 = 0x02;
        self.payload(R1, Base::Transport, FLAGS_OFFSET, 1);
        self.bitwise(&[FIN_SYN_RST_ACK], &[0]);
        self.compare(Comparison::Equal, &[SYN]);
    }

    /// Continues only with packets that arrived on the interface `name`.
    pub(super) fn came_in_by(&mut self, name: &str) {
        self.load(Meta::InInterface);
        self.compare(Comparison::Equal, &interface_register(name));
    }

    /// Continues only with packets that did not arrive on the interface `name`.
    pub(super) fn came_in_not_by(&mut self, name: &str) {
        self.load(Meta::InInterface);
        self.compare(Comparison::NotEqual, &interface_register(name));
    }

    /// Continues only with packets that do not leave through the interface `name`.
    pub(super) fn goes_out_not_by(&mut self, name: &str) {
        self.load(Meta::OutInterface);
        self.compare(Comparison::NotEqual, &interface_register(name));
    }

    /// Continues only with packets that do not carry `mark` in the bits of the mask.
    pub(super) fn is_mark_not(&mut self, marks: Marks, mark: u32) {
        self.load(Meta::Mark);
        self.bitwise(&marks.mask.to_ne_bytes(), &[0; 4]);
        self.compare(Comparison::NotEqual, &mark.to_ne_bytes());
    }

    /// Continues only with packets whose whole mark is `mark`.
    pub(super) fn is_whole_mark(&mut self, mark: u32) {
        self.load(Meta::Mark);
        self.compare(Comparison::Equal, &mark.to_ne_bytes());
    }

    /// Continues only with packets that carry `mark` in the bits of the mask.
    pub(super) fn is_mark(&mut self, marks: Marks, mark: u32) {
        self.load(Meta::Mark);
        self.bitwise(&marks.mask.to_ne_bytes(), &[0; 4]);
        self.compare(Comparison::Equal, &mark.to_ne_bytes());
    }

    /// Sets [`Marks::shim`] in the bits of the mask, and keeps the other bits.
    pub(super) fn set_shim_mark(&mut self, marks: Marks) {
        self.load(Meta::Mark);
        self.bitwise(&(!marks.mask).to_ne_bytes(), &marks.shim.to_ne_bytes());
        self.expression("meta", |data| {
            data.number(3, R1);
            data.number(2, Meta::Mark as u32);
        });
    }

    /// Continues only if the key that begins in register 1 is in `set`.
    pub(super) fn is_in_set(&mut self, set: &str) {
        self.expression("lookup", |data| {
            data.string(1, set);
            data.number(2, R1);
        });
    }

    /// Adds the key that begins in register 1 to `set`. An existing key is no error.
    pub(super) fn add_to_set(&mut self, set: &str) {
        const ADD: u32 = 0;
        self.expression("dynset", |data| {
            data.string(1, set);
            data.number(3, ADD);
            data.number(4, R1);
        });
    }

    /// Gives the packet to the transparent socket on `port`. If no such socket exists, the kernel continues with the next rule.
    pub(super) fn tproxy(&mut self, family: u8, port: u16) {
        self.immediate(&port.to_be_bytes());
        self.expression("tproxy", |data| {
            data.number(1, u32::from(family));
            data.number(3, R1);
        });
    }

    /// Ends the rule with "accept".
    pub(super) fn accept(&mut self) {
        self.verdict(NF_ACCEPT);
    }

    /// Ends the rule with "drop".
    pub(super) fn drop(&mut self) {
        self.verdict(NF_DROP);
    }

    fn verdict(&mut self, code: u32) {
        self.expression("immediate", |data| {
            data.number(1, VERDICT_REGISTER);
            data.nested(2, |operand| operand.nested(2, |verdict| verdict.number(1, code)));
        });
    }

    /// Continues with the rules of `chain`, which is not a base chain.
    pub(super) fn jump(&mut self, chain: &str) {
        const JUMP: i32 = -3;
        self.expression("immediate", |data| {
            data.number(1, VERDICT_REGISTER);
            data.nested(2, |operand| {
                operand.nested(2, |verdict| {
                    verdict.number(1, JUMP as u32);
                    verdict.string(2, chain);
                });
            });
        });
    }

    /// Ends the rule: the kernel answers with an RST.
    pub(super) fn reject_by_reset(&mut self) {
        const TCP_RST: u32 = 1;
        self.expression("reject", |data| data.number(1, TCP_RST));
    }

    /// Ends the rule: the kernel answers with an ICMP error. `code` is nftables' own code for both families (icmpx).
    pub(super) fn reject_by_icmp(&mut self, code: u8) {
        const ICMPX_UNREACHABLE: u32 = 2;
        self.expression("reject", |data| {
            data.number(1, ICMPX_UNREACHABLE);
            data.attribute(2, &[code]);
        });
    }

    /// Ends the rule with nftables' own `queue`. If no program listens on the queue, packets pass.
    pub(super) fn queue(&mut self, number: u16) {
        const ONE_QUEUE: u16 = 1;
        const BYPASS: u16 = 1;
        self.expression("queue", |data| {
            data.attribute(1, &number.to_be_bytes());
            data.attribute(2, &ONE_QUEUE.to_be_bytes());
            data.attribute(3, &BYPASS.to_be_bytes());
        });
    }

    /// Ends the rule with the xtables target NFQUEUE, for kernels without nftables' `queue`. If no program listens on the queue,
    /// packets pass.
    pub(super) fn queue_by_target(&mut self, number: u16) {
        const REVISION: u32 = 3;
        let mut info = [0; 8];
        info[..2].copy_from_slice(&number.to_ne_bytes());
        info[2..4].copy_from_slice(&1u16.to_ne_bytes());
        info[4..6].copy_from_slice(&1u16.to_ne_bytes());
        self.expression("target", |data| {
            data.string(1, "NFQUEUE");
            data.number(2, REVISION);
            data.attribute(3, &info);
        });
    }
}

/// Returns an interface name as `meta` loads it: 16 bytes, padded with zeros.
fn interface_register(name: &str) -> [u8; 16] {
    let mut register = [0; 16];
    for (place, byte) in register.iter_mut().zip(name.bytes().take(15)) {
        *place = byte;
    }
    register
}
