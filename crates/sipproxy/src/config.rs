//! The configuration file: TOML, checked before anything is opened.
//!
//! Unknown keys are errors. Begin with [`Config::read`].

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use sip::Transport;
use sip::digest::Algorithm;
use sip::proxy::{Authentication, Listener, NextHop, ProxyConfig};
use sip::transaction::Timers;

use crate::error::SipError;

/// All that the file says, checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// For the core.
    pub(crate) proxy: ProxyConfig,
    /// File of the bindings; `None`: they are kept in memory alone.
    pub(crate) store: Option<PathBuf>,
    /// The control socket; `None`: nobody can ask.
    pub(crate) control: Option<PathBuf>,
    /// Connections of one transport at most.
    pub(crate) connections: usize,
    /// Of SCTP.
    pub(crate) sctp: SctpConfig,
}

/// The table `[sctp]`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SctpConfig {
    /// What carries associations.
    pub(crate) carrier: SctpCarrier,
    /// Our UDP port of RFC 6951.
    pub(crate) udp_port: u16,
    /// The peers' UDP port.
    pub(crate) peer_udp_port: u16,
    /// Our addresses, beside that of the listener, that associations may use.
    pub(crate) addresses: Vec<IpAddr>,
    /// Streams to ask for.
    pub(crate) streams: u16,
    /// What keeps its order.
    pub(crate) order: SctpOrder,
}

/// What carries SCTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SctpCarrier {
    /// IP protocol 132.
    Ip,
    /// UDP.
    Udp,
}

/// Which messages arrive in the order they were sent in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SctpOrder {
    /// Those of one dialog, which share a stream.
    Dialog,
    /// None: all go unordered on stream 0, as RFC 4168 section 5.1 recommends.
    None,
}

impl Default for SctpConfig {
    fn default() -> SctpConfig {
        SctpConfig {
            carrier: SctpCarrier::Ip,
            udp_port: netio::SCTP_OVER_UDP_PORT,
            peer_udp_port: netio::SCTP_OVER_UDP_PORT,
            addresses: Vec::new(),
            streams: 64,
            order: SctpOrder::Dialog,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    domains: Vec<String>,
    #[serde(default)]
    listen: Vec<Listen>,
    #[serde(default)]
    next_hop: Vec<Way>,
    store: Option<PathBuf>,
    control: Option<PathBuf>,
    dialog_key: Option<String>,
    authentication: Option<Users>,
    #[serde(default)]
    registration: Registration,
    #[serde(default)]
    limits: Bounds,
    #[serde(default)]
    timers: T1,
    #[serde(default)]
    sctp: SctpConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listen {
    /// As in the thesis: UDP unless said otherwise.
    #[serde(default = "udp")]
    transport: String,
    address: SocketAddr,
}

fn udp() -> String {
    "udp".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {
    domain: String,
    #[serde(default = "udp")]
    transport: String,
    address: SocketAddr,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Users {
    realm: Option<String>,
    users: BTreeMap<String, String>,
    algorithms: Option<Vec<String>>,
}

impl Users {
    fn check(self, domain: &str) -> Result<Authentication, Wrong> {
        let realm = self.realm.unwrap_or_else(|| domain.to_owned());
        if realm.bytes().any(|b| b == b'"' || b.is_ascii_control()) {
            return Err(("authentication.realm", "must not have quotes or control characters".to_owned()));
        }
        let known = |name: &String| {
            let found = Algorithm::from_bytes(name.as_bytes());
            found.ok_or_else(|| {
                ("authentication.algorithms", format!("`{name}` is no hash: say SHA-256 or MD5"))
            })
        };
        let names = self.algorithms.as_deref();
        let algorithms = names.map(|names| names.iter().map(known).collect()).transpose()?;
        let algorithms: Vec<Algorithm> = algorithms.unwrap_or_else(|| Algorithm::ALL.to_vec());
        if algorithms.is_empty() {
            return Err(("authentication.algorithms", "is empty: say SHA-256, MD5, or both".to_owned()));
        }
        Ok(Authentication { realm, passwords: self.users, algorithms })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Registration {
    min_s: u32,
    default_s: u32,
    max_s: u32,
}

impl Default for Registration {
    fn default() -> Registration {
        Registration { min_s: 60, default_s: 3600, max_s: 86_400 }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Bounds {
    transactions: usize,
    retry_after_s: u32,
    branches: usize,
    contacts: usize,
    users: usize,
    message_bytes: usize,
    headers: usize,
    connections: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        let (proxy, location, message) =
            (sip::proxy::ProxyLimits::default(), sip::LocationLimits::default(), sip::Limits::default());
        Bounds {
            transactions: proxy.transactions,
            retry_after_s: proxy.retry_after,
            branches: proxy.branches,
            contacts: location.contacts,
            users: location.users,
            message_bytes: message.message,
            headers: message.headers,
            connections: 10_000,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct T1 {
    t1_ms: u64,
}

impl Default for T1 {
    fn default() -> T1 {
        T1 { t1_ms: 500 }
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The first thing that is wrong: which file, which key, and what would be right.
    pub(crate) fn read(path: &Path) -> Result<Config, SipError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SipError::Read { path: path.to_owned(), source })?;
        Config::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Config, SipError> {
        let file: File = toml::from_str(text).map_err(|error| {
            // Not the line itself: it may have a password, and this goes to the log.
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            SipError::Toml { path: path.to_owned(), problem: format!("line {line}: {}", error.message()) }
        })?;
        file.check().map_err(|(key, problem)| SipError::Config {
            path: path.to_owned(),
            key: key.to_owned(),
            problem,
        })
    }
}

impl Config {
    /// The first key that another configuration has changed although it is read at the start alone.
    pub(crate) fn fixed_change(&self, new: &Config) -> Option<&'static str> {
        let key = |config: &Config| config.proxy.dialog_secret;
        let messages = |config: &Config| (config.proxy.messages.message, config.proxy.messages.headers);
        let changes = [
            ("listen", self.proxy.listeners != new.proxy.listeners),
            ("store", self.store != new.store),
            ("control", self.control != new.control),
            ("dialog_key", key(self) != key(new)),
            ("limits.message_bytes and limits.headers", messages(self) != messages(new)),
            ("limits.connections", self.connections != new.connections),
            ("sctp", self.sctp != new.sctp),
        ];
        changes.into_iter().find(|(_, is_changed)| *is_changed).map(|(key, _)| key)
    }
}

/// A key and what is wrong with it.
type Wrong = (&'static str, String);

impl File {
    fn check(self) -> Result<Config, Wrong> {
        let domains =
            self.domains.iter().map(|name| domain("domains", name)).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = domains.first() else {
            return Err(("domains", "is empty: name the domain whose users register here".to_owned()));
        };
        let authentication = self.authentication.map(|users| users.check(first)).transpose()?;
        check_sctp(&self.sctp)?;
        let proxy = ProxyConfig {
            listeners: listeners(&self.listen)?,
            next_hops: next_hops(&self.next_hop, &domains)?,
            domains,
            authentication,
            expiry: self.registration.check()?,
            timers: self.timers.check()?,
            messages: sip::Limits { message: self.limits.message_bytes, headers: self.limits.headers },
            location: sip::LocationLimits { contacts: self.limits.contacts, users: self.limits.users },
            limits: self.limits.check()?,
            dialog_secret: self.dialog_key.as_deref().map(dialog_key).transpose()?,
        };
        let connections = self.limits.connections;
        Ok(Config { proxy, store: self.store, control: self.control, connections, sctp: self.sctp })
    }
}

fn listeners(listen: &[Listen]) -> Result<Vec<Listener>, Wrong> {
    let mut found: Vec<Listener> = Vec::new();
    for Listen { transport: name, address } in listen {
        let listener = Listener { transport: transport("listen.transport", name)?, address: *address };
        if address.ip().is_unspecified() || address.port() == 0 {
            let problem =
                format!("{address} cannot be told to others: say one address of this host, and a port");
            return Err(("listen.address", problem));
        }
        if found.contains(&listener) {
            return Err(("listen", format!("{name} {address} is there twice")));
        }
        found.push(listener);
    }
    if found.iter().filter(|listener| listener.transport == Transport::Sctp).count() > 1 {
        let problem = "sctp is there twice: listen once, and name our other addresses in sctp.addresses";
        return Err(("listen", problem.to_owned()));
    }
    if found.is_empty() {
        let problem = "is missing: add [[listen]] with transport = \"udp\" and address = \"192.0.2.1:5060\"";
        return Err(("listen", problem.to_owned()));
    }
    Ok(found)
}

fn next_hops(ways: &[Way], ours: &[String]) -> Result<Vec<NextHop>, Wrong> {
    let hop = |way: &Way| {
        let domain = domain("next_hop.domain", &way.domain)?;
        if ours.contains(&domain) {
            return Err((
                "next_hop.domain",
                format!("`{domain}` is one of our own domains: take it out of one place"),
            ));
        }
        Ok(NextHop {
            domain,
            transport: transport("next_hop.transport", &way.transport)?,
            address: way.address,
        })
    };
    ways.iter().map(hop).collect()
}

fn transport(key: &'static str, name: &str) -> Result<Transport, Wrong> {
    let known = Transport::ALL.into_iter().find(|transport| transport.as_lower_str() == name);
    known.ok_or_else(|| (key, format!("`{name}` is no transport: say udp, tcp or sctp")))
}

fn domain(key: &'static str, name: &str) -> Result<String, Wrong> {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err((key, format!("`{name}` is no domain: use letters, digits, `-` and `.`")));
    }
    Ok(name.to_ascii_lowercase())
}

/// 64 hexadecimal digits: a password would be guessed by whoever sees a mark made with it.
fn dialog_key(text: &str) -> Result<[u8; 32], Wrong> {
    let wrong =
        || ("dialog_key", "must be 64 hexadecimal digits: `openssl rand -hex 32` makes some".to_owned());
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(key)
}

fn check_sctp(sctp: &SctpConfig) -> Result<(), Wrong> {
    let ports = [("sctp.udp_port", sctp.udp_port), ("sctp.peer_udp_port", sctp.peer_udp_port)];
    if let Some((key, _)) = ports.into_iter().find(|(_, port)| *port == 0) {
        return Err((key, "must be 1 to 65535".to_owned()));
    }
    if let Some(address) = sctp.addresses.iter().find(|address| address.is_unspecified()) {
        return Err(("sctp.addresses", format!("{address} is no address of this host: name each one")));
    }
    if sctp.streams == 0 {
        return Err(("sctp.streams", "must be 1 to 65535".to_owned()));
    }
    Ok(())
}

impl Registration {
    fn check(&self) -> Result<sip::proxy::Expiry, Wrong> {
        if !(self.min_s <= self.default_s && self.default_s <= self.max_s && self.min_s > 0) {
            return Err(("registration", "must have 0 < min_s <= default_s <= max_s".to_owned()));
        }
        let seconds = |s: u32| Duration::from_secs(u64::from(s));
        Ok(sip::proxy::Expiry {
            min: seconds(self.min_s),
            default: seconds(self.default_s),
            max: seconds(self.max_s),
        })
    }
}

impl Bounds {
    fn check(&self) -> Result<sip::proxy::ProxyLimits, Wrong> {
        let all = [
            ("limits.transactions", self.transactions),
            ("limits.branches", self.branches),
            ("limits.contacts", self.contacts),
            ("limits.users", self.users),
            ("limits.headers", self.headers),
            ("limits.connections", self.connections),
        ];
        if let Some((key, _)) = all.into_iter().find(|(_, limit)| *limit == 0) {
            return Err((key, "must be at least 1".to_owned()));
        }
        if !(1500..=1 << 20).contains(&self.message_bytes) {
            return Err(("limits.message_bytes", "must be 1500 to 1048576".to_owned()));
        }
        Ok(sip::proxy::ProxyLimits {
            transactions: self.transactions,
            retry_after: self.retry_after_s,
            branches: self.branches,
        })
    }
}

impl T1 {
    fn check(&self) -> Result<Timers, Wrong> {
        if !(10..=5000).contains(&self.t1_ms) {
            return Err(("timers.t1_ms", "must be 10 to 5000".to_owned()));
        }
        Ok(Timers { t1: Duration::from_millis(self.t1_ms), ..Timers::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "domains = [\"Example.com\"]\n[[listen]]\naddress = \"127.0.0.1:5060\"\n";

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("sip.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_domain_and_an_address_are_enough_and_the_transport_is_udp() {
        let config = parse(LEAST).unwrap();
        assert_eq!(config.proxy.domains, ["example.com"]);
        assert_eq!(config.proxy.listeners[0].transport, Transport::Udp);
        assert_eq!((config.store, config.proxy.dialog_secret), (None, None));
    }

    #[test]
    fn a_dialog_key_is_read_as_hexadecimal_digits() {
        let config = parse(&format!("dialog_key = \"{}\"\n{LEAST}", "0a".repeat(32))).unwrap();
        assert_eq!(config.proxy.dialog_secret, Some([10; 32]));
    }

    #[test]
    fn an_error_names_file_key_and_remedy() {
        for (text, words) in [
            ("domains = []", "sip.toml: domains: is empty: name the domain"),
            ("domains = [\"a\"]", "sip.toml: listen: is missing: add [[listen]]"),
            (
                "domains = [\"a\"]\ndialog_key = \"geheim\"\n[[listen]]\naddress = \"127.0.0.1:1\"",
                "dialog_key: must be 64 hexadecimal digits",
            ),
            ("domains = [\"a b\"]", "sip.toml: domains: `a b` is no domain"),
            (
                "[[listen]]\ntransport = \"tls\"\naddress = \"127.0.0.1:1\"",
                "`tls` is no transport: say udp, tcp or sctp",
            ),
            (
                "[[listen]]\naddress = \"0.0.0.0:5060\"",
                "listen.address: 0.0.0.0:5060 cannot be told to others",
            ),
            ("[registration]\nmin_s = 9\ndefault_s = 8", "registration: must have 0 < min_s <= default_s"),
            ("[limits]\nbranches = 0", "limits.branches: must be at least 1"),
            ("[timers]\nt1_ms = 9", "timers.t1_ms: must be 10 to 5000"),
            (
                "[authentication]\nusers = {}\nalgorithms = [\"SHA-1\"]",
                "`SHA-1` is no hash: say SHA-256 or MD5",
            ),
            ("[sctp]\nstreams = 0", "sctp.streams: must be 1 to 65535"),
            ("[sctp]\naddresses = [\"0.0.0.0\"]", "sctp.addresses: 0.0.0.0 is no address of this host"),
        ] {
            let text = if text.starts_with("domains") { text.to_owned() } else { format!("{LEAST}{text}\n") };
            let error = parse(&text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_cannot_change_while_it_runs_is_named() {
        let old = parse(LEAST).unwrap();
        for (text, key) in [
            (format!("{LEAST}[limits]\nbranches = 3\n"), None),
            (format!("{LEAST}[[next_hop]]\ndomain = \"b\"\naddress = \"127.0.0.1:9\"\n"), None),
            (LEAST.replace("5060", "5070"), Some("listen")),
            (format!("store = \"x\"\n{LEAST}"), Some("store")),
            (format!("{LEAST}[limits]\nconnections = 3\n"), Some("limits.connections")),
            (format!("{LEAST}[sctp]\nstreams = 3\n"), Some("sctp")),
        ] {
            assert_eq!(old.fixed_change(&parse(&text).unwrap()), key, "{text}");
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_with_its_line() {
        let error = parse(&format!("{LEAST}adress = 1\n")).unwrap_err();
        assert!(error.contains("line 4") && error.contains("adress"), "{error}");
    }

    #[test]
    fn an_error_does_not_show_the_line_for_it_may_have_a_password() {
        let error = parse(&format!("{LEAST}[authentication]\nusers = {{ alice = geheim }}\n")).unwrap_err();
        assert!(error.contains("line 5") && !error.contains("alice"), "{error}");
    }
}
