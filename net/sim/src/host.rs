//! A host: addresses, an engine, and a program.

use std::net::IpAddr;
use std::time::Duration;

use base::Time;
use sctp::Endpoint;

use crate::app::App;

/// One host of a [`World`](crate::World).
pub struct Host {
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its engine. After a call from outside the world, run the world on ([`World::run_for`](crate::World::run_for)).
    pub endpoint: Endpoint,
    /// Its program.
    pub app: App,
    /// True if the endpoint runs; otherwise the host answers every packet with ICMP port unreachable.
    pub is_up: bool,
    /// Time by which its clock is ahead of the world's.
    pub(crate) ahead: Duration,
    /// Time until which other programs have its processor.
    pub(crate) busy_until: Time,
}

impl Host {
    /// Returns the world's time at which this host must be woken; [`Time::NEVER`] if it is down or waits for nothing.
    pub(crate) fn next_timeout(&self) -> Time {
        let next = self.endpoint.next_timeout().min(self.app.next_wake());
        if !self.is_up || next == Time::NEVER {
            return Time::NEVER;
        }
        (Time::ZERO + (next - Time::ZERO).saturating_sub(self.ahead)).max(self.busy_until)
    }
}
