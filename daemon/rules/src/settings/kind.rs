//! Kinds of values that settings take, and their description in errors and manual pages.

use std::fmt;

/// Type and range of a setting's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// 0 or 1.
    Bool,
    /// A whole number.
    Number {
        /// The lowest value.
        min: u32,
        /// The highest value.
        max: u32,
        /// The unit: "ms", "times"; empty if the number has no unit.
        unit: &'static str,
    },
    /// One of these words.
    Word(&'static [&'static str]),
    /// Nothing, or a URL that begins with one of these schemes.
    Url(&'static [&'static str]),
    /// Nothing, or an IP address with a TCP port.
    Listen,
    /// Nothing, or the absolute path of a file.
    Path,
    /// Nothing, or the name or number of a user.
    User,
    /// Nothing, or networks with their weights.
    Weights,
    /// Nothing, or names of interfaces, addresses and networks.
    Interfaces,
    /// Nothing, or policies of links.
    Links,
    /// Nothing, or rules.
    Rules,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Bool => f.write_str("0 or 1 (also false, true, off, on)"),
            Kind::Number { min, max, unit: "" } => write!(f, "{min} to {max}"),
            Kind::Number { min, max, unit } => write!(f, "{min} to {max} {unit}"),
            Kind::Word(words) => f.write_str(&words.join(", ")),
            Kind::Weights => {
                f.write_str("nothing, or networks with weights from 1 to 65535: 10.1.0.0/16=3 10.2.0.0/16=1")
            }
            Kind::Interfaces => f.write_str(
                "nothing, or up to 32 interfaces, addresses and networks, with wildcards * and ?, ! excludes: \
                 eth0 wwan* !eth1 192.0.2.0/24",
            ),
            Kind::Links => f.write_str(
                "nothing, or up to 32 links, each with the name of its interface, with wildcards * and ?, and of name, use \
                 (primary, secondary, backup, never), heartbeat_s (1 to 600), cap_mb, at_cap (never, backup) and cap_day (1 \
                 to 28) those that matter: wwan* name=lte use=backup heartbeat_s=30 cap_mb=5000; eth1 name=fibre",
            ),
            Kind::Rules => f.write_str("nothing, or rules, one per line: -A -c remote -p enable -d 192.0.2.0/24 -P 22"),
            Kind::User => f.write_str("nothing, or the name or number of a user"),
            Kind::Listen => f.write_str("nothing, or an IP address with a port: 192.0.2.7:9898 or [2001:db8::7]:9898"),
            Kind::Path => f.write_str("nothing, or the path of a file, beginning with /"),
            Kind::Url(schemes) => write!(f, "nothing, or a URL that begins with {}", schemes.join(" or ")),
        }
    }
}
