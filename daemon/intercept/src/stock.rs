//! Sockets of the private namespace, created in advance.
//!
//! Each socket needs a request to the namespace's thread, and its answer. This takes most of the set-up time of a connection to a
//! local program, so a few sockets are kept ready. No socket is created before the first one is needed. A caller that finds the
//! stock empty creates a socket directly, and gets the error if that fails.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};

use socket2::Socket;

use crate::namespace::Jobs;
use crate::sockets::spoofing_socket;

/// Limit on the sockets of one family that are ready or requested.
const FULL: usize = 16;
/// Number of sockets at or below which more are created. The thread thus wakes once for many connections.
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

    /// Returns a ready socket, if any. Also returns None if the creation of the delivered socket failed.
    fn pick(&mut self) -> Option<Socket> {
        let delivered = self.delivery.try_recv().ok()?;
        self.expected -= 1;
        delivered
    }

    /// Makes the thread refill the shelf if it is low.
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
