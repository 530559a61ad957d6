//! One end of a connection: the handshake, the sending half, and the receiving half. Begin at [`End::poll`] and
//! [`End::on_segment`].

use std::time::Duration;

use base::Time;

use super::config::TcpConfig;
use super::receiver::Receiver;
use super::segment::{Piece, SACK_BLOCKS_MAX, Segment};
use super::sender::{Sender, TcpCounters};
use crate::exchange::{Exchange, Side};

/// State of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Opening {
    /// The server has received nothing.
    Silent,
    /// A SYN must be sent.
    Due,
    /// A SYN was sent `times` times, most recently at `at`. It is sent again after `wait`.
    Sent {
        at: Time,
        times: u32,
        wait: Duration,
    },
    Done,
}

#[derive(Clone, Debug)]
pub(super) struct End {
    side: Side,
    opening: Opening,
    times: u32,
    sender: Sender,
    receiver: Receiver,
}

impl End {
    pub(super) fn new(side: Side, config: &TcpConfig) -> End {
        let opening = if side == Side::Client { Opening::Due } else { Opening::Silent };
        End { side, opening, times: 0, sender: Sender::new(config), receiver: Receiver::new(config) }
    }

    pub(super) fn received(&self) -> u64 {
        self.receiver.received()
    }

    pub(super) fn counters(&self) -> TcpCounters {
        self.sender.counters()
    }

    /// Returns the next segment to leave. `exchange` determines how much data the application hands over.
    pub(super) fn poll(&mut self, now: Time, exchange: &Exchange) -> Option<Segment> {
        match self.opening {
            Opening::Due => return Some(self.open(now)),
            Opening::Silent | Opening::Sent { .. } => return None,
            Opening::Done => {}
        }
        self.sender.write(exchange.may_have_sent(self.side, self.receiver.received()));
        let piece = match self.sender.poll(now) {
            Some(piece) => piece,
            None if self.receiver.is_due() => Piece { seq: 0, len: 0 },
            None => return None,
        };
        let report = self.receiver.report();
        Some(Segment {
            is_syn: false,
            ack: Some(report.ack),
            sacks: report.sacks,
            is_of_duplicate: report.is_of_duplicate,
            at: now,
            echo: report.echo,
            piece,
        })
    }

    fn open(&mut self, now: Time) -> Segment {
        self.times += 1;
        let wait = self.sender.rto().get() * 2u32.saturating_pow(self.times - 1);
        self.opening = Opening::Sent { at: now, times: self.times, wait };
        let ack = (self.side == Side::Server).then_some(0);
        let piece = Piece { seq: 0, len: 0 };
        let sacks = [None; SACK_BLOCKS_MAX];
        Segment { is_syn: true, ack, sacks, is_of_duplicate: false, at: now, echo: None, piece }
    }

    pub(super) fn on_segment(&mut self, now: Time, segment: &Segment) {
        match (self.side, segment.is_syn) {
            (Side::Server, true) if self.opening != Opening::Done => self.opening = Opening::Due,
            // The other end has not received our acknowledgement of its SYN.
            (_, true) if self.opening == Opening::Done => self.receiver.ask(),
            (Side::Server, true) => {}
            (Side::Client, true) => {
                self.on_opened(now);
                self.receiver.ask();
            }
            (_, false) => {
                self.on_opened(now);
                self.on_plain(now, segment);
            }
        }
    }

    fn on_opened(&mut self, now: Time) {
        if let Opening::Sent { at, times, .. } = self.opening {
            if times == 1 {
                self.sender.rto().on_sample(now.since(at));
            }
            self.opening = Opening::Done;
        }
    }

    fn on_plain(&mut self, now: Time, segment: &Segment) {
        if self.opening != Opening::Done {
            return;
        }
        if let Some(ack) = segment.ack {
            self.sender.on_ack(now, ack, segment);
        }
        if segment.piece.len > 0 {
            self.receiver.on_piece(now, segment.at, segment.piece);
        }
    }

    pub(super) fn next_timeout(&self) -> Time {
        if let Opening::Sent { at, wait, .. } = self.opening {
            return at + wait;
        }
        self.sender.next_timeout().min(self.receiver.ack_at.unwrap_or(Time::NEVER))
    }

    pub(super) fn on_timeout(&mut self, now: Time) {
        match self.opening {
            Opening::Sent { at, wait, .. } if at + wait <= now => self.opening = Opening::Due,
            Opening::Done => {
                self.sender.on_timeout(now);
                self.receiver.on_timeout(now);
            }
            _ => {}
        }
    }
}
