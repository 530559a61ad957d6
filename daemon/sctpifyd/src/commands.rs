//! Commands that the daemon's other threads send to the shard, which runs the event loop.
//!
//! Begin at [`Handle::ask`].

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use control::{LinkCap, Request, Response};
use intercept::FourTuple;
use keying::{KeyingError, Step};
use mio::Waker;
use sctp::AssociationId;

use crate::archive::ArchiveError;
use crate::capture::Ear;
use crate::rules_store::Draft;
use crate::survey::Question;

/// Limit on the time that a thread waits for the shard's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A command to the shard.
pub(crate) enum Command {
    /// Answer the request.
    Ask(Request, Sender<Response>),
    /// Answer the question, which covers all connections. [`Question::Status`] carries the list of the host's TCP listeners. The asking
    /// thread obtains this list, because the kernel takes milliseconds to produce it.
    Survey(Question),
    /// Apply the draft, which changes rules, settings or keys.
    Change(Box<Draft>, Sender<Result<(), String>>),
    /// Add to the rulebook's counts the connections that the kernel let pass.
    Count(Sender<()>),
    /// Start a capture. The answer is the queue of captured packets, or `None` if another capture is active.
    Capture(Sender<Option<Ear>>),
    /// Note the outcome of a plain TCP connection that the forwarder opened for a command in an enclosed namespace.
    Opened(FourTuple, io::Result<()>),
    /// Apply the steps that a task about an association's keys has computed, or note the failure of the task.
    Keys(AssociationId, Result<Vec<Step>, KeyingError>),
    /// Note the traffic of the links with a cap.
    Caps(Vec<LinkCap>),
    /// Stop: reset connections over SCTP, release held SYNs, and end.
    Stop,
}

/// Handle through which other threads reach the shard.
#[derive(Clone)]
pub(crate) struct Handle {
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

impl Handle {
    pub(crate) fn new(commands: Sender<Command>, waker: Waker) -> Handle {
        Handle { commands, waker: Arc::new(waker) }
    }

    /// Sends a command and wakes the event loop. The command is lost if the shard has ended.
    pub(crate) fn send(&self, command: Command) {
        if self.commands.send(command).is_ok()
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "the event loop cannot be woken");
        }
    }

    /// Sends a command and returns its answer. Returns `None` if the shard has ended or does not answer within [`ANSWER_LIMIT`].
    pub(crate) fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = channel();
        self.send(question(reply));
        answer.recv_timeout(ANSWER_LIMIT).ok()
    }

    /// Applies a change that is already written to disk.
    ///
    /// # Errors
    /// [`ArchiveError::Failed`] if the kernel still follows the old rules, or the shard has not confirmed the change. In both cases the
    /// change stays written.
    pub(crate) fn put_in_force(&self, draft: Draft) -> Result<(), ArchiveError> {
        let outcome = self.ask(|reply| Command::Change(Box::new(draft), reply));
        let none = || {
            Err("written, but the daemon is stopping or overloaded, and has not confirmed the change".into())
        };
        outcome.unwrap_or_else(none).map_err(ArchiveError::Failed)
    }
}
