//! The control socket: `sctpify-sip status` and `contacts` ask here what goes on.
//!
//! Lines of JSON as on sctpifyd's (`control::write_line`), with words of its own. Everything only looks, so the socket's mode 0660 says
//! who may ask: its owner's and its group's. One thread serves one client after the other, each within [`CLIENT_LIMIT`]; the loop answers
//! between two turns. Begin with [`ControlSocket::open`] for the proxy and [`ask`] for the command.

use std::fs;
use std::io::{self, BufReader, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use control::{FrameError, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, read_body, write_line};
use mio::{Registry, Token, Waker};
use nix::sys::stat::{Mode, umask};
use serde::{Deserialize, Serialize};

use crate::error::SipError;

/// The token of questions: no plug-in's.
pub(crate) const QUESTIONS: Token = Token(usize::MAX - 1);
/// How long a client may take for a line, and the loop for an answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);
/// Contacts in one answer at most.
pub(crate) const CONTACTS_MAX: usize = 100_000;

/// What can be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Question {
    /// Numbers.
    Status,
    /// Who is registered where.
    Contacts,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// To [`Question::Status`].
    Status(Status),
    /// To [`Question::Contacts`].
    Contacts {
        /// In the users' order.
        contacts: Vec<Contact>,
        /// Contacts beyond [`CONTACTS_MAX`], which are not listed.
        left_out: usize,
    },
}

/// What goes on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Seconds since the start.
    pub(crate) uptime_s: u64,
    /// Transport and address of each listener.
    pub(crate) listeners: Vec<String>,
    /// Users with contacts.
    pub(crate) users: usize,
    /// Their contacts.
    pub(crate) contacts: usize,
    /// Server transactions, those that only wait to be over included.
    pub(crate) server_transactions: usize,
    /// Client transactions, the same way.
    pub(crate) client_transactions: usize,
    /// Requests that were well-formed and new, since the start; so are the others.
    pub(crate) requests: u64,
    /// Messages that came again.
    pub(crate) retransmissions: u64,
    /// Bytes that were no message, and what belongs to nothing.
    pub(crate) dropped: u64,
    /// Requests refused for want of room.
    pub(crate) overloads: u64,
    /// REGISTERs answered with 200.
    pub(crate) registrations: u64,
    /// INVITEs answered with 2xx.
    pub(crate) calls: u64,
    /// Client transactions without an answer.
    pub(crate) timeouts: u64,
}

/// One place where a user is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Contact {
    /// The address-of-record.
    pub(crate) user: String,
    /// The contact's URI.
    pub(crate) uri: String,
    /// Seconds until it ends.
    pub(crate) expires_s: u64,
    /// What carried the REGISTER.
    pub(crate) transport: String,
    /// Where that came from.
    pub(crate) source: String,
}

/// A question on its way to the loop.
type Asked = (Question, SyncSender<Answer>);

/// The loop's end of the control socket.
pub(crate) struct ControlSocket {
    asked: Receiver<Asked>,
}

impl ControlSocket {
    /// Makes the socket in the place of a dead proxy's, and serves it. [`QUESTIONS`] is ready when somebody asks.
    ///
    /// # Errors
    /// When a live proxy has it, or it cannot be made.
    pub(crate) fn open(path: &Path, registry: &Registry) -> Result<ControlSocket, SipError> {
        let failed = |source| SipError::Control { path: path.to_owned(), source };
        let listener = bind(path).map_err(failed)?;
        let waker = Waker::new(registry, QUESTIONS).map_err(failed)?;
        let (to_loop, asked) = sync_channel(1);
        let serve = move || {
            for stream in listener.incoming().flatten() {
                if let Err(error) = serve(&stream, &to_loop, &waker) {
                    tracing::debug!(%error, "a client of the control socket");
                }
            }
        };
        std::thread::Builder::new().name("control".to_owned()).spawn(serve).map_err(failed)?;
        Ok(ControlSocket { asked })
    }

    /// Answers what was asked.
    pub(crate) fn answer(&self, mut answer: impl FnMut(Question) -> Answer) {
        while let Ok((question, back)) = self.asked.try_recv() {
            // Who does not wait any more gets none.
            let _ = back.try_send(answer(question));
        }
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(ErrorKind::AddrInUse, "another proxy answers there"));
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

/// Answers one client until it has gone.
fn serve(stream: &UnixStream, to_loop: &SyncSender<Asked>, waker: &Waker) -> Result<(), FrameError> {
    stream.set_read_timeout(Some(CLIENT_LIMIT))?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let mut from = BufReader::new(stream);
    while let Some(question) = read_body::<Question>(&mut from, MAX_REQUEST_BYTES)? {
        let (back, answer) = sync_channel(1);
        let stopped = |_| io::Error::new(ErrorKind::NotConnected, "the proxy is stopping");
        to_loop.send((question, back)).map_err(|_| stopped(()))?;
        waker.wake()?;
        let answer = answer.recv_timeout(CLIENT_LIMIT).map_err(|_| stopped(()))?;
        write_line(&mut &*stream, &answer)?;
    }
    Ok(())
}

/// Asks a running proxy.
///
/// # Errors
/// When none answers there.
pub(crate) fn ask(path: &Path, question: Question) -> Result<Answer, SipError> {
    let failed = |source| SipError::Control { path: path.to_owned(), source };
    let stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(2 * CLIENT_LIMIT)).map_err(failed)?;
    let asked = write_line(&mut &stream, &question);
    let answer = asked.and_then(|()| read_body(&mut BufReader::new(&stream), MAX_RESPONSE_BYTES));
    match answer {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(failed(io::Error::new(ErrorKind::UnexpectedEof, "it was closed without an answer"))),
        Err(error) => Err(failed(io::Error::other(error))),
    }
}

impl Answer {
    /// For people: a line for each number or contact.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Answer::Status(status) => {
                let value = serde_json::to_value(status).unwrap_or_default();
                let lines = value.as_object().into_iter().flatten().map(|(name, value)| match value {
                    serde_json::Value::Array(list) => {
                        let list: Vec<_> = list.iter().filter_map(|item| item.as_str()).collect();
                        format!("{:<20} {}\n", name.replace('_', " "), list.join(", "))
                    }
                    value => format!("{:<20} {value}\n", name.replace('_', " ")),
                });
                lines.collect()
            }
            Answer::Contacts { contacts, left_out } => {
                let line = |c: &Contact| {
                    let Contact { user, uri, expires_s, transport, source } = c;
                    format!("{user} {uri} {transport} {source} {expires_s} s\n")
                };
                let mut text: String = contacts.iter().map(line).collect();
                if *left_out > 0 {
                    text += &format!("and {left_out} more\n");
                }
                text
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use mio::{Events, Poll};

    use super::*;

    fn some() -> Answer {
        let contact = Contact {
            user: "bob@example.com".to_owned(),
            uri: "sip:bob@192.0.2.2".to_owned(),
            expires_s: 60,
            transport: "udp".to_owned(),
            source: "192.0.2.2:5060".to_owned(),
        };
        Answer::Contacts { contacts: vec![contact], left_out: 2 }
    }

    #[test]
    fn a_question_is_answered_by_the_loop_through_a_socket_that_others_may_not_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        drop(UnixListener::bind(&path).unwrap());
        let mut poll = Poll::new().unwrap();
        let socket = ControlSocket::open(&path, poll.registry()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let asking = std::thread::spawn({
            let path = path.clone();
            move || ask(&path, Question::Contacts)
        });
        let mut ready = Events::with_capacity(1);
        poll.poll(&mut ready, Some(CLIENT_LIMIT)).unwrap();
        assert_eq!(ready.iter().next().map(mio::event::Event::token), Some(QUESTIONS));
        socket.answer(|question| {
            assert_eq!(question, Question::Contacts);
            some()
        });
        assert_eq!(asking.join().unwrap().unwrap(), some());
        assert!(ControlSocket::open(&path, poll.registry()).is_err(), "a live one was replaced");
    }

    #[test]
    fn text_has_a_line_for_each_contact_and_says_what_is_left_out() {
        assert_eq!(
            some().to_text(),
            "bob@example.com sip:bob@192.0.2.2 udp 192.0.2.2:5060 60 s\nand 2 more\n"
        );
        let status =
            Status { calls: 7, listeners: vec!["udp 192.0.2.1:5060".to_owned()], ..Status::default() };
        let text = Answer::Status(status).to_text();
        assert!(text.contains("calls                7\n"), "{text}");
        assert!(text.contains("listeners            udp 192.0.2.1:5060\n"), "{text}");
    }
}
