//! The program on a host: answers INITs, sends its messages, reads, and closes.
//!
//! Begin at [`App::work`], which runs after each input of the host.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::Time;
use bytes::{Bytes, BytesMut};
use sctp::{
    AbortCause, AssociationId, AuthConfig, CloseReason, Endpoint, Event, Extensions, IncomingInit,
    InitDecision, Listener, Message, Ppid, Reliability, SendError, SendOptions, StreamId,
};

use crate::keying::Keying;

/// Decision on an INIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listen {
    /// The INIT is answered.
    Accept,
    /// The INIT is answered with these numbers of streams and these extensions.
    AcceptOn {
        /// Number of outbound streams, and of inbound streams.
        streams: u16,
        /// Extensions to offer.
        extensions: Extensions,
    },
    /// The INIT is answered with ABORT.
    Refuse,
    /// The INIT is ignored.
    Ignore,
}

/// Decision on an association that a peer has opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accept {
    /// The association is accepted immediately.
    AtOnce,
    /// The association waits until the test decides.
    Never,
    /// The association is refused immediately.
    Refuse,
}

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Stream of the message.
    pub stream: u16,
    /// True if the message may be delivered out of order.
    pub unordered: bool,
    /// User bytes of the message.
    pub bytes: Bytes,
}

/// A complete message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Stream of the message.
    pub stream: u16,
    /// True if the message was sent unordered.
    pub unordered: bool,
    /// User bytes of the message.
    pub bytes: Bytes,
    /// Number of parts in which the message was delivered.
    pub parts: usize,
}

/// Way in which the program reads an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// The program reads all available messages immediately.
    AtOnce,
    /// The program reads nothing.
    Never,
    /// The program reads one message at each interval.
    Every(Duration),
}

/// The condition on which this side shuts an association down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// Never: only the test shuts the association down.
    Never,
    /// After all outgoing data was handed over, and this many messages were received.
    After(usize),
}

/// One association as its program sees it.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Messages still to be handed over, in order.
    pub outgoing: VecDeque<Outgoing>,
    /// Reliability of messages handed over.
    pub reliability: Reliability,
    /// Bytes still to be sent on stream 0, in messages of one DATA chunk each.
    pub bulk: u64,
    /// Way in which the program reads.
    pub reading: Reading,
    /// Condition on which the program shuts the association down.
    pub close: Close,
    /// True if received data is kept, false if it is only counted.
    pub keeps: bool,
    /// Messages received, if kept.
    pub received: Vec<Received>,
    /// Messages that the peer abandoned after parts of them were received.
    pub received_aborted: usize,
    /// User bytes received.
    pub received_bytes: u64,
    /// Time of the last reception.
    pub last_received: Option<Time>,
    /// Longest time between two receptions.
    pub longest_silence: Duration,
    /// Reason for the end of the association; `None` before its end.
    pub closed: Option<CloseReason>,
    /// Progress of the conversation.
    pub progress: Progress,
}

/// Progress of a conversation.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    established: bool,
    next_read: Time,
    /// Partial messages, and the number of received parts of each. The key consists of the stream's number, and a flag that is
    /// true for unordered messages.
    partial: BTreeMap<(u16, bool), (BytesMut, usize)>,
    shut: bool,
}

impl Default for Conversation {
    fn default() -> Self {
        Conversation {
            outgoing: VecDeque::new(),
            reliability: Reliability::Full,
            bulk: 0,
            reading: Reading::AtOnce,
            close: Close::Never,
            keeps: true,
            received: Vec::new(),
            received_aborted: 0,
            received_bytes: 0,
            last_received: None,
            longest_silence: Duration::ZERO,
            closed: None,
            progress: Progress::default(),
        }
    }
}

/// The program of one host.
#[derive(Debug)]
pub struct App {
    /// Decision on INITs.
    pub listen: Listen,
    /// Decision on associations that peers have opened.
    pub accept: Accept,
    /// Initial state of a conversation that a peer has opened.
    pub template: Conversation,
    /// All conversations, including those that have ended.
    pub conversations: BTreeMap<AssociationId, Conversation>,
    /// Authentication of associations with these peers, in place of the endpoint's settings.
    pub keys: BTreeMap<std::net::IpAddr, AuthConfig>,
    /// Key management, for associations whose packets are protected.
    pub keying: Keying,
    /// All events, with their times.
    pub log: Vec<(Time, AssociationId, Event)>,
    addresses: Vec<std::net::IpAddr>,
}

impl App {
    pub(crate) fn new(addresses: Vec<std::net::IpAddr>) -> App {
        App {
            listen: Listen::Accept,
            accept: Accept::AtOnce,
            template: Conversation::default(),
            conversations: BTreeMap::new(),
            keys: BTreeMap::new(),
            keying: Keying::default(),
            log: Vec::new(),
            addresses,
        }
    }

    /// Handles events, reads and writes.
    pub(crate) fn work(&mut self, now: Time, endpoint: &mut Endpoint) {
        while let Some((id, event)) = endpoint.poll_event() {
            self.on_event(now, id, &event, endpoint);
            self.keying.on_event(now, id, &event, endpoint);
            self.log.push((now, id, event));
        }
        for (&id, conversation) in &mut self.conversations {
            conversation.read(now, id, endpoint);
            conversation.write(now, id, endpoint);
        }
    }

    fn on_event(&mut self, now: Time, id: AssociationId, event: &Event, endpoint: &mut Endpoint) {
        if let Event::Incoming { .. } = event {
            self.conversations.insert(id, self.template.clone());
            match self.accept {
                Accept::AtOnce => endpoint.accept(now, id),
                Accept::Refuse => endpoint.refuse(now, id, AbortCause::user("refused")),
                Accept::Never => {}
            }
        }
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        match event {
            Event::Established { .. } => conversation.progress.established = true,
            Event::Closed(reason) => {
                assert!(conversation.closed.is_none(), "{id:?} was closed twice, now for {reason:?}");
                conversation.closed = Some(reason.clone());
            }
            _ => {}
        }
    }

    /// Returns the time at which this program must work even without an event.
    pub(crate) fn next_wake(&self) -> Time {
        let reads = |c: &Conversation| match c.reading {
            Reading::Every(_) if c.progress.established && c.closed.is_none() => c.progress.next_read,
            _ => Time::NEVER,
        };
        self.conversations.values().map(reads).min().unwrap_or(Time::NEVER)
    }
}

impl Listener for App {
    fn auth_for(&mut self, peer: std::net::IpAddr) -> Option<AuthConfig> {
        self.keys.get(&peer).cloned()
    }

    fn on_init(&mut self, _init: &IncomingInit) -> InitDecision {
        match self.listen {
            Listen::Accept => InitDecision::Accept { local_addresses: self.addresses.clone() },
            Listen::AcceptOn { streams, extensions } => InitDecision::AcceptOn {
                local_addresses: self.addresses.clone(),
                outbound_streams: streams,
                inbound_streams: streams,
                extensions,
            },
            Listen::Refuse => InitDecision::Refuse,
            Listen::Ignore => InitDecision::Ignore,
        }
    }
}

impl Conversation {
    fn read(&mut self, now: Time, id: AssociationId, endpoint: &mut Endpoint) {
        if !self.progress.established {
            return;
        }
        match self.reading {
            Reading::Never => {}
            // After the end, all remaining data is read immediately.
            _ if self.closed.is_some() => self.read_all(now, id, endpoint),
            Reading::AtOnce => self.read_all(now, id, endpoint),
            Reading::Every(pause) => {
                if now >= self.progress.next_read {
                    self.progress.next_read = now + pause;
                    if let Some(message) = endpoint.recv(now, id) {
                        self.take(now, message);
                    }
                }
            }
        }
    }

    fn read_all(&mut self, now: Time, id: AssociationId, endpoint: &mut Endpoint) {
        while let Some(message) = endpoint.recv(now, id) {
            self.take(now, message);
        }
    }

    fn take(&mut self, now: Time, message: Message) {
        self.received_bytes += message.len() as u64;
        if let Some(last) = self.last_received.replace(now) {
            self.longest_silence = self.longest_silence.max(now - last);
        }
        if !self.keeps {
            return;
        }
        let key = (message.stream.0, message.unordered);
        assert_eq!(message.begin, !self.progress.partial.contains_key(&key), "begin flag of stream {key:?}");
        let (mut bytes, parts) = self.progress.partial.remove(&key).unwrap_or_default();
        message.pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        if message.aborted {
            self.received_aborted += 1;
        } else if message.end {
            let (stream, unordered) = key;
            self.received.push(Received { stream, unordered, bytes: bytes.freeze(), parts: parts + 1 });
        } else {
            self.progress.partial.insert(key, (bytes, parts + 1));
        }
    }

    fn write(&mut self, now: Time, id: AssociationId, endpoint: &mut Endpoint) {
        if !self.progress.established || self.closed.is_some() || self.progress.shut {
            return;
        }
        while let Some(next) = self.outgoing.front() {
            let options = SendOptions {
                unordered: next.unordered,
                reliability: self.reliability,
                ..SendOptions::default()
            };
            match endpoint.send(now, id, StreamId(next.stream), Ppid(0), next.bytes.clone(), options) {
                Ok(()) => self.outgoing.pop_front(),
                Err(SendError::WouldBlock | SendError::Closed) => break,
                Err(error) => panic!("{id:?} cannot send: {error}"),
            };
        }
        self.write_bulk(now, id, endpoint);
        let done = self.outgoing.is_empty() && self.bulk == 0;
        if matches!(self.close, Close::After(count) if done && self.received.len() >= count) {
            self.progress.shut = true;
            endpoint.shutdown(now, id);
        }
    }

    fn write_bulk(&mut self, now: Time, id: AssociationId, endpoint: &mut Endpoint) {
        let size = endpoint.fragment_size(id);
        while self.bulk > 0 {
            let length = usize::try_from(self.bulk).unwrap_or(usize::MAX).min(size);
            let message = Bytes::from(vec![0x5a; length]);
            if endpoint.send(now, id, StreamId(0), Ppid(0), message, SendOptions::default()).is_err() {
                break;
            }
            self.bulk -= length as u64;
        }
    }
}
