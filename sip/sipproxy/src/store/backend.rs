//! The interface to the servers through which proxies share users. Each kind of server has its own module.
//!
//! A backend transfers texts and makes no decisions. `record` defines the contents of the texts. `shared` decides when to query the server,
//! and how to handle failures. Each request to the server has the time limit [`LIMIT`]. A call makes a few requests, except
//! [`News::load`], which makes many. [`News::next`] has its own limit. Errors are sentences without secrets.

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
    /// Replaces a record if it still has the expected version.
    Replace {
        /// The user's key.
        key: String,
        /// The expected version; 0 if no record exists.
        version: u64,
        /// The new text of the record. The notification carries this text. The server also stores the text, unless `is_gone` is true.
        text: String,
        /// True if the record must be deleted.
        is_gone: bool,
        /// Time after which the server may delete the record, in milliseconds since 1970.
        expires_ms: u64,
    },
    /// Records a use of a nonce, if the count of this use exceeds all earlier counts of the nonce.
    Use {
        /// The nonce.
        nonce: String,
        /// The count of the use, at least 1.
        count: u32,
        /// Time after which the server may forget the nonce, in milliseconds since 1970.
        expires_ms: u64,
    },
}

/// The server's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// The record's version and text; `None` if no record exists. This is also the reply to a replacement that expected another version.
    Is(Option<(u64, String)>),
    /// The new version of the replaced record.
    Replaced(u64),
    /// True if the use was recorded.
    IsFirst(bool),
}

/// A notification from the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The new version of a record, and the `text` of the [`Command::Replace`] that created this version.
    Changed(u64, String),
    /// A proxy's announcement of its state.
    Presence(String),
}

/// Text of an error, for people.
pub(super) type Failure = String;

/// A server of one kind, at its address.
pub(super) trait Backend: Send + Sync {
    /// Connects for commands.
    fn connect(&self) -> Result<Box<dyn Commands>, Failure>;

    /// Connects for notifications. Notifications are queued from this moment on.
    fn listen(&self) -> Result<Box<dyn News>, Failure>;
}

/// A connection for commands.
pub(super) trait Commands: Send {
    /// Executes the commands, each atomically, and returns the replies in the same order. Replacements survive a crash of the server's
    /// process, unless [`Commands::warnings`] reports a setting that prevents this.
    fn run(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure>;

    /// Announces this proxy's state (`who`), and may delete expired records. Returns the server's time in milliseconds since 1970.
    fn beat(&mut self, who: &str) -> Result<u64, Failure>;

    /// Returns warnings about the server's configuration. The caller asks for them once.
    fn warnings(&mut self) -> Vec<String>;
}

/// A connection for notifications.
pub(super) trait News: Send {
    /// Passes the version and text of each record to `each`, in any order.
    fn load(&mut self, each: &mut dyn FnMut(u64, String)) -> Result<(), Failure>;

    /// Returns the next notification, or `None` if none arrives within the limit.
    fn next(&mut self, limit: Duration) -> Result<Option<Event>, Failure>;
}

/// Parses an event from a text of three parts: the version (0 for [`Event::Presence`]), a line feed, and the contents.
pub(super) fn event_of(text: &str) -> Option<Event> {
    let (version, rest) = text.split_once('\n')?;
    match version.parse().ok()? {
        0 => Some(Event::Presence(rest.to_owned())),
        version => Some(Event::Changed(version, rest.to_owned())),
    }
}
