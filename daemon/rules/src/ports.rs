//! Parses a TCP port or a range of TCP ports.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A range of TCP ports, both ends included.
///
/// Invariant: the first port is not after the last one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// Fault of a port or a range.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortsError {
    /// A text is not a number from 0 to 65535.
    #[error("`{0}` is not a port: give a number from 0 to 65535, or a range such as 1:1024")]
    NotAPort(String),
    /// The first port of the range is after the last one.
    #[error("the range {0}:{1} is reversed: write {1}:{0}")]
    Backwards(u16, u16),
}

impl PortRange {
    /// Creates the range from `first` to `last`.
    ///
    /// # Errors
    /// Fails if `first` is after `last`.
    pub fn new(first: u16, last: u16) -> Result<PortRange, PortsError> {
        if first > last {
            return Err(PortsError::Backwards(first, last));
        }
        Ok(PortRange { first, last })
    }

    /// Returns the first and the last port.
    pub const fn ends(self) -> (u16, u16) {
        (self.first, self.last)
    }

    /// Reports whether the range contains `port`.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for PortRange {
    type Err = PortsError;

    /// Parses a port (`22`) or a range (`1:1024` or `1-1024`).
    fn from_str(text: &str) -> Result<PortRange, PortsError> {
        let port = |part: &str| part.parse::<u16>().map_err(|_| PortsError::NotAPort(text.into()));
        match text.split_once([':', '-']) {
            Some((first, last)) => PortRange::new(port(first)?, port(last)?),
            None => port(text).map(|p| PortRange { first: p, last: p }),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return write!(f, "{}", self.first);
        }
        write!(f, "{}:{}", self.first, self.last)
    }
}

impl From<PortRange> for String {
    fn from(ports: PortRange) -> String {
        ports.to_string()
    }
}

impl TryFrom<String> for PortRange {
    type Error = PortsError;
    fn try_from(text: String) -> Result<PortRange, PortsError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colon_and_dash_mean_the_same() {
        assert_eq!("1:1024".parse::<PortRange>(), "1-1024".parse());
        assert_eq!("1-1024".parse::<PortRange>().unwrap().to_string(), "1:1024");
    }

    #[test]
    fn a_range_holds_both_ends_and_nothing_beyond() {
        let r = PortRange::new(10, 12).unwrap();
        assert!(r.contains(10) && r.contains(12));
        assert!(!r.contains(9) && !r.contains(13));
    }

    #[test]
    fn reversed_port_ranges_and_invalid_ports_are_refused() {
        assert_eq!("9:1".parse::<PortRange>(), Err(PortsError::Backwards(9, 1)));
        assert!(matches!("65536".parse::<PortRange>(), Err(PortsError::NotAPort(_))));
        assert!(matches!("ssh".parse::<PortRange>(), Err(PortsError::NotAPort(_))));
    }
}
