//! Key-management messages, new keys, and the time from which application messages may pass
//! (draft-ietf-tsvwg-sctp-dtls-chunk sections 5 and 7).
//!
//! Start at [`Association::install_keys`].

use std::net::IpAddr;

use base::Time;
use bytes::Bytes;
use wire::{Chunk, ChunkType, RawChunk, Record};

use super::protection::{Opened, PROTOCOL_VIOLATION, Unopened};
use super::{Association, Context, State};
use crate::error::KeyError;
use crate::event::{AbortCause, CloseReason, Event};
use crate::extension::protection::{
    KEY_MESSAGE_MAX, KEY_PPID, KeyRole, ProtectionTerms, RecordKeys, SealFrom,
};
use crate::path::PathIndex;
use crate::rx::Piece;
use crate::trace::DropReason;

impl Association {
    /// Returns the agreement on protection, if both ends agreed on it.
    pub(crate) fn protection_terms(&self) -> Option<&ProtectionTerms> {
        self.transfer.integrity.protection().map(|protection| protection.terms())
    }

    /// Returns the epoch of the keys that seal our packets.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.transfer.integrity.protection()?.epoch()
    }

    #[inline]
    pub(crate) fn is_protected(&self) -> bool {
        self.transfer.integrity.protection().is_some()
    }

    /// Reports whether unsealed packets are ignored.
    #[inline]
    pub(crate) fn is_enforced(&self) -> bool {
        self.transfer.integrity.protection().is_some_and(|protection| protection.is_enforced())
    }

    /// Returns the peer's address in the handshake.
    pub(crate) fn first_remote(&self) -> IpAddr {
        self.transfer.paths.get(PathIndex::new(0)).route.remote
    }

    /// Reports whether the peer began the association and application messages may pass.
    pub(crate) fn is_open_to_client(&self) -> bool {
        let protection = self.transfer.integrity.protection();
        protection.is_some_and(|p| p.is_open() && p.terms().role == KeyRole::Server)
    }

    /// Installs the keys of an epoch.
    pub(crate) fn install_keys(
        &mut self,
        epoch: u64,
        keys: RecordKeys,
        from: SealFrom,
        ctx: &mut Context<'_>,
    ) -> Result<(), KeyError> {
        let was_enforced = self.is_enforced();
        let protection = self.transfer.integrity.protection_mut().ok_or(KeyError::NotAgreed)?;
        protection.install(epoch, keys, from, ctx.now)?;
        self.after_step(was_enforced, ctx);
        Ok(())
    }

    /// Records that the caller has verified the peer's identity, or does not require it. Application messages may pass
    /// from now on, or from the time at which packets are sealed.
    pub(crate) fn know_peer(&mut self, ctx: &mut Context<'_>) -> Result<(), KeyError> {
        let was_enforced = self.is_enforced();
        let protection = self.transfer.integrity.protection_mut().ok_or(KeyError::NotAgreed)?;
        if protection.is_open() {
            return Ok(());
        }
        protection.know_peer();
        self.after_step(was_enforced, ctx);
        Ok(())
    }

    /// Queues a key-management message.
    pub(crate) fn send_key_message(&mut self, message: Bytes) -> Result<(), KeyError> {
        if !self.is_protected() || matches!(self.transfer.state, State::Closed) {
            return Err(KeyError::NotAgreed);
        }
        if message.is_empty() || message.len() > KEY_MESSAGE_MAX {
            return Err(KeyError::Length { length: message.len(), max: KEY_MESSAGE_MAX });
        }
        self.queue_key_message(message);
        Ok(())
    }

    pub(super) fn queue_key_message(&mut self, message: Bytes) {
        let Some(protection) = self.transfer.integrity.protection_mut() else { return };
        let is_client = protection.terms().role == KeyRole::Client;
        let message = protection.messages_mut().on_send(message, is_client);
        self.queue_ordered(KEY_PPID, message);
    }

    /// Reports whether DATA is accepted in the form in which it arrived. Unsealed DATA may only belong to
    /// key-management messages. A third party may have sent any other unsealed DATA. Such DATA must not use up a TSN
    /// that the peer will use in a sealed packet.
    pub(super) fn may_come_so(&self, data: &Piece<'_>) -> bool {
        let is_of_key_message =
            data.stream.0 == 0 && !data.unordered && (data.ppid == KEY_PPID || !data.begin);
        self.transfer.integrity.is_sealed() || is_of_key_message
    }

    /// Decrypts a DTLS chunk of the peer into the front of `room`, which grows if necessary.
    pub(crate) fn open(
        &mut self,
        raw: &RawChunk<'_>,
        room: &mut Vec<u8>,
        now: Time,
    ) -> Result<Opened, DropReason> {
        let protection = self.transfer.integrity.protection_mut().ok_or(DropReason::Malformed)?;
        let record = Record::parse(raw).ok_or(DropReason::Malformed)?;
        protection.open(&record, room, now).map_err(|reason| match reason {
            Unopened::NoKeys => DropReason::NoKeys,
            Unopened::Forged => DropReason::Forged,
            Unopened::Stale(_) => DropReason::Replayed,
        })
    }

    /// Handles the chunk that precedes the DTLS chunk in a packet of the peer. The preceding chunk is not protected.
    /// Only an advertisement is accepted in this place, because an advertisement has no effect on the association.
    pub(crate) fn on_front(&mut self, front: &RawChunk<'_>) {
        if self.transfer.advertising.is_advertisement(front) {
            self.transfer.on_advertisement(front);
        }
    }

    /// Accepts a record that was decrypted and came from an address of the peer. A later copy of this record is
    /// refused. Returns true if the record is the first proof that the peer has the newest keys.
    pub(crate) fn take_opened(&mut self, opened: &Opened, ctx: &mut Context<'_>) -> bool {
        let was_enforced = self.is_enforced();
        let protection = self.transfer.integrity.protection_mut();
        let is_first = protection.is_some_and(|protection| protection.take_opened(opened, ctx.now));
        if is_first {
            self.after_step(was_enforced, ctx);
        }
        is_first
    }

    /// Handles progress of the key management. `was_enforced` is true if unsealed packets were already ignored before.
    fn after_step(&mut self, was_enforced: bool, ctx: &mut Context<'_>) {
        if !was_enforced && self.is_enforced() {
            // The key exchange authenticates key-management messages, but a third party may have sent any other data in
            // the clear. If such data has used up a TSN, the peer's sealed chunk with this TSN would count as a
            // duplicate.
            if !self.has_only_key_messages() {
                let reason = "data in the clear where packets are to be sealed".into();
                return self.abort(AbortCause { code: PROTOCOL_VIOLATION, reason }, ctx);
            }
            self.end_clear();
        }
        let Some(protection) = self.transfer.integrity.protection_mut() else { return };
        if !protection.is_open() {
            return;
        }
        let Some(epoch) = protection.take_new_epoch() else { return };
        let first = protection.take_first();
        first.into_iter().for_each(|first| self.queue_ordered(first.ppid, first.message));
        self.transfer.out.emit(Event::Protected { epoch });
        if self.inbound.has_ready() {
            self.transfer.out.emit(Event::Readable);
        }
        self.transfer.wake_writer();
        self.ask_next(ctx.now);
        self.drive_reconfig(ctx.now);
        self.after_data_moved(ctx.now);
        for index in self.transfer.paths.indices() {
            if !self.transfer.paths.get(index).is_confirmed() {
                self.transfer.paths.get_mut(index).probe_now(ctx.now);
            }
        }
    }

    /// Records the end of data in the clear, in both directions.
    fn end_clear(&mut self) {
        let sent = self.transfer.tx.outstanding.next().tsn(self.transfer.negotiated.initial_tsn()).prev();
        let taken = self.inbound.cumulative_tsn();
        if let Some(protection) = self.transfer.integrity.protection_mut() {
            protection.messages_mut().end_clear(taken, sent);
        }
    }

    /// Reports whether all received DATA belonged to complete key-management messages.
    fn has_only_key_messages(&self) -> bool {
        let protection = self.transfer.integrity.protection();
        self.inbound.is_all_read() && protection.is_none_or(|p| !p.messages().has_begun())
    }

    /// Removes key-management messages from the messages that are ready for the application.
    #[inline]
    pub(super) fn take_key_messages(&mut self) {
        if self.is_protected() {
            self.take_ready_key_messages();
        }
    }

    /// Looks for further key-management messages after the application has read a message.
    #[inline]
    pub(super) fn note_read(&mut self) {
        if let Some(protection) = self.transfer.integrity.protection_mut() {
            protection.messages_mut().on_read();
            self.take_ready_key_messages();
        }
    }

    fn take_ready_key_messages(&mut self) {
        let Some(protection) = self.transfer.integrity.protection_mut() else { return };
        while let Some(part) = protection.messages_mut().next_of(&mut self.inbound) {
            // Enforcement begins only after all data in the clear has been read, so later messages are sealed.
            let sealed = protection.is_enforced();
            let is_of_client = protection.terms().role == KeyRole::Server;
            let messages = protection.messages_mut();
            // The association will end, so the messages are discarded.
            if messages.fault().is_some() {
                continue;
            }
            let whole = messages.take(part, sealed);
            let message = match whole {
                Some(whole) if sealed && is_of_client => messages.check_boundary(whole),
                whole => whole,
            };
            if let Some(message) = message {
                self.transfer.out.emit(Event::KeyMessage { message, sealed });
            }
        }
    }

    /// Handles an unsealed packet with the right tag on a protected association. Two cases matter. If the peer has completed
    /// the shutdown and removed the association, it cannot seal packets any more. All data of both ends is acknowledged
    /// before this case can occur. If the peer has lost the association, it answers with ABORT, which the configuration may
    /// permit as a reason to ask the peer. `is_from_peer` tells whether the packet came from an address of the peer.
    pub(crate) fn on_unsealed(&mut self, first: &RawChunk<'_>, is_from_peer: bool, ctx: &mut Context<'_>) {
        let is_farewell = match first.parse() {
            Ok(Chunk::Abort(abort)) => abort.tag_reflected,
            Ok(Chunk::ShutdownComplete(complete)) => complete.tag_reflected,
            _ => false,
        };
        if is_farewell && matches!(self.transfer.state, State::ShutdownAckSent { .. }) {
            self.transfer.close(CloseReason::Graceful);
            return;
        }
        let asks = self.transfer.config.protection.is_some_and(|protection| protection.asks_after_abort);
        if asks && is_from_peer && first.chunk_type == ChunkType::ABORT {
            self.transfer.hear_forgotten(self.transfer.paths.current(), ctx);
        }
    }

    /// Ends the association after a fault of its protection. Emits [`Event::KeysWorn`] when new keys are due.
    #[inline]
    pub(super) fn watch_keys(&mut self, ctx: &mut Context<'_>) {
        if self.is_protected() {
            self.watch_protection(ctx);
        }
    }

    fn watch_protection(&mut self, ctx: &mut Context<'_>) {
        let is_over = matches!(self.transfer.state, State::Closed);
        let own = self.transfer.negotiated.tags().0;
        let Some(protection) = self.transfer.integrity.protection_mut().filter(|_| !is_over) else { return };
        if let Some(cause) = protection.fault() {
            self.abort(cause, ctx);
        } else if protection.take_worn(own, ctx.now) {
            self.transfer.out.emit(Event::KeysWorn);
        }
    }

    /// Wipes expired keys of the peer.
    pub(super) fn forget_expired_keys(&mut self, now: Time) {
        if let Some(protection) = self.transfer.integrity.protection_mut() {
            protection.forget_expired(now);
        }
    }
}
