//! Notifications as the program's bytes (RFC 6458 section 6, with Linux' layouts).

use std::net::IpAddr;

use sockproto::SockAddr;
use sockproto::abi::notification as kind;

use crate::socket::Socket;

/// Length of `struct sockaddr_storage`, in bytes.
pub(crate) const STORAGE: usize = 128;

/// Bytes in the program's layout, field by field.
pub(crate) struct Fields(Vec<u8>);

impl Fields {
    pub(crate) fn new() -> Fields {
        Fields(Vec::new())
    }

    /// The header of a notification; its length is set at the end.
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

    /// An address in a `struct sockaddr_storage`.
    pub(crate) fn storage(mut self, address: &SockAddr) -> Fields {
        let end = self.0.len() + STORAGE;
        self.0.extend_from_slice(address.as_bytes());
        self.0.resize(end, 0);
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
    /// `SCTP_ASSOC_CHANGE`, if the program wants it.
    pub(crate) fn association_change(&self, state: u16, error: u16) -> Option<Vec<u8>> {
        let (inbound, outbound) = self.streams;
        self.options.wants(kind::ASSOC_CHANGE).then(|| {
            let fields = Fields::notification(kind::ASSOC_CHANGE).short(state).short(error);
            fields.short(outbound).short(inbound).id(self.id).with_length()
        })
    }

    /// `SCTP_PEER_ADDR_CHANGE`, if the program wants it.
    pub(crate) fn address_change(&self, address: IpAddr, state: u32) -> Option<Vec<u8>> {
        let peer = std::net::SocketAddr::new(address, self.peer.map_or(0, |peer| peer.port()));
        self.options.wants(kind::PEER_ADDR_CHANGE).then(|| {
            let fields = Fields::notification(kind::PEER_ADDR_CHANGE).storage(&self.name_of(peer));
            fields.long(state).long(0).id(self.id).with_length()
        })
    }

    /// A notification that names the association alone, if the program wants it.
    pub(crate) fn plain(&self, kind: u16) -> Option<Vec<u8>> {
        self.options.wants(kind).then(|| Fields::notification(kind).id(self.id).with_length())
    }
}

/// Queues the notifications of an association that is up.
pub(crate) fn up(socket: &mut Socket, adaptation: Option<u32>) {
    socket.before.extend(socket.association_change(kind::COMM_UP, 0));
    // The indication by which servers know each other is not the program's.
    if let Some(indication) = adaptation.filter(|value| *value != crate::ADAPTATION)
        && socket.options.wants(kind::ADAPTATION)
    {
        let fields = Fields::notification(kind::ADAPTATION).long(indication).id(socket.id);
        socket.before.push_back(fields.with_length());
    }
}
