//! Parses the operator's policies for this host's links. A policy sets a link's name, its use for data, the interval of its
//! heartbeats, and the cap on its monthly traffic.
//!
//! A link is an interface. Policies are written as `wwan* name=lte use=backup heartbeat_s=30; eth1 name=fibre`, or as tables
//! `[[link]]` of the configuration file with the same keys. Begin with [`Links::of`].

use std::fmt;
use std::str::FromStr;

use wildmatch::WildMatch;

use crate::nearest;

/// Maximum number of policies.
pub const LINKS_MAX: usize = 32;
/// Range of the interval of heartbeats, in seconds.
pub const LINK_HEARTBEAT_S: std::ops::RangeInclusive<u32> = 1..=600;
/// Range of a cap, in megabytes (10^6 bytes).
const CAP_MB: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;
/// Range of the day on which the month of a cap begins. Every month has these days.
const CAP_DAY: std::ops::RangeInclusive<i8> = 1..=28;
/// Default interval of heartbeats on an idle backup link, in seconds. It is shorter than the lifetime of most NATs' UDP
/// mappings.
const BACKUP_HEARTBEAT_S: u32 = 30;
/// Maximum length in bytes of an interface name (IFNAMSIZ without the terminating zero).
const PATTERN_BYTES_MAX: usize = 15;
/// Maximum length in characters of a link's name.
const NAME_CHARS_MAX: usize = 32;

/// The use of a link for data, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum LinkUse {
    /// Carries data while it works.
    Primary,
    /// Carries data while no primary link works. With a multipath scheduler that sends on all paths, it carries data together
    /// with the primary links.
    #[default]
    Secondary,
    /// Carries data only while no primary or secondary link works.
    Backup,
    /// Carries no SCTP.
    Never,
}

impl LinkUse {
    /// All uses, best first.
    pub const ALL: [LinkUse; 4] = [LinkUse::Primary, LinkUse::Secondary, LinkUse::Backup, LinkUse::Never];

    /// Returns the word for this use.
    pub const fn name(self) -> &'static str {
        match self {
            LinkUse::Primary => "primary",
            LinkUse::Secondary => "secondary",
            LinkUse::Backup => "backup",
            LinkUse::Never => "never",
        }
    }
}

/// The uses that a link may have after its cap is reached.
const AT_CAP: [LinkUse; 2] = [LinkUse::Never, LinkUse::Backup];

/// The policy of the links whose interface matches a pattern.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkPolicy {
    /// Pattern of interface names, with the wildcards `*` and `?`.
    pattern: String,
    name: Option<String>,
    usage: LinkUse,
    heartbeat_s: Option<u32>,
    cap_mb: Option<u64>,
    at_cap: Option<LinkUse>,
    cap_day: Option<i8>,
}

/// Cap on the monthly traffic of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cap {
    /// Bytes of the interface in a month, received and sent, at which the cap is reached.
    pub bytes: u64,
    /// Use of the link for the rest of the month: backup or never.
    pub then: LinkUse,
    /// Day on which the month begins (UTC), from 1 to 28.
    pub day: i8,
}

/// The reason why a policy was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// The policy has no such key.
    #[error("unknown key `{key}` of a link{}", .nearest.map_or(String::new(), |near| format!("; did you mean `{near}`?")))]
    UnknownKey {
        /// The key.
        key: String,
        /// The nearest existing key.
        nearest: Option<&'static str>,
    },
    /// The value is not valid for the key.
    #[error("invalid value `{value}` for {key} of a link: it takes {takes}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The accepted values.
        takes: String,
    },
    /// The policy names no interface.
    #[error("a link needs `match`, the name of its interface: eth1, or wwan* for several")]
    NoPattern,
    /// One policy names two interfaces.
    #[error("a link has one interface: put `;` between links")]
    TwoPatterns,
    /// The policy has no cap, but says more about it.
    #[error("{0} of a link needs cap_mb, the bytes of a month in megabytes")]
    NoCap(&'static str),
    /// There are too many policies.
    #[error("more than {LINKS_MAX} links")]
    TooMany,
}

impl LinkPolicy {
    /// The keys of a policy, as in the configuration file.
    pub const KEYS: [&'static str; 7] =
        ["match", "name", "use", "heartbeat_s", "cap_mb", "at_cap", "cap_day"];

    /// Sets one key.
    ///
    /// # Errors
    /// Fails if the key is unknown or the value is not valid for the key. The policy then stays unchanged.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), LinkError> {
        let refused = |key, takes: &str| LinkError::Value { key, value: value.into(), takes: takes.into() };
        match key {
            "match" if is_pattern(value) => self.pattern = value.into(),
            "match" => return Err(refused("match", "the name of an interface, with wildcards * and ?")),
            "name" if is_name(value) => self.name = Some(value.into()),
            "name" => {
                let takes = format!("1 to {NAME_CHARS_MAX} letters, digits, dots, hyphens and underscores");
                return Err(refused("name", &takes));
            }
            "use" => {
                let found = LinkUse::ALL.into_iter().find(|usage| usage.name() == value);
                self.usage =
                    found.ok_or_else(|| refused("use", &LinkUse::ALL.map(LinkUse::name).join(", ")))?;
            }
            "heartbeat_s" => {
                let seconds = value.parse().ok().filter(|seconds| LINK_HEARTBEAT_S.contains(seconds));
                let takes = format!("{} to {} seconds", LINK_HEARTBEAT_S.start(), LINK_HEARTBEAT_S.end());
                self.heartbeat_s = Some(seconds.ok_or_else(|| refused("heartbeat_s", &takes))?);
            }
            "cap_mb" => {
                let megabytes = value.parse().ok().filter(|megabytes| CAP_MB.contains(megabytes));
                let takes = format!("{} to {} megabytes", CAP_MB.start(), CAP_MB.end());
                self.cap_mb = Some(megabytes.ok_or_else(|| refused("cap_mb", &takes))?);
            }
            "at_cap" => {
                let found = AT_CAP.into_iter().find(|usage| usage.name() == value);
                let takes = AT_CAP.map(LinkUse::name).join(", ");
                self.at_cap = Some(found.ok_or_else(|| refused("at_cap", &takes))?);
            }
            "cap_day" => {
                let day = value.parse().ok().filter(|day| CAP_DAY.contains(day));
                let takes = format!("a day from {} to {}", CAP_DAY.start(), CAP_DAY.end());
                self.cap_day = Some(day.ok_or_else(|| refused("cap_day", &takes))?);
            }
            _ => {
                let nearest = nearest(key, Self::KEYS);
                return Err(LinkError::UnknownKey { key: key.into(), nearest });
            }
        }
        Ok(())
    }

    /// Returns the keys that are set, in the order of [`LinkPolicy::KEYS`], with their values.
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        let mut entries = vec![("match", self.pattern.clone())];
        entries.extend(self.name.clone().map(|name| ("name", name)));
        if self.usage != LinkUse::default() {
            entries.push(("use", self.usage.name().into()));
        }
        entries.extend(self.heartbeat_s.map(|seconds| ("heartbeat_s", seconds.to_string())));
        entries.extend(self.cap_mb.map(|megabytes| ("cap_mb", megabytes.to_string())));
        entries.extend(self.at_cap.map(|usage| ("at_cap", usage.name().into())));
        entries.extend(self.cap_day.map(|day| ("cap_day", day.to_string())));
        entries
    }

    /// Returns the name that the operator has given the link.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the use of the link.
    pub const fn usage(&self) -> LinkUse {
        self.usage
    }

    /// Returns the interval of heartbeats while the link is idle, in seconds; `None` means the interval that applies without a
    /// policy. A link that is not to be used may still have paths, of connections that have no other.
    pub fn heartbeat_s(&self) -> Option<u32> {
        let is_idle = matches!(self.usage, LinkUse::Backup | LinkUse::Never);
        self.heartbeat_s.or(is_idle.then_some(BACKUP_HEARTBEAT_S))
    }

    /// Returns the cap on the link's monthly traffic.
    pub fn cap(&self) -> Option<Cap> {
        let bytes = self.cap_mb?.saturating_mul(1_000_000);
        let then = self.at_cap.unwrap_or(LinkUse::Never).max(self.usage);
        Some(Cap { bytes, then, day: self.cap_day.unwrap_or(*CAP_DAY.start()) })
    }

    /// Returns the policy for the rest of a month in which the cap is reached.
    #[must_use]
    pub fn at_cap(&self) -> LinkPolicy {
        let usage = self.cap().map_or(self.usage, |cap| cap.then);
        LinkPolicy { usage, ..self.clone() }
    }
}

/// The policies in the order of the configuration. Invariants: up to [`LINKS_MAX`] policies, and each one has a pattern.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Links(Vec<LinkPolicy>);

impl Links {
    /// Returns the first policy that matches an interface.
    pub fn of(&self, interface: &str) -> Option<&LinkPolicy> {
        self.0.iter().find(|policy| WildMatch::new(&policy.pattern).matches(interface))
    }

    /// Returns the policies in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &LinkPolicy> {
        self.0.iter()
    }

    /// Adds a policy after the existing ones.
    ///
    /// # Errors
    /// Fails if the policy has no pattern, or says what to do at a cap without one, or there are too many policies.
    pub fn push(&mut self, policy: LinkPolicy) -> Result<(), LinkError> {
        if policy.pattern.is_empty() {
            return Err(LinkError::NoPattern);
        }
        if policy.cap_mb.is_none() {
            let extra = policy.at_cap.map(|_| "at_cap").or(policy.cap_day.map(|_| "cap_day"));
            extra.map_or(Ok(()), |key| Err(LinkError::NoCap(key)))?;
        }
        if self.0.len() >= LINKS_MAX {
            return Err(LinkError::TooMany);
        }
        self.0.push(policy);
        Ok(())
    }
}

fn is_pattern(value: &str) -> bool {
    let is_name_char =
        |c: char| !c.is_whitespace() && !c.is_control() && !['/', ':', ';', '=', '!', ','].contains(&c);
    (1..=PATTERN_BYTES_MAX).contains(&value.len()) && value.chars().all(is_name_char)
}

fn is_name(value: &str) -> bool {
    let is_name_char = |c: char| c.is_alphanumeric() || ['.', '-', '_'].contains(&c);
    (1..=NAME_CHARS_MAX).contains(&value.chars().count()) && value.chars().all(is_name_char)
}

impl fmt::Display for LinkPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)?;
        self.entries().iter().skip(1).try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, policy) in self.0.iter().enumerate() {
            write!(f, "{}{policy}", if n == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl FromStr for LinkPolicy {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<LinkPolicy, LinkError> {
        let mut policy = LinkPolicy::default();
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or(("match", word));
            if key == "match" && !policy.pattern.is_empty() {
                return Err(LinkError::TwoPatterns);
            }
            policy.set(key, value)?;
        }
        Ok(policy)
    }
}

impl FromStr for Links {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Links, LinkError> {
        let mut links = Links::default();
        for part in text.split(';').filter(|part| !part.trim().is_empty()) {
            links.push(part.parse()?)?;
        }
        Ok(links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "wwan* name=lte use=backup heartbeat_s=60 cap_mb=5000 at_cap=never cap_day=15; eth1 name=fibre; \
                        eth* use=primary; tun0 use=never";

    #[test]
    fn the_first_policy_that_matches_counts() {
        let links: Links = TEXT.parse().unwrap();
        let of = |interface: &str| {
            let policy = links.of(interface)?;
            Some((policy.name(), policy.usage(), policy.heartbeat_s()))
        };
        assert_eq!(of("wwan0"), Some((Some("lte"), LinkUse::Backup, Some(60))));
        assert_eq!(of("eth1"), Some((Some("fibre"), LinkUse::Secondary, None)));
        assert_eq!(of("eth2"), Some((None, LinkUse::Primary, None)));
        assert_eq!(of("tun0"), Some((None, LinkUse::Never, Some(30))));
        assert_eq!(of("wlan0"), None);
    }

    #[test]
    fn the_default_heartbeat_interval_of_a_backup_link_is_30_s() {
        let links: Links = "wwan0 use=backup".parse().unwrap();
        assert_eq!(links.of("wwan0").unwrap().heartbeat_s(), Some(30));
    }

    #[test]
    fn policies_read_back_as_they_were_written() {
        assert_eq!(TEXT.parse::<Links>().unwrap().to_string(), TEXT);
        assert_eq!(" ; ".parse(), Ok(Links::default()));
    }

    #[test]
    fn a_cap_is_in_megabytes_and_the_link_is_then_used_less() {
        let cap = |text: &str| text.parse::<LinkPolicy>().unwrap().cap();
        let mb = |count: u64| count * 1_000_000;
        assert_eq!(cap("wwan0 cap_mb=5000"), Some(Cap { bytes: mb(5000), then: LinkUse::Never, day: 1 }));
        let backup = Some(Cap { bytes: mb(1), then: LinkUse::Backup, day: 28 });
        assert_eq!(cap("wwan0 use=primary cap_mb=1 at_cap=backup cap_day=28"), backup);
        assert_eq!(cap("wwan0 use=never cap_mb=1 at_cap=backup").map(|cap| cap.then), Some(LinkUse::Never));
        assert_eq!(cap("wwan0 use=backup"), None);
        let capped: LinkPolicy = "wwan0 name=lte use=primary cap_mb=1 at_cap=backup".parse().unwrap();
        assert_eq!((capped.at_cap().usage(), capped.at_cap().name()), (LinkUse::Backup, Some("lte")));
        assert_eq!(capped.at_cap().heartbeat_s(), Some(BACKUP_HEARTBEAT_S));
        let unused: LinkPolicy = "wwan0 use=backup cap_mb=1".parse().unwrap();
        assert_eq!(unused.at_cap().heartbeat_s(), Some(BACKUP_HEARTBEAT_S), "not more often than before");
    }

    #[test]
    fn faults_are_told_with_their_key() {
        let fault = |text: &str| text.parse::<Links>().unwrap_err().to_string();
        assert_eq!(fault("eth0 us=backup"), "unknown key `us` of a link; did you mean `use`?");
        assert!(fault("eth0 use=spare").ends_with("it takes primary, secondary, backup, never"));
        assert!(fault("eth0 heartbeat_s=0").ends_with("it takes 1 to 600 seconds"));
        assert!(fault("eth0 cap_mb=0").contains("1 to 1000000000 megabytes"));
        assert!(fault("eth0 cap_mb=9 at_cap=secondary").ends_with("it takes never, backup"));
        assert!(fault("eth0 cap_mb=9 cap_day=29").ends_with("it takes a day from 1 to 28"));
        assert!(fault("eth0 cap_day=9").starts_with("cap_day of a link needs cap_mb"));
        assert!(fault("use=backup").starts_with("a link needs `match`"));
        assert!(fault("eth0 wwan0 use=backup").contains("put `;` between"));
        assert!(fault("eth0 name=a/b").contains("name of a link"));
        assert!(fault("a-name-that-is-too-long").contains("match of a link"));
        assert_eq!(fault(&"eth0; ".repeat(LINKS_MAX + 1)), format!("more than {LINKS_MAX} links"));
    }
}
