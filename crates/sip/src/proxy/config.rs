//! What a proxy is told at its start.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::digest::Algorithm;
use crate::location::LocationLimits;
use crate::network::Network;
use crate::parse::Limits;
use crate::proxy::gate::Access;
use crate::transaction::Timers;
use crate::transport::Transport;

/// One address that the proxy listens at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listener {
    /// What carries messages there.
    pub transport: Transport,
    /// What Via and Record-Route say; never unspecified.
    pub address: SocketAddr,
}

/// What Record-Route says in place of a listener's address: proxies that share users may all be found by it.
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

/// Where requests for a domain go that is not ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// The domain, in lower case.
    pub domain: String,
    /// What carries them.
    pub transport: Transport,
    /// Whom to send them to.
    pub address: SocketAddr,
}

/// Who has to prove who they are.
#[derive(Clone, Debug)]
pub struct Authentication {
    /// Shown to users.
    pub realm: String,
    /// Passwords by user name, without domain.
    pub passwords: BTreeMap<String, String>,
    /// Which hashes are asked for, the best first (RFC 8760 section 2.4). Some clients give up at one that they do not know
    /// instead of taking the next.
    pub algorithms: Vec<Algorithm>,
}

/// How long bindings live (RFC 3261 section 10.3).
#[derive(Clone, Copy, Debug)]
pub struct Expiry {
    /// Less is refused with 423.
    pub min: Duration,
    /// Where the client says nothing.
    pub default: Duration,
    /// More is cut down to this.
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

/// What proxies have in common that share users by a store; they need the same [`ProxyConfig::dialog_secret`], too.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// What the store's clock says at [`base::Time::ZERO`].
    pub origin: Duration,
}

/// How requests for others are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// They are forwarded to all places where they may arrive, by transactions of their own (RFC 3261 section 16).
    #[default]
    Stateful,
    /// They are forwarded to one place, and nothing is kept of them (section 16.11). Not with authentication, for a repetition would be
    /// refused; nor with [`ProxyConfig::names`] or [`ProxyConfig::shared`], for which they would have to wait.
    Stateless,
    /// Their senders are told where the user is (section 8.3).
    Redirect,
}

/// All settings.
#[derive(Clone, Debug, Default)]
pub struct ProxyConfig {
    /// How requests for others are served. Given at the start alone.
    pub mode: Mode,
    /// Domains whose users are registered here, in lower case.
    pub domains: Vec<String>,
    /// Our addresses.
    pub listeners: Vec<Listener>,
    /// What Record-Route says of listeners instead of their addresses, by their places in `listeners`.
    pub record_names: BTreeMap<usize, RecordName>,
    /// Ways to other domains.
    pub next_hops: Vec<NextHop>,
    /// Whether users have to prove who they are; `None`: not.
    pub authentication: Option<Authentication>,
    /// How long bindings live.
    pub expiry: Expiry,
    /// Transactions' timers.
    pub timers: Timers,
    /// Bounds on messages.
    pub messages: Limits,
    /// Bounds on bindings.
    pub location: LocationLimits,
    /// Bounds on what is going on.
    pub limits: ProxyLimits,
    /// The key of the marks that requests within dialogs are known by; `None`: one of its own, so that no dialog goes on through the
    /// next proxy.
    pub dialog_secret: Option<[u8; 32]>,
    /// Of proxies that share users; `None`: this one's users are its own.
    pub shared: Option<Shared>,
    /// Whether names of other domains are looked up: [`Output::Resolve`](super::Output::Resolve); else they get 500.
    pub names: bool,
    /// Who may send requests, and how many.
    pub access: Access,
    /// Where requests within dialogs may go, beside the addresses that have to do with the dialog or with us anyway.
    pub relay_networks: Vec<Network>,
}

/// Bounds on what is going on at once.
#[derive(Clone, Copy, Debug)]
pub struct ProxyLimits {
    /// Server transactions, those that only wait to be over included; beyond that requests get 503.
    pub transactions: usize,
    /// Bytes that are kept of messages, of all transactions together; beyond that requests get 503, and responses that do not fit are not
    /// kept for repetitions.
    pub kept_bytes: usize,
    /// What Retry-After says then, in seconds.
    pub retry_after: u32,
    /// Branches of one request.
    pub branches: usize,
    /// Dialogs that are known; beyond that the one that was silent longest is forgotten.
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
