//! Users that several proxies share in a store ([`ProxyConfig::shared`](super::ProxyConfig)): the queries to the store, and its answers.
//!
//! The store has one [`Record`] with a version for each user. [`Registrar`](super::registrar::Registrar) decides a REGISTER from the
//! local copy of the record. The new bindings replace the record only if its version is still the version of the local copy. The rules of
//! RFC 3261 section 10.3 (order, limits, instances) therefore hold for all proxies together.
//!
//! Requests for users are served from the local copy, which notifications keep current. If a user has no local copy, the record is read
//! from the store before a request for the user is rejected.

use std::time::Duration;

use crate::location::Binding;

/// A user's bindings in the store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Version of the record, which grows with each change. 0 means that no record exists.
    pub version: u64,
    /// All bindings, possibly including expired ones.
    pub bindings: Vec<Binding>,
}

/// A query to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// Number of the query. The driver passes it to [`Proxy::handle_found`](super::Proxy::handle_found) together with the answer. A number
    /// is never reused.
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
    /// Replaces a user's bindings if the record still has the version in `version`.
    Replace {
        /// The user's address-of-record.
        user: String,
        /// The expected version. 0 means that no record exists.
        version: u64,
        /// All bindings of the new record. If the list is empty, the record is removed.
        bindings: Vec<Binding>,
    },
    /// Records the use of a nonce, unless a proxy has already recorded this count or a higher one.
    Use {
        /// Time and number of the nonce, in hexadecimal.
        nonce: String,
        /// Number of uses by the client, including this use.
        count: u32,
        /// Time for which the store must remember this use.
        lifetime: Duration,
    },
}

/// The store's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The current record. It answers [`Wanted::Read`]. It also answers [`Wanted::Replace`] if the record's version is not the expected
    /// version.
    Is(Record),
    /// Answer to [`Wanted::Use`]. True if the use was recorded. False if this nonce count, or a higher count, was recorded before.
    IsFirst(bool),
    /// The new version after a replacement. The write is as durable as the store's settings make
    /// it.
    Replaced(u64),
    /// The store did not answer in time, or refused the query. A replacement may or may not have taken place.
    Failed,
}
