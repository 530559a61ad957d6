//! A program's system call of which the kernel notifies the supervisor, and the possible outcomes of the call.

use std::os::fd::OwnedFd;
use std::time::Duration;

use libc::c_int;
use rustix::event::epoll::EventFlags;

use crate::listener::Notice;
use crate::memory::{Memory, Outcome, Span};

/// A system call, with the memory of its program.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) notice: Notice,
    pub(crate) memory: Memory,
    /// True if the call can bind a privileged port, and the thread has the right to bind privileged ports.
    pub(crate) may_bind_low: bool,
}

impl Call {
    pub(crate) fn argument(&self, number: usize) -> u64 {
        self.notice.arguments[number]
    }

    /// Returns an argument of type `int`.
    pub(crate) fn int(&self, number: usize) -> c_int {
        self.notice.int(number)
    }

    /// Returns an argument of type `unsigned int`.
    pub(crate) fn unsigned(&self, number: usize) -> u32 {
        self.int(number).cast_unsigned()
    }

    /// Returns an argument of type `size_t`.
    pub(crate) fn length(&self, number: usize) -> usize {
        usize::try_from(self.argument(number)).unwrap_or(usize::MAX)
    }

    /// Returns the buffer whose address and length are in these arguments.
    pub(crate) fn span(&self, at: usize, length: usize) -> Span {
        Span { at: self.argument(at), length: self.length(length) }
    }
}

/// Outcome of a call.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The call ends with a result, or with errno.
    Answer(Outcome),
    /// The kernel executes the call.
    Pass,
    /// The program gets descriptor `number`, and the call ends with this number as its result.
    Give { fd: OwnedFd, number: u32, is_cloexec: bool },
    /// The call waits.
    Park(Box<Wait>),
}

impl From<Outcome<Verdict>> for Verdict {
    fn from(verdict: Outcome<Verdict>) -> Verdict {
        verdict.unwrap_or_else(|error| Verdict::Answer(Err(error)))
    }
}

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) call: Call,
    /// Copy of the socket's descriptor, or the connection to the server. The copy keeps the socket open while the call waits. The kernel
    /// does the same for the calls that it executes: it holds a reference to the socket.
    pub(crate) fd: OwnedFd,
    /// Inode of the socket; 0 for a connection to the server.
    pub(crate) inode: u64,
    pub(crate) events: EventFlags,
    /// Time limit of the socket, and the call's outcome after this time.
    pub(crate) limit: Option<(Duration, Outcome)>,
    pub(crate) then: Then,
    /// Errno of the call if a signal ends it. `None`: the call begins again if the signal's action requests it (`SA_RESTART`).
    pub(crate) interrupted: Option<c_int>,
}

impl Wait {
    /// Returns the result of a call that is partly done. If a signal or a time limit ends the call, this is its result.
    pub(crate) fn done(&self) -> Option<i64> {
        match self.then {
            Then::Again { done } if done > 0 => i64::try_from(done).ok(),
            Then::Sent(length) => Some(length),
            _ => None,
        }
    }
}

/// Step that follows the awaited events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// The call is tried again. `done` of its messages are complete.
    Again { done: u64 },
    /// The association with this identifier is established or has failed.
    Connected(c_int, Tell),
    /// The server has reported the association's identifier, or an error.
    Attempted(Tell),
    /// The server has reported that an association is established. The message that began the association has been sent, so the call ends
    /// with the length of this message.
    Sent(i64),
}

impl Then {
    /// Step of a call that has not waited yet.
    pub(crate) const BEGIN: Then = Then::Again { done: 0 };
}

/// Way in which a program learns the identifier of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tell {
    /// The program does not learn the identifier: connect(2).
    Nothing,
    /// As the result (`SCTP_SOCKOPT_CONNECTX`).
    Result,
    /// In the option's value (`SCTP_SOCKOPT_CONNECTX3`).
    Value,
}

impl Tell {
    /// Passes the identifier to the program, and returns the call's result.
    pub(crate) fn tell(self, call: &Call, id: c_int) -> Outcome {
        match self {
            Tell::Nothing => Ok(0),
            Tell::Result => Ok(id.into()),
            Tell::Value => {
                call.memory.write(call.argument(3), &id.to_ne_bytes())?;
                call.memory.write(call.argument(4), &4_u32.to_ne_bytes())?;
                Ok(0)
            }
        }
    }
}
