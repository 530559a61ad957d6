//! One-to-many sockets (RFC 6458 section 3): associations that begin with a message, and `sctp_peeloff`.
//!
//! Each association has a separate [`Socket`](crate::socket::Socket), called a member. The program has no descriptor for a member.
//! A member copies the port, the addresses and the options of the one-to-many socket. `sctp_peeloff` turns a member into a
//! one-to-one socket.

use std::net::SocketAddr;

use base::Time;
use bytes::Bytes;
use sctp::{AbortCause, AssociationId, Endpoint};
use sockproto::abi::sinfo;
use sockproto::{DataHeader, Kind, Peer, flag};

use crate::deliver::Delivery;
use crate::socket::{Socket, State, Style};
use crate::{Errno, Network, Output, Sent, SocketKey, Sockets};

/// Limit on the memory of a member's waiting messages, in bytes. A member above this limit takes no further messages.
const UNSENT_MAX: usize = 256 << 10;
/// Limit that replaces `UNSENT_MAX` in [`Sockets::queue_unsent`], in bytes. The server calls this function while it drains a
/// one-to-many socket, and after the program has closed the socket.
const DRAINED_MAX: usize = 8 << 20;

impl Sockets {
    /// Reports whether a socket is of the one-to-many style.
    pub fn is_one_to_many(&self, key: SocketKey) -> bool {
        self.get(key).is_ok_and(|socket| socket.style == Style::OneToMany)
    }

    /// Returns the one-to-many socket of a member. For a socket that is not a member, returns its own key.
    pub(crate) fn program_socket(&self, key: SocketKey) -> SocketKey {
        match self.get(key).map(|socket| socket.style) {
            Ok(Style::Member(of)) => of,
            _ => key,
        }
    }

    /// Announces that a socket may have a delivery for its program.
    pub(crate) fn announce_readable(&mut self, key: SocketKey) {
        if let Ok(&Socket { style: Style::Member(of), id, .. }) = self.get(key)
            && let Ok(socket) = self.get_mut(of)
        {
            socket.members.note_readable(id);
        }
        self.outputs.push_back(Output::Readable(self.program_socket(key)));
    }

    /// Announces that the caller may again offer the waiting message of the one-to-many socket to which the member belongs.
    pub(crate) fn announce_writable_to_many(&mut self, member: SocketKey) {
        if let Ok(Socket { style: Style::Member(of), .. }) = self.get(member) {
            self.outputs.push_back(Output::Writable(*of));
        }
    }

    /// Creates the member for an association of the one-to-many socket `of`.
    pub(crate) fn add_member(
        &mut self,
        of: SocketKey,
        state: State,
        peer: SocketAddr,
    ) -> Result<SocketKey, Errno> {
        let id = self.next_id();
        let socket = self.get(of)?.of_association(Style::Member(of), state, peer, id);
        let key = self.insert(socket);
        self.get_mut(of)?.members.add(id, peer, key);
        Ok(key)
    }

    /// Removes a member whose association has ended.
    fn remove_member(&mut self, of: SocketKey, (id, member): (i32, SocketKey)) {
        let peer = self.get(member).ok().and_then(|socket| socket.peer);
        if let Ok(socket) = self.get_mut(of) {
            socket.members.remove(id, peer);
        }
        self.remove(member);
    }

    /// Begins an association of a one-to-many socket, and returns its member.
    ///
    /// # Errors
    /// `EALREADY` if an association with the peer is being set up; `EISCONN` if an association with the peer is up. Other errors as
    /// in [`connect`](Self::connect).
    pub(crate) fn connect_member(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
        (peers, init): (&[SocketAddr], [u16; 4]),
        network: &mut dyn Network,
    ) -> Result<SocketKey, Errno> {
        match self.member_to(engine, key, peers[0]).map(|member| self.get(member).map(|it| it.state)) {
            Some(Ok(State::Connecting(_))) => return Err(libc::EALREADY),
            Some(Ok(State::Up(_))) => return Err(libc::EISCONN),
            _ => {}
        }
        let uid = self.get(key)?.uid;
        if self.of_user(uid) >= self.config.sockets_per_user {
            return Err(libc::EMFILE);
        }
        let association = self.begin(now, engine, key, (peers, init), network)?;
        let member = self.add_member(key, State::Connecting(association), peers[0])?;
        self.by_association.insert(association, member);
        Ok(member)
    }

    /// Returns the member with this identifier, if its association has not ended.
    pub(crate) fn member_by_id(&self, key: SocketKey, id: i32) -> Option<SocketKey> {
        let member = self.get(key).ok()?.members.by_id(id)?;
        self.get(member).ok()?.association().map(|_| member)
    }

    /// Returns the member whose peer has this address and port, if its association has not ended.
    pub(crate) fn member_to(&self, engine: &Endpoint, key: SocketKey, peer: SocketAddr) -> Option<SocketKey> {
        let members = &self.get(key).ok()?.members;
        let association_of = |member: SocketKey| self.get(member).ok()?.association();
        if let Some(member) = members.by_peer(peer).filter(|member| association_of(*member).is_some()) {
            return Some(member);
        }
        let has_path = |member: &SocketKey| {
            let is_port =
                self.get(*member).is_ok_and(|it| it.peer.is_some_and(|it| it.port() == peer.port()));
            let info = || engine.info(association_of(*member)?);
            is_port && info().is_some_and(|info| info.paths.iter().any(|path| path.route.remote == peer.ip()))
        };
        members.keys().into_iter().find(has_path)
    }

    /// Returns the identifier of the association with a peer if the association is being set up. Returns `None` if the association
    /// is up. `packed` begins with the peer's address.
    ///
    /// # Errors
    /// `ECONNREFUSED` if the association no longer exists; `EINVAL` without a valid address.
    pub fn awaited(&self, engine: &Endpoint, key: SocketKey, packed: &[u8]) -> Result<Option<i32>, Errno> {
        let peer = crate::bind::addresses_of(packed)?[0];
        let member = self.member_to(engine, key, peer).ok_or(libc::ECONNREFUSED)?;
        let socket = self.get(member)?;
        Ok(matches!(socket.state, State::Connecting(_)).then_some(socket.id))
    }

    /// Returns the member to which a message goes. The header's identifier selects the member. If the identifier is 0, the peer's
    /// address selects the member.
    fn member_of(
        &self,
        engine: &Endpoint,
        key: SocketKey,
        header: &DataHeader,
        peer: &Peer,
    ) -> Option<SocketKey> {
        match header.association {
            0 => self.member_to(engine, key, peer.socket_address()?),
            id => self.member_by_id(key, id),
        }
    }

    /// Sends a message from the program of a one-to-many socket to one peer, or to all peers (`SCTP_SENDALL`). Begins an
    /// association with the peer if no association exists.
    pub fn send_to(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
        (header, peer): (&DataHeader, &Peer),
        message: Bytes,
        network: &mut dyn Network,
    ) -> Sent {
        if header.sinfo_flags & sinfo::SENDALL != 0 {
            return self.send_to_all(now, engine, key, header, &message);
        }
        let (member, address) = (self.member_of(engine, key, header, peer), peer.socket_address());
        let member = match (member, address) {
            (Some(member), _) => member,
            (None, Some(address))
                if header.association == 0 && header.sinfo_flags & (sinfo::EOF | sinfo::ABORT) == 0 =>
            {
                match self.connect_member(now, engine, key, (&[address], peer.init), network) {
                    Ok(member) => member,
                    Err(_) => return Sent::Refused,
                }
            }
            _ => return Sent::Refused,
        };
        self.send_by(now, engine, member, header, message)
    }

    fn send_to_all(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
        header: &DataHeader,
        message: &Bytes,
    ) -> Sent {
        let members = self.get(key).map(|socket| socket.members.keys()).unwrap_or_default();
        let is_full = |member: &SocketKey| self.get(*member).is_ok_and(|it| it.unsent.memory() > UNSENT_MAX);
        if members.iter().any(is_full) {
            return Sent::Full(message.clone());
        }
        for member in members {
            if let Sent::Full(message) = self.send_by(now, engine, member, header, message.clone())
                && let Ok(socket) = self.get_mut(member)
            {
                // If the engine has no room, the message waits with this member. The other members send the message now, and the
                // caller does not offer it again.
                socket.unsent.push(*header, message);
            }
        }
        Sent::Taken
    }

    /// Sends a message over a member's association. If the message has `SCTP_ABORT`, aborts the association instead.
    fn send_by(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        member: SocketKey,
        header: &DataHeader,
        message: Bytes,
    ) -> Sent {
        let Ok(socket) = self.get_mut(member) else { return Sent::Refused };
        socket.last_used = now;
        let Some(association) = socket.association() else { return Sent::Refused };
        if header.sinfo_flags & sinfo::ABORT != 0 {
            engine.abort(now, association, AbortCause::user(message));
            return Sent::Taken;
        }
        let has_room = socket.unsent.is_empty() || socket.unsent.memory() <= UNSENT_MAX;
        match socket.state {
            State::Connecting(_) if has_room => {
                socket.unsent.push(*header, message);
                Sent::Taken
            }
            State::Up(_) if socket.unsent.is_empty() => {
                self.send_now(now, engine, (member, association), header, message)
            }
            _ => Sent::Full(message),
        }
    }

    fn send_now(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        (member, association): (SocketKey, AssociationId),
        header: &DataHeader,
        message: Bytes,
    ) -> Sent {
        let sent = match message.is_empty() {
            true => Sent::Taken,
            false => self.send_up(now, engine, member, header, message),
        };
        if sent == Sent::Taken && header.sinfo_flags & sinfo::EOF != 0 {
            engine.shutdown(now, association);
        }
        sent
    }

    /// Passes a socket's waiting messages to the engine, until the engine has no room. If no messages are left and the program has
    /// shut the socket down, shuts the association down.
    pub(crate) fn send_waiting(&mut self, now: Time, engine: &mut Endpoint, key: SocketKey) {
        loop {
            let Ok(socket) = self.get_mut(key) else { return };
            let State::Up(association) = socket.state else { return };
            let Some((header, message)) = socket.unsent.take() else {
                if socket.ends_when_sent {
                    engine.shutdown(now, association);
                }
                return;
            };
            if let Sent::Full(message) = self.send_now(now, engine, (key, association), &header, message) {
                if let Ok(socket) = self.get_mut(key) {
                    socket.unsent.put_back(header, message);
                }
                return;
            }
        }
    }

    /// Takes the next delivery for the program of a one-to-many socket. The associations take turns.
    pub(crate) fn next_of_many(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
    ) -> Option<Delivery> {
        loop {
            let members = &self.get(key).ok()?.members;
            let id = members.turn()?;
            let member = members.by_id(id)?;
            match self.next_of_one(now, engine, member) {
                Some((header, _)) if matches!(header.kind, Kind::Ended | Kind::Failed) => {
                    self.remove_member(key, (id, member));
                }
                Some((header, bytes)) => {
                    let socket = self.get_mut(member).ok()?;
                    socket.last_used = now;
                    let peer = socket.peer.map(|peer| socket.name_of(peer));
                    // A notification may be delivered between the parts of a message. The flag MORE of this delivery alone
                    // therefore does not show whether the message has ended.
                    let is_within = socket.is_in_message || socket.rest.is_some();
                    let has_more = header.flags & flag::MORE != 0 || is_within;
                    self.get_mut(key).ok()?.members.note_delivery(id, has_more);
                    return Some(Delivery { header, peer, bytes });
                }
                None => {
                    let is_in_message = self.get(member).is_ok_and(|socket| socket.is_in_message);
                    self.get_mut(key).ok()?.members.note_empty(id, is_in_message);
                }
            }
        }
    }

    /// `sctp_peeloff`. Turns the member of an association into a one-to-one socket, and returns the socket's key.
    ///
    /// # Errors
    /// `EINVAL` for a one-to-one socket, and for an association that does not exist or is not up.
    pub fn peel_off(&mut self, key: SocketKey, id: i32) -> Result<SocketKey, Errno> {
        let member = self.member_by_id(key, id).ok_or(libc::EINVAL)?;
        let socket = self.get_mut(member)?;
        let State::Up(_) = socket.state else { return Err(libc::EINVAL) };
        socket.style = Style::OneToOne;
        let (peer, is_peer_closed) = (socket.peer, socket.is_peer_closed);
        self.get_mut(key)?.members.remove(id, peer);
        self.outputs.push_back(Output::Readable(member));
        if is_peer_closed {
            self.outputs.push_back(Output::SendingOver(member));
        }
        Ok(member)
    }

    /// Ends an association of a one-to-many socket after the peer has acknowledged all messages.
    pub fn shut_down_one(&mut self, now: Time, engine: &mut Endpoint, key: SocketKey, id: i32) {
        if let Some(member) = self.member_by_id(key, id) {
            self.shut_down(now, engine, member);
        }
    }

    /// Checks whether [`peel_off`](Self::peel_off) would succeed.
    ///
    /// # Errors
    /// The errors of `peel_off`.
    pub fn may_peel_off(&self, key: SocketKey, id: i32) -> Result<(), Errno> {
        let member = self.member_by_id(key, id).ok_or(libc::EINVAL)?;
        match self.get(member)?.state {
            State::Up(_) => Ok(()),
            _ => Err(libc::EINVAL),
        }
    }

    /// Queues a message for which the engine has no room. The message waits with its member, or with all members (`SCTP_SENDALL`).
    /// Returns false, and queues nothing, if the waiting messages of a member exceed the limit.
    pub fn queue_unsent(
        &mut self,
        engine: &Endpoint,
        key: SocketKey,
        (header, peer): (&DataHeader, &Peer),
        message: Bytes,
    ) -> bool {
        let members = match header.sinfo_flags & sinfo::SENDALL {
            0 => self.member_of(engine, key, header, peer).into_iter().collect(),
            _ => self.get(key).map(|socket| socket.members.keys()).unwrap_or_default(),
        };
        let is_full = |member: &SocketKey| self.get(*member).is_ok_and(|it| it.unsent.memory() > DRAINED_MAX);
        if members.iter().any(is_full) {
            return false;
        }
        for member in members {
            if let Ok(socket) = self.get_mut(member) {
                socket.unsent.push(*header, message.clone());
            }
        }
        true
    }

    /// Closes a one-to-many socket. Each of its associations ends like the association of a one-to-one socket.
    pub(crate) fn close_many(&mut self, now: Time, engine: &mut Endpoint, key: SocketKey) {
        let members = self.get(key).map(|socket| socket.members.keys()).unwrap_or_default();
        for member in members {
            if let Ok(socket) = self.get_mut(member) {
                socket.style = Style::OneToOne;
            }
            self.close(now, engine, member, false);
        }
        self.remove(key);
    }

    /// Starts the timer that closes an unused association (`SCTP_AUTOCLOSE`), if the option is set.
    pub(crate) fn start_autoclose(&mut self, now: Time, member: SocketKey) {
        let Ok(socket) = self.get_mut(member) else { return };
        socket.last_used = now;
        if let Some(limit) = socket.options.autoclose()
            && socket.style != Style::OneToOne
        {
            self.set_autoclose_timer(member, now + limit);
        }
    }

    /// Sets the time of the next check of an association for `SCTP_AUTOCLOSE`.
    fn set_autoclose_timer(&mut self, member: SocketKey, at: Time) {
        let Ok(socket) = self.get_mut(member) else { return };
        let before = socket.autoclose_timer.replace(at);
        self.autoclose_timers.extend([(at, member)]);
        if let Some(before) = before.filter(|before| *before != at) {
            self.autoclose_timers.remove(&(before, member));
        }
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) must be called next.
    pub fn next_timeout(&self) -> Time {
        self.autoclose_timers.first().map_or(Time::NEVER, |(time, _)| *time)
    }

    /// Shuts down the associations that have been unused for the time set by `SCTP_AUTOCLOSE`.
    pub fn handle_timeout(&mut self, now: Time, engine: &mut Endpoint) {
        while let Some((_, member)) = self.autoclose_timers.first().copied().filter(|(time, _)| *time <= now)
        {
            self.autoclose_timers.pop_first();
            // The limit does not apply to an association that was peeled off.
            let is_member = |socket: &&Socket| matches!(socket.style, Style::Member(_));
            let Some(socket) = self.get(member).ok().filter(is_member) else { continue };
            let (State::Up(association), Some(limit)) = (socket.state, socket.options.autoclose()) else {
                continue;
            };
            let due = socket.last_used + limit;
            if due > now {
                self.set_autoclose_timer(member, due);
            } else {
                engine.shutdown(now, association);
            }
        }
    }
}
