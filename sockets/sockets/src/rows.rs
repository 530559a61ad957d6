//! The list of sockets for reports.

use std::net::{IpAddr, SocketAddr};

use sctp::{AssociationInfo, Endpoint};

use crate::Sockets;
use crate::socket::State;

/// One row of the list. A row describes one socket.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Row {
    /// State of the socket: `LISTEN`, or the association's state as RFC 9260 names it. `CLOSED` if
    /// neither applies.
    pub state: &'static str,
    /// User ID of the socket's program.
    pub uid: u32,
    /// Local port, if the socket has one.
    pub port: Option<u16>,
    /// Local addresses: the bound addresses, and the local addresses of the association's paths. An empty list stands for all
    /// addresses of the host.
    pub local: Vec<IpAddr>,
    /// The peer's addresses.
    pub peer: Vec<SocketAddr>,
    /// Identifier of the association, if the socket has one.
    pub association: Option<i32>,
    /// Number of associations that wait for `accept`.
    pub waiting: usize,
    /// Snapshot of the association, if the socket has one.
    pub info: Option<AssociationInfo>,
}

impl Sockets {
    /// Returns a row for each socket.
    pub fn rows(&self, engine: &Endpoint) -> Vec<Row> {
        let rows = self.sockets.iter().map(|(_, socket)| {
            let association = socket.association();
            let info = association.and_then(|association| engine.info(association));
            let state = match socket.state {
                State::Listening { .. } => "LISTEN",
                State::Connecting(id) | State::Up(id) => {
                    engine.state(id).map_or("CLOSED", |state| state.as_str())
                }
                State::Idle | State::Over(_) => "CLOSED",
            };
            let mut local = socket.bound.clone();
            let mut peer: Vec<SocketAddr> = socket.peer.into_iter().collect();
            for path in info.iter().flat_map(|info| &info.paths) {
                let remote = SocketAddr::new(path.route.remote, socket.peer.map_or(0, |peer| peer.port()));
                if !local.contains(&path.route.local) {
                    local.push(path.route.local);
                }
                if !peer.contains(&remote) {
                    peer.push(remote);
                }
            }
            Row {
                state,
                uid: socket.uid,
                port: socket.port,
                local,
                peer,
                association: association.map(|_| socket.id),
                waiting: socket.waiting,
                info,
            }
        });
        rows.collect()
    }
}
