//! The configuration file: TOML, checked before any socket or store is opened.
//!
//! Unknown keys are errors. Begin with [`Config::read`]; `file` has the tables and their checks.

mod file;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use keying::PublicKey;
use rules::{Multipath, Weights};
use serde::{Deserialize, Deserializer};
use sip::proxy::ProxyConfig;

use crate::error::SipError;
use crate::store::StoreAddress;
use crate::transport::TlsContext;
use file::File;

/// Checked contents of the configuration file.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Settings of the proxy core.
    pub(crate) proxy: ProxyConfig,
    /// Address of the store of bindings. `None` keeps bindings in memory only.
    pub(crate) store: Option<StoreAddress>,
    /// Path of the control socket; `None` disables it.
    pub(crate) control: Option<PathBuf>,
    /// Port on 127.0.0.1 for the page and the metrics; 0 disables them.
    pub(crate) page_port: u16,
    /// Limit on connections and associations per listener.
    pub(crate) connections: usize,
    /// Settings of SCTP.
    pub(crate) sctp: SctpConfig,
    /// Addresses of name servers. If the list is empty, the proxy looks up no names.
    pub(crate) name_servers: Vec<SocketAddr>,
    /// Time limit for draining.
    pub(crate) drain: Duration,
    /// Address of the HEP collector, and the capture agent number that identifies this proxy.
    pub(crate) hep: Option<(SocketAddr, u32)>,
    /// TLS settings; `None` without the table `[tls]`.
    pub(crate) tls: Option<TlsContext>,
}

/// The table `[sctp]`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SctpConfig {
    /// Carrier of associations.
    pub(crate) carrier: SctpCarrier,
    /// Local UDP port for SCTP over UDP (RFC 6951).
    pub(crate) udp_port: u16,
    /// UDP port of the peers for SCTP over UDP.
    pub(crate) peer_udp_port: u16,
    /// Local addresses of associations, in addition to the listener's address.
    pub(crate) addresses: Vec<IpAddr>,
    /// Number of outgoing streams to request for each association.
    pub(crate) streams: u16,
    /// Set of messages that keep their order.
    pub(crate) order: SctpOrder,
    /// Congestion control of paths.
    pub(crate) congestion: SctpCongestion,
    /// Use of the paths for messages: one path at a time, or all paths with a scheduler.
    pub(crate) multipath: Multipath,
    /// Weights of the paths with `multipath = "weighted"`.
    pub(crate) multipath_weights: Weights,
    /// Encryption of associations.
    pub(crate) secure: Secure,
    /// File with this program's key, created if it is missing. `None` makes a key that ends with the program.
    pub(crate) host_key: Option<PathBuf>,
    /// True if only peers with a key of `peers` are accepted.
    pub(crate) known_peers_only: bool,
    /// Peers whose keys are known (the blocks `[[sctp.peer]]`).
    #[serde(rename = "peer")]
    pub(crate) peers: Vec<KnownPeer>,
}

/// Encryption of associations (ADR 0027).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Secure {
    /// No association is encrypted.
    Off,
    /// Associations with peers that offer encryption, and with known peers, are encrypted.
    Try,
    /// All associations are encrypted.
    Require,
}

/// A peer whose key is known. Associations with its address are encrypted, and the peer must prove this key.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownPeer {
    /// An address of the peer.
    pub(crate) address: IpAddr,
    /// The peer's public key.
    #[serde(deserialize_with = "public_key")]
    pub(crate) key: PublicKey,
}

fn public_key<'de, D: Deserializer<'de>>(from: D) -> Result<PublicKey, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

/// The carrier of SCTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SctpCarrier {
    /// IP protocol 132.
    Ip,
    /// UDP.
    Udp,
}

/// Congestion control of each path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SctpCongestion {
    /// CUBIC (RFC 9438), as in TCP.
    Cubic,
    /// An algorithm for private links that lose packets without congestion.
    LossTolerant,
}

/// Set of messages that arrive in the order in which they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SctpOrder {
    /// Messages of one dialog. They share a stream.
    Dialog,
    /// No messages. All messages are sent unordered on stream 0, as RFC 4168 section 5.1 recommends.
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
            congestion: SctpCongestion::Cubic,
            multipath: Multipath::Off,
            multipath_weights: Weights::default(),
            secure: Secure::Off,
            host_key: None,
            known_peers_only: false,
            peers: Vec::new(),
        }
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The first fault, with the file, the key and a valid value.
    pub(crate) fn read(path: &Path) -> Result<Config, SipError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SipError::Read { path: path.to_owned(), source })?;
        Config::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Config, SipError> {
        let file: File = toml::from_str(text).map_err(|error| {
            // The error omits the text of the line, because the error goes to the log, and the line may contain a password.
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
    /// Returns the first changed key among the keys that take effect only at startup.
    pub(crate) fn fixed_change(&self, new: &Config) -> Option<&'static str> {
        let key = |config: &Config| config.proxy.dialog_secret;
        let messages = |config: &Config| (config.proxy.messages.message, config.proxy.messages.headers);
        let changes = [
            ("mode", self.proxy.mode != new.proxy.mode),
            ("listen", self.proxy.listeners != new.proxy.listeners),
            ("listen.record_route", self.proxy.record_names != new.proxy.record_names),
            ("store", self.store != new.store),
            ("control", self.control != new.control),
            ("page_port", self.page_port != new.page_port),
            ("dialog_key", key(self) != key(new)),
            ("limits.message_bytes and limits.headers", messages(self) != messages(new)),
            ("limits.connections", self.connections != new.connections),
            ("sctp", self.sctp != new.sctp),
            ("hep", self.hep != new.hep),
            ("dns", self.name_servers != new.name_servers),
        ];
        changes.into_iter().find(|(_, is_changed)| *is_changed).map(|(key, _)| key)
    }
}
