//! The interface of servers through which proxies share users; each kind has its own module.
//!
//! A backend moves texts and decides nothing: `record` defines their contents, and `shared` decides when to ask and how to handle
//! failure. Every call returns within a few times [`LIMIT`], whatever the server does. Failures are sentences without secrets.

use std::time::Duration;

/// Time limit for connecting to the server, and for one answer.
pub(super) const LIMIT: Duration = Duration::from_secs(2);

/// A request to the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command {
    /// Reads a user's record.
    Read {
        /// The user's key.
        key: String,
    },
    /// Replaces a record if it still has this version.
    Replace {
        /// The user's key.
        key: String,
        /// The expected version; 0: there is no record.
        version: u64,
        /// The text for the notification, also stored unless `is_gone`.
        text: String,
        /// True if the record is to be deleted.
        is_gone: bool,
        /// Time after which the record may be forgotten, in milliseconds since 1970.
        expires_ms: u64,
    },
    /// Records a use of a nonce, if its count is higher than any before.
    Use {
        /// The nonce.
        nonce: String,
        /// At least 1.
        count: u32,
        /// Time after which it may be forgotten, in milliseconds since 1970.
        expires_ms: u64,
    },
}

/// The server's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// The record's version and text; `None` if there is none.
    Is(Option<(u64, String)>),
    /// The record was replaced, and has this version.
    Replaced(u64),
    /// True if the use was recorded.
    IsFirst(bool),
}

/// A notification from the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A record has this new version; the text is as in [`Command::Replace`].
    Changed(u64, String),
    /// A proxy's announcement of its state.
    Presence(String),
}

/// The error, for people.
pub(super) type Failure = String;

/// A kind of server, and its address.
pub(super) trait Backend: Send + Sync {
    /// Connects for commands.
    fn connect(&self) -> Result<Box<dyn Commands>, Failure>;

    /// Connects for notifications, which are kept from this moment on.
    fn listen(&self) -> Result<Box<dyn News>, Failure>;
}

/// A connection for commands.
pub(super) trait Commands: Send {
    /// Executes all of these, each atomically, and answers in their order. Replacements survive a crash of the server's process.
    fn run(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure>;

    /// Announces this proxy's state, and forgets expired records; returns the server's time in milliseconds since 1970.
    fn beat(&mut self, who: &str) -> Result<u64, Failure>;

    /// Returns warnings about the server's configuration, asked once.
    fn warnings(&mut self) -> Vec<String>;
}

/// A connection for notifications.
pub(super) trait News: Send {
    /// Delivers version and text of all records, in any order.
    fn load(&mut self, each: &mut dyn FnMut(u64, String)) -> Result<(), Failure>;

    /// Returns the next notification; `None` if there was none within the limit.
    fn next(&mut self, limit: Duration) -> Result<Option<Event>, Failure>;
}

/// Parses an event from one text: its version, 0 for [`Event::Presence`], a line end, and the rest.
pub(super) fn event_of(text: &str) -> Option<Event> {
    let (version, rest) = text.split_once('\n')?;
    match version.parse().ok()? {
        0 => Some(Event::Presence(rest.to_owned())),
        version => Some(Event::Changed(version, rest.to_owned())),
    }
}
