//! Queue of packets that are sent outside the normal packets of an association: INIT ACK, ABORT, ERROR, SHUTDOWN
//! COMPLETE.

use std::collections::VecDeque;

use base::Route;
use wire::{Abort, Cause, Causes, Chunk, CommonHeader, ErrorChunk, PacketWriter, ShutdownComplete};

use crate::association::{INIT_PACKET_MAX, Integrity};
use crate::event::AbortCause;
use crate::extension::auth::Auth;
use crate::extension::zero_checksum::Need;

/// Queue of packets to send, up to a limit.
pub(crate) struct Replies {
    queue: VecDeque<(Route, Vec<u8>)>,
    max: usize,
    pub(crate) dropped: u64,
}

impl Replies {
    pub(crate) fn new(max: usize) -> Replies {
        Replies { queue: VecDeque::new(), max, dropped: 0 }
    }

    pub(crate) fn pop(&mut self) -> Option<(Route, Vec<u8>)> {
        self.queue.pop_front()
    }

    /// Removes and returns the next packet if it uses this route and has no more than `max` bytes.
    pub(crate) fn pop_by(&mut self, route: &Route, max: usize) -> Option<Vec<u8>> {
        self.queue.front().filter(|(by, packet)| by == route && packet.len() <= max)?;
        self.pop().map(|(_, packet)| packet)
    }

    /// Puts a packet that did not fit into a train at the front of the queue. The queue may then exceed its limit
    /// by one packet.
    pub(crate) fn push_front(&mut self, route: Route, packet: Vec<u8>) {
        self.queue.push_front((route, packet));
    }

    /// Queues a packet with one chunk. Drops it if the queue is full or the chunk does not fit into a packet.
    //= rfc9260#3-1
    pub(crate) fn push(&mut self, route: Route, header: CommonHeader, chunk: &Chunk<'_>) {
        self.push_signed(route, header, chunk, None);
    }

    /// Queues a packet with one chunk if it has no more than `max` bytes. Returns whether the packet fits. If the
    /// queue is full, the packet is dropped, but the result is true, because a shorter packet would be dropped
    /// too.
    pub(crate) fn push_within(
        &mut self,
        route: Route,
        header: CommonHeader,
        chunk: &Chunk<'_>,
        max: usize,
    ) -> bool {
        let mut buf = vec![0; max];
        let mut packet = PacketWriter::new(&mut buf, header);
        if packet.push(chunk).is_err() {
            return false;
        }
        let length = packet.finish();
        buf.truncate(length);
        if self.queue.len() >= self.max {
            self.dropped += 1;
        } else {
            self.queue.push_back((route, buf));
        }
        true
    }

    /// Queues a packet with one chunk. If the peer requires authentication of this chunk, an AUTH chunk precedes
    /// it.
    pub(crate) fn push_signed(
        &mut self,
        route: Route,
        header: CommonHeader,
        chunk: &Chunk<'_>,
        auth: Option<&Auth>,
    ) {
        if self.queue.len() >= self.max {
            self.dropped += 1;
            return;
        }
        let mut buf = vec![0; INIT_PACKET_MAX];
        let mut packet = PacketWriter::new(&mut buf, header);
        if let Some(auth) = auth {
            packet = packet.with_auth(auth.plan());
        }
        if packet.push(chunk).is_ok() {
            if let Some(auth) = auth {
                packet.sign(|covered| auth.sign(covered));
            }
            let length = packet.finish();
            buf.truncate(length);
            self.queue.push_back((route, buf));
        }
    }

    /// Queues a packet with one chunk for the peer of an association. The packet is signed or sealed like all
    /// packets of the association.
    pub(crate) fn push_by(
        &mut self,
        route: Route,
        header: CommonHeader,
        chunk: &Chunk<'_>,
        integrity: &mut Integrity,
    ) {
        if self.queue.len() >= self.max {
            self.dropped += 1;
            return;
        }
        let mut buf = vec![0; INIT_PACKET_MAX];
        let mut packet = integrity.begin(&mut buf, header);
        if packet.push(chunk).is_ok() {
            let length = integrity.finish(packet, &route, Need::Always);
            buf.truncate(length);
            if length > 0 {
                self.queue.push_back((route, buf));
            }
        }
    }

    /// Queues an ABORT for the peer of an association.
    //= rfc9260#3.3.7-1 3.3.7-2 8.5.1-4 9.1-2 9.1-3
    pub(crate) fn abort(
        &mut self,
        route: Route,
        header: CommonHeader,
        cause: &AbortCause,
        integrity: &mut Integrity,
    ) {
        // A long reason is cut, because the cause code is more important for the peer than the text.
        let reason = &cause.reason[..cause.reason.len().min(INIT_PACKET_MAX / 2)];
        let causes: &[Cause<'_>] = match cause.code {
            0 => &[],
            12 => &[Cause::UserInitiatedAbort(reason)],
            13 => &[Cause::ProtocolViolation(reason)],
            code => &[Cause::Unknown { code, value: reason }],
        };
        let abort = Abort { tag_reflected: false, causes: Causes::from(causes) };
        self.push_by(route, header, &Chunk::Abort(abort), integrity);
    }

    /// Queues an ABORT that reflects the tag of a packet out of the blue (RFC 9260 section 8.4, rule 8).
    pub(crate) fn abort_reflecting(&mut self, route: Route, header: CommonHeader) {
        self.push(route, header, &Chunk::Abort(Abort { tag_reflected: true, causes: Causes::EMPTY }));
    }

    /// Queues an ABORT that refuses an INIT or an INIT ACK.
    pub(crate) fn refuse(&mut self, route: Route, header: CommonHeader, causes: &[Cause<'_>]) {
        self.refuse_signed(route, header, causes, None);
    }

    /// Queues an ABORT that refuses a COOKIE ECHO, signed if the peer requires it.
    pub(crate) fn refuse_signed(
        &mut self,
        route: Route,
        header: CommonHeader,
        causes: &[Cause<'_>],
        auth: Option<&Auth>,
    ) {
        let abort = Abort { tag_reflected: false, causes: Causes::from(causes) };
        self.push_signed(route, header, &Chunk::Abort(abort), auth);
    }

    /// Queues an ERROR that answers a COOKIE ECHO, signed if the peer requires it.
    pub(crate) fn error(
        &mut self,
        route: Route,
        header: CommonHeader,
        causes: &[Cause<'_>],
        auth: Option<&Auth>,
    ) {
        self.push_signed(route, header, &Chunk::Error(ErrorChunk { causes: Causes::from(causes) }), auth);
    }

    /// Queues a SHUTDOWN COMPLETE that reflects the tag of a SHUTDOWN ACK out of the blue.
    pub(crate) fn shutdown_complete_reflecting(&mut self, route: Route, header: CommonHeader) {
        self.push(route, header, &Chunk::ShutdownComplete(ShutdownComplete { tag_reflected: true }));
    }
}
