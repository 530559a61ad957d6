//! Selects the interfaces and addresses of this host that SCTP uses, as the operator has configured them.
//!
//! The configuration is a list of words. Each word is an interface's name (`eth0`) or a pattern of names (`wwan*`), an address,
//! or a network (`192.0.2.0/24`). A word with a leading `!` excludes its interfaces or addresses. If the words give no verdict
//! on an address, the caller decides. Begin with [`Interfaces::of`].

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use wildmatch::WildMatch;

use crate::IpNet;

/// Maximum number of words.
pub const INTERFACES_MAX: usize = 32;
/// Maximum length in bytes of an interface name (IFNAMSIZ without the terminating zero).
const NAME_BYTES_MAX: usize = 15;

/// Verdict of the words on an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// No verdict: the caller's own policy decides.
    Unsaid,
    /// The address is used, and any peer may learn it.
    Used,
    /// The address is not used.
    LeftOut,
}

/// The configured words. Invariant: up to [`INTERFACES_MAX`] words.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interfaces(Vec<Word>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Word {
    is_left_out: bool,
    pattern: Pattern,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Pattern {
    /// Pattern of interface names, with the wildcards `*` and `?`.
    Name(String),
    Network(IpNet),
}

impl Interfaces {
    /// Returns the verdict on an address of the interface with this name. A word that excludes the address overrides words that
    /// include it. If at least one word includes an interface or address, every address that no word includes is excluded.
    pub fn of(&self, interface: &str, address: IpAddr) -> Listed {
        let speaks = |word: &&Word| match &word.pattern {
            Pattern::Name(pattern) => WildMatch::new(pattern).matches(interface),
            Pattern::Network(network) => network.contains(address),
        };
        let mut speaking = self.0.iter().filter(speaks);
        let names_some = self.0.iter().any(|word| !word.is_left_out);
        match (speaking.clone().any(|word| word.is_left_out), speaking.next().is_some(), names_some) {
            (true, ..) | (false, false, true) => Listed::LeftOut,
            (false, true, _) => Listed::Used,
            (false, false, false) => Listed::Unsaid,
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_left_out { "!" } else { "" })?;
        match &self.pattern {
            Pattern::Name(pattern) => write!(f, "{pattern}"),
            Pattern::Network(network) => write!(f, "{network}"),
        }
    }
}

impl fmt::Display for Interfaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, word) in self.0.iter().enumerate() {
            write!(f, "{}{word}", if n == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl FromStr for Word {
    type Err = ();

    fn from_str(text: &str) -> Result<Word, ()> {
        let (is_left_out, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let pattern = match text.parse::<IpNet>() {
            Ok(network) => Pattern::Network(network),
            // Interface names contain neither colon nor slash, so a text with one of these was meant as an address.
            Err(_)
                if text.is_empty() || text.len() > NAME_BYTES_MAX || text.contains(['/', ':', '!', ',']) =>
            {
                return Err(());
            }
            Err(_) => Pattern::Name(text.to_owned()),
        };
        Ok(Word { is_left_out, pattern })
    }
}

impl FromStr for Interfaces {
    type Err = ();

    fn from_str(text: &str) -> Result<Interfaces, ()> {
        let words: Vec<Word> = text.split_whitespace().map(str::parse).collect::<Result<_, ()>>()?;
        if words.len() <= INTERFACES_MAX { Ok(Interfaces(words)) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str, interface: &str, address: &str) -> Listed {
        words.parse::<Interfaces>().expect("words").of(interface, address.parse().expect("an address"))
    }

    #[test]
    fn an_empty_list_or_exclusions_of_other_interfaces_give_no_verdict() {
        assert_eq!(of("", "eth0", "192.0.2.1"), Listed::Unsaid);
        assert_eq!(of("!wwan*", "eth0", "192.0.2.1"), Listed::Unsaid);
        assert_eq!(of("!wwan*", "wwan0", "192.0.2.1"), Listed::LeftOut);
    }

    #[test]
    fn if_the_list_includes_some_interfaces_all_others_are_excluded() {
        assert_eq!(of("eth* 10.0.0.0/8", "eth3", "192.0.2.1"), Listed::Used);
        assert_eq!(of("eth* 10.0.0.0/8", "wg0", "10.1.2.3"), Listed::Used);
        assert_eq!(of("eth* 10.0.0.0/8", "wg0", "192.0.2.1"), Listed::LeftOut);
    }

    #[test]
    fn an_exclusion_overrides_an_inclusion() {
        assert_eq!(of("eth* !eth1", "eth1", "192.0.2.1"), Listed::LeftOut);
        assert_eq!(of("!192.0.2.7 eth0", "eth0", "192.0.2.7"), Listed::LeftOut);
        assert_eq!(of("!192.0.2.7 eth0", "eth0", "192.0.2.8"), Listed::Used);
    }

    #[test]
    fn words_read_back_as_they_were_written() {
        let text = "eth* br-wan !eth1 192.0.2.0/24 !2001:db8::/32 wwan?";
        assert_eq!(text.parse::<Interfaces>().expect("words").to_string(), text);
    }

    #[test]
    fn an_invalid_interface_or_network_is_refused() {
        for text in ["eth0,eth1", "192.0.2.0/33", "!", "a-name-that-is-too-long", "2001:db8::/x", "!!eth0"] {
            assert!(text.parse::<Interfaces>().is_err(), "{text}");
        }
        assert!("eth0 ".repeat(INTERFACES_MAX + 1).parse::<Interfaces>().is_err());
    }
}
