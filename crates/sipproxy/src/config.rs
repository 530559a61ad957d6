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
use crate::store::StorePlace;
use crate::transport::TlsContext;
use file::File;

/// All that the file says, checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// For the core.
    pub(crate) proxy: ProxyConfig,
    /// Where bindings are kept; `None`: in memory alone.
    pub(crate) store: Option<StorePlace>,
    /// The control socket; `None`: nobody can ask.
    pub(crate) control: Option<PathBuf>,
    /// The port of 127.0.0.1 for metrics; 0: none.
    pub(crate) page_port: u16,
    /// Connections of one transport at most.
    pub(crate) connections: usize,
    /// Of SCTP.
    pub(crate) sctp: SctpConfig,
    /// Name servers; empty: names are not looked up.
    pub(crate) name_servers: Vec<SocketAddr>,
    /// How long what is under way may take to end once the proxy is to end.
    pub(crate) drain: Duration,
    /// Where messages are copied to, and the number to say there.
    pub(crate) hep: Option<(SocketAddr, u32)>,
    /// Of TLS, where there is such a listener.
    pub(crate) tls: Option<TlsContext>,
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
    /// How the windows of paths behave.
    pub(crate) congestion: SctpCongestion,
    /// Whether all paths carry messages, or one at a time.
    pub(crate) multipath: Multipath,
    /// The parts of the paths where these are weighted.
    pub(crate) multipath_weights: Weights,
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

/// Congestion control of each path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SctpCongestion {
    /// RFC 9438, as TCP has it.
    Cubic,
    /// For links of one's own that lose packets without being full.
    LossTolerant,
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
