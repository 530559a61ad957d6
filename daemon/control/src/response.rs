//! Answers of the daemon.

use rules::{Chain, Policy, Rule, RuleMatch, Rulebook, UnixMs, Usage};
use serde::{Deserialize, Serialize};

use crate::{
    BenchReport, DoctorReport, Explanation, HostKeyText, KnownPeer, LearnedRow, LinkHistory, PathEvent,
    PathsReport, PendingChange, PingReport, SettingsReport, Status,
};

/// One answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub enum Response {
    /// The status.
    Status(Box<Status>),
    /// The paths of all associations.
    Paths(PathsReport),
    /// The history of links.
    History(HistoryReport),
    /// Changes of paths.
    Events(EventsReport),
    /// One change of a path. `sctpify watch --events` prints this response; a daemon never sends it.
    Event(PathEvent),
    /// The decision on a connection.
    Explanation(Box<Explanation>),
    /// Settings, one or all.
    Settings(SettingsReport),
    /// Rules of the table.
    Rules(RulesReport),
    /// The default policy of a chain.
    DefaultPolicy(DefaultPolicy),
    /// This host's public key.
    HostKey(HostKeyReport),
    /// The known peers.
    Peers(PeersReport),
    /// The report of `doctor`.
    Doctor(DoctorReport),
    /// Tests of links. `sctpify ping` prints this response; a daemon never sends it.
    Ping(PingReport),
    /// Measurements. `sctpify bench` prints this response; a daemon never sends it.
    Bench(BenchReport),
    /// The command was executed.
    Done(Done),
    /// The request was refused, or its execution failed.
    Error(Refusal),
}

/// Traffic and round-trip times of this host's links to each peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HistoryReport {
    /// The links, in the order of peers and interfaces.
    pub links: Vec<LinkHistory>,
}

/// Changes of paths, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EventsReport {
    /// The changes. If the number of the first change does not follow the requested number, the changes between them were discarded.
    pub events: Vec<PathEvent>,
    /// Number of events since the daemon's start.
    pub count: u64,
    /// Time of the daemon's start, in milliseconds since 1970. The numbers of events begin again with each start.
    #[serde(default)]
    pub started_unix_ms: u64,
}

/// This host's public key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostKeyReport {
    /// The key.
    pub key: HostKeyText,
    /// Six words that represent the key, so people can read the key aloud.
    pub words: Vec<String>,
}

/// The hosts whose keys are known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeersReport {
    /// The peers, in the order of their keys.
    pub peers: Vec<KnownPeer>,
}

/// Rules, and the default policies of their chains.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RulesReport {
    /// Default policies of the requested chains.
    pub defaults: Vec<DefaultPolicy>,
    /// The rules, in the order in which they are searched.
    pub rules: Vec<RuleRow>,
    /// Automatic configuration is on (setting `learn`).
    #[serde(default)]
    pub learning: bool,
    /// The capability cache, in the order of addresses. Its entries belong to the chain `remote`.
    #[serde(default)]
    pub learned: Vec<LearnedRow>,
}

impl RulesReport {
    /// Lists the rules of the matching chains and policies; `None` matches all. The usage counts apply to the day of `now`. The list of
    /// learned entries is empty.
    pub fn new(book: &Rulebook, chain: Option<Chain>, policy: Option<Policy>, now: UnixMs) -> RulesReport {
        let chains = Chain::ALL.into_iter().filter(|&c| chain.is_none_or(|wanted| wanted == c));
        RulesReport {
            defaults: chains.map(|c| DefaultPolicy::of(book, c)).collect(),
            rules: book.table.list(chain, policy).map(|found| RuleRow::new(found, now)).collect(),
            learning: book.settings.learn,
            learned: Vec::new(),
        }
    }
}

/// The policy for connections that no rule of the chain matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DefaultPolicy {
    /// The chain.
    pub chain: Chain,
    /// The default policy of the chain.
    pub policy: Policy,
    /// Number of decisions by this policy since the daemon's start.
    pub hits: u64,
}

impl DefaultPolicy {
    /// Returns the default policy of one chain.
    pub fn of(book: &Rulebook, chain: Chain) -> DefaultPolicy {
        DefaultPolicy { chain, policy: book.default_policy(chain), hits: book.default_hits(chain) }
    }
}

/// One rule and its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleRow {
    /// Chain of the rule.
    pub chain: Chain,
    /// Policy of the rule.
    pub policy: Policy,
    /// Number of the rule among the rules of its chain and policy, from 1.
    pub number: usize,
    /// Number of decisions by this rule since the daemon's start.
    pub hits: u64,
    /// True if the configuration file declares the rule.
    #[serde(default)]
    pub declared: bool,
    /// Outcomes of the connections on which the rule decided.
    #[serde(default, rename = "tally")]
    pub usage: Usage,
    /// The rule.
    #[serde(flatten)]
    pub rule: Rule,
}

impl RuleRow {
    fn new(found: RuleMatch<'_>, now: UnixMs) -> RuleRow {
        let RuleMatch { chain, policy, number, rule, is_declared, hits, usage } = found;
        let rule = Rule::clone(rule);
        RuleRow { chain, policy, number, hits, declared: is_declared, usage: usage.at(now), rule }
    }
}

/// Result of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Done {
    /// One sentence for people, such as "rule 3 of remote-enable added".
    pub message: String,
    /// Result of adding a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Added>,
    /// Number of rules removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<usize>,
    /// Settings that wait for a restart of the daemon, after files were read again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingChange>,
}

impl Done {
    /// Creates a result that consists of this sentence only.
    pub fn new(message: impl Into<String>) -> Done {
        Done { message: message.into(), added: None, removed: None, pending: Vec::new() }
    }
}

/// Result of adding a rule, with its number from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Added {
    /// The rule is new, and is now the last of its chain and policy.
    New(usize),
    /// An identical rule existed already.
    Same(usize),
    /// A rule with the same match existed. The new rule has replaced it at the same number.
    Renamed(usize),
}

impl From<rules::Added> for Added {
    fn from(added: rules::Added) -> Added {
        match added {
            rules::Added::New(number) => Added::New(number),
            rules::Added::Same(number) => Added::Same(number),
            rules::Added::Renamed(number) => Added::Renamed(number),
        }
    }
}

/// The reason why a request was not executed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// Kind of error.
    pub code: ErrorCode,
    /// The error and a remedy, for people.
    pub message: String,
}

/// Kinds of refusals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The line is not a valid request of this schema.
    BadRequest,
    /// The user is not permitted to make this request.
    NotPermitted,
    /// The request cannot be executed as given, for example because a setting is unknown, a value is out of range, or a rule does not
    /// exist.
    Refused,
    /// The request is valid, but its execution failed, for example because a file could not be written.
    Failed,
    /// No daemon answers. The commands print this code with `--json`; a daemon never sends it.
    NoDaemon,
}

impl Response {
    /// Creates a refusal.
    pub fn error(code: ErrorCode, message: impl Into<String>) -> Response {
        Response::Error(Refusal { code, message: message.into() })
    }
}
