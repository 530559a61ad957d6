//! Handling of the engine's events.

use base::Time;
use sctp::{AssociationId, CloseReason, Endpoint, Event, PathState};
use sockproto::abi::notification as kind;

use crate::deliver::End;
use crate::notification::up;
use crate::socket::{State, Style};
use crate::{Output, SocketKey, Sockets};

/// States of `SCTP_PEER_ADDR_CHANGE`.
const ADDRESS_AVAILABLE: u32 = 0;
const ADDRESS_UNREACHABLE: u32 = 1;
const ADDRESS_CONFIRMED: u32 = 5;

impl Sockets {
    /// Handles an event of the engine.
    pub fn handle_event(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        association: AssociationId,
        event: &Event,
    ) {
        if let Event::Incoming { route, local_port, .. } = event {
            return self.on_incoming(now, engine, association, route, *local_port);
        }
        let Some(key) = self.by_association.get(&association).copied() else {
            return match event {
                Event::Established { .. } => self.on_accepted(now, engine, association, event),
                Event::Closed(_) => {
                    self.accepting.remove(&association);
                    engine.release(now, association);
                }
                _ => {}
            };
        };
        match event {
            Event::Established { .. } => self.on_connected(now, engine, key, event),
            Event::Readable if self.has_program(key) => self.announce_readable(key),
            // No program reads this socket. The peer's data is discarded, because the association can end only after all data has
            // been read.
            Event::Readable => while engine.recv(now, association).is_some() {},
            Event::Writable => {
                self.send_waiting(now, engine, key);
                self.outputs.push_back(Output::Writable(self.program_socket(key)));
            }
            Event::PathChanged { route, from, to, .. } => {
                let state = match (from, to) {
                    (PathState::Unconfirmed, PathState::Active) => ADDRESS_CONFIRMED,
                    (PathState::Inactive, PathState::Active) => ADDRESS_AVAILABLE,
                    (_, PathState::Inactive) => ADDRESS_UNREACHABLE,
                    // Linux reports potentially failed paths only on request (SCTP_EXPOSE_POTENTIALLY_FAILED_STATE).
                    _ => return,
                };
                self.notify(key, |socket| socket.address_change(route.remote, state));
            }
            Event::Dry => self.notify(key, |socket| socket.plain(kind::SENDER_DRY)),
            Event::PeerShutdown => {
                if let Ok(socket) = self.get_mut(key) {
                    socket.is_peer_closed = true;
                    let note = socket.plain(kind::SHUTDOWN_EVENT);
                    socket.after.extend(note);
                    let (style, association) = (socket.style, socket.id);
                    self.outputs.push_back(match style {
                        Style::Member(of) => Output::OneSendingOver { socket: of, association },
                        _ => Output::SendingOver(key),
                    });
                    self.announce_readable(key);
                }
            }
            Event::Closed(reason) => self.on_closed(now, engine, key, association, reason),
            _ => {}
        }
    }

    fn has_program(&self, key: SocketKey) -> bool {
        self.get(key).is_ok_and(|socket| socket.has_program)
    }

    /// Queues the notification that `note` returns, if the program still has the socket and the queue of notifications has room.
    fn notify(&mut self, key: SocketKey, note: impl FnOnce(&crate::socket::Socket) -> Option<Vec<u8>>) {
        let Ok(socket) = self.get_mut(key) else { return };
        if let Some(note) = note(socket).filter(|_| socket.has_program && socket.before.len() < NOTES_MAX) {
            socket.before.push_back(note);
            self.announce_readable(key);
        }
    }

    fn on_connected(&mut self, now: Time, engine: &mut Endpoint, key: SocketKey, event: &Event) {
        let Ok(socket) = self.get_mut(key) else { return };
        let State::Connecting(association) = socket.state else { return };
        socket.state = State::Up(association);
        socket.is_filled = false;
        self.settled(key, 0);
        self.on_up(now, engine, key, event);
    }

    /// Announces the end of an attempt to connect. `error` is the error number of the attempt, or 0.
    fn settled(&mut self, key: SocketKey, error: i32) {
        let Ok(socket) = self.get_mut(key) else { return };
        let output = match socket.style {
            Style::Member(of) => Output::Attempted { socket: of, association: socket.id, error },
            _ => {
                socket.error = error;
                Output::Settled(key)
            }
        };
        self.outputs.push_back(output);
    }

    /// Handles an association that has just come up: records the agreed parameters, queues notifications, and sends the waiting
    /// messages.
    pub(crate) fn on_up(&mut self, now: Time, engine: &mut Endpoint, key: SocketKey, event: &Event) {
        let Event::Established { route, adaptation, outbound_streams, inbound_streams } = event else {
            return;
        };
        let Ok(socket) = self.get_mut(key) else { return };
        socket.local = Some(route.local);
        socket.streams = (*inbound_streams, *outbound_streams);
        socket.retime(now, engine);
        socket.set_heartbeats(now, engine);
        up(socket, *adaptation);
        self.announce_readable(key);
        self.start_autoclose(now, key);
        self.send_waiting(now, engine, key);
        self.announce_writable_to_many(key);
    }

    fn on_closed(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
        association: AssociationId,
        reason: &CloseReason,
    ) {
        let Ok(socket) = self.get_mut(key) else { return };
        if !socket.has_program {
            engine.release(now, association);
            self.by_association.remove(&association);
            return self.remove(key);
        }
        if let State::Connecting(_) = socket.state {
            let is_member = matches!(socket.style, Style::Member(_));
            socket.is_filled = false;
            let note = socket.association_change(kind::CANT_STR_ASSOC, 0);
            socket.before.extend(note);
            socket.note_unsent(now, engine, association);
            (socket.state, socket.end) = match is_member {
                // The member is removed after the program has read the member's notifications.
                true => (State::Over(None), Some(End::Orderly)),
                false => (State::Idle, None),
            };
            engine.release(now, association);
            self.by_association.remove(&association);
            self.settled(key, connect_error(reason));
            self.announce_writable_to_many(key);
            return self.announce_readable(key);
        }
        let (change, end) = match reason {
            CloseReason::Graceful if socket.is_peer_closed => (kind::SHUTDOWN_COMP, End::Orderly),
            // The peer has not shut down, so this host began the shutdown. A later receive fails as on a socket without an
            // association.
            CloseReason::Graceful => (kind::SHUTDOWN_COMP, End::Failed(libc::ENOTCONN)),
            CloseReason::PeerAborted(_)
            | CloseReason::Aborted(_)
            | CloseReason::Restarted
            | CloseReason::SamePeer(_) => (kind::COMM_LOST, End::Failed(libc::ECONNRESET)),
            CloseReason::NoAnswer | CloseReason::Unreachable(_) | CloseReason::LostContact => {
                (kind::COMM_LOST, End::Failed(libc::ETIMEDOUT))
            }
        };
        let note = match reason {
            CloseReason::PeerAborted(cause) => socket.aborted(cause),
            _ => socket.association_change(change, 0),
        };
        socket.after.extend(note);
        socket.note_unsent(now, engine, association);
        socket.end = Some(end);
        socket.state = State::Over(Some(association));
        if !matches!(socket.style, Style::Member(_)) {
            self.outputs.push_back(Output::SendingOver(key));
        }
        // A message that waits for room in this association must be offered again. Otherwise it would wait forever.
        self.announce_writable_to_many(key);
        self.announce_readable(key);
    }
}

/// Limit on the notifications in each of a socket's two queues.
pub(crate) const NOTES_MAX: usize = 256;

/// Returns the error number for an attempt to connect that ended for this reason.
fn connect_error(reason: &CloseReason) -> i32 {
    match reason {
        CloseReason::NoAnswer | CloseReason::LostContact => libc::ETIMEDOUT,
        CloseReason::Unreachable(sctp::Unreachable::Host) => libc::EHOSTUNREACH,
        CloseReason::Unreachable(sctp::Unreachable::Prohibited) => libc::EACCES,
        _ => libc::ECONNREFUSED,
    }
}
