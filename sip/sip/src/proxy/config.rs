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
    /// The address in Via and Record-Route; never unspecified.
    pub address: SocketAddr,
}

/// A replacement for a listener's address in Record-Route: a name or address common to all proxies that share users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordName {
    /// A name in lower case, or an address.
    pub host: String,
    /// The port; `None`: it is looked up with the name (RFC 3263 section 4.2).
    pub port: Option<u16>,
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// The route to a foreign domain.
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
    /// The realm, shown to users.
    pub realm: String,
    /// Passwords by user name, without domain.
    pub passwords: BTreeMap<String, String>,
    /// The hashes to offer, the best first (RFC 8760 section 2.4). Some clients fail at an unsupported one instead of trying
    /// the next.
    pub algorithms: Vec<Algorithm>,
}

/// Limits on the lifetime of bindings (RFC 3261 section 10.3).
#[derive(Clone, Copy, Debug)]
pub struct Expiry {
    /// The minimum; shorter requests are rejected with 423.
    pub min: Duration,
    /// The lifetime if the client names none.
    pub default: Duration,
    /// The maximum; longer requests are reduced to this.
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

/// Settings common to proxies that share users in a store; they also need the same [`ProxyConfig::dialog_secret`].
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// The store clock's reading at [`base::Time::ZERO`].
    pub origin: Duration,
}

/// The mode in which requests are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Forwards requests to all their targets, in transactions of its own (RFC 3261 section 16).
    #[default]
    Stateful,
    /// Forwards requests to one target, and keeps no state (section 16.11). Not with authentication, because a retransmission would be
    /// rejected; nor with [`ProxyConfig::names`] or [`ProxyConfig::shared`], which would make them wait.
    Stateless,
    /// Redirects senders to the user's contacts (section 8.3).
    Redirect,
}

/// All settings.
#[derive(Clone, Debug, Default)]
pub struct ProxyConfig {
    /// The mode in which requests are served. Cannot be changed later.
    pub mode: Mode,
    /// Domains whose users are registered here, in lower case.
    pub domains: Vec<String>,
    /// Our addresses.
    pub listeners: Vec<Listener>,
    /// Replacements for listeners' addresses in Record-Route, by index into `listeners`.
    pub record_names: BTreeMap<usize, RecordName>,
    /// Routes to other domains.
    pub next_hops: Vec<NextHop>,
    /// Authentication of users; `None`: not required.
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
    /// The key of the marks that identify requests within dialogs; `None`: a random one, so that dialogs do not continue through
    /// another proxy.
    pub dialog_secret: Option<[u8; 32]>,
    /// Set if proxies share users; `None`: this proxy has users of its own.
    pub shared: Option<Shared>,
    /// If true, names of other domains are looked up with [`Output::Resolve`](super::Output::Resolve); otherwise they get 500.
    pub names: bool,
    /// Access lists and rate limit.
    pub access: Access,
    /// Permitted addresses for requests within dialogs, in addition to addresses related to the dialog or to us.
    pub relay_networks: Vec<Network>,
}

/// Limits on concurrent activity.
#[derive(Clone, Copy, Debug)]
pub struct ProxyLimits {
    /// Server transactions, including those that only wait to end; beyond that requests get 503.
    pub transactions: usize,
    /// Bytes kept of messages in all transactions together; beyond that requests get 503, and responses that do not fit are not
    /// kept for retransmission.
    pub kept_bytes: usize,
    /// The Retry-After of those responses, in seconds.
    pub retry_after: u32,
    /// Branches per request.
    pub branches: usize,
    /// Known dialogs; beyond that the one that was silent longest is forgotten.
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
