//! SIP by UDP, TCP and SCTP: what the thesis on SCTP in a SIP proxy measured, and what it left open.
//!
//! `world` has the hosts: a proxy between two hosts of user agents ([`world::Star`]), and two proxies with a link or two between
//! them ([`world::Joined`]); `load` has one of its own. All agents are `sctpify-ua`, all proxies `sctpify-sip`.

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

/// The transports, as series and as the programs name them.
const TRANSPORTS: [(&str, &str); 3] = [("UDP", "udp"), ("TCP", "tcp"), ("SCTP", "sctp")];

/// Returns the programs' name of a series' transport.
fn transport_of(series: &str) -> anyhow::Result<&'static str> {
    use anyhow::Context;
    Ok(TRANSPORTS.iter().find(|(name, _)| *name == series).context("no such series")?.1)
}
