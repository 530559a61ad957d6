//! Identity of this proxy: the addresses, domains and users that belong to it according to its settings.

use super::config::{Listener, ProxyConfig, RecordName};
use super::refusal::{RELAYING_DENIED, UNSUPPORTED_SCHEME};
use crate::address::Address;
use crate::fault::Fault;
use crate::header::Name;
use crate::message::Message;
use crate::transport::Transport;
use crate::uri::{Scheme, Uri};
use crate::via::{Via, parse_ip};

impl ProxyConfig {
    /// Reports whether other proxies have the same users.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Reports whether the host of a URI is one of our domains, a listening address, or our name in Record-Route.
    pub(super) fn is_ours(&self, uri: &Uri<'_>) -> bool {
        if uri.scheme == Scheme::Other {
            return false;
        }
        let port = uri.port.unwrap_or(if uri.scheme == Scheme::Sips { 5061 } else { 5060 });
        let listens_at = |port| self.listeners.iter().any(|l| l.address.port() == port);
        if self.domains.iter().any(|domain| uri.host.eq_ignore_ascii_case(domain.as_bytes())) {
            return uri.port.is_none_or(listens_at);
        }
        let is_host = |name: &RecordName| uri.host.eq_ignore_ascii_case(name.host.as_bytes());
        if self.record_names.values().any(|name| is_host(name) && name.port == uri.port) {
            return true;
        }
        let ip = parse_ip(uri.host);
        self.listeners.iter().any(|l| Some(l.address.ip()) == ip && l.address.port() == port)
    }

    /// Reports whether we wrote this Via.
    pub(super) fn is_our_via(&self, via: &Via<'_>) -> bool {
        let host = parse_ip(via.host);
        self.listeners
            .iter()
            .any(|listener| Some(listener.address.ip()) == host && via.port == Some(listener.address.port()))
    }

    /// Returns the listener for requests over a transport to an address of this family.
    pub(super) fn listener_for(&self, transport: Transport, is_ipv4: bool) -> Result<usize, Fault> {
        let fits =
            |listener: &Listener| listener.transport == transport && listener.address.is_ipv4() == is_ipv4;
        let found = self.listeners.iter().position(fits);
        found.ok_or(Fault { status: 500, reason: "No Listener For The Next Hop's Transport" })
    }

    /// Returns the address-of-record of a URI. Our addresses count as the first domain, so `sip:user@ADDRESS` finds the user.
    pub(super) fn user_of(&self, uri: &Uri<'_>) -> String {
        let known = self.domains.iter().any(|d| uri.host.eq_ignore_ascii_case(d.as_bytes()));
        let address = uri.address_of_record();
        match (known, self.domains.first(), address.rsplit_once('@')) {
            (false, Some(domain), Some((user, _))) => format!("{user}@{domain}"),
            _ => address,
        }
    }

    /// Returns the fault for a request to a user without a binding. The fault is 480 if the user has a password, and otherwise 404.
    /// Without authentication, no passwords exist, so the fault is always 404.
    pub(super) fn nobody_there(&self, user: &str) -> Fault {
        let name = user.split('@').next().unwrap_or_default();
        let is_known = self.authentication.as_ref().is_some_and(|a| a.passwords.contains_key(name));
        if is_known {
            Fault { status: 480, reason: "Not Registered" }
        } else {
            Fault { status: 404, reason: "Not Found" }
        }
    }

    /// Checks that a request outside of dialogs may go to another domain.
    ///
    /// # Errors
    /// 416 if the target is not a SIP or SIPS URI (section 16.3), or 403 if From is not in one of our domains.
    pub(super) fn check_relay(&self, request: &Message, to: &Uri<'_>) -> Result<(), Fault> {
        if to.scheme == Scheme::Other {
            return Err(UNSUPPORTED_SCHEME);
        }
        let from = request.first(Name::From).and_then(|value| Address::parse(value).ok());
        let is_from_us = from.and_then(|a| Uri::parse(a.uri).ok()).is_some_and(|uri| self.is_ours(&uri));
        if is_from_us { Ok(()) } else { Err(RELAYING_DENIED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::Authentication;

    fn config() -> ProxyConfig {
        let listener = |transport, address: &str| Listener { transport, address: address.parse().unwrap() };
        let authentication = Authentication {
            realm: "example.org".into(),
            passwords: [("alice".to_owned(), "secret".to_owned())].into(),
            algorithms: Vec::new(),
        };
        ProxyConfig {
            domains: vec!["example.org".into(), "example.net".into()],
            listeners: vec![
                listener(Transport::Udp, "192.0.2.1:5060"),
                listener(Transport::Tls, "[2001:db8::1]:5061"),
            ],
            record_names: [(0, RecordName { host: "proxies.example.org".into(), port: Some(5070) })].into(),
            authentication: Some(authentication),
            ..ProxyConfig::default()
        }
    }

    #[test]
    fn domains_listeners_and_record_route_names_are_ours_only_at_their_ports() {
        let config = config();
        let is_ours = |uri: &str| config.is_ours(&Uri::parse(uri.as_bytes()).unwrap());
        for uri in [
            "sip:alice@EXAMPLE.org",
            "sip:example.net:5061",
            "sip:192.0.2.1",
            "sips:[2001:db8::1]",
            "sip:proxies.example.org:5070",
        ] {
            assert!(is_ours(uri), "{uri}");
        }
        for uri in [
            "sip:alice@example.com",
            "sip:example.org:5080",
            "sip:192.0.2.1:5061",
            "sip:[2001:db8::1]",
            "sip:proxies.example.org",
            "tel:+4930",
        ] {
            assert!(!is_ours(uri), "{uri}");
        }
    }

    #[test]
    fn an_address_of_ours_stands_for_the_first_domain() {
        let user = |uri: &str| config().user_of(&Uri::parse(uri.as_bytes()).unwrap());
        assert_eq!(user("sip:alice@192.0.2.1"), "alice@example.org");
        assert_eq!(user("sip:alice@example.net"), "alice@example.net");
    }

    #[test]
    fn an_unregistered_user_gets_480_with_a_password_and_404_without() {
        assert_eq!(config().nobody_there("alice@example.org").status, 480);
        assert_eq!(config().nobody_there("bob@example.org").status, 404);
    }

    #[test]
    fn a_listener_serves_its_own_transport_and_address_family() {
        let config = config();
        assert_eq!(config.listener_for(Transport::Tls, false).unwrap(), 1);
        assert!(config.listener_for(Transport::Tls, true).is_err());
        assert!(config.listener_for(Transport::Udp, false).is_err());
    }
}
