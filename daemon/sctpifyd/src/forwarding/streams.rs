//! Forwards plain TCP connections of the enclosed namespace. For each connection, the daemon first opens a socket to the
//! destination in the host's namespace. Then the program's connection arrives at a socket in the enclosed namespace. The
//! daemon copies bytes between these two sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;
use intercept::{FourTuple, disarm_linger};
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry};
use socket2::{Domain, Protocol, Socket, Type};

use super::half::{End, Half};
use super::{Side, token_of};

/// Limit on concurrent connections. At the limit, a new connection fails with the error "network unreachable".
const STREAMS_MAX: usize = 4096;
/// Limit on the time between the connection of the outside socket and the arrival of the inside socket.
const CLAIM_LIMIT: Duration = Duration::from_secs(5);

/// All connections by number. The numbers of connections are even; the numbers of datagram conversations are odd.
#[derive(Default)]
pub(super) struct Streams {
    all: BTreeMap<usize, Plain>,
    by_flow: BTreeMap<FourTuple, usize>,
    /// Connections that may be able to move bytes.
    ready: BTreeSet<usize>,
    last: usize,
}

/// Progress of a connection.
enum Stage {
    /// The destination has not answered yet.
    Opening(TcpStream),
    /// The outside socket is connected. The inside socket must arrive by this time.
    Open(TcpStream, Time),
    /// Both sockets are connected, and bytes flow.
    Flowing(Box<Flowing>),
}

struct Flowing {
    inside: End,
    outside: End,
    out: Half,
    back: Half,
    /// One of the sockets has failed.
    is_broken: bool,
}

struct Plain {
    flow: FourTuple,
    stage: Stage,
}

impl Streams {
    /// Reports whether any connection may be able to move bytes without waiting.
    pub(super) fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Begins a connection to `to` for the program's `flow`.
    pub(super) fn open(&mut self, registry: &Registry, flow: FourTuple, to: SocketAddr) -> io::Result<()> {
        if self.all.len() >= STREAMS_MAX {
            return Err(nix::errno::Errno::ENOBUFS.into());
        }
        self.last += 2;
        let mut stream = begin(to)?;
        let interests = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut stream, token_of(self.last, Side::Outside), interests)?;
        if let Some(old) = self.by_flow.insert(flow, self.last) {
            // The program reused its port before the daemon noticed the end of the old connection.
            self.all.remove(&old);
        }
        self.all.insert(self.last, Plain { flow, stage: Stage::Opening(stream) });
        Ok(())
    }

    /// Assigns an arrived inside socket to its connection. If the flow is unknown, the socket is dropped, which resets the
    /// program's connection.
    pub(super) fn claim(&mut self, registry: &Registry, flow: FourTuple, mut inside: TcpStream) {
        let Some(&number) = self.by_flow.get(&flow) else { return };
        if !matches!(self.all.get(&number), Some(Plain { stage: Stage::Open(..), .. })) {
            return;
        }
        let Some(Plain { stage: Stage::Open(outside, _), .. }) = self.all.remove(&number) else { return };
        let interests = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = registry.register(&mut inside, token_of(number, Side::Inside), interests) {
            tracing::warn!(%error, "a plain connection cannot be polled");
            self.by_flow.remove(&flow);
            return;
        }
        let flowing = Flowing {
            inside: End::new(inside),
            outside: End::new(outside),
            out: Half::new(),
            back: Half::new(),
            is_broken: false,
        };
        self.all.insert(number, Plain { flow, stage: Stage::Flowing(Box::new(flowing)) });
        self.ready.insert(number);
    }

    /// Handles an event on a connection's socket. If the event decides whether the outside socket opens, returns the outcome.
    pub(super) fn take(
        &mut self,
        number: usize,
        side: Side,
        event: &Event,
        now: Time,
    ) -> Option<(FourTuple, io::Result<()>)> {
        let plain = self.all.get_mut(&number)?;
        if let Stage::Flowing(flowing) = &mut plain.stage {
            let end = if side == Side::Inside { &mut flowing.inside } else { &mut flowing.outside };
            end.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
            end.writable |= event.is_writable();
            flowing.is_broken |= event.is_error();
            self.ready.insert(number);
            return None;
        }
        if !event.is_writable() && !event.is_error() {
            return None;
        }
        let Plain { flow, stage } = self.all.remove(&number)?;
        let Stage::Opening(stream) = stage else {
            self.all.insert(number, Plain { flow, stage });
            return None;
        };
        let outcome = match stream.take_error() {
            Ok(None) => stream.peer_addr().map(|_| ()),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        match &outcome {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                self.all.insert(number, Plain { flow, stage: Stage::Opening(stream) });
                return None;
            }
            Err(_) => self.forget_flow(&flow, number),
            Ok(()) => {
                self.all.insert(number, Plain { flow, stage: Stage::Open(stream, now + CLAIM_LIMIT) });
            }
        }
        Some((flow, outcome))
    }

    /// Copies bytes of all ready connections.
    pub(super) fn pump(&mut self) {
        for number in std::mem::take(&mut self.ready) {
            let Some(plain) = self.all.get_mut(&number) else { continue };
            let Stage::Flowing(flowing) = &mut plain.stage else { continue };
            let flow = plain.flow;
            match flowing.pump() {
                Ok(Progress::Waits) => {}
                Ok(Progress::HasMore) => {
                    self.ready.insert(number);
                }
                Ok(Progress::Over) => {
                    flowing.close_in_order();
                    self.all.remove(&number);
                    self.forget_flow(&flow, number);
                }
                Err(error) => {
                    // Linger time 0 is set on both sockets, so the drop resets them.
                    tracing::debug!(%flow, %error, "a plain connection is reset");
                    self.all.remove(&number);
                    self.forget_flow(&flow, number);
                }
            }
        }
    }

    /// Resets connections whose inside socket has not arrived in time.
    pub(super) fn sweep(&mut self, now: Time) {
        let is_late = |plain: &Plain| matches!(plain.stage, Stage::Open(_, until) if until <= now);
        let late: Vec<usize> =
            self.all.iter().filter(|(_, p)| is_late(p)).map(|(number, _)| *number).collect();
        for number in late {
            if let Some(plain) = self.all.remove(&number) {
                self.forget_flow(&plain.flow, number);
            }
        }
    }

    fn forget_flow(&mut self, flow: &FourTuple, number: usize) {
        if self.by_flow.get(flow) == Some(&number) {
            self.by_flow.remove(flow);
        }
    }
}

/// Outcome of one copying pass over a connection.
enum Progress {
    Waits,
    HasMore,
    Over,
}

impl Flowing {
    fn pump(&mut self) -> io::Result<Progress> {
        let more = self.out.pump(&mut self.inside, &mut self.outside)?
            | self.back.pump(&mut self.outside, &mut self.inside)?;
        if self.out.is_closed() && self.back.is_closed() {
            return Ok(Progress::Over);
        }
        if self.is_broken && !more {
            // All data that arrived before the failure has been read.
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(if more { Progress::HasMore } else { Progress::Waits })
    }

    fn close_in_order(&self) {
        for end in [&self.inside, &self.outside] {
            // If this call fails, the drop resets the socket. By then, both directions have ended.
            let _ = disarm_linger(&end.stream);
        }
    }
}

/// Starts a connection whose socket has linger time 0, so a drop resets the connection.
fn begin(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(nix::errno::Errno::EINPROGRESS as i32) => Err(error),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}
