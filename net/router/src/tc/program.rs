//! Classifiers as programs of classic BPF, in the form of `tc filter … bpf bytecode`.
//!
//! Loads are relative to the network header, so VLAN tags before this header change no offset. The programs find the SCTP header
//! in IPv4 with any options, in IPv6 without extension headers, and in UDP over IPv4 or IPv6. They find no SCTP header in later
//! fragments. A program returns a class; 0 means no match.

use crate::args::Flags;

/// An instruction: code, jump if true, jump if false, operand.
pub(crate) type Instruction = (u16, u8, u8, u32);

/// Offset base of loads from the network header (SKF_NET_OFF).
const NET: u32 = 0xfff0_0000;
/// Protocol numbers of IP.
const UDP: u32 = 17;
const SCTP: u32 = 132;

/// Instruction codes, by the kernel's names.
const LD_H_ABS: u16 = 40;
const LD_B_ABS: u16 = 48;
const LD_H_IND: u16 = 72;
const LD_B_IND: u16 = 80;
const LDX_IMM: u16 = 1;
const LDX_MEM: u16 = 97;
const LDX_MSH: u16 = 177;
const ST: u16 = 2;
const ADD: u16 = 4;
const AND: u16 = 84;
const DIV: u16 = 52;
const LSH: u16 = 100;
const RSH: u16 = 116;
const XOR_X: u16 = 172;
const JA: u16 = 5;
const JEQ: u16 = 21;
const JGT: u16 = 37;
const JGE: u16 = 53;
const JSET: u16 = 69;
const RET: u16 = 6;
const RET_A: u16 = 22;
const TAX: u16 = 7;
const TXA: u16 = 135;

/// Returns instructions that load the offset of the SCTP header, relative to the network header, into X. If the packet has no
/// SCTP header, the program continues `otherwise` instructions behind the end of these instructions.
fn find_sctp(udp_port: u16, otherwise: u8) -> Vec<Instruction> {
    let port = u32::from(udp_port);
    // Jump distance from instruction `n` to the target for packets without an SCTP header. The target is `otherwise` instructions
    // behind this list of 20 instructions.
    let no = |n: u8| 20 - n - 1 + otherwise;
    vec![
        (LD_B_ABS, 0, 0, NET),
        (RSH, 0, 0, 4),
        (JEQ, 1, 0, 4),
        (JEQ, 5, no(3), 6),
        // IPv4: a later fragment does not match.
        (LD_H_ABS, 0, 0, NET + 6),
        (JSET, no(5), 0, 0x1fff),
        (LDX_MSH, 0, 0, NET),
        (LD_B_ABS, 0, 0, NET + 9),
        (JA, 0, 0, 2),
        // IPv6.
        (LDX_IMM, 0, 0, 40),
        (LD_B_ABS, 0, 0, NET + 6),
        (JEQ, 8, 0, SCTP),
        (JEQ, 0, no(12), UDP),
        (LD_H_IND, 0, 0, NET),
        (JEQ, 2, 0, port),
        (LD_H_IND, 0, 0, NET + 2),
        (JEQ, 0, no(16), port),
        (TXA, 0, 0, 0),
        (ADD, 0, 0, 8),
        (TAX, 0, 0, 0),
    ]
}

/// Returns a program that maps the advertisement in a packet's first chunk to a class: `major`:10 to `major`:100.
pub(crate) fn by_occupancy(major: u32, udp_port: u16, chunk_type: u8, flags: Flags) -> Vec<Instruction> {
    let class = major << 16;
    let mut program = find_sctp(udp_port, 14);
    program.extend([
        (LD_B_IND, 0, 0, NET + 12),
        (JEQ, 0, 12, u32::from(chunk_type)),
        (LD_H_IND, 0, 0, NET + 14),
        (JEQ, 1, 0, 4),
        (JEQ, 0, 9, 8),
        (LD_B_IND, 0, 0, NET + 13),
    ]);
    program.extend(match flags {
        Flags::Percent => [
            (JGT, 7, 0, 100),
            (JGE, 5, 0, 90),
            (DIV, 0, 0, 10),
            (ADD, 0, 0, 1),
            (LSH, 0, 0, 4),
            (ADD, 0, 0, class),
            (RET_A, 0, 0, 0),
        ],
        Flags::Tenths => [
            (JGT, 7, 0, 9),
            (JEQ, 6, 0, 0),
            (LSH, 0, 0, 4),
            (ADD, 0, 0, class),
            (RET_A, 0, 0, 0),
            (RET, 0, 0, 0),
            (RET, 0, 0, 0),
        ],
    });
    program.extend([(RET, 0, 0, class + 0x100), (RET, 0, 0, 0)]);
    program
}

/// Returns a program that chooses one of 256 classes from `first` on, by addresses and SCTP ports. Packets without SCTP get
/// `first`.
pub(crate) fn by_flow(first: u32, udp_port: u16) -> Vec<Instruction> {
    let mut program = find_sctp(udp_port, 24);
    program.extend([
        (LD_H_IND, 0, 0, NET),
        (ST, 0, 0, 0),
        (LD_H_IND, 0, 0, NET + 2),
        (LDX_MEM, 0, 0, 0),
        (XOR_X, 0, 0, 0),
        (ST, 0, 0, 0),
        (LD_B_ABS, 0, 0, NET),
        (RSH, 0, 0, 4),
        (JEQ, 6, 0, 6),
        // IPv4: the last 16 bits of both addresses.
        (LD_H_ABS, 0, 0, NET + 14),
        (LDX_MEM, 0, 0, 0),
        (XOR_X, 0, 0, 0),
        (TAX, 0, 0, 0),
        (LD_H_ABS, 0, 0, NET + 18),
        (JA, 0, 0, 5),
        // IPv6: the last 16 bits of both addresses.
        (LD_H_ABS, 0, 0, NET + 22),
        (LDX_MEM, 0, 0, 0),
        (XOR_X, 0, 0, 0),
        (TAX, 0, 0, 0),
        (LD_H_ABS, 0, 0, NET + 38),
        (XOR_X, 0, 0, 0),
        (AND, 0, 0, 255),
        (ADD, 0, 0, first),
        (RET_A, 0, 0, 0),
        (RET, 0, 0, first),
    ]);
    program
}

/// Returns the program in the text form of `tc`.
pub(crate) fn bytecode(program: &[Instruction]) -> String {
    let words: Vec<String> =
        program.iter().map(|(code, jt, jf, k)| format!("{code} {jt} {jf} {k}")).collect();
    format!("{},{}", program.len(), words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executes a program on a packet. Supports only the instructions that the classifiers use.
    fn execute(program: &[Instruction], packet: &[u8]) -> u32 {
        let (mut a, mut x, mut m, mut at) = (0u32, 0u32, 0u32, 0usize);
        loop {
            let (code, jt, jf, k) = program[at];
            at += 1;
            let byte = |n: u32| packet.get(n.wrapping_sub(NET) as usize).copied().map(u32::from);
            let half = |n: u32| Some(byte(n)? << 8 | byte(n.wrapping_add(1))?);
            let load = match code {
                LD_B_ABS => byte(k),
                LD_H_ABS => half(k),
                LD_B_IND => byte(k.wrapping_add(x)),
                LD_H_IND => half(k.wrapping_add(x)),
                _ => Some(a),
            };
            // A load beyond the packet's end stops the program, which then returns 0.
            let Some(loaded) = load else { return 0 };
            a = loaded;
            let is_true = match code {
                JEQ => a == k,
                JGT => a > k,
                JGE => a >= k,
                JSET => a & k != 0,
                _ => true,
            };
            match code {
                RSH => a >>= k,
                LSH => a <<= k,
                ADD => a = a.wrapping_add(k),
                AND => a &= k,
                DIV => a /= k,
                XOR_X => a ^= x,
                ST => m = a,
                LDX_MEM => x = m,
                LDX_IMM => x = k,
                LDX_MSH => x = (byte(k).unwrap_or(0) & 15) * 4,
                TAX => x = a,
                TXA => a = x,
                JA => at += k as usize,
                JEQ | JGT | JGE | JSET => at += usize::from(if is_true { jt } else { jf }),
                RET => return k,
                RET_A => return a,
                _ => {}
            }
        }
    }

    const PERCENT: fn(u8) -> Vec<u8> = |n| vec![150, n, 0, 4, 0, 3, 0, 17];

    fn sctp(chunks: &[u8]) -> Vec<u8> {
        [&[0x9c, 0x40, 0, 7, 1, 2, 3, 4, 0, 0, 0, 0], chunks].concat()
    }

    fn v4(protocol: u8, options: usize, fragment: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45 + (options / 4) as u8, 0, 0, 0, 0, 0, 0, fragment, 64, protocol, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(vec![1; options]);
        [&packet, rest].concat()
    }

    fn v6(protocol: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
        packet.extend([0xfd; 31]);
        packet.push(2);
        [&packet, rest].concat()
    }

    fn udp(port: u16, rest: &[u8]) -> Vec<u8> {
        [&port.to_be_bytes()[..], &[0, 80, 0, 0, 0, 0], rest].concat()
    }

    fn class(packet: &[u8]) -> u32 {
        execute(&by_occupancy(1, 9899, 150, Flags::Percent), packet)
    }

    #[test]
    fn each_occupancy_has_its_class_over_ipv4_ipv6_and_udp() {
        for percent in 0..=100u8 {
            let chunks = sctp(&PERCENT(percent));
            let expected = if percent >= 90 { 0x1_0100 } else { 0x1_0010 + u32::from(percent) / 10 * 0x10 };
            for packet in [
                v4(132, 0, 0, &chunks),
                v4(132, 8, 0, &chunks),
                v6(132, &chunks),
                v4(17, 4, 0, &udp(9899, &chunks)),
                v6(17, &udp(9899, &chunks)),
            ] {
                assert_eq!(class(&packet), expected, "{percent}");
            }
        }
        let backlog = v4(132, 0, 0, &sctp(&[150, 37, 0, 8, 0, 0, 1, 1]));
        assert_eq!(class(&backlog), 0x1_0040);
    }

    #[test]
    fn a_packet_without_a_valid_advertisement_has_no_class() {
        let whole = v4(132, 0, 0, &sctp(&PERCENT(50)));
        for packet in [
            v4(132, 0, 0, &sctp(&[0, 3, 0, 17])),
            v4(132, 0, 0, &sctp(&[150, 101, 0, 4])),
            v4(132, 0, 0, &sctp(&[150, 50, 0, 3])),
            v4(6, 0, 0, &sctp(&PERCENT(50))),
            v4(17, 0, 0, &udp(9898, &sctp(&PERCENT(50)))),
            v4(132, 0, 9, &sctp(&PERCENT(50))),
            v6(6, &sctp(&PERCENT(50))),
            whole[..35].to_vec(),
        ] {
            assert_eq!(class(&packet), 0, "{packet:?}");
        }
    }

    #[test]
    fn tenths_have_classes_from_one_to_nine_only() {
        let program = by_occupancy(1, 9899, 150, Flags::Tenths);
        let class = |tenths| execute(&program, &v4(132, 0, 0, &sctp(&PERCENT(tenths))));
        assert_eq!([0, 1, 9, 10, 100].map(class), [0, 0x1_0010, 0x1_0090, 0, 0]);
    }

    #[test]
    fn the_program_is_the_one_that_was_tried_on_linux() {
        let report = bytecode(&by_occupancy(1, 9899, 150, Flags::Percent));
        assert!(
            report.starts_with(
                "35,48 0 0 4293918720,116 0 0 4,21 1 0 4,21 5 30 6,40 0 0 4293918726,69 28 0 8191"
            )
        );
        assert!(report.ends_with("4 0 0 65536,22 0 0 0,6 0 0 65792,6 0 0 0"), "{report}");
    }

    #[test]
    fn flows_have_one_of_256_classes_by_ports_and_addresses_and_other_packets_the_first() {
        let program = by_flow(0x5ba_1000, 9899);
        let flow = |port: u8| {
            let mut chunks = sctp(&PERCENT(1));
            chunks[1] = port;
            [v4(132, 0, 0, &chunks), v4(17, 4, 0, &udp(9899, &chunks)), v6(132, &chunks)]
                .map(|packet| execute(&program, &packet))
        };
        let all: std::collections::BTreeSet<u32> = (0..=255).map(|port| flow(port)[0]).collect();
        assert_eq!((all.len(), *all.first().unwrap(), *all.last().unwrap()), (256, 0x5ba_1000, 0x5ba_10ff));
        let [bare, in_udp, v6] = flow(9);
        assert_eq!(bare, in_udp);
        assert!((0x5ba_1000..=0x5ba_10ff).contains(&v6) && v6 != flow(10)[2]);
        assert_eq!(execute(&program, &v4(6, 0, 0, &[0; 20])), 0x5ba_1000);
    }
}
