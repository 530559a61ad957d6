//! Settings of a proxy.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::digest::Algorithm;
use crate::location::LocationLimits;
use crate::network::Network;
use crate::parse::Limits;
use crate::proxy::access::Access;
use crate::transaction::Timers;
use crate::transport::Transport;

/// One listening address of the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listener {
    /// The transport.
    pub transport: Transport,
    /// Address in Via and Record-Route. Must not be the unspecified address.
    pub address: SocketAddr,
}

/// A name or an address that Record-Route contains instead of a listener's address. Proxies that share users can all use the same name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordName {
    /// Name in lower case, or address.
    pub host: String,
    /// The port. With `None`, DNS provides the port together with the address (RFC 3263 section 4.2).
    pub port: Option<u16>,
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// A configured route to another domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// The domain, in lower case.
    pub domain: String,
    /// The transport.
    pub transport: Transport,
    /// The peer's address.
    pub address: SocketAddr,
}

/// Digest authentication settings.
#[derive(Clone, Debug)]
pub struct Authentication {
    /// The realm, which clients show to their users.
    pub realm: String,
    /// Passwords by user name, without domain.
    pub passwords: BTreeMap<String, String>,
    /// Hash algorithms of the challenges, the strongest first (RFC 8760 section 2.4). Some clients fail if they do not support the first
    /// algorithm. For these clients, leave that algorithm out.
    pub algorithms: Vec<Algorithm>,
}

/// Limits on the lifetime of bindings (RFC 3261 section 10.3).
#[derive(Clone, Copy, Debug)]
pub struct Expiry {
    /// Minimum lifetime. Requests for a shorter lifetime are rejected with 423.
    pub min: Duration,
    /// Lifetime if the client requests none.
    pub default: Duration,
    /// Maximum lifetime. Longer lifetimes are reduced to this value.
    pub max: Duration,
}

impl Default for Expiry {
    fn default() -> Expiry {
        Expiry {
            min: Duration::from_secs(60),
            default: Duration::from_secs(3600),
            max: Duration::from_secs(86_400),
        }
    }
}

/// Settings of proxies that share users in a store. These proxies also need the same [`ProxyConfig::dialog_secret`].
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// Time of the store's clock at [`base::Time::ZERO`].
    pub origin: Duration,
}

/// The mode in which requests are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The proxy forwards requests to all their targets, in its own transactions (RFC 3261 section 16).
    #[default]
    Stateful,
    /// The proxy forwards each request to one target, and keeps no state (section 16.11). This mode excludes authentication, because a
    /// retransmission would repeat a nonce count and be rejected. The mode also excludes [`ProxyConfig::names`] and
    /// [`ProxyConfig::shared`], because requests would have to wait for DNS or for the store.
    Stateless,
    /// The proxy redirects senders to the user's contacts (section 8.3).
    Redirect,
}

/// All settings of a proxy.
#[derive(Clone, Debug, Default)]
pub struct ProxyConfig {
    /// The mode in which requests are served. [`Proxy::set_config`](super::Proxy::set_config) cannot change the mode.
    pub mode: Mode,
    /// Domains whose users are registered here, in lower case.
    pub domains: Vec<String>,
    /// Addresses on which the proxy listens.
    pub listeners: Vec<Listener>,
    /// Replacements for listeners' addresses in Record-Route, by index into `listeners`.
    pub record_names: BTreeMap<usize, RecordName>,
    /// Routes to other domains.
    pub next_hops: Vec<NextHop>,
    /// Authentication of users. With `None`, no authentication is required.
    pub authentication: Option<Authentication>,
    /// Limits on the lifetime of bindings.
    pub expiry: Expiry,
    /// Transaction timers.
    pub timers: Timers,
    /// Limits on messages.
    pub messages: Limits,
    /// Limits on bindings.
    pub location: LocationLimits,
    /// Limits on concurrent activity.
    pub limits: ProxyLimits,
    /// Key of the marks that identify requests within dialogs. With `None`, the key is random. Other proxies, and this proxy after a
    /// restart, then do not recognize the requests of existing dialogs.
    pub dialog_secret: Option<[u8; 32]>,
    /// Settings of the shared store. With `None`, this proxy shares no users with other proxies.
    pub shared: Option<Shared>,
    /// True if names of other domains are resolved ([`Output::Resolve`](super::Output::Resolve)). Otherwise requests to such names get
    /// 500.
    pub names: bool,
    /// Access lists and rate limit.
    pub access: Access,
    /// Networks to which requests within dialogs may go. The addresses of the dialog's own participants, of registered users and of next
    /// hops are always permitted.
    pub relay_networks: Vec<Network>,
}

/// Limits on concurrent activity.
#[derive(Clone, Copy, Debug)]
pub struct ProxyLimits {
    /// Limit on server transactions, including transactions that only wait for retransmissions. Beyond the limit, requests get 503.
    pub transactions: usize,
    /// Limit on bytes of messages that all transactions keep. Beyond the limit, requests get 503, and responses are not kept for
    /// retransmission.
    pub kept_bytes: usize,
    /// Retry-After of these 503 responses, in seconds.
    pub retry_after: u32,
    /// Limit on a user's contacts to which one request is forwarded.
    pub branches: usize,
    /// Limit on known dialogs. Beyond the limit, the dialog that was silent longest is forgotten.
    pub dialogs: usize,
}

impl Default for ProxyLimits {
    fn default() -> ProxyLimits {
        ProxyLimits {
            transactions: 500_000,
            kept_bytes: 768 << 20,
            retry_after: 5,
            branches: 16,
            dialogs: 100_000,
        }
    }
}
