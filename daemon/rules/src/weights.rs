//! Parses weights of paths. Each weight belongs to a network.
//!
//! Weights are written as `10.1.0.0/16=3 2001:db8::/32=1`, with values from 1 to 65,535. A text with other contents or with
//! more than [`WEIGHTS_MAX`] networks is refused. Begin with [`Weights::of`].

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};

use crate::IpNet;

/// Limit on the networks that can have a weight.
pub const WEIGHTS_MAX: usize = 32;

/// Weights of networks, in search order. Invariant: up to [`WEIGHTS_MAX`] networks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Weights(Vec<(IpNet, NonZeroU16)>);

impl Weights {
    /// Returns the weight of the path between two addresses. It is the weight of the first network that contains either
    /// address, or 1 if no network does.
    pub fn of(&self, local: IpAddr, remote: IpAddr) -> NonZeroU16 {
        let first = self.0.iter().find(|(network, _)| network.contains(local) || network.contains(remote));
        first.map_or(NonZeroU16::MIN, |(_, weight)| *weight)
    }
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (network, weight)) in self.0.iter().enumerate() {
            write!(f, "{}{network}={weight}", if n == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl FromStr for Weights {
    type Err = ();

    fn from_str(text: &str) -> Result<Weights, ()> {
        let weights = text.split_whitespace().map(|word| {
            let (network, weight) = word.split_once('=').ok_or(())?;
            Ok((network.parse().map_err(drop)?, weight.parse().map_err(drop)?))
        });
        let weights: Vec<_> = weights.collect::<Result<_, ()>>()?;
        if weights.len() <= WEIGHTS_MAX { Ok(Weights(weights)) } else { Err(()) }
    }
}

impl<'de> Deserialize<'de> for Weights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Weights, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || {
            format!(
                "invalid weights `{text}`: expected 192.0.2.0/24=3 198.51.100.7=1, with weights from 1 to 65535"
            )
        };
        text.parse().map_err(|()| D::Error::custom(wrong()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(weights: &Weights, local: &str, remote: &str) -> u16 {
        weights.of(local.parse().unwrap(), remote.parse().unwrap()).get()
    }

    #[test]
    fn the_first_network_with_either_address_gives_the_weight() {
        let weights: Weights = "10.1.2.3=5  10.1.0.0/16=3 2001:db8::/32=2".parse().unwrap();
        assert_eq!(of(&weights, "10.1.2.3", "192.0.2.1"), 5);
        assert_eq!(of(&weights, "192.0.2.1", "10.1.2.4"), 3);
        assert_eq!(of(&weights, "2001:db8::1", "2001:db8:1::1"), 2);
        assert_eq!(of(&weights, "192.0.2.1", "192.0.2.2"), 1);
        assert_eq!(weights.to_string(), "10.1.2.3=5 10.1.0.0/16=3 2001:db8::/32=2");
    }

    #[test]
    fn an_invalid_weight_is_refused() {
        for text in ["10.1.0.0/16", "10.1.0.0/16=0", "10.1.0.0/16=70000", "eth0=3", "=3", "10.1.0.0/40=1"] {
            assert_eq!(text.parse::<Weights>(), Err(()), "{text}");
        }
        assert_eq!("10.0.0.1=1 ".repeat(WEIGHTS_MAX + 1).parse::<Weights>(), Err(()));
        assert_eq!(" ".parse(), Ok(Weights::default()));
    }
}
