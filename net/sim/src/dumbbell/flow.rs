//! The two programs of a flow: the writer and the reader.

use std::collections::VecDeque;

use base::Time;
use bytes::Bytes;
use sctp::{AssociationId, Endpoint, Ppid, SendOptions, StreamId};

use super::plan::{FlowPlan, Load};
use super::report::{FlowReport, Sample};

/// User data of the messages.
static ZEROS: [u8; 2048] = [0; 2048];

/// State of a flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) plan: FlowPlan,
    /// Association at the sender.
    pub(super) sender: Option<AssociationId>,
    /// Association at the receiver.
    pub(super) receiver: Option<AssociationId>,
    pub(super) report: FlowReport,
    /// Bytes still to hand over: of the whole file, or of the current write.
    left: u64,
    read: u64,
    is_shut: bool,
    /// Hand-over times of the messages that have not yet arrived.
    written_at: VecDeque<Time>,
    /// Bytes received before the common window.
    before_window: u64,
    /// Time of the last read.
    read_at: Option<Time>,
}

impl Flow {
    pub(super) fn new(plan: FlowPlan) -> Flow {
        let left = if let Load::File(bytes) = plan.load { bytes } else { 0 };
        Flow {
            plan,
            sender: None,
            receiver: None,
            report: FlowReport::default(),
            left,
            read: 0,
            is_shut: false,
            written_at: VecDeque::new(),
            before_window: 0,
            read_at: None,
        }
    }

    /// Returns the time at which the flow's bulk load ends; `None` for other loads, or if the flow's association is not
    /// established.
    pub(super) fn own_end(&self) -> Option<Time> {
        match (self.plan.load, self.report.established) {
            (Load::Bulk { lasting, .. }, Some(at)) => Some(at + lasting),
            _ => None,
        }
    }

    /// Hands over as much data as the send buffer and the plan allow. Shuts the association down after the last byte of a file,
    /// or after the duration of a bulk load.
    pub(super) fn write(&mut self, now: Time, endpoint: &mut Endpoint, buffer: usize) {
        let Some(id) = self.sender.filter(|_| self.report.established.is_some() && !self.is_shut) else {
            return;
        };
        match self.plan.load {
            Load::Bulk { write, low, .. } => {
                if self.own_end().is_some_and(|end| now >= end) {
                    return self.shut(now, endpoint, id);
                }
                let room = endpoint.send_capacity(id);
                if write == 0 {
                    self.left = room as u64;
                } else if self.left == 0 && buffer.saturating_sub(room) <= low {
                    self.left = write as u64;
                }
                self.hand_over(now, endpoint, id);
                endpoint.notify_when_writable(now, id);
            }
            Load::File(_) => {
                self.hand_over(now, endpoint, id);
                match self.left {
                    0 => self.shut(now, endpoint, id),
                    _ => endpoint.notify_when_writable(now, id),
                }
            }
            Load::Messages { .. } => {}
        }
    }

    /// Sends one message of [`Load::Messages`]. Returns the time at which the next message is due.
    pub(super) fn write_message(&mut self, now: Time, endpoint: &mut Endpoint) -> Option<Time> {
        let Load::Messages { length, every, until } = self.plan.load else { return None };
        let id = self.sender.filter(|_| self.report.established.is_some() && !self.is_shut)?;
        if now > Time::ZERO + until {
            self.shut(now, endpoint, id);
            return None;
        }
        self.left = length as u64;
        if self.hand_over(now, endpoint, id) {
            self.written_at.push_back(now);
        }
        self.left = 0;
        Some(now + every)
    }

    /// Hands over the current data in messages of one packet each, so the receiver need not keep parts of messages. Returns
    /// whether all data was accepted.
    fn hand_over(&mut self, now: Time, endpoint: &mut Endpoint, id: AssociationId) -> bool {
        let size = endpoint.fragment_size(id).min(ZEROS.len());
        while self.left > 0 {
            let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(size);
            let message = Bytes::from_static(&ZEROS[..length]);
            if endpoint.send(now, id, StreamId(0), Ppid(0), message, SendOptions::default()).is_err() {
                return false;
            }
            self.left -= length as u64;
            self.report.handed_over += length as u64;
        }
        true
    }

    fn shut(&mut self, now: Time, endpoint: &mut Endpoint, id: AssociationId) {
        self.is_shut = true;
        endpoint.shutdown(now, id);
    }

    /// Reads all available messages.
    pub(super) fn read(&mut self, now: Time, endpoint: &mut Endpoint) {
        let Some(id) = self.receiver else { return };
        while let Some(message) = endpoint.recv(now, id) {
            self.end_pause(now);
            self.read += message.len() as u64;
            if let Some(at) = self.written_at.pop_front() {
                self.report.latencies.push(now - at);
            }
        }
        if matches!(self.plan.load, Load::File(bytes) if self.read >= bytes) && self.report.finished.is_none()
        {
            self.report.finished = Some(now);
        }
    }

    /// Ends the current pause, because data was read or because the run ends.
    pub(super) fn end_pause(&mut self, now: Time) {
        let Some(since) = self.read_at.replace(now).or(self.report.established) else { return };
        self.report.longest_pause = self.report.longest_pause.max(now.since(since));
    }

    /// Returns the number of user bytes received until now.
    fn received(&self, endpoint: &Endpoint) -> u64 {
        let info = self.receiver.and_then(|id| endpoint.info(id));
        info.map_or(self.report.received, |info| info.counters.bytes_received)
    }

    pub(super) fn on_own_end(&mut self, receivers: &Endpoint) {
        self.report.in_own_time = self.received(receivers);
    }

    pub(super) fn on_window_begin(&mut self, receivers: &Endpoint) {
        self.before_window = self.received(receivers);
    }

    pub(super) fn on_window_end(&mut self, receivers: &Endpoint) {
        self.report.in_window = self.received(receivers) - self.before_window;
    }

    /// Stores the receiver's counters before its association is released.
    pub(super) fn count_received(&mut self, receivers: &Endpoint) {
        let Some(info) = self.receiver.and_then(|id| receivers.info(id)) else { return };
        self.report.received = info.counters.bytes_received;
        self.report.data = info.counters.data_received;
        self.report.duplicates = info.counters.data_duplicate;
    }

    /// Stores the sender's counters before its association is released.
    pub(super) fn count_sent(&mut self, senders: &Endpoint) {
        let Some(info) = self.sender.and_then(|id| senders.info(id)) else { return };
        self.report.retransmitted = info.counters.data_retransmitted;
        self.report.timeouts = info.counters.timeouts;
    }

    pub(super) fn sample(&mut self, at: Time, senders: &Endpoint) {
        let Some(info) = self.sender.and_then(|id| senders.info(id)) else { return };
        let cwnd = info.paths.first().map_or(0, |path| path.cwnd);
        let peer_rwnd = info.peer_rwnd;
        self.report.samples.push(Sample { at, buffered: info.send_buffered, cwnd, peer_rwnd });
    }
}
