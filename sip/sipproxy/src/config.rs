//! The configuration file: TOML, checked before anything is opened.
//!
//! Unknown keys are errors. Begin with [`Config::read`]; `file` has the tables and their checks.

mod file;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rules::{Multipath, Weights};
use serde::Deserialize;
use sip::proxy::ProxyConfig;

use crate::error::SipError;
use crate::store::StoreAddress;
use crate::transport::TlsContext;
use file::File;

/// The checked contents of the file.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Settings of the core.
    pub(crate) proxy: ProxyConfig,
    /// The store of bindings; `None`: memory only.
    pub(crate) store: Option<StoreAddress>,
    /// The control socket; `None`: disabled.
    pub(crate) control: Option<PathBuf>,
    /// The port of 127.0.0.1 for metrics; 0: none.
    pub(crate) page_port: u16,
    /// Limit on connections per transport.
    pub(crate) connections: usize,
    /// SCTP settings.
    pub(crate) sctp: SctpConfig,
    /// Name servers; empty: names are not looked up.
    pub(crate) name_servers: Vec<SocketAddr>,
    /// Time limit for draining.
    pub(crate) drain: Duration,
    /// The HEP collector, and our capture agent number there.
    pub(crate) hep: Option<(SocketAddr, u32)>,
    /// TLS settings, if there is a TLS listener.
    pub(crate) tls: Option<TlsContext>,
}

/// The table `[sctp]`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SctpConfig {
    /// The carrier of associations.
    pub(crate) carrier: SctpCarrier,
    /// Our UDP port of RFC 6951.
    pub(crate) udp_port: u16,
    /// The peers' UDP port.
    pub(crate) peer_udp_port: u16,
    /// Our addresses for associations, in addition to the listener's.
    pub(crate) addresses: Vec<IpAddr>,
    /// Streams to request.
    pub(crate) streams: u16,
    /// The order of messages.
    pub(crate) order: SctpOrder,
    /// The congestion control of paths.
    pub(crate) congestion: SctpCongestion,
    /// True if all paths carry messages, false if one at a time does.
    pub(crate) multipath: Multipath,
    /// The parts of the paths where these are weighted.
    pub(crate) multipath_weights: Weights,
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
    /// RFC 9438, as in TCP.
    Cubic,
    /// For private links that lose packets without congestion.
    LossTolerant,
}

/// The messages that arrive in the order in which they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SctpOrder {
    /// Messages of one dialog, which share a stream.
    Dialog,
    /// No ordering: all go unordered on stream 0, as RFC 4168 section 5.1 recommends.
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
        }
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The first fault: the file, the key, and a valid value.
    pub(crate) fn read(path: &Path) -> Result<Config, SipError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SipError::Read { path: path.to_owned(), source })?;
        Config::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Config, SipError> {
        let file: File = toml::from_str(text).map_err(|error| {
            // The line itself is omitted, since it may contain a password, and this goes to the log.
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
    /// Returns the first changed key that is read only at startup.
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
