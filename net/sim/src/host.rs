//! A host: addresses, an engine, and a program.

use std::net::IpAddr;
use std::time::Duration;

use base::Time;
use sctp::Endpoint;

use crate::app::App;

/// One host of a [`World`](crate::World).
pub struct Host {
    /// Addresses of the host.
    pub addresses: Vec<IpAddr>,
    /// Engine of the host. After a direct call of the engine, run the world ([`World::run_for`](crate::World::run_for)).
    pub endpoint: Endpoint,
    /// Program of the host.
    pub app: App,
    /// True if the endpoint runs; otherwise the host answers every packet with ICMP port unreachable.
    pub is_up: bool,
    /// Time by which the host's clock is ahead of the world's clock.
    pub(crate) ahead: Duration,
    /// Time until which other programs use the host's processor.
    pub(crate) busy_until: Time,
}

impl Host {
    /// Returns the world's time at which this host must be woken. Returns [`Time::NEVER`] if the host is down or has no timer.
    pub(crate) fn next_timeout(&self) -> Time {
        let next = self.endpoint.next_timeout().min(self.app.next_wake());
        if !self.is_up || next == Time::NEVER {
            return Time::NEVER;
        }
        (Time::ZERO + (next - Time::ZERO).saturating_sub(self.ahead)).max(self.busy_until)
    }
}
