//! The control socket, which the commands of `sctpify-sip` query, such as `status`, `contacts`, `dialogs` and `trace`.
//!
//! The socket carries lines of JSON, as sctpifyd's control socket does (`ops::write_line`). [`crate::words`] defines the contents of the
//! lines. The socket belongs to the user and the group of the proxy's process. Its mode is 0660 from the start, because a umask is set
//! before bind. Each client that may open the socket can read counts and lists. Only root and the proxy's own user can trace messages,
//! because messages contain private communication. The kernel reports the client's user (SO_PEERCRED).
//!
//! Each client has a thread, and up to [`SERVED_MAX`] clients are served at once. The thread waits up to [`CLIENT_LIMIT`] for each line.
//! The event loop answers questions between two turns. Begin with [`ControlSocket::open`] for the proxy and [`ask`] for the commands.

use std::fs;
use std::io::{self, BufReader, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use mio::{Registry, Token, Waker};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Uid, geteuid};
use ops::{LineError, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, Part, read_body, write_line};

use crate::error::SipError;
use crate::trace::{Ear, Filter};
use crate::whole::whole;
use crate::words::{Answer, Question, Wanted};

/// Token of the waker that other threads use for questions and results. It is distinct from the plug-ins' tokens.
pub(crate) const QUESTIONS: Token = Token(usize::MAX - 1);
/// Time limit for each line of a client, and for the loop's answer to a question.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);
/// Limit on clients served at once.
const SERVED_MAX: usize = 16;
/// Limit on waiting questions. It exceeds the number of questions that the clients of this socket and of the page can ask at once.
pub(crate) const ASKED_MAX: usize = 64;

/// A question for the event loop, with the channel for its answer.
pub(crate) enum Asked {
    /// A read-only question.
    Look(Question, SyncSender<Answer>),
    /// A request for a queue of traced messages. The answer is `None` if too many traces are running.
    Listen(SyncSender<Option<Ear>>),
}

/// Handle for submitting questions to the event loop.
#[derive(Clone)]
pub(crate) struct Desk {
    to_loop: SyncSender<Asked>,
    waker: Arc<Waker>,
}

impl Desk {
    /// Creates a desk, and the receiver of its questions for the loop. [`QUESTIONS`] becomes ready with each question.
    ///
    /// # Errors
    /// If the kernel cannot create a waker.
    pub(crate) fn open(registry: &Registry) -> io::Result<(Desk, Receiver<Asked>)> {
        let waker = Arc::new(Waker::new(registry, QUESTIONS)?);
        let (to_loop, asked) = sync_channel(ASKED_MAX);
        Ok((Desk { to_loop, waker }, asked))
    }

    /// Returns the waker that makes [`QUESTIONS`] ready.
    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Returns the loop's answer to a read-only question. A whole list is assembled from several answers.
    ///
    /// # Errors
    /// If the proxy is stopping, if [`ASKED_MAX`] questions already wait, or if an answer takes longer than [`CLIENT_LIMIT`].
    pub(crate) fn look(&self, question: Question) -> io::Result<Answer> {
        let (kind, part): (fn(Part) -> Question, &Part) = match &question {
            Question::Contacts(part) => (Question::Contacts, part),
            Question::Dialogs(part) => (Question::Dialogs, part),
            Question::Connections(part) => (Question::Connections, part),
            Question::Status | Question::Performance | Question::Trace(_) => return self.look_once(question),
        };
        if part.is_whole() {
            whole(part, |piece| self.look_once(kind(piece)))
        } else {
            self.look_once(question)
        }
    }

    fn look_once(&self, question: Question) -> io::Result<Answer> {
        self.ask(|back| Asked::Look(question, back))
    }

    fn ask<T>(&self, question: impl FnOnce(SyncSender<T>) -> Asked) -> io::Result<T> {
        let stopped = || io::Error::new(ErrorKind::NotConnected, "the proxy is stopping or overloaded");
        let (back, answer) = sync_channel(1);
        self.to_loop.try_send(question(back)).map_err(|_| stopped())?;
        self.waker.wake()?;
        answer.recv_timeout(CLIENT_LIMIT).map_err(|_| stopped())
    }
}

/// The listening control socket.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    desk: Desk,
}

impl ControlSocket {
    /// Creates the socket, and replaces the file of a proxy that no longer runs.
    ///
    /// # Errors
    /// If a running proxy uses the path, or the socket cannot be created.
    pub(crate) fn open(path: &Path, desk: Desk) -> Result<ControlSocket, SipError> {
        let failed = |source| SipError::Control { path: path.to_owned(), source };
        Ok(ControlSocket { listener: bind(path).map_err(failed)?, desk })
    }

    /// Serves clients until the process ends.
    pub(crate) fn run(self) {
        let served = Arc::new(AtomicUsize::new(0));
        for stream in self.listener.incoming().flatten() {
            let (slot, desk) = (Slot(served.clone()), self.desk.clone());
            if slot.0.fetch_add(1, Ordering::Relaxed) >= SERVED_MAX {
                tracing::warn!("too many control connections: one is refused");
                continue;
            }
            let serve = move || {
                let _slot = slot;
                if let Err(error) = serve(&stream, &desk) {
                    tracing::debug!(%error, "a client of the control socket");
                }
            };
            // If no thread can be started, the client's connection is closed and its slot becomes free.
            let _ = std::thread::Builder::new().name("control client".to_owned()).spawn(serve);
        }
    }
}

/// A place among the [`SERVED_MAX`] clients that are served at once.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(ErrorKind::AddrInUse, "another proxy uses it"));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let before = umask(Mode::from_bits_truncate(0o117));
    let listener = UnixListener::bind(path);
    umask(before);
    listener
}

/// Answers one client until it disconnects.
fn serve(stream: &UnixStream, desk: &Desk) -> Result<(), LineError> {
    stream.set_read_timeout(Some(CLIENT_LIMIT))?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let caller = getsockopt(stream, PeerCredentials).map_err(io::Error::from)?;
    let caller = Uid::from_raw(caller.uid());
    let mut from = BufReader::new(stream);
    while let Some(question) = read_body::<Question>(&mut from, MAX_REQUEST_BYTES)? {
        match question {
            Question::Trace(wanted) => return trace(stream, desk, caller, &wanted),
            question => write_line(&mut &*stream, &desk.look(question)?)?,
        }
    }
    Ok(())
}

/// Reports whether the user `caller` may see messages. `own` is the proxy's user.
fn may_trace(caller: Uid, own: Uid) -> bool {
    caller.is_root() || caller == own
}

fn trace(stream: &UnixStream, desk: &Desk, caller: Uid, wanted: &Wanted) -> Result<(), LineError> {
    let refuse = |reason: String| write_line(&mut &*stream, &Answer::Refused { reason });
    if !may_trace(caller, geteuid()) {
        return refuse(format!("user {caller} may not trace messages: run this as root"));
    }
    let filter = match Filter::new(wanted) {
        Ok(filter) => filter,
        Err(reason) => return refuse(reason),
    };
    let Some(ear) = desk.ask(Asked::Listen)? else {
        return refuse("too many traces are running: stop one first".to_owned());
    };
    write_line(&mut &*stream, &Answer::Tracing)?;
    Ok(ear.write_to(stream, &filter)?)
}

/// Asks a running proxy. Also returns the connection, which may carry data after the answer.
///
/// # Errors
/// If no proxy answers at `path`, or the proxy refuses.
pub(crate) fn ask(path: &Path, question: &Question) -> Result<(Answer, BufReader<UnixStream>), SipError> {
    let failed = |source| SipError::Control { path: path.to_owned(), source };
    let stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(2 * CLIENT_LIMIT)).map_err(failed)?;
    let asked = write_line(&mut &stream, question);
    let mut from = BufReader::new(stream);
    match asked.and_then(|()| read_body(&mut from, MAX_RESPONSE_BYTES)) {
        Ok(Some(Answer::Refused { reason })) => {
            Err(failed(io::Error::new(ErrorKind::PermissionDenied, reason)))
        }
        Ok(Some(answer)) => Ok((answer, from)),
        Ok(None) => Err(failed(io::Error::new(ErrorKind::UnexpectedEof, "it was closed before an answer"))),
        Err(error) => Err(failed(io::Error::other(error))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use mio::{Events, Poll};

    use super::*;

    #[test]
    fn the_event_loop_answers_questions_over_a_socket_with_mode_0660() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        drop(UnixListener::bind(&path).unwrap());
        let mut poll = Poll::new().unwrap();
        let (desk, asked) = Desk::open(poll.registry()).unwrap();
        let socket = ControlSocket::open(&path, desk.clone()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        std::thread::spawn(move || socket.run());
        let asking = std::thread::spawn({
            let path = path.clone();
            move || ask(&path, &Question::Contacts(Part::default())).map(|(answer, _)| answer)
        });
        let mut ready = Events::with_capacity(1);
        poll.poll(&mut ready, Some(CLIENT_LIMIT)).unwrap();
        assert_eq!(ready.iter().next().map(mio::event::Event::token), Some(QUESTIONS));
        let Ok(Asked::Look(Question::Contacts(_), back)) = asked.recv() else { panic!("another question") };
        let some = Answer::Contacts { contacts: Vec::new(), left_out: 0, next: None };
        back.send(some.clone()).unwrap();
        assert_eq!(asking.join().unwrap().unwrap(), some);
        assert!(ControlSocket::open(&path, desk).is_err(), "a live one was replaced");
    }

    #[test]
    fn only_root_and_the_proxys_own_user_may_trace_messages() {
        let [root, own, other] = [0, 7, 8].map(Uid::from_raw);
        assert!(may_trace(root, own) && may_trace(own, own) && !may_trace(other, own));
    }
}
