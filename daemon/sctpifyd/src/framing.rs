//! Splits the byte streams of connections into the messages that native peers expect. The rule of the connection must have a
//! framing (`shimrules -A ... --framing sip`).
//!
//! Between two sctpify hosts, the bytes are not split into messages, because the program at the other end also reads a stream.

use bytes::Bytes;
use control::Role;
use relay::{Framed, Framing, FramingError, Peer, Relay, Role as RelayRole};
use rules::Chain;
use sip::{Framer, Limits};

use crate::connection::Connection;
use crate::rules_store::RulesStore;

/// Framing that splits a SIP stream by Content-Length (RFC 3261 section 18.3) into messages (RFC 4168).
#[derive(Debug)]
struct Sip(Framer);

impl Framing for Sip {
    fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    fn next(&mut self) -> Result<Option<Framed>, FramingError> {
        // A ping asks whether this TCP connection still works (RFC 5626 section 4.4.1), so the daemon answers the ping itself.
        // HEARTBEAT chunks check the association.
        if self.0.take_ping() {
            return Ok(Some(Framed::Answer(b"\r\n")));
        }
        let message = self.0.next_message().map_err(|error| FramingError(error.to_string()))?;
        Ok(message.map(Framed::Message))
    }

    fn has_part(&self) -> bool {
        !self.0.is_empty()
    }

    fn in_stream(&self, message: Bytes) -> Bytes {
        sip::in_stream(message)
    }
}

/// Creates a connection's relay. For a native peer, the relay uses the framing that the connection's rule names.
pub(crate) fn relay_for(connection: &Connection, rules: &RulesStore, part: RelayRole) -> Relay {
    let (chain, place) = match connection.role() {
        Role::Client => (Chain::Remote, connection.flow().remote()),
        Role::Server => (Chain::Local, connection.flow().local()),
    };
    let framing = (connection.peer() == Peer::Native)
        .then(|| rules.lock().explain(chain, place.ip(), place.port()).framing())
        .flatten();
    match framing {
        Some(rules::Framing::Sip) => Relay::framed(part, Box::new(Sip(Framer::new(Limits::default())))),
        None => Relay::new(connection.peer(), part),
    }
}
