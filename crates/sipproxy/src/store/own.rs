//! What proxies that share users say of themselves: `ADDRESS FINGERPRINT`, and ` draining` or ` gone` behind it.

use std::net::SocketAddr;

use sip::proxy::Presence;

/// How this proxy is known to those that share its users.
pub(crate) struct Own {
    /// Its first listener.
    pub(crate) address: SocketAddr,
    /// Of its key, which must be that of all.
    pub(crate) fingerprint: String,
}

impl Own {
    /// What it says of itself.
    pub(super) fn to_text(&self, presence: Presence) -> String {
        format!("{} {}{}", self.address, self.fingerprint, suffix_of(presence))
    }

    /// What another one says.
    pub(super) fn parse(text: &str) -> Option<(Own, Presence)> {
        let (address, rest) = text.split_once(' ')?;
        let said = [Presence::Draining, Presence::Gone].into_iter().find_map(|presence| {
            let fingerprint = rest.strip_suffix(suffix_of(presence))?;
            Some((fingerprint, presence))
        });
        let (fingerprint, presence) = said.unwrap_or((rest, Presence::Here));
        Some((Own { address: address.parse().ok()?, fingerprint: fingerprint.to_owned() }, presence))
    }
}

/// Behind what a proxy says of itself.
fn suffix_of(presence: Presence) -> &'static str {
    match presence {
        Presence::Here => "",
        Presence::Draining => " draining",
        Presence::Gone => " gone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_proxy_says_of_itself_is_understood_by_others() {
        let own = Own { address: "[2001:db8::1]:5060".parse().unwrap(), fingerprint: "00ff".to_owned() };
        for presence in [Presence::Here, Presence::Draining, Presence::Gone] {
            let (heard, is) = Own::parse(&own.to_text(presence)).unwrap();
            assert_eq!(
                (heard.address, heard.fingerprint, is),
                (own.address, own.fingerprint.clone(), presence)
            );
        }
        assert!(Own::parse("").is_none() && Own::parse("here 00ff").is_none());
    }
}
