//! The tables of the configuration file, and the checks on their values.
//!
//! Begin with [`File::check`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rules::{Multipath, Weights};
use serde::Deserialize;
use sip::digest::Algorithm;
use sip::proxy::{Access, Authentication, Listener, Mode, NextHop, ProxyConfig, RecordName};
use sip::transaction::Timers;
use sip::{Network, Transport};
use stores::USUAL_ROOTS;

use super::{Config, SctpConfig, Secure};
use crate::store::StoreAddress;
use crate::transport::{TlsContext, TlsFiles};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    domains: Vec<String>,
    #[serde(default)]
    mode: ModeName,
    #[serde(default)]
    listen: Vec<Listen>,
    #[serde(default)]
    next_hop: Vec<NextHopSection>,
    store: Option<String>,
    store_roots: Option<PathBuf>,
    control: Option<PathBuf>,
    #[serde(default)]
    page_port: u16,
    #[serde(default = "drain_s")]
    drain_s: u32,
    #[serde(default)]
    relay_networks: Vec<String>,
    dialog_key: Option<String>,
    authentication: Option<Users>,
    #[serde(default)]
    access: Sources,
    #[serde(default)]
    registration: Registration,
    #[serde(default)]
    limits: Bounds,
    #[serde(default)]
    timers: T1,
    #[serde(default)]
    sctp: SctpConfig,
    tls: Option<Tls>,
    #[serde(default)]
    dns: NameServers,
    hep: Option<Collector>,
}

/// The key `mode`.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum ModeName {
    #[default]
    Proxy,
    Stateless,
    Redirect,
}

impl ModeName {
    fn mode(self) -> Mode {
        match self {
            ModeName::Proxy => Mode::Stateful,
            ModeName::Stateless => Mode::Stateless,
            ModeName::Redirect => Mode::Redirect,
        }
    }
}

/// Returns the default of `drain_s` in seconds. With the default T1, it is 64 × T1, the time for which a transaction waits for a response
/// (RFC 3261 table 4, timers B and F).
fn drain_s() -> u32 {
    32
}

/// The table `[hep]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Collector {
    collector: SocketAddr,
    #[serde(default)]
    agent: u32,
}

/// The table `[dns]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NameServers {
    enabled: bool,
    servers: Vec<SocketAddr>,
}

impl Default for NameServers {
    fn default() -> NameServers {
        NameServers { enabled: true, servers: Vec::new() }
    }
}

impl NameServers {
    /// Returns the configured name servers. If no name servers are configured, returns up to three of the system's name servers. If lookups
    /// are disabled, returns an empty list.
    fn of_system(self) -> Vec<SocketAddr> {
        if !self.enabled || !self.servers.is_empty() {
            return if self.enabled { self.servers } else { Vec::new() };
        }
        let text = std::fs::read_to_string(ops::RESOLV_CONF).unwrap_or_default();
        ops::name_servers(&text).into_iter().take(3).map(|ip| (ip, 53).into()).collect()
    }
}

/// The table `[tls]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    #[serde(default = "usual_roots")]
    roots: PathBuf,
}

fn usual_roots() -> PathBuf {
    USUAL_ROOTS.into()
}

impl Tls {
    fn check(self) -> Result<TlsContext, Wrong> {
        let files = TlsFiles { own: Some((self.certificate, self.key)), roots: self.roots };
        TlsContext::load(&files).map_err(|problem| ("tls", problem))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listen {
    /// Name of the transport. The default is UDP, as in the thesis that added SCTP to Partysip.
    #[serde(default = "udp")]
    transport: String,
    address: SocketAddr,
    /// Name, with or without a port, that replaces the address in Record-Route.
    record_route: Option<String>,
}

fn udp() -> String {
    "udp".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NextHopSection {
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
                ("authentication.algorithms", format!("unknown hash `{name}`: expected SHA-256 or MD5"))
            })
        };
        let names = self.algorithms.as_deref();
        let algorithms = names.map(|names| names.iter().map(known).collect()).transpose()?;
        let algorithms: Vec<Algorithm> = algorithms.unwrap_or_else(|| Algorithm::ALL.to_vec());
        if algorithms.is_empty() {
            return Err(("authentication.algorithms", "is empty: expected SHA-256, MD5 or both".to_owned()));
        }
        Ok(Authentication { realm, passwords: self.users, algorithms })
    }
}

/// Default limit on the requests per second of one source. It suffices for thousands of telephones behind one address.
const REQUESTS_PER_S: u32 = 200;
/// Default burst: the number of requests that one source can send at once after silence. After a power failure, 500 telephones behind one
/// address can register at once, with two requests each because of the challenge.
const BURST: u32 = 1000;

/// The table `[access]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Sources {
    allow: Vec<String>,
    deny: Vec<String>,
    unlimited: Vec<String>,
    requests_per_s: u32,
    burst: u32,
    sources: usize,
}

impl Default for Sources {
    fn default() -> Sources {
        let none = Vec::new;
        Sources {
            allow: none(),
            deny: none(),
            unlimited: none(),
            requests_per_s: REQUESTS_PER_S,
            burst: BURST,
            sources: Access::default().sources,
        }
    }
}

impl Sources {
    fn check(&self) -> Result<Access, Wrong> {
        if self.requests_per_s > 1_000_000 {
            return Err(("access.requests_per_s", "must be 0 to 1000000; 0 means unlimited".to_owned()));
        }
        if self.burst == 0 || self.sources < 2 {
            return Err(("access", "must have burst of at least 1 and sources of at least 2".to_owned()));
        }
        Ok(Access {
            allow: networks("access.allow", &self.allow)?,
            deny: networks("access.deny", &self.deny)?,
            unlimited: networks("access.unlimited", &self.unlimited)?,
            rate: self.requests_per_s,
            burst: self.burst,
            sources: self.sources,
        })
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
    kept_mib: usize,
    retry_after_s: u32,
    branches: usize,
    dialogs: usize,
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
            kept_mib: proxy.kept_bytes >> 20,
            retry_after_s: proxy.retry_after,
            branches: proxy.branches,
            dialogs: proxy.dialogs,
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

/// A key, and the fault of its value.
pub(super) type Wrong = (&'static str, String);

impl File {
    /// Checks and converts the whole file.
    ///
    /// # Errors
    /// The first fault.
    pub(super) fn check(self) -> Result<Config, Wrong> {
        let domains =
            self.domains.iter().map(|name| domain("domains", name)).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = domains.first() else {
            return Err(("domains", "is empty: name the domain whose users register here".to_owned()));
        };
        let authentication = self.authentication.map(|users| users.check(first)).transpose()?;
        check_sctp(&self.sctp)?;
        let is_stateless = self.mode == ModeName::Stateless;
        if is_stateless && authentication.is_some() {
            let problem = "does not go with mode = \"stateless\": a retransmitted request would be refused, because its \
                           digest response is already used";
            return Err(("authentication", problem.to_owned()));
        }
        // A stateless proxy looks up no names, because a lookup would make it keep the request until the answer arrives.
        let name_servers = if is_stateless { Vec::new() } else { self.dns.of_system() };
        let proxy = ProxyConfig {
            mode: self.mode.mode(),
            names: !name_servers.is_empty(),
            listeners: listeners(&self.listen)?,
            record_names: record_names(&self.listen)?,
            next_hops: next_hops(&self.next_hop, &domains)?,
            domains,
            authentication,
            expiry: self.registration.check()?,
            timers: self.timers.check()?,
            messages: sip::Limits { message: self.limits.message_bytes, headers: self.limits.headers },
            location: sip::LocationLimits { contacts: self.limits.contacts, users: self.limits.users },
            limits: self.limits.check()?,
            access: self.access.check()?,
            relay_networks: networks("relay_networks", &self.relay_networks)?,
            dialog_secret: self.dialog_key.as_deref().map(dialog_key).transpose()?,
            shared: None,
        };
        let has_roots = self.store_roots.is_some();
        let roots = self.store_roots.unwrap_or_else(usual_roots);
        let store = self.store.as_deref().map(|text| StoreAddress::parse(text, &roots)).transpose();
        let store = store.map_err(|problem| ("store", problem))?;
        if has_roots && !store.as_ref().is_some_and(StoreAddress::has_tls) {
            let problem =
                "requires a store with TLS: use rediss:// in store, or sslmode=verify-full after postgres://";
            return Err(("store_roots", problem.to_owned()));
        }
        if proxy.dialog_secret.is_none() && store.as_ref().is_some_and(StoreAddress::is_shared) {
            let problem = "is missing: proxies that share a store need the same key: generate it with `openssl rand -hex 32`";
            return Err(("dialog_key", problem.to_owned()));
        }
        if is_stateless && store.as_ref().is_some_and(StoreAddress::is_shared) {
            let problem =
                "is shared, which conflicts with mode = \"stateless\": requests would have to wait for it";
            return Err(("store", problem.to_owned()));
        }
        let connections = self.limits.connections;
        let (control, page_port) = (self.control, self.page_port);
        let hep = self.hep.map(|hep| (hep.collector, hep.agent));
        let drain = Some(self.drain_s).filter(|seconds| *seconds <= 3600);
        let drain = drain.ok_or(("drain_s", "must be 0 to 3600; 0 does not wait".to_owned()))?;
        let drain = Duration::from_secs(drain.into());
        let tls = self.tls.map(Tls::check).transpose()?;
        if tls.is_none() && proxy.listeners.iter().any(|listener| listener.transport == Transport::Tls) {
            let problem = "is missing: a listener with transport = \"tls\" needs certificate and key there";
            return Err(("tls", problem.to_owned()));
        }
        let sctp = self.sctp;
        Ok(Config { proxy, store, control, page_port, connections, sctp, name_servers, drain, hep, tls })
    }
}

fn networks(key: &'static str, texts: &[String]) -> Result<Vec<Network>, Wrong> {
    let network = |text: &String| text.parse().map_err(|error: sip::NetworkError| (key, error.to_string()));
    texts.iter().map(network).collect()
}

fn listeners(listen: &[Listen]) -> Result<Vec<Listener>, Wrong> {
    let mut found: Vec<Listener> = Vec::new();
    for Listen { transport: name, address, .. } in listen {
        let listener = Listener { transport: transport("listen.transport", name)?, address: *address };
        if address.ip().is_unspecified() || address.port() == 0 {
            let problem = format!("{address} cannot be announced: give one address of this host, and a port");
            return Err(("listen.address", problem));
        }
        if found.contains(&listener) {
            return Err(("listen", format!("{name} {address} is given twice")));
        }
        found.push(listener);
    }
    if found.iter().filter(|listener| listener.transport == Transport::Sctp).count() > 1 {
        let problem = "sctp is given twice: listen once, and name further addresses in sctp.addresses";
        return Err(("listen", problem.to_owned()));
    }
    if found.is_empty() {
        let problem = "is missing: add [[listen]] with transport = \"udp\" and address = \"192.0.2.1:5060\"";
        return Err(("listen", problem.to_owned()));
    }
    Ok(found)
}

fn record_names(listen: &[Listen]) -> Result<BTreeMap<usize, RecordName>, Wrong> {
    let named = listen.iter().enumerate().filter_map(|(at, l)| Some((at, l.record_route.as_deref()?)));
    named.map(|(at, text)| Ok((at, record_name(text)?))).collect()
}

/// Parses `NAME` or `NAME:PORT`. Other hosts look up the port of a plain `NAME` in DNS.
fn record_name(text: &str) -> Result<RecordName, Wrong> {
    const KEY: &str = "listen.record_route";
    let Some((host, port)) = text.split_once(':') else {
        return Ok(RecordName { host: domain(KEY, text)?, port: None });
    };
    let number = port.parse().ok().filter(|port| *port > 0);
    let wrong = || (KEY, format!("invalid port `{port}`: expected NAME or NAME:PORT"));
    Ok(RecordName { host: domain(KEY, host)?, port: Some(number.ok_or_else(wrong)?) })
}

fn next_hops(sections: &[NextHopSection], ours: &[String]) -> Result<Vec<NextHop>, Wrong> {
    let hop = |section: &NextHopSection| {
        let domain = domain("next_hop.domain", &section.domain)?;
        if ours.contains(&domain) {
            return Err((
                "next_hop.domain",
                format!("`{domain}` is also one of this proxy's domains: remove one of the two"),
            ));
        }
        Ok(NextHop {
            domain,
            transport: transport("next_hop.transport", &section.transport)?,
            address: section.address,
        })
    };
    sections.iter().map(hop).collect()
}

fn transport(key: &'static str, name: &str) -> Result<Transport, Wrong> {
    let known = Transport::ALL.into_iter().find(|transport| transport.as_lower_str() == name);
    known.ok_or_else(|| (key, format!("invalid transport `{name}`: expected udp, tcp, tls or sctp")))
}

fn domain(key: &'static str, name: &str) -> Result<String, Wrong> {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err((key, format!("invalid domain `{name}`: use letters, digits, `-` and `.`")));
    }
    Ok(name.to_ascii_lowercase())
}

/// Parses the value of `dialog_key`, which is 64 hexadecimal digits. A passphrase is not accepted. The key signs marks in Record-Route, so
/// an observer of the marks could guess a passphrase.
fn dialog_key(text: &str) -> Result<[u8; 32], Wrong> {
    let wrong = || {
        ("dialog_key", "must be 64 hexadecimal digits: generate them with `openssl rand -hex 32`".to_owned())
    };
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
        return Err(("sctp.addresses", format!("{address} is not an address of this host: name each one")));
    }
    if sctp.streams == 0 {
        return Err(("sctp.streams", "must be 1 to 65535".to_owned()));
    }
    if sctp.multipath_weights != Weights::default() && sctp.multipath != Multipath::Weighted {
        return Err(("sctp.multipath_weights", "requires multipath = \"weighted\"".to_owned()));
    }
    check_secure(sctp)
}

fn check_secure(sctp: &SctpConfig) -> Result<(), Wrong> {
    let is_off = sctp.secure == Secure::Off;
    if is_off && (!sctp.peers.is_empty() || sctp.known_peers_only || sctp.host_key.is_some()) {
        let problem = "is \"off\", so keys have no effect: expected \"try\" or \"require\", or no keys";
        return Err(("sctp.secure", problem.to_owned()));
    }
    if !is_off && sctp.host_key.is_none() {
        let problem = "is missing: name a file for this proxy's key, which is created at the first start";
        return Err(("sctp.host_key", problem.to_owned()));
    }
    if sctp.known_peers_only && sctp.secure != Secure::Require {
        return Err(("sctp.known_peers_only", "requires secure = \"require\"".to_owned()));
    }
    if sctp.known_peers_only && sctp.peers.is_empty() {
        return Err(("sctp.known_peers_only", "refuses everyone: add [[sctp.peer]]".to_owned()));
    }
    let mut addresses = BTreeSet::new();
    for address in sctp.peers.iter().map(|peer| peer.address) {
        if address.is_unspecified() || address.is_multicast() || address != address.to_canonical() {
            let problem =
                format!("{address} is no address of a host: an IPv4 address is written as 192.0.2.2");
            return Err(("sctp.peer", problem));
        }
        if !addresses.insert(address) {
            return Err(("sctp.peer", format!("{address} occurs twice")));
        }
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
            ("limits.kept_mib", self.kept_mib),
            ("limits.branches", self.branches),
            ("limits.dialogs", self.dialogs),
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
            kept_bytes: self.kept_mib.saturating_mul(1 << 20),
            retry_after: self.retry_after_s,
            branches: self.branches,
            dialogs: self.dialogs,
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
