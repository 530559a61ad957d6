//! Connections whose bytes flow: their beginning and their end.

use control::Role;
use mio::net::TcpStream;
use relay::{Closed, Role as RelayRole};

use crate::connection::{ConnectionId, Flowing, Stage};
use crate::framing::relay_for;
use crate::pump::{BYTES_PER_TURN, INTERESTS};
use crate::shard::{Shard, token_of, user_abort};

impl Shard {
    /// Joins a local TCP socket to the association of its connection.
    pub(crate) fn begin_relay(&mut self, id: ConnectionId, mut stream: TcpStream, role: RelayRole) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if role == RelayRole::Initiator
            && let Err(error) = self.poller.registry().register(&mut stream, token_of(id), INTERESTS)
        {
            tracing::warn!(%error, "a connection cannot be polled");
            self.drop_connection(id);
            return;
        }
        // A connection on a shared association never shuts the association down.
        let part = if connection.channel.is_some() { RelayRole::Acceptor } else { role };
        let mut relay = relay_for(connection, self.policy.rules(), part);
        if connection.peer_shutdown {
            relay.on_peer_shutdown();
        }
        if let Some(how) = connection.closed {
            relay.on_closed(how);
        }
        // Earlier events of a local program's socket were not kept: it may have ended already.
        let flowing = Flowing {
            stream,
            relay,
            readable: true,
            writable: true,
            hung_up: true,
            broken: false,
            leaving_until: None,
        };
        connection.stage = Stage::Relaying(Box::new(flowing));
        self.pump.mark(id);
    }

    /// Moves bytes of the ready connections, in turn, until this turn's limit is used up.
    pub(crate) fn pump_all(&mut self) {
        let mut left = BYTES_PER_TURN;
        for _ in 0..self.pump.len() {
            let (engine, connections) = (&mut self.engine, &mut self.connections);
            let (shared, history) = (&mut self.shared, &mut self.history);
            let served = self.pump.serve_next(self.now, engine, connections, shared, history);
            let Some(served) = served else { return };
            if served.is_finished {
                self.finish(served.id);
            }
            left = left.saturating_sub(served.moved);
            if left == 0 {
                return;
            }
        }
    }

    /// Copies the bytes that wait for the program, to release the packets that they came in.
    pub(crate) fn keep_unwritten(&mut self, id: ConnectionId) {
        if let Some(Stage::Relaying(flowing)) = self.connections.get_mut(id).map(|c| &mut c.stage) {
            flowing.relay.keep_unwritten();
        }
    }

    /// Ends a finished relay: closes the socket as the relay said.
    fn finish(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.remove(id) else { return };
        match connection.role {
            Role::Client => {
                self.interception.end_diversion_later(self.now, connection.flow, &mut self.timers)
            }
            Role::Server => self.interception.forget_served(self.now, connection.flow, &mut self.timers),
        }
        match connection.channel {
            Some(channel) => {
                let (engine, timers) = (&mut self.engine, &mut self.timers);
                let channel = (connection.association, channel);
                self.shared.release(self.now, channel, engine, &self.policy, timers);
            }
            None if connection.closed.is_some() => self.engine.release(self.now, connection.association),
            None => self.engine.set_user_memory(connection.association, 0),
        }
        self.release_addresses();
    }

    /// Releases addresses that were kept for a connection or diversion that has ended.
    pub(crate) fn release_addresses(&mut self) {
        if self.interception.keeps_addresses() {
            self.keep_addresses();
        }
    }

    /// Keeps exactly those addresses that live connections have and the host has lost.
    pub(crate) fn keep_addresses(&mut self) {
        let in_use = self.connections.iter().map(|(_, c)| c.flow.local().ip());
        self.interception.keep_addresses(in_use, self.policy.addresses());
    }

    /// Ends a connection at once: its association is aborted, its socket reset.
    pub(crate) fn drop_connection(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        if connection.closed.is_none() && connection.channel.is_none() {
            self.engine.abort(self.now, connection.association, user_abort());
        }
        self.finish(id);
    }

    /// Handles the end of a connection's association.
    pub(crate) fn on_association_closed(&mut self, id: ConnectionId, how: Closed) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.closed = Some(how);
        match &mut connection.stage {
            Stage::Relaying(flowing) => {
                flowing.relay.on_closed(how);
                self.pump.mark(id);
            }
            // The application has yet to arrive, and will get the data received.
            Stage::Diverted => {}
            Stage::Init(_)
            | Stage::Cookie(_)
            | Stage::Asking(_)
            | Stage::Connecting(_)
            | Stage::Accepting(_) => self.drop_connection(id),
        }
    }
}
