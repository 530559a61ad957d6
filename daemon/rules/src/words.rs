//! Defines the settings whose values are words. The words may be written in upper or lower case.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// Encapsulations of SCTP packets to peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carriers {
    /// UDP encapsulation (RFC 6951) only.
    Udp,
    /// IP protocol 132 only.
    Ip132,
    /// UDP encapsulation and IP protocol 132 at once: the first answer determines the encapsulation.
    Both,
}

impl Carriers {
    pub(crate) const WORDS: &[&str] = &["udp", "ip132", "both"];

    /// Reports whether UDP encapsulation is in use.
    pub const fn has_udp(self) -> bool {
        !matches!(self, Carriers::Ip132)
    }

    /// Reports whether IP protocol 132 is in use.
    pub const fn has_ip132(self) -> bool {
        !matches!(self, Carriers::Udp)
    }

    const fn word(self) -> &'static str {
        match self {
            Carriers::Udp => "udp",
            Carriers::Ip132 => "ip132",
            Carriers::Both => "both",
        }
    }
}

impl fmt::Display for Carriers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Carriers {
    type Err = ();
    fn from_str(word: &str) -> Result<Carriers, ()> {
        let all = [Carriers::Udp, Carriers::Ip132, Carriers::Both];
        all.into_iter().find(|c| c.word().eq_ignore_ascii_case(word)).ok_or(())
    }
}

/// Use of an association's paths for data: one at a time, or all at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Multipath {
    /// Data uses one path at a time. If this path fails, data moves to another path.
    #[default]
    Off,
    /// Data uses all paths at once; paths with a shorter round trip are preferred.
    LowestRtt,
    /// Data uses all paths at once; each path gets a share of the data in proportion to its weight.
    Weighted,
    /// Every path carries all data.
    Redundant,
}

impl Multipath {
    pub(crate) const WORDS: &[&str] = &["off", "lowest-rtt", "weighted", "redundant"];

    const fn word(self) -> &'static str {
        match self {
            Multipath::Off => "off",
            Multipath::LowestRtt => "lowest-rtt",
            Multipath::Weighted => "weighted",
            Multipath::Redundant => "redundant",
        }
    }
}

impl fmt::Display for Multipath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Multipath {
    type Err = ();
    fn from_str(word: &str) -> Result<Multipath, ()> {
        let all = [Multipath::Off, Multipath::LowestRtt, Multipath::Weighted, Multipath::Redundant];
        all.into_iter().find(|m| m.word().eq_ignore_ascii_case(word)).ok_or(())
    }
}

/// Encryption of associations with other sctpify hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encryption {
    /// Encryption is not offered.
    Off,
    /// Encryption is used with peers that also offer it.
    #[default]
    Try,
    /// Encryption is required: peers that do not offer encryption get no association.
    Require,
}

impl Encryption {
    pub(crate) const WORDS: &[&str] = &["off", "try", "require"];

    const fn word(self) -> &'static str {
        match self {
            Encryption::Off => "off",
            Encryption::Try => "try",
            Encryption::Require => "require",
        }
    }

    /// Reports whether encryption is offered.
    pub const fn is_offered(self) -> bool {
        !matches!(self, Encryption::Off)
    }
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Encryption {
    type Err = ();
    fn from_str(word: &str) -> Result<Encryption, ()> {
        let all = [Encryption::Off, Encryption::Try, Encryption::Require];
        all.into_iter().find(|e| e.word().eq_ignore_ascii_case(word)).ok_or(())
    }
}

/// Congestion control: the algorithm that limits the data in flight and reacts to loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Congestion {
    /// CUBIC (RFC 9438), which most TCP implementations use.
    #[default]
    Cubic,
    /// The congestion control of RFC 9260, which is like TCP Reno.
    Rfc9260,
    /// Congestion control that uses a model of the path. A lost packet alone does not count as a sign of congestion.
    LossTolerant,
}

impl Congestion {
    pub(crate) const WORDS: &[&str] = &["cubic", "rfc9260", "loss-tolerant"];

    const fn word(self) -> &'static str {
        match self {
            Congestion::Cubic => "cubic",
            Congestion::Rfc9260 => "rfc9260",
            Congestion::LossTolerant => "loss-tolerant",
        }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Congestion {
    type Err = ();
    fn from_str(word: &str) -> Result<Congestion, ()> {
        let all = [Congestion::Cubic, Congestion::Rfc9260, Congestion::LossTolerant];
        all.into_iter().find(|c| c.word().eq_ignore_ascii_case(word)).ok_or(())
    }
}

/// Sharing of associations by the connections to one host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Streams {
    /// Connections share an association if the peer's host runs sctpify.
    #[default]
    Shared,
    /// Each connection has a separate association.
    Own,
}

impl Streams {
    pub(crate) const WORDS: &[&str] = &["shared", "own"];

    /// Reports whether connections share associations.
    pub const fn is_shared(self) -> bool {
        matches!(self, Streams::Shared)
    }

    const fn word(self) -> &'static str {
        match self {
            Streams::Shared => "shared",
            Streams::Own => "own",
        }
    }
}

impl fmt::Display for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Streams {
    type Err = ();
    fn from_str(word: &str) -> Result<Streams, ()> {
        [Streams::Shared, Streams::Own].into_iter().find(|s| s.word().eq_ignore_ascii_case(word)).ok_or(())
    }
}
