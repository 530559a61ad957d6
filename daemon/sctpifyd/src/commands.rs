//! Commands of the daemon's other threads to the event loop.
//!
//! Begin at [`Handle::ask`].

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use control::{Request, Response};
use intercept::FourTuple;
use keying::{KeyingError, Step};
use mio::Waker;
use sctp::AssociationId;

use crate::archive::ArchiveError;
use crate::capture::Ear;
use crate::rules_store::Draft;
use crate::survey::Question;

/// Limit on the loop's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Commands of other threads to the shard.
pub(crate) enum Command {
    /// Answer this.
    Ask(Request, Sender<Response>),
    /// Answer this, which covers all connections. The host's TCP listeners come with the question: the kernel takes milliseconds
    /// to list them.
    Survey(Question, Sender<Response>),
    /// Put this in force.
    Change(Box<Draft>, Sender<Result<(), String>>),
    /// Count in the rulebook what the kernel let pass.
    Count(Sender<()>),
    /// Capture traffic; the answer is the receiving end, or None if somebody captures already.
    Capture(Sender<Option<Ear>>),
    /// A plain connection outside the enclosed namespace was opened, or failed.
    Opened(FourTuple, io::Result<()>),
    /// Take the steps of a task about an association's keys.
    Keys(AssociationId, Result<Vec<Step>, KeyingError>),
    /// Stop: reset connections over SCTP, release held SYNs, and end.
    Stop,
}

/// Handle by which other threads reach the shard.
#[derive(Clone)]
pub(crate) struct Handle {
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

impl Handle {
    pub(crate) fn new(commands: Sender<Command>, waker: Waker) -> Handle {
        Handle { commands, waker: Arc::new(waker) }
    }

    /// Hands a command over. It is lost if the shard has ended.
    pub(crate) fn send(&self, command: Command) {
        if self.commands.send(command).is_ok()
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "the event loop cannot be woken");
        }
    }

    /// Returns the answer to a command; none if the shard has ended, or takes too long.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = channel();
        self.send(question(reply));
        answer.recv_timeout(ANSWER_LIMIT).ok()
    }

    /// Puts a change in force that is written already.
    pub(crate) fn put_in_force(&self, draft: Draft) -> Result<(), ArchiveError> {
        let outcome = self.ask(|reply| Command::Change(Box::new(draft), reply));
        let none = || {
            Err("written, but the daemon is stopping or overloaded, and has not confirmed the change".into())
        };
        outcome.unwrap_or_else(none).map_err(ArchiveError::Failed)
    }
}
