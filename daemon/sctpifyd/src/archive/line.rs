//! The worker's end. It asks one question at a time; a separate thread receives the answers and notices when
//! the supervisor exits.

use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::words::{ANSWER_MAX, Answer, Ask, Outcome, Question};
use super::{ArchiveError, Loaded};
use crate::peer_keys::PeerKeys;

/// Time limit for the supervisor to accept a question, and again to answer it: a disk may be slow.
const LIMIT: Duration = Duration::from_secs(5);

/// The sending side for questions.
pub(crate) struct Line {
    talk: Mutex<Talk>,
}

struct Talk {
    stream: UnixStream,
    answers: Receiver<Answer>,
    number: u64,
}

/// The receiving side for answers.
pub(crate) struct Listener {
    stream: BufReader<UnixStream>,
    answers: Sender<Answer>,
}

impl Line {
    pub(super) fn of_standard_input() -> io::Result<(Line, Listener)> {
        Line::new(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
    }

    pub(super) fn new(stream: UnixStream) -> io::Result<(Line, Listener)> {
        stream.set_write_timeout(Some(LIMIT))?;
        let (sender, answers) = channel();
        let listener = Listener { stream: BufReader::new(stream.try_clone()?), answers: sender };
        Ok((Line { talk: Mutex::new(Talk { stream, answers, number: 0 }) }, listener))
    }

    /// Asks for something whose only answer is that it is done.
    pub(super) fn tell(&self, ask: Ask) -> Result<(), ArchiveError> {
        match self.ask(ask)? {
            Outcome::Done => Ok(()),
            _ => Err(nonsense("an answer to another request")),
        }
    }

    pub(super) fn load(&self) -> Result<Loaded, ArchiveError> {
        let Outcome::Loaded { config, rules, keys } = self.ask(Ask::Load)? else {
            return Err(nonsense("an answer to another request"));
        };
        let settings = control::parse_config(&config).map_err(nonsense)?;
        let table = rules::parse_table(&rules).map_err(|(_, error)| nonsense(error))?;
        let keys = PeerKeys::parse(&settings.peer_keys, &keys).map_err(nonsense)?;
        Ok(Loaded { settings, table, keys })
    }

    fn ask(&self, ask: Ask) -> Result<Outcome, ArchiveError> {
        let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        match talk.ask(ask)? {
            Outcome::Refused(text) => Err(ArchiveError::Refused(text)),
            Outcome::Failed(text) => Err(ArchiveError::Failed(text)),
            other => Ok(other),
        }
    }
}

impl Talk {
    fn ask(&mut self, ask: Ask) -> Result<Outcome, ArchiveError> {
        self.number += 1;
        let number = self.number;
        if let Err(error) = ops::write_line(&mut self.stream, &Question { number, ask }) {
            // Half a question may have been sent: nothing after it would be understood.
            let _ = self.stream.shutdown(Shutdown::Both);
            return Err(silent(error));
        }
        loop {
            match self.answers.recv_timeout(LIMIT) {
                Ok(answer) if answer.number == number => return Ok(answer.outcome),
                // Answers a question that was given up.
                Ok(_) => {}
                Err(error) => return Err(silent(error)),
            }
        }
    }
}

impl Listener {
    /// Receives answers until the supervisor exits or sends something invalid.
    pub(crate) fn run(mut self) {
        while let Ok(Some(answer)) = ops::read_body::<Answer>(&mut self.stream, ANSWER_MAX) {
            if self.answers.send(answer).is_err() {
                return;
            }
        }
    }
}

fn silent(error: impl std::fmt::Display) -> ArchiveError {
    ArchiveError::Failed(format!(
        "the supervisor, which writes the files, does not answer ({error}): restart the daemon"
    ))
}

fn nonsense(what: impl std::fmt::Display) -> ArchiveError {
    ArchiveError::Failed(format!("the supervisor's answer is invalid: {what}"))
}
