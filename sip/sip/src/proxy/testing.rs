//! Settings and messages for the unit tests of the proxy's parts.

use base::Time;

use super::asked::Asked;
use super::cluster::Cluster;
use super::flows::Flows;
use super::names::Names;
use super::routing::Routing;
use super::tokens::HopTokens;
use super::{Listener, ProxyConfig};
use crate::essentials::Essentials;
use crate::location::{Location, LocationLimits};
use crate::message::Message;
use crate::transport::{Hop, Transport};

/// Returns settings with the domain `example.org`, and a listener at 192.0.2.1 for each transport.
pub(super) fn config() -> ProxyConfig {
    let listener = |transport: Transport| Listener {
        transport,
        address: ([192, 0, 2, 1], transport.default_port()).into(),
    };
    ProxyConfig {
        domains: vec!["example.org".into()],
        listeners: Transport::ALL.map(listener).to_vec(),
        ..ProxyConfig::default()
    }
}

/// Returns a hop over UDP.
pub(super) fn hop(address: &str) -> Hop {
    Hop { listener: 0, transport: Transport::Udp, address: address.parse().unwrap(), connection: None }
}

/// Parses a request. The first line of `text` is the method and the Request-URI. Its other lines are header fields, which precede the
/// required fields.
pub(super) fn request(text: &str) -> Message {
    let (start, fields) = text.split_once('\n').unwrap_or((text, ""));
    let (method, _) = start.split_once(' ').unwrap();
    let fields: String = fields.lines().map(|line| format!("{line}\r\n")).collect();
    let text = format!(
        "{start} SIP/2.0\r\n{fields}Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bKa\r\n\
         From: <sip:caller@example.org>;tag=caller\r\nTo: <sip:callee@example.org>\r\nCall-ID: call\r\n\
         CSeq: 1 {method}\r\n\r\n"
    );
    Message::parse(text.into(), &ProxyConfig::default().messages).unwrap()
}

/// Knowledge for routing. By default it is empty, except for the configuration of [`config`].
pub(super) struct Knowledge {
    pub(super) config: ProxyConfig,
    pub(super) flows: Flows,
    pub(super) names: Names,
    pub(super) cluster: Cluster,
    pub(super) location: Location,
}

impl Default for Knowledge {
    fn default() -> Knowledge {
        Knowledge {
            config: config(),
            flows: Flows::new(HopTokens::new([1; 32], 1)),
            names: Names::default(),
            cluster: Cluster::default(),
            location: Location::new(LocationLimits::default()),
        }
    }
}

impl Knowledge {
    pub(super) fn routing(&self, now: Time) -> Routing<'_> {
        let Knowledge { config, flows, names, cluster, location } = self;
        Routing::new(now, config, flows, names, cluster, location)
    }
}

/// Returns the request `text` of the server transaction `server`.
pub(super) fn asked(server: u64, text: &str) -> Asked {
    let request = request(text);
    let known = Essentials::of(&request).unwrap();
    Asked { server, from: hop("192.0.2.7:5060"), request, known, leg: None, mark: String::new() }
}
