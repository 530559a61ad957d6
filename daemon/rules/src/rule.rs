//! Defines a rule, and the words for its chain and policy.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Advertise, AdvertiseInterval, IpNet, PortRange, Secure, nearest};

/// Maximum length of a rule's name, in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// Maximum length of a rule's comment, in bytes.
pub const MAX_COMMENT_BYTES: usize = 256;

/// The chain of a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chain {
    /// Programs that listen on this host. A rule's address and port are the listener's.
    Local,
    /// Programs that connect to other hosts. A rule's address and port are the other host's.
    Remote,
}

/// The policy of a rule, or the default policy of a chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The connection uses SCTP if the peer supports SCTP.
    Enable,
    /// The connection stays plain TCP.
    Disable,
}

/// Error: a word is neither of the two allowed words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{word}` is not a {what}: expected {choices}{}", did_you_mean(.word, &[.choices.0, .choices.1]))]
pub struct WordError {
    /// The expected kind of word: chain or policy.
    pub what: &'static str,
    /// The word.
    pub word: String,
    /// The two allowed words.
    pub choices: Choices,
}

/// Two words to choose from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choices(pub &'static str, pub &'static str);

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` or `{}`", self.0, self.1)
    }
}

pub(crate) fn did_you_mean(word: &str, candidates: &[&str]) -> String {
    nearest(word, candidates.iter().copied()).map(|n| format!("; did you mean `{n}`?")).unwrap_or_default()
}

impl Chain {
    /// Both chains, in listing order.
    pub const ALL: [Chain; 2] = [Chain::Local, Chain::Remote];

    /// Returns the chain's word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Chain::Local => "local",
            Chain::Remote => "remote",
        }
    }
}

impl Policy {
    /// Both policies, in listing order.
    pub const ALL: [Policy; 2] = [Policy::Enable, Policy::Disable];

    /// Returns the policy's word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Policy::Enable => "enable",
            Policy::Disable => "disable",
        }
    }

    /// Returns the policy of the rules that are exceptions to this default policy.
    #[must_use]
    pub const fn opposite(self) -> Policy {
        match self {
            Policy::Enable => Policy::Disable,
            Policy::Disable => Policy::Enable,
        }
    }

    /// Returns [`Policy::Enable`] if `enabled` is true, otherwise [`Policy::Disable`].
    pub const fn from_enabled(enabled: bool) -> Policy {
        if enabled { Policy::Enable } else { Policy::Disable }
    }

    /// Reports whether the policy is [`Policy::Enable`].
    pub const fn is_enable(self) -> bool {
        matches!(self, Policy::Enable)
    }
}

impl FromStr for Chain {
    type Err = WordError;
    fn from_str(word: &str) -> Result<Chain, WordError> {
        let error = || WordError { what: "chain", word: word.into(), choices: Choices("local", "remote") };
        Chain::ALL.into_iter().find(|c| c.word().eq_ignore_ascii_case(word)).ok_or_else(error)
    }
}

impl FromStr for Policy {
    type Err = WordError;
    fn from_str(word: &str) -> Result<Policy, WordError> {
        let error = || WordError { what: "policy", word: word.into(), choices: Choices("enable", "disable") };
        Policy::ALL.into_iter().find(|p| p.word().eq_ignore_ascii_case(word)).ok_or_else(error)
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Protocol of a connection. A native peer expects each message of this protocol as one SCTP message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    /// SIP over SCTP (RFC 4168).
    Sip,
}

/// Error: sctpify cannot separate the messages of this protocol.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a supported framing: expected `sip`")]
pub struct FramingWordError(String);

impl FromStr for Framing {
    type Err = FramingWordError;
    fn from_str(word: &str) -> Result<Framing, FramingWordError> {
        let is_sip = word.eq_ignore_ascii_case("sip");
        is_sip.then_some(Framing::Sip).ok_or_else(|| FramingWordError(word.to_owned()))
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Framing::Sip => f.pad("sip"),
        }
    }
}

/// One rule: an exception to a default policy, or further requests for matching connections. If the field `address` or `ports`
/// is `None`, this field matches everything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rule {
    /// The address or network; `None` is any address of either family.
    #[serde(default)]
    pub address: Option<IpNet>,
    /// The port or ports; `None` is any port.
    #[serde(default)]
    pub ports: Option<PortRange>,
    /// True if each connection of this rule has a separate association. Used by remote-enable rules only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// Short name, shown with the rule's decisions; up to [`MAX_NAME_BYTES`] bytes.
    #[serde(default)]
    pub name: Option<String>,
    /// Note for people; up to [`MAX_COMMENT_BYTES`] bytes.
    #[serde(default)]
    pub comment: Option<String>,
    /// True if the rule's connections must fail when they cannot be carried over SCTP, and must not fall back to TCP. Valid in
    /// remote-enable rules only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require: bool,
    /// Form of the send-buffer advertisement of the rule's connections; `None` means the form of the settings. Valid in enable
    /// rules only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertise>,
    /// Interval of advertisements in the form [`Advertise::Timer`]; `None` means the interval of the settings. Valid with this
    /// form only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise_interval: Option<AdvertiseInterval>,
    /// Protocol of which a native peer gets each message as one SCTP message; `None` means that bytes are sent without framing.
    /// Valid in enable rules only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framing: Option<Framing>,
    /// Encryption of the rule's connections; `None` means the encryption of the settings. Valid in enable rules only. A local
    /// rule can require encryption, but cannot request the other values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure: Option<Secure>,
}

/// Fault of a name or comment.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleError {
    /// The text has too many bytes.
    #[error("the {what} has {bytes} bytes: up to {max} are allowed")]
    TooLong {
        /// Kind of text: name or comment.
        what: &'static str,
        /// Length of the text, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// The text is empty, or contains a control character such as a line end.
    #[error("the {what} must not be empty and must not contain control characters such as line ends")]
    Unprintable {
        /// Kind of text: name or comment.
        what: &'static str,
    },
}

impl Rule {
    /// Reports whether the rule matches this address and port.
    pub fn matches(&self, address: IpAddr, port: u16) -> bool {
        self.address.is_none_or(|net| net.contains(address)) && self.ports.is_none_or(|p| p.contains(port))
    }

    /// Reports whether the other rule matches exactly the same connections as this one. The comparison ignores all fields
    /// except the address and the ports.
    pub fn has_same_match(&self, other: &Rule) -> bool {
        (self.address, self.ports) == (other.address, other.ports)
    }

    /// Reports whether the rule requests something in addition to SCTP. A default policy that allows SCTP does not include such
    /// requests.
    pub(crate) const fn asks_for_more(&self) -> bool {
        self.require
            || self.own
            || self.advertise.is_some()
            || self.framing.is_some()
            || self.secure.is_some()
    }

    /// Reports whether connections that match the rule must never be plain TCP.
    pub fn refuses_plain(&self) -> bool {
        self.require || self.secure.as_ref().is_some_and(Secure::is_required)
    }

    /// Checks that the name and the comment can be stored, printed and read back.
    ///
    /// # Errors
    /// Fails if the name or the comment is empty, too long or contains control characters.
    pub fn check(&self) -> Result<(), RuleError> {
        check_words("name", self.name.as_deref(), MAX_NAME_BYTES)?;
        check_words("comment", self.comment.as_deref(), MAX_COMMENT_BYTES)
    }
}

fn check_words(what: &'static str, words: Option<&str>, max: usize) -> Result<(), RuleError> {
    match words {
        Some(w) if w.len() > max => Err(RuleError::TooLong { what, bytes: w.len(), max }),
        Some(w) if w.is_empty() || w.chars().any(char::is_control) => Err(RuleError::Unprintable { what }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_without_fields_matches_everything() {
        assert!(Rule::default().matches("10.0.0.1".parse().unwrap(), 0));
        assert!(Rule::default().matches("2001:db8::1".parse().unwrap(), 65535));
    }

    #[test]
    fn both_fields_must_match() {
        let rule = Rule {
            address: Some("10.1.2.0/24".parse().unwrap()),
            ports: Some("22".parse().unwrap()),
            ..Rule::default()
        };
        assert!(rule.matches("10.1.2.3".parse().unwrap(), 22));
        assert!(!rule.matches("10.1.2.3".parse().unwrap(), 23));
        assert!(!rule.matches("10.1.3.3".parse().unwrap(), 22));
    }

    #[test]
    fn a_wrong_word_names_the_choices_and_the_nearest() {
        let text = "remot".parse::<Chain>().unwrap_err().to_string();
        assert_eq!(text, "`remot` is not a chain: expected `local` or `remote`; did you mean `remote`?");
    }

    #[test]
    fn names_at_the_limit_are_kept_and_one_byte_more_is_refused() {
        let named = |n: usize| Rule { name: Some("x".repeat(n)), ..Rule::default() };
        assert!(named(MAX_NAME_BYTES).check().is_ok());
        assert!(named(MAX_NAME_BYTES + 1).check().is_err());
        assert!(Rule { comment: Some("a\nb".into()), ..Rule::default() }.check().is_err());
    }
}
