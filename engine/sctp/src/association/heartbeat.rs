//! HEARTBEAT and HEARTBEAT ACK (RFC 9260 sections 5.4 and 8.3).

use bytes::Bytes;
use wire::{ChunkType, Heartbeat};

use super::{Association, CameBy, Context, Control, State};
use crate::config::AddressProof;
use crate::path::PathIndex;

/// Maximum number of queued HEARTBEAT ACKs.
const MAX_WAITING: usize = 64;

/// Maximum number of bytes in queued HEARTBEAT ACKs.
const MAX_WAITING_BYTES: usize = 128 * 1024;

/// Length of a HEARTBEAT chunk before the information, in bytes: headers of chunk and parameter (RFC 9260 section
/// 3.3.5).
pub(super) const HEARTBEAT_HEADER_LEN: usize = 8;

/// Encodes the information in our heartbeats: the path, and a nonce that identifies the answer.
//= rfc9260#3.3.5-2 3.3.5-3
pub(super) fn info(path: PathIndex, nonce: u64) -> [u8; 12] {
    let mut info = [0; 12];
    info[..4].copy_from_slice(&path.to_wire().to_be_bytes());
    info[4..].copy_from_slice(&nonce.to_be_bytes());
    info
}

pub(super) fn read_info(info: &[u8]) -> Option<(PathIndex, u64)> {
    let (path, nonce) = info.split_first_chunk::<4>()?;
    let path = PathIndex::from_wire(u32::from_be_bytes(*path))?;
    Some((path, u64::from_be_bytes(nonce.try_into().ok()?)))
}

/// A Heartbeat Information parameter without content.
const NO_INFORMATION: [u8; 4] = [0, 1, 0, 4];

impl Association {
    /// Answers a HEARTBEAT on the path of arrival. The answer repeats the whole chunk value, `value`. Up to
    /// [`MAX_WAITING`] answers may wait to be sent.
    //= rfc8899#3-4 3-16
    pub(super) fn on_heartbeat(
        &mut self,
        path: PathIndex,
        heartbeat: &Heartbeat<'_>,
        value: &[u8],
        ctx: &mut Context<'_>,
    ) {
        let answers = match self.transfer.state {
            State::CookieWaitOver | State::Accepting | State::Closed => false,
            State::CookieEchoed { .. }
            | State::Established
            | State::ShutdownPending
            | State::ShutdownSent { .. }
            | State::ShutdownReceived { .. }
            | State::ShutdownAckSent { .. } => true,
        };
        if !answers || value.len() > self.heartbeat_ack_room(path) {
            return;
        }
        // If the HEARTBEAT has no parameter, the answer gets an empty parameter, because a HEARTBEAT ACK must have one.
        let value = if value.is_empty() { &NO_INFORMATION } else { value };
        if self.answer_new_port(path, heartbeat.info, ctx) {
            return;
        }
        let waiting = self.transfer.out.chunks().filter_map(|(_, control)| match control {
            Control::HeartbeatAck(value) => Some(value.len()),
            _ => None,
        });
        let (count, bytes) = waiting.fold((0, 0), |(count, bytes), length| (count + 1, bytes + length));
        if count < MAX_WAITING && bytes + value.len() <= MAX_WAITING_BYTES {
            //= rfc9260#3.3.6-2 8.3-8
            let value = Bytes::copy_from_slice(value);
            self.copy_answer(path, &value, ctx.now);
            //= rfc9260#6.4-2 8.3-2
            self.transfer.out.queue(path, Control::HeartbeatAck(value));
            self.transfer.paths.get_mut(path).on_asked();
        }
    }

    /// Returns the number of bytes of a HEARTBEAT ACK's value that fit into a packet on this path.
    fn heartbeat_ack_room(&self, path: PathIndex) -> usize {
        let auth = self.transfer.integrity.overhead(ChunkType::HEARTBEAT_ACK);
        let taken = wire::COMMON_HEADER_LEN + wire::CHUNK_HEADER_LEN + auth;
        self.transfer.paths.get(path).packet_size().saturating_sub(taken)
    }

    pub(super) fn on_heartbeat_ack(&mut self, heartbeat: &Heartbeat<'_>, ctx: &mut Context<'_>) {
        let Some((index, nonce)) = read_info(heartbeat.info) else { return };
        if self.transfer.paths.try_get_mut(index).is_none() {
            return;
        }
        if self.transfer.hearsay.on_answer(nonce) {
            self.transfer.liveness.on_answer();
            return;
        }
        let may_prove = self.may_prove(index);
        let path = self.transfer.paths.get_mut(index);
        if !may_prove {
            // The answer did not arrive on the path that the HEARTBEAT asked about. When the peer answered, it may not
            // have known yet that it may send from the path's remote address. The HEARTBEAT is therefore repeated.
            if path.is_asked(nonce) {
                self.transfer.repeat_question(index, ctx.now);
            }
            return;
        }
        if path.vouching.on_answer(nonce) {
            self.on_vouched(index);
            return self.transfer.on_path_answered(index, ctx);
        }
        if let Some(rtt) = path.round_trip(nonce, ctx.now) {
            self.transfer.tx.outstanding.on_round_trip(index, rtt);
        }
        let path = self.transfer.paths.get_mut(index);
        let is_answer = path.on_heartbeat_ack(nonce, ctx.now, &self.transfer.config.timing, ctx.random)
            || self.transfer.on_size_answer(index, nonce, ctx.now)
            || self.on_port_answer(index, nonce, ctx.now);
        let is_proof = is_answer && self.transfer.paths.get(index).pmtu.size_that_proves().is_none();
        if is_proof && self.lacks_voucher(index) {
            self.ask_voucher(index, ctx);
        } else if is_proof {
            self.transfer.on_path_answered(index, ctx);
        }
    }

    /// Reports whether the current packet may confirm this path. Under [`AddressProof::ConfirmedPath`], a packet may
    /// confirm an unconfirmed path only if it has the path's addresses. The packet's UDP port may be the path's port,
    /// or a new port.
    fn may_prove(&self, index: PathIndex) -> bool {
        let path = self.transfer.paths.get(index);
        let is_lenient = path.is_confirmed() || self.transfer.config.address_proof == AddressProof::Signature;
        is_lenient || self.came_by == CameBy::Path(index) || self.came_from_new_port(index)
    }
}
