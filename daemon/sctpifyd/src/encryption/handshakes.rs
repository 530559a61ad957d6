//! The thread of the key handshakes. It runs TLS and waits for signatures while the event loop continues.
//!
//! The event loop sends tasks to the thread, which returns steps as commands. [`super::backlog`] queues tasks until the thread takes them.
//! Begin at [`Handshakes::run`].

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use base::Time;
use keying::{HostKey, KeyingError, Keyring, Session, Sessions, Step, Task};
use sctp::{AssociationId, FIRST_EPOCH, KeyRole, ProtectionTerms};

use crate::archive::Signer;
use crate::commands::{Command, Handle};

/// A task of an association, and the time of the order.
pub(crate) type Order = (Time, AssociationId, Task);

/// The receiver of tasks, before the thread starts.
pub(crate) struct Handshakes {
    orders: Receiver<Order>,
}

impl Handshakes {
    pub(super) fn new(orders: Receiver<Order>) -> Handshakes {
        Handshakes { orders }
    }

    /// Performs tasks until the event loop has ended.
    pub(crate) fn run(self, signer: &Signer, shard: &Handle) {
        let mut sessions = None;
        for (now, association, task) in self.orders {
            let is_last = matches!(task, Task::Forget);
            let outcome = match &mut sessions {
                // The thread has no state of the association.
                None if is_last => continue,
                None => match open(signer) {
                    Ok(opened) => sessions.insert(opened).perform(now, association, task),
                    Err(error) => Err(error),
                },
                Some(sessions) => sessions.perform(now, association, task),
            };
            if !is_last {
                shard.send(Command::Keys(association, outcome));
            }
        }
    }
}

/// Opens the sessions with the host key, which this process or the supervisor holds.
fn open(signer: &Signer) -> Result<Sessions, KeyingError> {
    let public = signer.public().map_err(|error| {
        tracing::warn!(%error, "no host key");
        KeyingError::Keys
    })?;
    let signer = signer.clone();
    let sign = move |content: &[u8]| {
        let signed = signer.sign(content);
        signed.inspect_err(|error| tracing::warn!(%error, "no signature with the host's key")).ok()
    };
    Keyring::with_signer(public, Arc::new(sign)).map(Sessions::new)
}

/// Performs a handshake with itself, which initializes the cryptographic library. Startup calls this function before the process is
/// confined, because the first use of the library takes longer and may need further system calls.
pub(crate) fn warm_up() -> Result<(), KeyingError> {
    let ring = || HostKey::generate().map_err(|_| KeyingError::Keys).and_then(Keyring::new);
    let (a, b) = (ring()?, ring()?);
    let terms = |role| ProtectionTerms { role, method: keying::METHOD, transcript: [0; 32] };
    let (mut client, hello) = Session::client(&a, FIRST_EPOCH, None, None)?;
    let mut server = Session::server(&b, FIRST_EPOCH, None, None)?;
    let answer = server.on_message(&hello, false, &terms(KeyRole::Server))?;
    for answer in answer.iter().filter_map(message) {
        let end = client.on_message(answer, false, &terms(KeyRole::Client))?;
        for end in end.iter().filter_map(message) {
            server.on_message(end, true, &terms(KeyRole::Server))?;
        }
    }
    if server.is_over() { Ok(()) } else { Err(KeyingError::Keys) }
}

fn message(step: &Step) -> Option<&[u8]> {
    match step {
        Step::Send(message) => Some(message),
        Step::Install { .. } | Step::Peer { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_handshake_of_this_host_with_itself_succeeds() {
        assert_eq!(warm_up(), Ok(()));
    }
}
