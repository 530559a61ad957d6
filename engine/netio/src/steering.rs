//! Program in classic BPF with which the kernel chooses the socket of a shard. For packets without the T bit, the program chooses
//! the same shard as `wire::steer`.
//!
//! The program runs on the first SCTP packet of a UDP datagram. The program's offsets count from the end of the UDP header,
//! except offsets with the base [`NETWORK_HEADER`].

use std::num::NonZeroU8;

use libc::sock_filter;

/// Offset of the verification tag in the common header.
const TAG: u32 = 4;
/// Base of offsets that count from the network header (SKF_NET_OFF).
const NETWORK_HEADER: u32 = libc::SKF_NET_OFF as u32;
/// Offset of an IPv4 source address, and offset of the last four octets of an IPv6 source address.
const SOURCE_V4: u32 = 12;
const SOURCE_V6_TAIL: u32 = 20;

/// Returns the program. The program's result is the number of the socket for a datagram. The numbers follow the order in which
/// the sockets were bound.
pub(crate) fn program(shards: NonZeroU8, is_v4: bool) -> [sock_filter; 11] {
    let source = NETWORK_HEADER.wrapping_add(if is_v4 { SOURCE_V4 } else { SOURCE_V6_TAIL });
    [
        load(libc::BPF_W, TAG),
        // If the tag is not 0, the program skips to the modulo.
        sock_filter { code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K), jt: 0, jf: 7, k: 0 },
        load(libc::BPF_H, 0),
        plain(libc::BPF_MISC | libc::BPF_TAX, 0),
        load(libc::BPF_H, 2),
        plain(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0),
        plain(libc::BPF_MISC | libc::BPF_TAX, 0),
        load(libc::BPF_W, source),
        plain(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0),
        plain(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::from(shards.get())),
        plain(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

fn load(size: u32, offset: u32) -> sock_filter {
    plain(libc::BPF_LD | size | libc::BPF_ABS, offset)
}

fn plain(what: u32, k: u32) -> sock_filter {
    sock_filter { code: code(what), jt: 0, jf: 0, k }
}

fn code(bits: u32) -> u16 {
    bits as u16
}
