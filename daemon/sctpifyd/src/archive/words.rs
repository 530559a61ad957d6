//! Requests of the worker and answers of the supervisor. Each message is one line of JSON. An answer repeats the number of its request.
//! Lines longer than [`QUESTION_MAX`] or [`ANSWER_MAX`] are refused. Begin with [`Ask`].

use control::HostKeyText;
use serde::{Deserialize, Serialize};

/// Limit on the length of a request, in bytes. A full learned table, quoted as a JSON string, fits into this limit.
pub(super) const QUESTION_MAX: u64 = 16 << 20;
/// Limit on the length of an answer, in bytes. A full rules file and a full key file, quoted as JSON strings, fit into this limit.
pub(super) const ANSWER_MAX: u64 = 32 << 20;

#[derive(Serialize, Deserialize)]
pub(super) struct Question {
    pub(super) number: u64,
    pub(super) ask: Ask,
}

/// A request of the worker. No request names a file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    /// Change this setting in the configuration file.
    Set { name: String, value: String },
    /// Replace the contents of the rules file.
    Rules { text: String },
    /// Replace the contents of the learned table's file.
    Learned { text: String },
    /// Replace the contents of the file with the monthly traffic of links.
    Traffic { text: String },
    /// Replace the contents of the file with the history of links.
    History { text: String },
    /// Replace the contents of the known peers' file.
    Peers { text: String },
    /// Read configuration, rules and keys.
    Load,
    /// Return the public part of the host key.
    HostKey,
    /// Sign the content of a CertificateVerify message of TLS 1.3 with the host's key.
    Sign { content: Vec<u8> },
}

#[derive(Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) number: u64,
    pub(super) outcome: Outcome,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Done,
    /// All settings and rules in the format of their files, and the text of the key file.
    Loaded {
        config: String,
        rules: String,
        keys: String,
    },
    /// The public part of the host key.
    HostKey(HostKeyText),
    /// A signature.
    Signed(Vec<u8>),
    Refused(String),
    Failed(String),
}
