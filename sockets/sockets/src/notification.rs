//! Encoding of notifications (RFC 6458 section 6) in Linux's layouts.

use std::net::IpAddr;

use sockproto::SockAddr;
use sockproto::abi::notification as kind;

use base::Time;
use bytes::Bytes;
use sctp::{AbortCause, AssociationId, Endpoint};
use sockproto::DataHeader;

use crate::events::NOTES_MAX;
use crate::socket::{Socket, Unsent};

/// Length of `struct sockaddr_storage`, in bytes.
pub(crate) const STORAGE: usize = 128;

/// Builder of a C structure, field by field.
pub(crate) struct Fields(Vec<u8>);

impl Fields {
    pub(crate) fn new() -> Fields {
        Fields(Vec::new())
    }

    /// Begins a notification of this type with its header. [`with_length`](Self::with_length) sets the length in the header.
    fn notification(kind: u16) -> Fields {
        Fields::new().short(kind).short(0).long(0)
    }

    pub(crate) fn short(mut self, value: u16) -> Fields {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn long(mut self, value: u32) -> Fields {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn id(self, value: i32) -> Fields {
        self.long(value.cast_unsigned())
    }

    pub(crate) fn byte(mut self, value: u8) -> Fields {
        self.0.push(value);
        self
    }

    /// Appends an address as a `struct sockaddr_storage`.
    pub(crate) fn storage(mut self, address: &SockAddr) -> Fields {
        let end = self.0.len() + STORAGE;
        self.0.extend_from_slice(address.as_bytes());
        self.0.resize(end, 0);
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Fields {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }

    fn with_length(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[4..8].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

impl Socket {
    /// Returns an `SCTP_ASSOC_CHANGE`, if the program wants it.
    pub(crate) fn association_change(&self, state: u16, error: u16) -> Option<Vec<u8>> {
        let (inbound, outbound) = self.streams;
        self.options.wants(kind::ASSOC_CHANGE).then(|| {
            let fields = Fields::notification(kind::ASSOC_CHANGE).short(state).short(error);
            fields.short(outbound).short(inbound).id(self.id).with_length()
        })
    }

    /// Returns an `SCTP_ASSOC_CHANGE` for an association that the peer has aborted, with the error cause of its ABORT.
    pub(crate) fn aborted(&self, cause: &AbortCause) -> Option<Vec<u8>> {
        let mut note = self.association_change(kind::COMM_LOST, cause.code)?;
        if cause.code != 0 {
            let length = u16::try_from(4 + cause.reason.len()).unwrap_or(u16::MAX);
            note.extend_from_slice(&cause.code.to_be_bytes());
            note.extend_from_slice(&length.to_be_bytes());
            note.extend_from_slice(&cause.reason);
        }
        Some(Fields(note).with_length())
    }

    /// Returns an `SCTP_PEER_ADDR_CHANGE`, if the program wants it.
    pub(crate) fn address_change(&self, address: IpAddr, state: u32) -> Option<Vec<u8>> {
        let peer = std::net::SocketAddr::new(address, self.peer.map_or(0, |peer| peer.port()));
        self.options.wants(kind::PEER_ADDR_CHANGE).then(|| {
            let fields = Fields::notification(kind::PEER_ADDR_CHANGE).storage(&self.name_of(peer));
            fields.long(state).long(0).id(self.id).with_length()
        })
    }

    /// Queues a notification for each message of which no byte was sent, if the program wants such notifications. These
    /// notifications follow the notification of the association's end.
    pub(crate) fn note_unsent(&mut self, now: Time, engine: &mut Endpoint, association: AssociationId) {
        if !self.options.wants(kind::SEND_FAILED) && !self.options.wants(kind::SEND_FAILED_EVENT) {
            self.unsent = Unsent::default();
            return;
        }
        let of_engine = std::iter::from_fn(|| engine.take_unsent(now, association)).map(|message| {
            let mut header = DataHeader::new(sockproto::Kind::Data);
            (header.stream, header.ppid) = (message.stream.0, message.ppid.0.to_be());
            (header, message.into_bytes())
        });
        let mut waiting = std::mem::take(&mut self.unsent);
        let waiting = std::iter::from_fn(move || waiting.take());
        let room = NOTES_MAX.saturating_sub(self.after.len());
        for (header, message) in of_engine.chain(waiting).take(room) {
            let notes = [self.send_failed(&header, &message), self.send_failed_event(&header, &message)];
            self.after.extend(notes.into_iter().flatten());
        }
    }

    /// Returns an `SCTP_SEND_FAILED`, if the program wants it.
    fn send_failed(&self, header: &DataHeader, message: &Bytes) -> Option<Vec<u8>> {
        self.options.wants(kind::SEND_FAILED).then(|| {
            let fields = Fields::notification(kind::SEND_FAILED).long(0);
            let fields = fields.short(header.stream).short(0).short(header.sinfo_flags).short(0);
            let fields = fields.long(header.ppid).long(header.context).long(header.tsn_or_lifetime);
            let fields = fields.long(0).long(0).id(self.id).id(self.id);
            fields.bytes(message).with_length()
        })
    }

    /// Returns an `SCTP_SEND_FAILED_EVENT`, if the program wants it.
    fn send_failed_event(&self, header: &DataHeader, message: &Bytes) -> Option<Vec<u8>> {
        self.options.wants(kind::SEND_FAILED_EVENT).then(|| {
            let fields = Fields::notification(kind::SEND_FAILED_EVENT).long(0);
            let fields = fields.short(header.stream).short(header.sinfo_flags);
            let fields = fields.long(header.ppid).long(header.context).id(self.id).id(self.id);
            fields.bytes(message).with_length()
        })
    }

    /// Returns a notification whose only field is the association's identifier, if the program wants it.
    pub(crate) fn plain(&self, kind: u16) -> Option<Vec<u8>> {
        self.options.wants(kind).then(|| Fields::notification(kind).id(self.id).with_length())
    }
}

/// Queues the notifications of an association that is up.
pub(crate) fn up(socket: &mut Socket, adaptation: Option<u32>) {
    socket.before.extend(socket.association_change(kind::COMM_UP, 0));
    // AUTH is not negotiated for programs. SCTP_AUTH_NO_AUTH reports this to the program (RFC 6458 section 6.1.8).
    if socket.options.wants(kind::AUTHENTICATION) {
        let fields = Fields::notification(kind::AUTHENTICATION).short(0).short(0).long(2).id(socket.id);
        socket.before.push_back(fields.with_length());
    }
    // The indication of sctpify's socket servers was not set by the peer's program, so the local program does not get it.
    if let Some(indication) = adaptation.filter(|value| *value != crate::ADAPTATION)
        && socket.options.wants(kind::ADAPTATION)
    {
        let fields = Fields::notification(kind::ADAPTATION).long(indication).id(socket.id);
        socket.before.push_back(fields.with_length());
    }
}
