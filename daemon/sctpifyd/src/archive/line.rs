//! The worker's end of the connection to the supervisor. Several threads may send requests at once. A separate thread receives the answers
//! and notices when the supervisor exits.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keying::PublicKey;

use super::words::{ANSWER_MAX, Answer, Ask, Outcome, Question};
use super::{ArchiveError, Loaded};
use crate::peer_keys::PeerKeys;

/// Time limit for writing a question to the supervisor. The same limit applies to the wait for the answer. The limit allows for a slow
/// disk.
const LIMIT: Duration = Duration::from_secs(5);

/// The end of the connection that sends questions.
pub(crate) struct Line {
    /// Locked while a question is written.
    stream: Mutex<UnixStream>,
    waiting: Arc<Waiting>,
    last_number: AtomicU64,
}

/// Threads that wait for an answer, by the number of their question.
#[derive(Default)]
struct Waiting(Mutex<BTreeMap<u64, Sender<Outcome>>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Sender<Outcome>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of the connection that receives answers.
pub(crate) struct Listener {
    stream: BufReader<UnixStream>,
    waiting: Arc<Waiting>,
}

impl Line {
    pub(super) fn of_standard_input() -> io::Result<(Line, Listener)> {
        Line::new(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
    }

    pub(super) fn new(stream: UnixStream) -> io::Result<(Line, Listener)> {
        stream.set_write_timeout(Some(LIMIT))?;
        let waiting = Arc::new(Waiting::default());
        let listener = Listener { stream: BufReader::new(stream.try_clone()?), waiting: waiting.clone() };
        Ok((Line { stream: Mutex::new(stream), waiting, last_number: AtomicU64::new(0) }, listener))
    }

    /// Sends a request whose only valid answer is [`Outcome::Done`].
    pub(super) fn tell(&self, ask: Ask) -> Result<(), ArchiveError> {
        match self.ask(ask)? {
            Outcome::Done => Ok(()),
            _ => Err(other_answer()),
        }
    }

    pub(super) fn load(&self) -> Result<Loaded, ArchiveError> {
        let Outcome::Loaded { config, rules, keys } = self.ask(Ask::Load)? else {
            return Err(other_answer());
        };
        let settings = control::parse_config(&config).map_err(nonsense)?;
        let mut table = rules::parse_table(&rules).map_err(|(_, error)| nonsense(error))?;
        table.declare(&settings.rules).map_err(nonsense)?;
        let keys = PeerKeys::parse(&settings.peer_keys, &keys).map_err(nonsense)?;
        Ok(Loaded { settings, table, keys })
    }

    /// Returns the public part of the host key.
    pub(super) fn public_key(&self) -> Result<PublicKey, ArchiveError> {
        match self.ask(Ask::HostKey)? {
            Outcome::HostKey(key) => key.as_str().parse().map_err(nonsense),
            _ => Err(other_answer()),
        }
    }

    /// Returns the signature over the content of a handshake.
    pub(super) fn sign(&self, content: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        match self.ask(Ask::Sign { content: content.to_vec() })? {
            Outcome::Signed(signature) => Ok(signature),
            _ => Err(other_answer()),
        }
    }

    fn ask(&self, ask: Ask) -> Result<Outcome, ArchiveError> {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = channel();
        self.waiting.lock().insert(number, sender);
        let outcome =
            self.write(&Question { number, ask }).and_then(|()| answer.recv_timeout(LIMIT).map_err(silent));
        self.waiting.lock().remove(&number);
        match outcome? {
            Outcome::Refused(text) => Err(ArchiveError::Refused(text)),
            Outcome::Failed(text) => Err(ArchiveError::Failed(text)),
            other => Ok(other),
        }
    }

    fn write(&self, question: &Question) -> Result<(), ArchiveError> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        ops::write_line(&mut *stream, question).map_err(|error| {
            // Part of the question may have been sent, so the supervisor could not parse later questions.
            let _ = stream.shutdown(Shutdown::Both);
            silent(error)
        })
    }
}

impl Listener {
    /// Receives answers until the supervisor exits or sends an invalid answer.
    pub(crate) fn run(mut self) {
        while let Ok(Some(answer)) = ops::read_body::<Answer>(&mut self.stream, ANSWER_MAX) {
            // If the asking thread has given up, the answer is discarded.
            if let Some(waiting) = self.waiting.lock().remove(&answer.number) {
                let _ = waiting.send(answer.outcome);
            }
        }
        self.waiting.lock().clear();
    }
}

fn other_answer() -> ArchiveError {
    nonsense("an answer to another request")
}

fn silent(error: impl std::fmt::Display) -> ArchiveError {
    ArchiveError::Failed(format!(
        "the supervisor, which writes the files, does not answer ({error}): restart the daemon"
    ))
}

fn nonsense(what: impl std::fmt::Display) -> ArchiveError {
    ArchiveError::Failed(format!("the supervisor's answer is invalid: {what}"))
}
