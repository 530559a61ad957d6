//! The seccomp filter, which selects the system calls that the supervisor is notified of.
//!
//! A filter sees descriptor numbers, not files. The sockets that the supervisor provides therefore have descriptors from
//! [`FIRST_DESCRIPTOR`] on, where programs seldom have other files. Calls on lower descriptors run at full speed.

use std::collections::HashMap;

use libc::{c_long, sock_filter};

/// Lowest descriptor of a socket that the supervisor provides.
pub(crate) const FIRST_DESCRIPTOR: u32 = 512;

/// Offset of the system call's number in `struct seccomp_data`.
const NUMBER: u32 = 0;
/// Offset of the architecture in `struct seccomp_data`.
const ARCHITECTURE: u32 = 4;

/// Returns the offset of an argument's lower half. The kernel uses only this half of the examined arguments, as an `int`.
const fn argument(number: u32) -> u32 {
    16 + 8 * number
}

#[cfg(target_arch = "x86_64")]
const OWN_ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN_ARCHITECTURE: u32 = 0xc000_00b7;

/// Calls whose first argument is the descriptor.
const ON_DESCRIPTOR: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_preadv2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwritev2,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendfile,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_dup,
    libc::SYS_dup3,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
];

/// Target of a jump.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Label {
    Socket,
    Descriptor,
    FileControl,
    DeviceControl,
    Splice,
    Refuse,
    Notify,
    Allow,
    Next(u8),
}

/// A filter under construction.
#[derive(Default)]
struct Program {
    instructions: Vec<sock_filter>,
    /// Positions of the instructions that jump if their comparison is true, with the labels of the targets.
    jumps: Vec<(usize, Label)>,
    places: HashMap<Label, usize>,
}

impl Program {
    fn put(&mut self, code: u32, value: u32) {
        let code = u16::try_from(code).unwrap_or(0);
        self.instructions.push(sock_filter { code, jt: 0, jf: 0, k: value });
    }

    fn load(&mut self, offset: u32) {
        self.put(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    }

    fn and(&mut self, mask: u32) {
        self.put(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask);
    }

    fn finish(&mut self, action: u32) {
        self.put(libc::BPF_RET | libc::BPF_K, action);
    }

    /// Adds a jump that is taken if the loaded value equals `value`.
    fn if_equal(&mut self, value: u32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value);
    }

    /// Adds a jump that is taken if the loaded value is `value` or greater.
    fn if_at_least(&mut self, value: u32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.put(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, value);
    }

    fn label(&mut self, label: Label) {
        self.places.insert(label, self.instructions.len());
    }

    /// Adds a check of argument `number`. If the argument may be the descriptor of an SCTP socket, the supervisor is notified of the call.
    /// Otherwise the filter continues with the next instruction.
    fn notify_of(&mut self, number: u32, next: u8) {
        self.load(argument(number));
        // Negative numbers are not descriptors.
        self.if_at_least(1 << 31, Label::Next(next));
        self.if_at_least(FIRST_DESCRIPTOR, Label::Notify);
        self.label(Label::Next(next));
    }

    /// Fills in the distances of the jumps, and returns the instructions.
    fn resolve(mut self) -> Vec<sock_filter> {
        for (at, label) in &self.jumps {
            let distance = self.places.get(label).and_then(|place| place.checked_sub(at + 1));
            // Each distance fits: the filter has fewer than 256 instructions and only jumps forward. The tests execute each jump.
            self.instructions[*at].jt =
                distance.and_then(|distance| u8::try_from(distance).ok()).unwrap_or(0);
        }
        self.instructions
    }
}

/// Returns a system call's number in the form that filters compare.
fn number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

/// Returns an `int` in the form that filters compare.
fn word(value: i32) -> u32 {
    value.cast_unsigned()
}

/// Returns the filter. The filter does not notify the supervisor of calls of another architecture (32 bits), so programs of that
/// architecture get no SCTP sockets from the supervisor.
pub(crate) fn program() -> Vec<sock_filter> {
    let mut filter = Program::default();
    filter.load(ARCHITECTURE);
    filter.if_equal(OWN_ARCHITECTURE, Label::Next(0));
    filter.finish(libc::SECCOMP_RET_ALLOW);
    filter.label(Label::Next(0));
    filter.load(NUMBER);
    for call in ON_DESCRIPTOR {
        filter.if_equal(number(*call), Label::Descriptor);
    }
    filter.if_equal(number(libc::SYS_socket), Label::Socket);
    filter.if_equal(number(libc::SYS_fcntl), Label::FileControl);
    filter.if_equal(number(libc::SYS_ioctl), Label::DeviceControl);
    filter.if_equal(number(libc::SYS_splice), Label::Splice);
    // io_uring is refused, because its operations would bypass the filter.
    filter.if_equal(number(libc::SYS_io_uring_setup), Label::Refuse);
    filter.finish(libc::SECCOMP_RET_ALLOW);

    filter.label(Label::Socket);
    filter.load(argument(0));
    filter.if_equal(word(libc::AF_INET), Label::Next(1));
    filter.if_equal(word(libc::AF_INET6), Label::Next(1));
    filter.finish(libc::SECCOMP_RET_ALLOW);
    filter.label(Label::Next(1));
    filter.load(argument(2));
    filter.if_equal(word(libc::IPPROTO_SCTP), Label::Next(2));
    // SOCK_SEQPACKET means SCTP, even without a protocol.
    filter.if_equal(0, Label::Next(3));
    filter.finish(libc::SECCOMP_RET_ALLOW);
    filter.label(Label::Next(2));
    filter.load(argument(1));
    filter.and(0xf);
    filter.if_equal(word(libc::SOCK_STREAM), Label::Notify);
    filter.label(Label::Next(3));
    filter.load(argument(1));
    filter.and(0xf);
    filter.if_equal(word(libc::SOCK_SEQPACKET), Label::Notify);
    filter.finish(libc::SECCOMP_RET_ALLOW);

    filter.label(Label::FileControl);
    filter.load(argument(1));
    filter.if_equal(word(libc::F_DUPFD), Label::Descriptor);
    filter.if_equal(word(libc::F_DUPFD_CLOEXEC), Label::Descriptor);
    filter.finish(libc::SECCOMP_RET_ALLOW);

    filter.label(Label::DeviceControl);
    filter.load(argument(1));
    filter.if_equal(FIONREAD, Label::Descriptor);
    filter.finish(libc::SECCOMP_RET_ALLOW);

    filter.label(Label::Splice);
    filter.notify_of(2, 4);
    filter.label(Label::Descriptor);
    filter.notify_of(0, 5);
    filter.label(Label::Allow);
    filter.finish(libc::SECCOMP_RET_ALLOW);
    filter.label(Label::Notify);
    filter.finish(libc::SECCOMP_RET_USER_NOTIF);
    filter.label(Label::Refuse);
    filter.finish(libc::SECCOMP_RET_ERRNO | word(libc::ENOSYS));
    filter.resolve()
}

/// The request of `ioctl(2)` for the number of unread bytes.
#[allow(clippy::cast_possible_truncation, reason = "it is a number of 16 bits")]
pub(crate) const FIONREAD: u32 = libc::FIONREAD as u32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel does.
    fn run(architecture: u32, call: c_long, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(number(call).to_ne_bytes());
        data.extend(architecture.to_ne_bytes());
        data.extend(0_u64.to_ne_bytes());
        arguments.iter().for_each(|argument| data.extend(argument.to_ne_bytes()));
        let program = program();
        let (mut at, mut value) = (0, 0);
        loop {
            let it = program[at];
            at += 1;
            let code = u32::from(it.code);
            if code == libc::BPF_RET | libc::BPF_K {
                return it.k;
            } else if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS {
                let offset = it.k as usize;
                value = u32::from_ne_bytes(data[offset..offset + 4].try_into().unwrap());
            } else if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K {
                value &= it.k;
            } else {
                let is_true = if code & 0xf0 == libc::BPF_JEQ { value == it.k } else { value >= it.k };
                at += usize::from(if is_true { it.jt } else { it.jf });
            }
        }
    }

    fn of(call: c_long, arguments: &[i64]) -> u32 {
        let mut all = [0; 6];
        for (place, argument) in all.iter_mut().zip(arguments) {
            *place = argument.cast_unsigned();
        }
        run(OWN_ARCHITECTURE, call, all)
    }

    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

    #[test]
    fn only_the_creation_of_sctp_sockets_notifies_the_supervisor() {
        let (stream, packets) = (i64::from(libc::SOCK_STREAM), i64::from(libc::SOCK_SEQPACKET));
        let cloexec = i64::from(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
        for family in [2, 10] {
            assert_eq!(of(libc::SYS_socket, &[family, stream, 132]), NOTIFY);
            assert_eq!(of(libc::SYS_socket, &[family, packets | cloexec, 132]), NOTIFY);
            assert_eq!(of(libc::SYS_socket, &[family, packets, 0]), NOTIFY);
            assert_eq!(of(libc::SYS_socket, &[family, stream, 0]), ALLOW);
            assert_eq!(of(libc::SYS_socket, &[family, stream, 6]), ALLOW);
            assert_eq!(of(libc::SYS_socket, &[family, 2, 132]), ALLOW);
            assert_eq!(of(libc::SYS_socket, &[family, 3, 132]), ALLOW);
        }
        assert_eq!(of(libc::SYS_socket, &[1, packets, 0]), ALLOW);
        assert_eq!(of(libc::SYS_socket, &[99, stream, 132]), ALLOW);
    }

    #[test]
    fn only_calls_on_high_descriptors_notify_the_supervisor() {
        for call in ON_DESCRIPTOR {
            assert_eq!(of(*call, &[511]), ALLOW);
            assert_eq!(of(*call, &[512]), NOTIFY);
            assert_eq!(of(*call, &[-1]), ALLOW);
            // The kernel ignores the upper half.
            assert_eq!(of(*call, &[1 << 32 | 512]), NOTIFY);
            assert_eq!(of(*call, &[1 << 32 | 3]), ALLOW);
        }
        assert_eq!(of(libc::SYS_close, &[512]), ALLOW);
        assert_eq!(of(libc::SYS_splice, &[3, 0, 512]), NOTIFY);
        assert_eq!(of(libc::SYS_splice, &[512, 0, 3]), NOTIFY);
        assert_eq!(of(libc::SYS_splice, &[3, 0, 4]), ALLOW);
        assert_eq!(of(libc::SYS_fcntl, &[512, 0]), NOTIFY);
        assert_eq!(of(libc::SYS_fcntl, &[512, 1030]), NOTIFY);
        assert_eq!(of(libc::SYS_fcntl, &[512, 4]), ALLOW);
        assert_eq!(of(libc::SYS_fcntl, &[3, 0]), ALLOW);
        assert_eq!(of(libc::SYS_ioctl, &[512, i64::from(FIONREAD)]), NOTIFY);
        assert_eq!(of(libc::SYS_ioctl, &[512, 0x5421]), ALLOW);
    }

    #[test]
    fn io_uring_is_refused_and_other_architectures_pass() {
        assert_eq!(of(libc::SYS_io_uring_setup, &[8, 0]), libc::SECCOMP_RET_ERRNO | word(libc::ENOSYS));
        // The architecture is AUDIT_ARCH_I386.
        assert_eq!(run(0x4000_0003, libc::SYS_socket, [2, 1, 132, 0, 0, 0]), ALLOW);
    }
}
