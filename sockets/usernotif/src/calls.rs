//! Execution of the system calls of which the kernel notifies the supervisor, on behalf of the programs that make the calls.

use std::io::Write;

use sockclient::behalf;
use sockproto::Operation;

use crate::call::{Call, Then, Verdict, Wait};
use crate::listener::Notice;
use crate::memory::{Memory, Outcome};
use crate::programs::{Programs, copy_socket, is_in_own_network, may_bind_low, may_look_at};
use crate::sockets::{Copied, Socket, Sockets};
use crate::{filter, messages, setup};

/// Flags that socket(2) and accept4(2) accept.
const FLAGS: i32 = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

/// State that the supervisor keeps between calls.
#[derive(Default)]
pub(crate) struct Calls {
    programs: Programs,
    sockets: Sockets,
    has_warned: bool,
}

impl Calls {
    /// Executes a call, or decides that it waits.
    pub(crate) fn handle(&mut self, notice: Notice, is_waiting: impl Fn() -> bool) -> Verdict {
        if notice.call == libc::SYS_socket {
            return self.open(&notice).into();
        }
        let fd = match notice.call {
            libc::SYS_splice if notice.int(0).cast_unsigned() < filter::FIRST_DESCRIPTOR => notice.int(2),
            _ => notice.int(0),
        };
        let copied = copy_socket(&self.sockets, notice.thread, fd.cast_unsigned());
        let copy = match copied {
            Ok(Some(copy)) => copy,
            Ok(None) => return Verdict::Pass,
            Err(error) => {
                self.warn_of(error);
                return Verdict::Answer(Err(error));
            }
        };
        let memory = match Memory::of(notice.thread) {
            Ok(memory) => memory,
            Err(error) => return Verdict::Answer(Err(error)),
        };
        // Only these two calls can bind a socket to a privileged port.
        let may_bind_low =
            matches!(notice.call, libc::SYS_bind | libc::SYS_setsockopt) && may_bind_low(notice.thread);
        // The copy, the memory and the rights must belong to the thread that waits, and not to a later thread with the same number.
        if !is_waiting() {
            return Verdict::Answer(Err(libc::EINTR));
        }
        match Socket::adopt(copy, &mut self.sockets) {
            Some(socket) => {
                dispatch(&Call { notice, memory, may_bind_low }, socket, &mut self.programs, Then::BEGIN)
            }
            None => Verdict::Answer(Err(libc::EBADF)),
        }
    }

    /// Executes `socket(2)`.
    fn open(&mut self, notice: &Notice) -> Outcome<Verdict> {
        let (domain, kind) = (notice.int(0), notice.int(1));
        if kind & !(0xf | FLAGS) != 0 {
            return Err(libc::EINVAL);
        }
        // If the supervisor may not access the thread, the supervisor cannot execute later calls on the socket. The error is therefore the
        // error of a kernel without SCTP.
        may_look_at(notice.thread).map_err(|error| {
            self.warn_of(error);
            libc::EPROTONOSUPPORT
        })?;
        // The server creates sockets in its own network namespace, so a thread in another network namespace gets no socket.
        if !is_in_own_network(notice.thread) {
            return Err(libc::ENETDOWN);
        }
        let number = self.programs.free_number(notice.thread, 0)?;
        let (fd, facts) = behalf::open(domain, kind)?;
        self.sockets.note(&fd, facts)?;
        Ok(Verdict::Give { fd, number, is_cloexec: kind & libc::SOCK_CLOEXEC != 0 })
    }

    /// Warns once that a program cannot be accessed. A separate thread writes the warning, because a write to standard error may wait for
    /// its reader.
    fn warn_of(&mut self, error: i32) {
        if error == libc::EPERM && !std::mem::replace(&mut self.has_warned, true) {
            // If the thread cannot be started, the warning is lost.
            let thread = std::thread::Builder::new();
            let _ = thread.spawn(|| {
                let _ = writeln!(
                    std::io::stderr(),
                    "sctpify: a program has given up the right to be looked at (PR_SET_DUMPABLE, or another user), and gets no \
                     SCTP sockets: run sctpify as root"
                );
            });
        }
    }

    /// Continues a call that has waited. Its thread must still wait for the answer.
    pub(crate) fn resume(&mut self, wait: Wait) -> Verdict {
        let Wait { call, fd, inode, then, .. } = wait;
        if let Then::Sent(length) = then {
            return Verdict::Answer(Ok(length));
        }
        if let Then::Attempted(tell) = then {
            return Verdict::Answer(behalf::end_attempt(fd).and_then(|id| tell.tell(&call, id)));
        }
        let Some(socket) = Socket::adopt(Copied { fd, inode }, &mut self.sockets) else {
            return Verdict::Answer(Err(libc::EBADF));
        };
        match then {
            Then::Connected(id, tell) => {
                let finished = behalf::finish_connect(socket.number());
                Verdict::Answer(finished.and_then(|()| tell.tell(&call, id)))
            }
            _ => dispatch(&call, socket, &mut self.programs, then),
        }
    }
}

fn dispatch(call: &Call, socket: Socket<'_>, programs: &mut Programs, then: Then) -> Verdict {
    let fd = socket.number();
    let done = if let Then::Again { done } = then { done } else { 0 };
    let outcome = match call.notice.call {
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_preadv2
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg => return messages::receive(call, socket, done),
        libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_pwritev2
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg => return messages::send(call, socket, done),
        libc::SYS_accept => return setup::accept(call, socket, programs, 0),
        libc::SYS_accept4 if call.int(3) & !FLAGS != 0 => Err(libc::EINVAL),
        libc::SYS_accept4 => return setup::accept(call, socket, programs, call.int(3)),
        libc::SYS_connect => return setup::connect(call, socket),
        libc::SYS_setsockopt => return setup::set_option(call, socket),
        libc::SYS_getsockopt => return setup::option(call, socket, programs),
        libc::SYS_dup | libc::SYS_fcntl => return setup::duplicate(call, &socket, programs),
        libc::SYS_bind => setup::bind(call, &socket),
        libc::SYS_listen => behalf::listen(fd, call.int(1)),
        libc::SYS_shutdown => behalf::shutdown(fd, call.int(1)),
        libc::SYS_getsockname => setup::tell_name(call, behalf::name(fd, Operation::LocalName)),
        libc::SYS_getpeername => setup::tell_name(call, behalf::name(fd, Operation::PeerName)),
        libc::SYS_ioctl => behalf::unread(fd).and_then(|length| {
            call.memory.write(call.argument(2), &length.to_ne_bytes())?;
            Ok(0)
        }),
        // These calls would pass bytes without the headers of the server's protocol.
        libc::SYS_sendfile | libc::SYS_splice => Err(libc::EINVAL),
        // The call is dup2(2) or dup3(2).
        _ => return setup::replace(call, &socket),
    };
    Verdict::Answer(outcome.map(i64::from))
}
