//! Parses the encryption that a rule requests. It replaces the setting `encryption` for the rule's connections.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Encryption, MAX_NAME_BYTES};

const REQUIRE_PEER: &str = "require=";

/// A rule's encryption: `off`, `try`, `require`, or `require=PEER`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Secure {
    /// The encryption that the setting `encryption` requests with this value.
    As(Encryption),
    /// Required encryption with one particular peer. Connections with other peers are refused.
    WithPeer(String),
}

/// Error: a text is not an encryption of a rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is no encryption of a rule: expected off, try, require or require=PEER, where PEER is a name or a key that `sctpify peers` lists"
)]
pub struct SecureError(String);

impl Secure {
    /// Returns the equivalent value of the setting `encryption`.
    pub const fn encryption(&self) -> Encryption {
        match self {
            Secure::As(encryption) => *encryption,
            Secure::WithPeer(_) => Encryption::Require,
        }
    }

    /// Reports whether connections without encryption are refused.
    pub const fn is_required(&self) -> bool {
        matches!(self.encryption(), Encryption::Require)
    }

    /// Returns the name or the key of the only allowed peer, if the rule names one.
    pub fn peer(&self) -> Option<&str> {
        match self {
            Secure::As(_) => None,
            Secure::WithPeer(peer) => Some(peer),
        }
    }
}

impl FromStr for Secure {
    type Err = SecureError;

    fn from_str(text: &str) -> Result<Secure, SecureError> {
        let error = || SecureError(text.to_owned());
        if let Some(peer) = text.strip_prefix(REQUIRE_PEER) {
            let is_name =
                !peer.is_empty() && peer.len() <= MAX_NAME_BYTES && !peer.chars().any(char::is_control);
            return is_name.then(|| Secure::WithPeer(peer.to_owned())).ok_or_else(error);
        }
        text.parse().map(Secure::As).map_err(|()| error())
    }
}

impl fmt::Display for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Secure::As(encryption) => write!(f, "{encryption}"),
            Secure::WithPeer(peer) => write!(f, "{REQUIRE_PEER}{peer}"),
        }
    }
}

impl TryFrom<String> for Secure {
    type Error = SecureError;

    fn try_from(text: String) -> Result<Secure, SecureError> {
        text.parse()
    }
}

impl From<Secure> for String {
    fn from(secure: Secure) -> String {
        secure.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_read_back_and_others_are_refused() {
        for text in ["off", "try", "require", "require=beta", "require=the other host"] {
            assert_eq!(text.parse::<Secure>().unwrap().to_string(), text);
        }
        assert_eq!("require=beta".parse::<Secure>().unwrap().peer(), Some("beta"));
        for wrong in
            ["", "on", "try=beta", "require=", "require=a\nb", &format!("require={}", "x".repeat(65))]
        {
            assert!(wrong.parse::<Secure>().is_err(), "{wrong}");
        }
    }
}
