//! Announcements of the proxies that share users: `ADDRESS FINGERPRINT`, optionally followed by ` draining` or ` gone`.

use std::net::SocketAddr;

use sip::proxy::Presence;

/// The identity of a proxy among the proxies that share users.
pub(crate) struct Own {
    /// Address of the proxy's first listener.
    pub(crate) address: SocketAddr,
    /// Fingerprint of the proxy's `dialog_key`. The key must be the same in all proxies that share users.
    pub(crate) fingerprint: String,
}

impl Own {
    /// Formats this proxy's announcement.
    pub(super) fn to_text(&self, presence: Presence) -> String {
        format!("{} {}{}", self.address, self.fingerprint, suffix_of(presence))
    }

    /// Parses another proxy's announcement.
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

/// Returns the suffix of an announcement of this state.
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
    fn a_proxys_announcement_is_understood_by_others() {
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
