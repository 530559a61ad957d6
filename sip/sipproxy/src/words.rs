//! The messages of the control socket: questions to a running proxy, and its answers.
//!
//! Invariant: later versions may add fields to answers, and readers ignore unknown fields. Begin with [`Question`].

use std::net::IpAddr;

use ops::Part;
use serde::{Deserialize, Serialize};

use crate::performance::Performance;

/// A question to a running proxy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Question {
    /// The state and the counts of the proxy.
    Status,
    /// The performance metrics of registrations and calls.
    Performance,
    /// The registered contacts.
    Contacts(Part),
    /// The current calls and subscriptions.
    Dialogs(Part),
    /// The current connections and associations.
    Connections(Part),
    /// Live messages. After the answer, text or a pcapng file follows, until the client disconnects.
    Trace(Wanted),
}

/// Filter and format of a trace. The default is all messages, as text.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// True for a pcapng file, false for text.
    #[serde(default)]
    pub(crate) pcapng: bool,
    /// Only requests of this method, and their responses.
    pub(crate) method: Option<String>,
    /// Only messages from or to this user, `USER` or `USER@DOMAIN`.
    pub(crate) user: Option<String>,
    /// Only messages with this Call-ID.
    pub(crate) call_id: Option<String>,
    /// Only messages from or to an address of this network.
    pub(crate) peer: Option<String>,
}

/// An answer to a question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The answer to [`Question::Status`].
    Status(Box<Status>),
    /// The answer to [`Question::Performance`].
    Performance(Box<Performance>),
    /// The answer to [`Question::Contacts`].
    Contacts {
        /// The contacts, ordered by user.
        contacts: Vec<Contact>,
        /// Number of contacts that are not listed, because the list is too long ([`ops::LISTED_MAX`]).
        left_out: usize,
        /// Start of the next part; `None` after the last part or a whole list.
        #[serde(default)]
        next: Option<String>,
    },
    /// The answer to [`Question::Dialogs`].
    Dialogs {
        /// The dialogs, the most recently active first.
        dialogs: Vec<Dialog>,
        /// Number of dialogs that are not listed, because the list is too long ([`ops::LISTED_MAX`]).
        left_out: usize,
        /// Start of the next part; `None` after the last part or a whole list.
        #[serde(default)]
        next: Option<String>,
    },
    /// The answer to [`Question::Connections`].
    Connections {
        /// The connections by listener, the oldest first.
        connections: Vec<Connection>,
        /// Number of connections that are not listed, because the list is too long ([`ops::LISTED_MAX`]).
        left_out: usize,
        /// Start of the next part; `None` after the last part or a whole list.
        #[serde(default)]
        next: Option<String>,
    },
    /// The answer to [`Question::Trace`]. The messages follow.
    Tracing,
    /// A refusal of the question, with a reason.
    Refused {
        /// The reason, as a sentence.
        reason: String,
    },
}

/// The state of the proxy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The proxy's version.
    #[serde(default)]
    pub(crate) version: String,
    /// Seconds since the start.
    pub(crate) uptime_s: u64,
    /// `running`, `draining` after SIGTERM while work is pending, or `leaving` while connections are closed.
    #[serde(default)]
    pub(crate) state: String,
    /// Pending transactions; `None` unless the proxy drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transactions_left: Option<usize>,
    /// Seconds until the time limit of the drain; `None` unless the proxy drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) drain_ends_in_s: Option<u64>,
    /// Transport and address of each listener.
    pub(crate) listeners: Vec<String>,
    /// Users with contacts.
    pub(crate) users: usize,
    /// Contacts of these users.
    pub(crate) contacts: usize,
    /// Server transactions, including completed ones.
    pub(crate) server_transactions: usize,
    /// Client transactions, including completed ones.
    pub(crate) client_transactions: usize,
    /// Well-formed new requests. All counters of this structure count from the start of the proxy.
    pub(crate) requests: u64,
    /// Retransmitted messages.
    pub(crate) retransmissions: u64,
    /// Invalid messages, and responses that match no transaction.
    pub(crate) dropped: u64,
    /// Requests rejected because of overload.
    pub(crate) overloads: u64,
    /// REGISTERs answered with 200.
    pub(crate) registrations: u64,
    /// INVITEs answered with 2xx.
    pub(crate) calls: u64,
    /// Client transactions that received no final response.
    pub(crate) timeouts: u64,
    /// Requests rejected because of their source address.
    #[serde(default)]
    pub(crate) denied: u64,
    /// Requests above their source's rate limit.
    #[serde(default)]
    pub(crate) limited: u64,
    /// New INVITEs outside of dialogs.
    pub(crate) invites: u64,
    /// Responses by class, 1xx first. The rejections that `dropped`, `denied`, `limited` and `late` count are not included. Rejections
    /// because of a memory limit are not included either.
    pub(crate) responses: [u64; 6],
    /// Known calls and subscriptions.
    pub(crate) dialogs: usize,
    /// Connections or associations of each listener.
    pub(crate) connections: Vec<usize>,
    /// The store of bindings, with the state of its server. Empty if bindings are in memory only.
    #[serde(default)]
    pub(crate) store: String,
    /// True if the shared store is reachable; `None` without a shared store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) store_up: Option<bool>,
    /// Failures of the shared store since the start.
    #[serde(default)]
    pub(crate) store_failures: u64,
    /// Requests that wait for the shared store.
    #[serde(default)]
    pub(crate) store_waiting: usize,
    /// Requests that the shared store did not answer, since the start.
    #[serde(default)]
    pub(crate) unanswered: u64,
    /// Requests rejected because the proxy drains.
    #[serde(default)]
    pub(crate) late: u64,
}

/// One call or subscription.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Dialog {
    /// `call` or `subscription`.
    pub(crate) kind: String,
    /// `early` until the dialog is answered, then `confirmed`.
    pub(crate) state: String,
    /// Seconds since the answer. Before the answer, seconds since the first request.
    pub(crate) age_s: u64,
    /// The caller, as in From.
    pub(crate) from: String,
    /// The callee, as in To.
    pub(crate) to: String,
    /// Call-ID.
    pub(crate) call_id: String,
    /// Transport and address of the caller's side.
    pub(crate) caller: String,
    /// Transport and address of each callee's side.
    pub(crate) callees: Vec<String>,
}

/// One contact of a user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Contact {
    /// The address-of-record.
    pub(crate) user: String,
    /// The contact's URI.
    pub(crate) uri: String,
    /// Seconds until the contact expires.
    pub(crate) expires_s: u64,
    /// The transport of the REGISTER.
    pub(crate) transport: String,
    /// The source address of the REGISTER.
    pub(crate) source: String,
}

/// One connection or association.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Connection {
    /// The transport.
    pub(crate) transport: String,
    /// Address of the proxy's listener.
    pub(crate) local: String,
    /// Address of the peer. For an association, the peer's first address.
    pub(crate) peer: String,
    /// `connecting`, then `connected`. For an association, the name of its state in RFC 9260.
    pub(crate) state: String,
    /// Bytes that wait to be sent.
    pub(crate) waiting_bytes: usize,
    /// Encryption of an association; absent if the association is not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) encryption: Option<AssociationEncryption>,
    /// Paths of an association, the oldest first.
    pub(crate) paths: Vec<Path>,
}

/// Encryption of an association (ADR 0027).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AssociationEncryption {
    /// The key that the peer has proven.
    pub(crate) peer_key: String,
    /// True if the configuration has this key. Otherwise, the peer may be anyone.
    pub(crate) verified: bool,
}

impl AssociationEncryption {
    fn to_text(&self) -> String {
        let verified = if self.verified { "verified" } else { "not verified" };
        format!(", encrypted, peer {verified}, {}", self.peer_key)
    }
}

/// One path of an association.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Path {
    /// Local address; `None` while the kernel chooses it.
    pub(crate) local: Option<IpAddr>,
    /// The peer's address.
    pub(crate) remote: IpAddr,
    /// `sctp`, or `sctp-udp` for SCTP over UDP.
    pub(crate) carrier: String,
    /// `unconfirmed`, `active`, `potentially_failed` or `inactive`.
    pub(crate) state: String,
    /// True for the primary path.
    pub(crate) primary: bool,
    /// True if new data uses this path.
    pub(crate) in_use: bool,
    /// Smoothed round-trip time in microseconds; `None` before the first measurement.
    pub(crate) srtt_us: Option<u64>,
    /// Bytes of messages whose first transmission used this path.
    pub(crate) data_sent_bytes: u64,
    /// Retransmitted DATA chunks.
    pub(crate) retransmissions: u64,
    /// Retransmission timeouts.
    pub(crate) timeouts: u64,
}

impl Path {
    fn to_text(&self) -> String {
        let Path { local, remote, carrier, retransmissions, timeouts, .. } = self;
        let local = local.map_or_else(|| "any".to_owned(), |local| local.to_string());
        let rtt =
            self.srtt_us.map_or_else(|| "-".to_owned(), |us| format!("{}.{} ms", us / 1000, us % 1000 / 100));
        let marks = [(self.primary, ", primary"), (self.in_use, ", in use")];
        let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, text)| *text).collect();
        format!(
            "  {local} to {remote} ({carrier}): {}{marks}, {rtt}, {} bytes, {retransmissions} retransmitted, {timeouts} timeouts\n",
            self.state.replace('_', " "),
            self.data_sent_bytes
        )
    }
}

impl Connection {
    fn to_text(&self) -> String {
        let Connection { transport, local, peer, state, waiting_bytes, encryption, paths } = self;
        let paths: String = paths.iter().map(Path::to_text).collect();
        let encryption = encryption.as_ref().map(AssociationEncryption::to_text).unwrap_or_default();
        format!("{transport} {local} {peer} {state}, {waiting_bytes} bytes queued{encryption}\n{paths}")
    }
}

impl Answer {
    /// Formats the answer for people, with a line for each number or entry.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Answer::Status(status) => status.to_text(),
            Answer::Performance(performance) => performance.to_text(),
            Answer::Contacts { contacts, left_out, .. } => {
                let line = |c: &Contact| {
                    let Contact { user, uri, expires_s, transport, source } = c;
                    format!("{user} {uri} {transport} {source} {expires_s} s\n")
                };
                list(contacts, "USER CONTACT TRANSPORT SOURCE EXPIRES\n", "no contacts\n", line)
                    + &more(*left_out)
            }
            Answer::Dialogs { dialogs, left_out, .. } => {
                let line = |d: &Dialog| {
                    let Dialog { kind, state, age_s, from, to, call_id, caller, callees } = d;
                    let callees = callees.join(", ");
                    format!(
                        "{kind} {state} {age_s} s: {from} ({caller}) to {to} ({callees}) Call-ID {call_id}\n"
                    )
                };
                list(dialogs, "", "no calls or subscriptions\n", line) + &more(*left_out)
            }
            Answer::Connections { connections, left_out, .. } => {
                list(connections, "", "no connections\n", Connection::to_text) + &more(*left_out)
            }
            Answer::Tracing => String::new(),
            Answer::Refused { reason } => format!("{reason}\n"),
        }
    }
}

impl Status {
    /// Formats a line for each field. The label is the field's name in JSON, with spaces instead of underscores.
    fn to_text(&self) -> String {
        let labelled = |names: &[String], counts: &[u64]| -> String {
            let pairs = names.iter().zip(counts).map(|(name, count)| format!("{name}: {count}"));
            pairs.collect::<Vec<_>>().join(", ")
        };
        let classes: Vec<String> = (1..=self.responses.len()).map(|class| format!("{class}xx")).collect();
        let connections: Vec<u64> = self.connections.iter().map(|count| *count as u64).collect();
        let value = serde_json::to_value(self).unwrap_or_default();
        let lines = value.as_object().into_iter().flatten().map(|(name, value)| {
            let value = match name.as_str() {
                "listeners" => self.listeners.join(", "),
                "connections" => labelled(&self.listeners, &connections),
                "responses" => labelled(&classes, &self.responses),
                _ => bare(value),
            };
            format!("{:<20} {value}\n", name.replace('_', " "))
        });
        lines.collect()
    }
}

/// Formats a heading and a line for each item, or `none` if there are no items.
fn list<T>(items: &[T], heading: &str, none: &str, line: impl FnMut(&T) -> String) -> String {
    match items.is_empty() {
        true => none.to_owned(),
        false => heading.to_owned() + &items.iter().map(line).collect::<String>(),
    }
}

/// Formats a value without quotes.
fn bare(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn more(left_out: usize) -> String {
    if left_out > 0 { format!("and {left_out} more\n") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_text_has_a_line_for_each_entry_and_counts_omitted_entries() {
        let contact = Contact {
            user: "bob@example.com".to_owned(),
            uri: "sip:bob@192.0.2.2".to_owned(),
            expires_s: 60,
            transport: "udp".to_owned(),
            source: "192.0.2.2:5060".to_owned(),
        };
        assert_eq!(
            Answer::Contacts { contacts: vec![contact], left_out: 2, next: None }.to_text(),
            "USER CONTACT TRANSPORT SOURCE EXPIRES\nbob@example.com sip:bob@192.0.2.2 udp 192.0.2.2:5060 60 s\nand 2 more\n"
        );
        let dialog = Dialog {
            kind: "call".to_owned(),
            state: "early".to_owned(),
            age_s: 3,
            from: "<sip:a@a>".to_owned(),
            to: "<sip:b@b>".to_owned(),
            call_id: "c".to_owned(),
            caller: "udp 192.0.2.1:5060".to_owned(),
            callees: vec!["tcp 192.0.2.2:5060".to_owned()],
        };
        assert_eq!(
            Answer::Dialogs { dialogs: vec![dialog], left_out: 0, next: None }.to_text(),
            "call early 3 s: <sip:a@a> (udp 192.0.2.1:5060) to <sip:b@b> (tcp 192.0.2.2:5060) Call-ID c\n"
        );
        let path = Path {
            local: None,
            remote: [192, 0, 2, 2].into(),
            carrier: "sctp".to_owned(),
            state: "potentially_failed".to_owned(),
            primary: true,
            in_use: false,
            srtt_us: Some(20_345),
            data_sent_bytes: 9,
            retransmissions: 2,
            timeouts: 1,
        };
        let connection = Connection {
            transport: "sctp".to_owned(),
            local: "192.0.2.1:5060".to_owned(),
            peer: "192.0.2.2:5060".to_owned(),
            state: "ESTABLISHED".to_owned(),
            waiting_bytes: 0,
            encryption: Some(AssociationEncryption { peer_key: "sctpify1:x".to_owned(), verified: false }),
            paths: vec![path],
        };
        assert_eq!(
            Answer::Connections { connections: vec![connection], left_out: 0, next: None }.to_text(),
            "sctp 192.0.2.1:5060 192.0.2.2:5060 ESTABLISHED, 0 bytes queued, encrypted, peer not verified, sctpify1:x\n  any to 192.0.2.2 (sctp): potentially failed, primary, \
             20.3 ms, 9 bytes, 2 retransmitted, 1 timeouts\n"
        );
        let empty = Answer::Contacts { contacts: Vec::new(), left_out: 0, next: None }.to_text();
        assert_eq!(empty, "no contacts\n");
        let listeners = ["udp 192.0.2.1:5060", "sctp 192.0.2.1:5060"].map(str::to_owned).into();
        let status = Status {
            calls: 7,
            listeners,
            connections: vec![0, 3],
            responses: [0, 9, 0, 1, 0, 0],
            ..Status::default()
        };
        let text = Answer::Status(Box::new(status)).to_text();
        assert!(text.contains("calls                7\n"), "{text}");
        assert!(text.contains("listeners            udp 192.0.2.1:5060, sctp 192.0.2.1:5060\n"), "{text}");
        assert!(
            text.contains("connections          udp 192.0.2.1:5060: 0, sctp 192.0.2.1:5060: 3\n"),
            "{text}"
        );
        let responses = "responses            1xx: 0, 2xx: 9, 3xx: 0, 4xx: 1, 5xx: 0, 6xx: 0\n";
        assert!(text.contains(responses), "{text}");
    }
}
