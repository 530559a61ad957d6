//! What a server must be able to do that proxies share users by; each kind has a module of its own.
//!
//! A backend moves texts and decides nothing: what they say is `record`'s business, and when to ask and what to do on failure `shared`'s.
//! Every call returns within a few times [`LIMIT`], whatever the server does. Failures are sentences without secrets.

use std::time::Duration;

/// How long the server may take to be connected to, and for one answer.
pub(super) const LIMIT: Duration = Duration::from_secs(2);

/// Something that is wanted of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command {
    /// A user's record.
    Read {
        /// Whose.
        key: String,
    },
    /// Another record if it is of this version still.
    Replace {
        /// Whose.
        key: String,
        /// Of the record that there is; 0: there is none.
        version: u64,
        /// What others are told, and what is kept unless `is_gone`.
        text: String,
        /// Nothing is kept.
        is_gone: bool,
        /// When the record may be forgotten, in milliseconds since 1970.
        expires_ms: u64,
    },
    /// Notes a use of a nonce, if its count is higher than any noted before.
    Use {
        /// Which.
        nonce: String,
        /// At least 1.
        count: u32,
        /// When it may be forgotten, in milliseconds since 1970.
        expires_ms: u64,
    },
}

/// What the server has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// There is this record: its version and text; `None` if there is none.
    Is(Option<(u64, String)>),
    /// The record was replaced, and has this version.
    Replaced(u64),
    /// Whether the use was noted.
    IsFirst(bool),
}

/// What is heard from the server unasked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A record is of this version now; the text as in [`Command::Replace`].
    Changed(u64, String),
    /// What a proxy says of itself.
    Presence(String),
}

/// What went wrong, for people.
pub(super) type Failure = String;

/// A kind of server, and where it is.
pub(super) trait Backend: Send + Sync {
    /// Connects for commands.
    fn connect(&self) -> Result<Box<dyn Commands>, Failure>;

    /// Connects for news, which are kept from this moment on.
    fn listen(&self) -> Result<Box<dyn News>, Failure>;
}

/// A connection for commands.
pub(super) trait Commands: Send {
    /// Does all of these, each one whole or not at all, and answers in their order. What was replaced outlives the server's process.
    fn run(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure>;

    /// Tells the others what this proxy says of itself, and forgets what has expired; the server's time in milliseconds since 1970.
    fn beat(&mut self, who: &str) -> Result<u64, Failure>;

    /// What the server is not set up for that the user ought to know, asked once.
    fn warnings(&mut self) -> Vec<String>;
}

/// A connection for news.
pub(super) trait News: Send {
    /// Hands over version and text of all records, in any order.
    fn load(&mut self, each: &mut dyn FnMut(u64, String)) -> Result<(), Failure>;

    /// What is heard next; `None` if nothing was within the time.
    fn next(&mut self, limit: Duration) -> Result<Option<Event>, Failure>;
}

/// An event as one text: its version, 0 for [`Event::Presence`], a line end, and the rest.
pub(super) fn event_of(text: &str) -> Option<Event> {
    let (version, rest) = text.split_once('\n')?;
    match version.parse().ok()? {
        0 => Some(Event::Presence(rest.to_owned())),
        version => Some(Event::Changed(version, rest.to_owned())),
    }
}
