//! Sockets of the private namespace, created in advance.
//!
//! Only the namespace's thread can create a socket of this namespace. A request to this thread takes most of the set-up time of a
//! connection to a local program, so the stock keeps a few sockets ready. The first call of `take` fills the stock. If the stock
//! is empty, `take` requests one socket, and fails if the thread cannot create the socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};

use socket2::Socket;

use crate::namespace::Jobs;
use crate::sockets::spoofing_socket;

/// Limit on the sockets of one family that are ready or requested.
const FULL: usize = 16;
/// If this many sockets or fewer are ready or requested, the thread creates more, up to [`FULL`]. The thread thus wakes once for
/// at least 12 sockets.
const LOW: usize = 4;

/// Sockets for [spoofed connections](crate::SpoofedConnection) to servers of either address family.
pub(crate) struct Stock {
    /// Runner of jobs in the private namespace.
    jobs: Jobs,
    ipv4: Shelf,
    ipv6: Shelf,
}

/// The sockets of one family.
struct Shelf {
    /// An arbitrary address of the family.
    family: SocketAddr,
    delivery: Receiver<Option<Socket>>,
    supplier: Sender<Option<Socket>>,
    /// Number of sockets that are ready or requested from the thread.
    expected: usize,
}

impl Stock {
    /// Creates an empty stock.
    pub(crate) fn new(jobs: Jobs) -> Stock {
        Stock {
            jobs,
            ipv4: Shelf::new(Ipv4Addr::UNSPECIFIED.into()),
            ipv6: Shelf::new(Ipv6Addr::UNSPECIFIED.into()),
        }
    }

    /// Returns a socket for a connection to `server`. Fails if the namespace's thread has ended.
    pub(crate) fn take(&mut self, server: SocketAddr) -> io::Result<Socket> {
        let shelf = if server.is_ipv4() { &mut self.ipv4 } else { &mut self.ipv6 };
        let ready = shelf.pick();
        shelf.order(&self.jobs)?;
        match ready {
            Some(socket) => Ok(socket),
            None => self.jobs.run(move || spoofing_socket(server))?,
        }
    }
}

impl Shelf {
    fn new(family: IpAddr) -> Shelf {
        let (supplier, delivery) = channel();
        Shelf { family: SocketAddr::new(family, 0), delivery, supplier, expected: 0 }
    }

    /// Returns a ready socket, if any. Also returns None if the thread could not create the next socket.
    fn pick(&mut self) -> Option<Socket> {
        let delivered = self.delivery.try_recv().ok()?;
        self.expected -= 1;
        delivered
    }

    /// If at most [`LOW`] sockets are ready or requested, makes the thread refill the shelf.
    fn order(&mut self, jobs: &Jobs) -> io::Result<()> {
        if self.expected > LOW {
            return Ok(());
        }
        let (missing, family, supplier) = (FULL - self.expected, self.family, self.supplier.clone());
        jobs.start(move || {
            for _ in 0..missing {
                // The receiver is gone only if the interceptor is gone.
                let _ = supplier.send(spoofing_socket(family).ok());
            }
        })?;
        self.expected = FULL;
        Ok(())
    }
}
