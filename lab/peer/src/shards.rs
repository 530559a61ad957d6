//! Forwards packets between the shards of one peer. Each shard is a thread with its own sockets and its own
//! engine. The kernel steers nearly every packet to the right shard, and this module forwards the others.
//!
//! Invariant: a full mailbox drops packets, like a full socket buffer. It never blocks the sender.

use base::{Ecn, Route, Shard};
use mio::{Poll, Token, Waker};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use wire::{Steer, steer};

/// Maximum number of packets queued for one shard.
const WAITING: usize = 1024;

/// Packet that arrived at the socket of a shard other than the addressee.
pub(crate) struct Mail {
    pub(crate) route: Route,
    pub(crate) ecn: Ecn,
    pub(crate) packet: Box<[u8]>,
}

/// Sending end of one shard's mailbox, with the waker of its poll.
#[derive(Clone)]
struct Address {
    mailbox: SyncSender<Mail>,
    waker: Arc<Waker>,
}

/// Receiving end of one shard's mailbox, with the addresses of all mailboxes.
pub(crate) struct Post {
    shard: Shard,
    inbox: Receiver<Mail>,
    /// Addresses of all mailboxes in shard order, including this shard's.
    addresses: Vec<Address>,
}

impl Post {
    /// Creates a `Post` for each shard. `polls` has the poll of each shard, in shard order. Mail for a shard
    /// wakes the shard's poll with `token`.
    pub(crate) fn between(shards: &[Shard], polls: &[Poll], token: Token) -> io::Result<Vec<Post>> {
        let (mut addresses, mut inboxes) = (Vec::new(), Vec::new());
        for poll in polls {
            let (mailbox, inbox) = sync_channel(WAITING);
            addresses.push(Address { mailbox, waker: Arc::new(Waker::new(poll.registry(), token)?) });
            inboxes.push(inbox);
        }
        let post = |(&shard, inbox)| Post { shard, inbox, addresses: addresses.clone() };
        Ok(shards.iter().zip(inboxes).map(post).collect())
    }

    /// Returns true if this shard must handle the packet. Forwards a packet of another shard to that shard.
    /// Forwards a packet that concerns all shards to all other shards.
    pub(crate) fn keeps(&self, route: &Route, ecn: Ecn, packet: &[u8]) -> bool {
        match steer(packet, route.remote, self.shard) {
            Steer::To(shard) if shard == self.shard => true,
            Steer::To(shard) => {
                self.hand_on(shard, route, ecn, packet);
                false
            }
            Steer::All => {
                let others = Shard::all(self.shard.count()).filter(|shard| *shard != self.shard);
                others.for_each(|shard| self.hand_on(shard, route, ecn, packet));
                true
            }
        }
    }

    fn hand_on(&self, shard: Shard, route: &Route, ecn: Ecn, packet: &[u8]) {
        let Some(address) = self.addresses.get(usize::from(shard.index())) else { return };
        let mail = Mail { route: *route, ecn, packet: packet.into() };
        match address.mailbox.try_send(mail) {
            // If the wakeup fails, the shard reads its mail at its next packet or timer.
            Ok(()) => drop(address.waker.wake()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// Returns the next packet that another shard forwarded.
    pub(crate) fn next(&self) -> Option<Mail> {
        self.inbox.try_recv().ok()
    }
}
