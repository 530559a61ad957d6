//! Experiments with SIP over UDP, TCP and SCTP. They repeat the measurements of the thesis "SCTP Support in
//! SIP Proxy Server", and answer its open questions.
//!
//! `world` creates the hosts. [`world::Star`] has a proxy between two hosts of user agents. [`world::Joined`]
//! has two proxies with one or two links between them. `load` creates its own host. All agents are
//! `sctpify-ua`. All proxies are `sctpify-sip`, except that `load` also measures Kamailio.

mod agent_report;
pub(super) mod balance;
pub(super) mod diagram;
pub(super) mod failover;
pub(super) mod hol;
pub(super) mod latency;
pub(super) mod load;
pub(super) mod loss;
mod search;
mod world;

/// The transports: the name of the series, and the name in the programs' arguments.
const TRANSPORTS: [(&str, &str); 3] = [("UDP", "udp"), ("TCP", "tcp"), ("SCTP", "sctp")];

/// Returns the name of a series' transport in the programs' arguments.
fn transport_of(series: &str) -> anyhow::Result<&'static str> {
    use anyhow::Context;
    Ok(TRANSPORTS.iter().find(|(name, _)| *name == series).context("no such series")?.1)
}
