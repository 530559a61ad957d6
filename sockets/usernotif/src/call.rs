//! A notified system call, and its fate.

use std::os::fd::OwnedFd;
use std::time::Duration;

use libc::c_int;
use rustix::event::epoll::EventFlags;

use crate::listener::Notice;
use crate::memory::{Memory, Outcome, Span};

/// A call with its program's memory.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) notice: Notice,
    pub(crate) memory: Memory,
    /// The thread may bind privileged ports.
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

    /// Returns an argument that is the length of something.
    pub(crate) fn length(&self, number: usize) -> usize {
        usize::try_from(self.argument(number)).unwrap_or(usize::MAX)
    }

    /// Returns a buffer and its length.
    pub(crate) fn span(&self, at: usize, length: usize) -> Span {
        Span { at: self.argument(at), length: self.length(length) }
    }
}

/// The fate of a call.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It ends with a result, or with errno.
    Answer(Outcome),
    /// The kernel does it.
    Pass,
    /// It ends with a new descriptor of this number.
    Give { fd: OwnedFd, number: u32, is_cloexec: bool },
    /// It waits.
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
    /// The socket, of which the kernel, too, would hold a reference; or the connection to the server.
    pub(crate) fd: OwnedFd,
    /// The inode of the socket.
    pub(crate) inode: u64,
    pub(crate) events: EventFlags,
    /// The time limit of the socket, and the call's outcome after it.
    pub(crate) limit: Option<(Duration, Outcome)>,
    pub(crate) then: Then,
    /// Errno of the call if a signal ends it; `None`: it begins again if the signal's action wants that (`SA_RESTART`).
    pub(crate) interrupted: Option<c_int>,
}

impl Wait {
    /// Returns the result of the call if a part of it is done: a signal or a time limit then ends it with that.
    pub(crate) fn done(&self) -> Option<i64> {
        match self.then {
            Then::Again { done } if done > 0 => i64::try_from(done).ok(),
            Then::Sent(length) => Some(length),
            _ => None,
        }
    }
}

/// The step that follows the events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// The call is tried again. So many messages of it are done.
    Again { done: u64 },
    /// The association with this identifier is up or has failed.
    Connected(c_int, Tell),
    /// The server tells the association's identifier, or the error.
    Attempted(Tell),
    /// The server tells that an association is up. The message that has begun it is sent: the call ends with its length.
    Sent(i64),
}

impl Then {
    /// A call that begins.
    pub(crate) const BEGIN: Then = Then::Again { done: 0 };
}

/// How a program hears of the identifier of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tell {
    /// Not: connect(2).
    Nothing,
    /// As the result (`SCTP_SOCKOPT_CONNECTX`).
    Result,
    /// In the option's value (`SCTP_SOCKOPT_CONNECTX3`).
    Value,
}

impl Tell {
    /// Tells the identifier, and returns the call's result.
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
