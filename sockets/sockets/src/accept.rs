//! Listeners: the decision on each INIT, and the sockets of accepted associations.

use std::net::SocketAddr;

use base::{Route, Time};
use sctp::{AbortCause, AssociationId, Endpoint, Event, IncomingInit, InitDecision, Listener};

use crate::socket::{Socket, State, Style};
use crate::{Errno, Output, SocketKey, Sockets};

/// Limit on the number of a listener's associations that wait for `accept`. The value is the default of Linux's
/// `net.core.somaxconn`.
const ACCEPTED_MAX: usize = 4096;

impl Sockets {
    /// `listen(2)`. A backlog of 0 ends the listening.
    ///
    /// # Errors
    /// `EISCONN` if the socket has an association; `EINVAL` after the association has ended.
    pub fn listen(&mut self, key: SocketKey, backlog: i32) -> Result<(), Errno> {
        match self.get(key)?.state {
            State::Idle | State::Listening { .. } => {}
            State::Connecting(_) | State::Up(_) => return Err(libc::EISCONN),
            State::Over(_) => return Err(libc::EINVAL),
        }
        self.bind_any(key)?;
        // As in Linux, a negative backlog means the greatest backlog.
        let backlog = usize::try_from(backlog).unwrap_or(ACCEPTED_MAX).min(ACCEPTED_MAX);
        self.get_mut(key)?.state = if backlog == 0 { State::Idle } else { State::Listening { backlog } };
        Ok(())
    }

    /// Reports whether the socket listens.
    pub fn is_listening(&self, key: SocketKey) -> bool {
        self.get(key).is_ok_and(|socket| matches!(socket.state, State::Listening { .. }))
    }

    /// Sets the number of a listener's associations that wait for `accept`.
    pub fn set_waiting(&mut self, listener: SocketKey, waiting: usize) {
        if let Ok(socket) = self.get_mut(listener) {
            socket.waiting = waiting;
        }
    }

    /// Returns the listener for an association at this local port over this route.
    fn listener_for(&self, port: u16, route: &Route) -> Option<(SocketKey, &Socket)> {
        let listens = |key: &SocketKey| {
            let socket = self.get(*key).ok()?;
            let is_bound = socket.bound.is_empty() || socket.bound.contains(&route.local);
            let State::Listening { .. } = socket.state else { return None };
            (is_bound && socket.takes(route.local)).then_some((*key, socket))
        };
        // A socket bound to the address precedes a socket bound to all addresses. An IPv4 socket precedes an IPv6 socket that also
        // accepts IPv4 peers.
        let mut all: Vec<_> = self.ports.holders(port).iter().filter_map(listens).collect();
        all.sort_by_key(|(_, socket)| (socket.bound.is_empty(), socket.family != crate::Family::V4));
        all.into_iter().next()
    }

    /// Accepts or refuses an association after the peer has returned the cookie (COOKIE ECHO).
    pub(crate) fn on_incoming(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        id: AssociationId,
        route: &Route,
        port: u16,
    ) {
        let Some((listener, socket)) = self.listener_for(port, route) else {
            return engine.refuse(now, id, AbortCause::default());
        };
        let State::Listening { backlog } = socket.state else { return };
        let uid = socket.uid;
        let under_way = self.accepting.values().filter(|of| **of == listener).count();
        let of_user = self.of_user(uid);
        // The associations of a one-to-many socket do not wait for `accept`, so the backlog does not limit them. The server accepts
        // them only while the user has fewer sockets than three quarters of the user's limit, so peers cannot use up this limit.
        let of_user_max = self.config.sockets_per_user;
        let (backlog, of_user_max) = match socket.style {
            Style::OneToMany => (ACCEPTED_MAX, of_user_max - of_user_max / 4),
            _ => (backlog, of_user_max),
        };
        let has_room = socket.waiting + under_way <= backlog && of_user < of_user_max;
        if !has_room {
            return engine.refuse(now, id, AbortCause::default());
        }
        self.accepting.insert(id, listener);
        engine.accept(now, id);
    }

    /// Creates the socket of an association that a listener has accepted and that is now up.
    pub(crate) fn on_accepted(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        association: AssociationId,
        event: &Event,
    ) {
        let Some(listener) = self.accepting.remove(&association) else { return };
        let Event::Established { route, .. } = event else { return };
        let (Ok(parent), Some(info)) = (self.get(listener), engine.info(association)) else {
            return engine.release(now, association);
        };
        let State::Listening { .. } = parent.state else { return engine.release(now, association) };
        let (state, peer) = (State::Up(association), SocketAddr::new(route.remote, info.remote_port));
        let key = if parent.style == Style::OneToMany {
            let Ok(member) = self.add_member(listener, state, peer) else { return };
            member
        } else {
            let id = self.next_id();
            let Ok(parent) = self.get_mut(listener) else { return };
            parent.waiting += 1;
            let socket = parent.of_association(Style::OneToOne, state, peer, id);
            let name = socket.name_of(peer);
            let key = self.insert(socket);
            self.outputs.push_back(Output::Accepted { listener, socket: key, peer: name });
            key
        };
        self.by_association.insert(association, key);
        self.on_up(now, engine, key, event);
    }
}

impl Listener for Sockets {
    fn on_init(&mut self, init: &IncomingInit) -> InitDecision {
        let Some((_, socket)) = self.listener_for(init.local_port, &init.route) else {
            return InitDecision::Refuse;
        };
        let local_addresses = self.announced(socket, init.route.remote);
        let config = socket.options.association();
        InitDecision::AcceptOn {
            local_addresses,
            outbound_streams: config.outbound_streams,
            inbound_streams: config.inbound_streams,
            extensions: config.extensions,
        }
    }
}
