//! Sending half of a connection, of either kind: NewReno or RACK.

use base::Time;

use super::config::{Recovery, TcpConfig};
use super::newreno::NewReno;
use super::rack::Rack;
use super::rto::Rto;
use super::segment::{Piece, Segment};

/// Counters of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpCounters {
    /// Segments sent again.
    pub retransmitted: u64,
    /// Time-outs.
    pub timeouts: u64,
    /// Recoveries that needed no time-out.
    pub recoveries: u64,
    /// Tail-loss probes.
    pub probes: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Sender {
    NewReno(NewReno),
    Rack(Rack),
}

impl Sender {
    pub(super) fn new(config: &TcpConfig) -> Sender {
        match config.recovery {
            Recovery::NewReno { limited_transmit } => Sender::NewReno(NewReno::new(config, limited_transmit)),
            Recovery::Rack => Sender::Rack(Rack::new(config)),
        }
    }

    pub(super) fn rto(&mut self) -> &mut Rto {
        match self {
            Sender::NewReno(sender) => &mut sender.rto,
            Sender::Rack(sender) => &mut sender.rto,
        }
    }

    pub(super) fn counters(&self) -> TcpCounters {
        match self {
            Sender::NewReno(sender) => sender.counters,
            Sender::Rack(sender) => sender.counters,
        }
    }

    pub(super) fn write(&mut self, written: u64) {
        match self {
            Sender::NewReno(sender) => sender.write(written),
            Sender::Rack(sender) => sender.write(written),
        }
    }

    /// Handles a segment that acknowledges all data before `ack`.
    pub(super) fn on_ack(&mut self, now: Time, ack: u64, segment: &Segment) {
        match self {
            Sender::NewReno(sender) => sender.on_ack(now, ack, segment),
            Sender::Rack(sender) => sender.on_ack(now, ack, segment),
        }
    }

    pub(super) fn poll(&mut self, now: Time) -> Option<Piece> {
        match self {
            Sender::NewReno(sender) => sender.poll(now),
            Sender::Rack(sender) => sender.poll(now),
        }
    }

    pub(super) fn next_timeout(&self) -> Time {
        match self {
            Sender::NewReno(sender) => sender.next_timeout(),
            Sender::Rack(sender) => sender.next_timeout(),
        }
    }

    pub(super) fn on_timeout(&mut self, now: Time) {
        match self {
            Sender::NewReno(sender) => sender.on_timeout(now),
            Sender::Rack(sender) => sender.on_timeout(now),
        }
    }
}
