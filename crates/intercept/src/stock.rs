//! Sockets of the private namespace that are made before they are needed.
//!
//! Making one takes a word to the namespace's thread and back, which is most of the time that a connection to a local
//! program would take. So a few are kept ready. None is made before the first is needed, and the stock never fails:
//! whoever finds it empty makes a socket himself, and hears why that cannot be done.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};

use socket2::Socket;

use crate::namespace::Jobs;
use crate::sockets::spoofing_socket;

/// Sockets of one family that are ready or being made, at most.
const FULL: usize = 16;
/// From this number on more are made, so that the thread is woken once for many connections.
const LOW: usize = 4;

/// Sockets for [spoofed connections](crate::SpoofedConnection) to servers of either address family.
pub(crate) struct Stock {
    /// Of the private namespace.
    jobs: Jobs,
    ipv4: Shelf,
    ipv6: Shelf,
}

/// Those of one family.
struct Shelf {
    /// An address of the family; which one does not matter.
    family: SocketAddr,
    delivery: Receiver<Option<Socket>>,
    supplier: Sender<Option<Socket>>,
    /// Those ready and those that the thread has been asked for.
    expected: usize,
}

impl Stock {
    /// An empty stock.
    pub(crate) fn new(jobs: Jobs) -> Stock {
        Stock {
            jobs,
            ipv4: Shelf::new(Ipv4Addr::UNSPECIFIED.into()),
            ipv6: Shelf::new(Ipv6Addr::UNSPECIFIED.into()),
        }
    }

    /// A socket for a connection to `server`.
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

    /// A socket that is ready. One that could not be made is none.
    fn pick(&mut self) -> Option<Socket> {
        let delivered = self.delivery.try_recv().ok()?;
        self.expected -= 1;
        delivered
    }

    /// Has the thread fill up what is low.
    fn order(&mut self, jobs: &Jobs) -> io::Result<()> {
        if self.expected > LOW {
            return Ok(());
        }
        let (missing, family, supplier) = (FULL - self.expected, self.family, self.supplier.clone());
        jobs.start(move || {
            for _ in 0..missing {
                // The receiver is gone only if the interceptor is.
                let _ = supplier.send(spoofing_socket(family).ok());
            }
        })?;
        self.expected = FULL;
        Ok(())
    }
}
