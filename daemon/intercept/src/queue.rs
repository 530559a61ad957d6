//! SYNs that the kernel holds in an NFQUEUE until the daemon gives a verdict.
//!
//! If no program listens on the queue (bypass), or if the queue is full (fail-open), the kernel lets SYNs pass as plain TCP. The
//! `Drop` of a [`SynQueue`] also lets all held SYNs pass. If the daemon is killed, the kernel drops the held SYNs. The
//! application's kernel retransmits each SYN a second later, and this SYN passes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::config::Marks;
use crate::flow::FourTuple;
use crate::netlink::{Attributes, Message, Messages, Netlink, be_u32};
use crate::syn;

/// `NFNL_SUBSYS_QUEUE`: the upper byte of the message types.
const SUBSYSTEM: u16 = 3;
const PACKET: u16 = 0;
const VERDICT: u16 = 1;
const CONFIG: u16 = 2;

/// Limit on the bytes of a SYN that the kernel copies to this process. The copy includes all headers, also IPv6 extension
/// headers.
const COPY_RANGE: u32 = 256;
/// The flags FAIL_OPEN, GSO and UID_GID.
const FLAGS: u32 = 1 | 4 | 8;
/// Size of the socket's buffer for waiting packets, in bytes. A waiting SYN takes about 1 kB of this buffer.
const SOCKET_BUFFER: usize = 8 * 1024 * 1024;
/// Length of `nfgenmsg`.
const HEAD: usize = 4;

/// The kernel's number for a held SYN.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HeldSynId(u32);

/// Verdict on a held SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The SYN continues: to the private namespace if its connection is diverted, otherwise out as plain TCP.
    Accept,
    /// The SYN and all later packets of its connection go to the private namespace, until
    /// [`Interceptor::undivert`](crate::Interceptor::undivert). If the number of diverted connections has reached the
    /// [limit](crate::Config::set_size), only the SYN goes to the private namespace.
    Divert,
    /// The SYN is dropped. If the application still waits, its kernel sends another SYN a second later.
    Drop,
    /// The SYN is answered with an error, in an [enclosed](crate::Config::encloses) namespace only. Elsewhere, the SYN passes.
    Deny(Denial),
}

/// The error that an application gets immediately, instead of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// ECONNREFUSED.
    Refused,
    /// EHOSTUNREACH.
    HostUnreachable,
    /// ENETUNREACH.
    NetworkUnreachable,
}

/// A SYN that waits for its verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldSyn {
    /// Identifier of the SYN for the verdict.
    pub id: HeldSynId,
    /// The connection that the SYN begins.
    pub flow: FourTuple,
    /// The initial sequence number.
    pub isn: u32,
    /// The packet's mark.
    pub mark: u32,
    /// The user whose socket sent the SYN, or None if that socket no longer exists.
    pub uid: Option<u32>,
    /// Index of the interface through which the SYN was leaving, or 0 if unknown.
    pub out_interface: u32,
    /// The advertised window, in bytes. A SYN's window is never scaled.
    pub window: u16,
    /// Value of the maximum segment size option, in bytes.
    pub mss: Option<u16>,
}

/// The queue of held SYNs.
pub struct SynQueue {
    netlink: Netlink,
    number: u16,
    marks: Marks,
    /// Marks of SYNs that were handed out and have no verdict yet, by packet number. The kernel's limit on the queue's length
    /// also limits the number of entries.
    held: BTreeMap<u32, u32>,
}

impl SynQueue {
    /// Binds queue `number` of the calling thread's network namespace. Fails with EPERM if another program is bound to this
    /// queue.
    pub(crate) fn bind(number: u16, length: u32, marks: Marks) -> io::Result<SynQueue> {
        let mut netlink = Netlink::open(NETLINK_NETFILTER)?;
        netlink.enlarge_receive_buffer(SOCKET_BUFFER)?;
        netlink.socket().set_no_enobufs(true)?;
        let bind = |message: &mut Message| message.attribute(1, &[1, 0, 0, 0]);
        let copy = |message: &mut Message| {
            let [a, b, c, d] = COPY_RANGE.to_be_bytes();
            message.attribute(2, &[a, b, c, d, 2]);
        };
        let flags = |message: &mut Message| {
            message.number(4, FLAGS);
            message.number(5, FLAGS);
        };
        configure(&mut netlink, number, bind)?;
        configure(&mut netlink, number, copy)?;
        configure(&mut netlink, number, flags)?;
        configure(&mut netlink, number, |message| message.number(3, length))?;
        Ok(SynQueue { netlink, number, marks, held: BTreeMap::new() })
    }

    /// Returns the next held SYN, or None if no SYN waits. After each readiness event, the caller must repeat the call until it
    /// returns None. Packets other than well-formed SYNs pass immediately.
    pub fn recv(&mut self) -> io::Result<Option<HeldSyn>> {
        // The loop terminates: the kernel's queue has a limited length, and each iteration takes one packet out.
        loop {
            let Some(datagram) = self.netlink.receive()? else { return Ok(None) };
            // The kernel sends an error message if a verdict concerns a packet that is gone. Such a message needs no action.
            let packet = Messages::new(datagram).find(|message| message.kind == SUBSYSTEM << 8 | PACKET);
            let Some(packet) = packet.and_then(|message| Packet::parse(message.body)) else { continue };
            match packet.syn {
                Some(syn) => {
                    self.held.insert(syn.id.0, syn.mark);
                    return Ok(Some(syn));
                }
                None => self.send_verdict(packet.id, 0, Verdict::Accept)?,
            }
        }
    }

    /// Gives the verdict on a held SYN. A SYN that already has a verdict is ignored.
    pub fn verdict(&mut self, id: HeldSynId, verdict: Verdict) -> io::Result<()> {
        match self.held.remove(&id.0) {
            Some(mark) => self.send_verdict(id.0, mark, verdict),
            None => Ok(()),
        }
    }

    /// Lets all held SYNs pass, including SYNs that were not handed out.
    pub(crate) fn release_all(&mut self) -> io::Result<()> {
        while self.recv()?.is_some() {}
        while let Some((id, mark)) = self.held.pop_first() {
            self.send_verdict(id, mark, Verdict::Accept)?;
        }
        Ok(())
    }

    /// Sends a verdict. `mark` is the packet's current mark.
    fn send_verdict(&mut self, id: u32, mark: u32, verdict: Verdict) -> io::Result<()> {
        let code: u32 = match verdict {
            Verdict::Drop => 0,
            Verdict::Accept | Verdict::Divert | Verdict::Deny(_) => 1,
        };
        // The nftables rules for these marks divert the packet, or answer it.
        let new_mark = match verdict {
            Verdict::Accept | Verdict::Drop => None,
            Verdict::Divert => Some(mark & !self.marks.mask | self.marks.shim),
            Verdict::Deny(denial) => Some(self.marks.denials[denial as usize]),
        };
        let sequence = self.netlink.next_sequence();
        let mut message = Message::new(SUBSYSTEM << 8 | VERDICT, NLM_F_REQUEST, sequence);
        message.netfilter_head(0, self.number);
        message.attribute(2, &[code.to_be_bytes(), id.to_be_bytes()].concat());
        if let Some(mark) = new_mark {
            message.number(3, mark);
        }
        self.netlink.send(&message.finish())
    }
}

impl Drop for SynQueue {
    fn drop(&mut self) {
        // If the release fails, the kernel drops the held SYNs when the socket closes. The retransmissions then delay the
        // connections by 1 s.
        let _ = self.release_all();
    }
}

impl AsRawFd for SynQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.netlink.socket().as_raw_fd()
    }
}

impl AsFd for SynQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netlink.socket().as_fd()
    }
}

impl Source for SynQueue {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).deregister(registry)
    }
}

fn configure(netlink: &mut Netlink, number: u16, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
    let sequence = netlink.next_sequence();
    let mut message = Message::new(SUBSYSTEM << 8 | CONFIG, NLM_F_REQUEST | NLM_F_ACK, sequence);
    message.netfilter_head(0, number);
    fill(&mut message);
    netlink.request(message)
}

/// Contents of a packet message: the packet's number, and the SYN if the packet is a SYN.
struct Packet {
    id: u32,
    syn: Option<HeldSyn>,
}

impl Packet {
    /// Parses a packet message. Returns None if the message has no packet number.
    fn parse(body: &[u8]) -> Option<Packet> {
        let (mut id, mut mark, mut out_interface, mut uid, mut contents) = (None, 0, 0, None, None);
        for (kind, data) in Attributes::new(body.get(HEAD..)?) {
            match kind {
                1 => id = be_u32(data),
                3 => mark = be_u32(data).unwrap_or(0),
                6 => out_interface = be_u32(data).unwrap_or(0),
                10 => contents = syn::parse(data),
                16 => uid = be_u32(data),
                _ => {}
            }
        }
        let id = id?;
        let syn = contents.map(|syn| HeldSyn {
            id: HeldSynId(id),
            flow: syn.flow,
            isn: syn.isn,
            mark,
            uid,
            out_interface,
            window: syn.window,
            mss: syn.mss,
        });
        Some(Packet { id, syn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(id: u32, payload: &[u8]) -> Vec<u8> {
        let mut message = Message::new(0, 0, 1);
        message.netfilter_head(0, 132);
        message.attribute(1, &[&id.to_be_bytes()[..], &[8, 0, 3]].concat());
        message.number(3, 5);
        message.number(6, 2);
        message.attribute(10, payload);
        message.number(16, 1000);
        message.finish()[16..].to_vec()
    }

    #[test]
    fn a_packet_that_is_no_syn_keeps_its_number_so_that_it_can_be_let_pass() {
        let packet = Packet::parse(&body(9, &[0xff; 40])).expect("a packet");
        assert_eq!(packet.id, 9);
        assert_eq!(packet.syn, None);
    }

    #[test]
    fn a_syn_comes_with_mark_user_and_interface() {
        let builder = etherparse::PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1, 2, 3, 4).syn();
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &[]).expect("a packet that fits");
        let syn = Packet::parse(&body(9, &bytes)).and_then(|packet| packet.syn).expect("a SYN");
        assert_eq!((syn.id, syn.mark, syn.uid, syn.out_interface), (HeldSynId(9), 5, Some(1000), 2));
    }

    #[test]
    fn a_message_without_a_number_is_passed_over() {
        assert!(Packet::parse(&[0, 0, 0, 132]).is_none());
        assert!(Packet::parse(&[]).is_none());
    }
}
