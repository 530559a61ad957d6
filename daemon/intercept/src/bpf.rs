//! Small eBPF programs for traffic control. The programs are lists of instructions in this file, so they need no compiler, map or
//! pinned object.
//!
//! In the private namespace, packets of a connection to a local program carry a mark. The mark is the index of the interface on
//! which the client's packets arrived. The kernel clears the mark when a packet crosses the veth, so [`stamp`] writes the index
//! into the source address of the Ethernet frame. On the veth's other end, the programs [`mark`] and [`drop_stamped`] recognise
//! frames by this address.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// First two octets of a stamped source address. They denote a locally administered unicast address.
pub(crate) const TAG: [u8; 2] = [0x06, 0x84];

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    let registers = if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
    Instruction { code, registers, offset, immediate }
}

const fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xbf, to, from, 0, 0)
}

const fn set(to: u8, value: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, value)
}

const fn add(to: u8, value: i32) -> Instruction {
    instruction(0x07, to, 0, 0, value)
}

const fn load_word(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x61, to, from, offset, 0)
}

const fn load_half(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x69, to, from, offset, 0)
}

const fn store_word(to: u8, offset: i16, from: u8) -> Instruction {
    instruction(0x63, to, from, offset, 0)
}

const fn store_half_value(to: u8, offset: i16, value: i32) -> Instruction {
    instruction(0x6a, to, 0, offset, value)
}

const fn skip_if_equal(register: u8, value: i32, instructions: i16) -> Instruction {
    instruction(0x15, register, 0, instructions, value)
}

const fn skip_unless_equal(register: u8, value: i32, instructions: i16) -> Instruction {
    instruction(0x55, register, 0, instructions, value)
}

const fn call(helper: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, helper)
}

const EXIT: Instruction = instruction(0x95, 0, 0, 0, 0);

/// Register of the frame pointer.
const STACK: u8 = 10;
/// Numbers of the helpers `bpf_skb_store_bytes` and `bpf_skb_load_bytes`.
const STORE_BYTES: i32 = 9;
const LOAD_BYTES: i32 = 26;
/// Offset of the mark in `struct __sk_buff`.
const MARK: i16 = 8;
/// Offset and length of the source address in the frame, in octets.
const SOURCE: i32 = 6;
const ADDRESS_LENGTH: i32 = 6;
/// Stack offsets of the frame's source address, and of the index within that address. The index is aligned to four octets.
const ADDRESS: i16 = -6;
const INDEX: i16 = -4;
/// `TC_ACT_UNSPEC`: the next filter decides.
const NEXT_FILTER: i32 = -1;
/// `TC_ACT_SHOT`.
const DROP: i32 = 2;

const fn tag() -> i32 {
    u16::from_ne_bytes(TAG) as i32
}

/// Returns a program for the egress of the private namespace. The program writes the packet's mark, unless it is zero, into the
/// frame's source address.
pub(crate) fn stamp() -> Vec<Instruction> {
    vec![
        copy(6, 1),
        load_word(2, 1, MARK),
        skip_if_equal(2, 0, 9),
        store_half_value(STACK, ADDRESS, tag()),
        store_word(STACK, INDEX, 2),
        copy(1, 6),
        set(2, SOURCE),
        copy(3, STACK),
        add(3, ADDRESS as i32),
        set(4, ADDRESS_LENGTH),
        set(5, 0),
        call(STORE_BYTES),
        set(0, NEXT_FILTER),
        EXIT,
    ]
}

/// Returns a program for the ingress of the veth's host end. The program executes `then` for stamped frames only. It loads the
/// frame's tag. If the tag is not [`TAG`], the program skips to its last two instructions.
fn if_stamped(then: &[Instruction]) -> Vec<Instruction> {
    let length = then.len() as i16;
    let mut program = vec![
        copy(6, 1),
        set(2, SOURCE),
        copy(3, STACK),
        add(3, ADDRESS as i32),
        set(4, TAG.len() as i32),
        call(LOAD_BYTES),
        skip_unless_equal(0, 0, length + 2),
        load_half(2, STACK, ADDRESS),
        skip_unless_equal(2, tag(), length),
    ];
    program.extend_from_slice(then);
    program.extend([set(0, NEXT_FILTER), EXIT]);
    program
}

/// Returns a program that sets the packet mark `mark` on stamped frames.
pub(crate) fn mark(mark: u32) -> Vec<Instruction> {
    if_stamped(&[set(2, mark.cast_signed()), store_word(6, MARK, 2)])
}

/// Returns a program that drops stamped frames. The kernel runs this program after the filters that redirect frames to clients'
/// interfaces.
pub(crate) fn drop_stamped() -> Vec<Instruction> {
    if_stamped(&[set(0, DROP), EXIT])
}

/// The part of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct Load {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// Loads a program as a traffic-control classifier. The kernel verifies the program first. Fails with EPERM without CAP_BPF or
/// CAP_SYS_ADMIN.
#[allow(unsafe_code, reason = "a system call that no library offers")]
pub(crate) fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    const BPF_PROG_LOAD: libc::c_int = 5;
    const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
    let load = Load {
        kind: BPF_PROG_TYPE_SCHED_CLS,
        instruction_count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        licence: c"MIT".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: `load`, the instructions and the licence outlive the call. The lengths match them, and the kernel only reads them.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) };
    match i32::try_from(descriptor) {
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every skip stays within its program, and that every program ends with an exit.
    #[test]
    fn no_program_runs_past_its_end() {
        for program in [stamp(), mark(0x0600_0000), drop_stamped()] {
            assert_eq!(program.last(), Some(&EXIT));
            for (place, step) in program.iter().enumerate() {
                if matches!(step.code, 0x15 | 0x55) {
                    assert!(place as i16 + 1 + step.offset < program.len() as i16, "{program:?}");
                }
            }
        }
    }

    #[test]
    fn an_instruction_is_eight_bytes_and_the_attribute_forty_eight() {
        assert_eq!((size_of::<Instruction>(), size_of::<Load>()), (8, 48));
    }
}
