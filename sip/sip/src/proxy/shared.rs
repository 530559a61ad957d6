//! Users that several proxies share in a store ([`ProxyConfig::shared`](super::ProxyConfig)): the queries to it, and its answers.
//!
//! The store has one [`Record`] with a version per user. [`Registrar`](super::registrar::Registrar) decides a REGISTER from the local
//! copy, and the result replaces the record if its version is unchanged. So the rules of RFC 3261 section 10.3 (order, limits,
//! instances) hold among all proxies as they do within one. Requests for users are answered from the local copy, which notifications
//! keep current; an unknown user is looked up in the store before being reported as absent.

use std::time::Duration;

use crate::location::Binding;

/// A user's bindings in the store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Grows with each change; 0: there is no record.
    pub version: u64,
    /// All bindings, possibly including expired ones.
    pub bindings: Vec<Binding>,
}

/// A query to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// The number for [`Proxy::handle_found`](super::Proxy::handle_found); never reused.
    pub ticket: u64,
    /// The operation.
    pub wanted: Wanted,
}

/// An operation on the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Reads a user's record.
    Read {
        /// The user's address-of-record.
        user: String,
    },
    /// Replaces a user's bindings if the record still has this version.
    Replace {
        /// The user's address-of-record.
        user: String,
        /// The expected version; 0: there is no record.
        version: u64,
        /// All new bindings; if empty, the record is removed.
        bindings: Vec<Binding>,
    },
    /// Records the use of a nonce, unless any proxy has recorded this count, or a higher one, before.
    Use {
        /// The nonce, in hexadecimal.
        nonce: String,
        /// Number of uses by its user, this one included.
        count: u32,
        /// Time for which this must be remembered.
        lifetime: Duration,
    },
}

/// The store's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The current record: to [`Wanted::Read`], and to [`Wanted::Replace`] if the version differs.
    Is(Record),
    /// To [`Wanted::Use`]: true if it was recorded, and so is the first such use.
    IsFirst(bool),
    /// Replaced, with this new version; the write survives a crash of the store's process.
    Replaced(u64),
    /// The store did not answer in time, or refused. A replacement may have happened or not.
    Failed,
}
