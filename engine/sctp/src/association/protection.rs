//! Sealing and opening of an association's packets: epochs, record numbers and the replay window. The agreement on
//! protection is in [`crate::extension::protection`].
//!
//! Invariants:
//!
//! - One key seals each record number only once, over all paths.
//! - Once protection is enforced, unsealed packets are ignored.
//! - No application message passes before the caller knows the peer.
//!
//! Begin at [`Protection::seal`] and [`Protection::open`].

use std::time::Duration;

use base::Time;
use smallvec::SmallVec;
use wire::{ChunkType, PacketWriter, RECORD_OVERHEAD, Record, VerificationTag};

use super::FirstMessage;
use super::key_messages::KeyMessages;
use super::replay::{ReplayWindow, Stale};
use crate::error::KeyError;
use crate::event::AbortCause;
use crate::extension::protection::{FIRST_EPOCH, ProtectionTerms, RecordCipher, RecordKeys, SealFrom};

/// Time for which the keys of the previous epoch are kept, for packets in transit.
const OLD_KEYS: Duration = Duration::from_secs(30);

/// The cause code of a protocol violation (RFC 9260 section 3.3.10.13).
pub(super) const PROTOCOL_VIOLATION: u16 = 13;

/// Divisor of a key's record limit: new keys are due after a quarter of the records that the limit permits.
const WORN_PART: u64 = 4;

/// Age of the keys at which new keys are due (`KEYS_LIFETIME`), and limit on the seconds that are added to this age
/// (`KEYS_SPREAD_S`). The addition differs between associations, because a host may have set up many associations at
/// the same time.
const KEYS_LIFETIME: Duration = Duration::from_secs(3600);
const KEYS_SPREAD_S: u32 = 1800;

/// A record that was decrypted.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Length of the chunks in the record, in octets.
    pub(crate) length: usize,
    epoch: u64,
    number: u64,
}

/// Reason for which a packet was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unopened {
    /// This end has no keys of the packet's epoch.
    NoKeys,
    /// The packet was not sealed with the peer's keys, or was changed.
    Forged,
    /// The record arrived before, or is too old for the replay window.
    Stale(Stale),
}

/// The protection of an association.
#[derive(Debug)]
pub(super) struct Protection {
    terms: ProtectionTerms,
    send: Option<Sending>,
    /// New keys for sending, which the peer may not have yet.
    next: Option<Sending>,
    /// Keys for receiving, in the order of their epochs.
    receive: SmallVec<[Receiving; 2]>,
    /// Set if unsealed packets are ignored: at the server from the client's first sealed packet on, at the client from
    /// the installation of the first keys on.
    is_enforced: bool,
    /// Set if a sealed packet of the peer was opened, which proves that the peer has the keys.
    has_opened: bool,
    is_peer_known: bool,
    /// The epoch that was last reported to the caller.
    told: Option<u64>,
    /// Set if new keys were requested since the present ones came into use.
    has_asked: bool,
    /// The message of the connect command, until application messages may pass.
    first: Option<FirstMessage>,
    /// Set if the application has sent a message.
    has_data: bool,
    messages: KeyMessages,
    /// Time at which the association ends, unless by then application messages may pass and a sealed packet of the peer
    /// was opened.
    limit: Time,
}

#[derive(Debug)]
struct Sending {
    epoch: u64,
    cipher: Box<dyn RecordCipher>,
    /// Number of the next record.
    number: u64,
    /// Time at which the keys were installed.
    since: Time,
}

#[derive(Debug)]
struct Receiving {
    epoch: u64,
    cipher: Box<dyn RecordCipher>,
    window: ReplayWindow,
    /// Number of records that these keys failed to open.
    forged: u64,
    /// Time at which these keys are deleted. `NEVER` until newer keys are in use.
    until: Time,
}

impl Protection {
    pub(super) fn new(terms: ProtectionTerms, limit: Time) -> Protection {
        Protection {
            terms,
            send: None,
            next: None,
            receive: SmallVec::new(),
            is_enforced: false,
            has_opened: false,
            is_peer_known: false,
            told: None,
            has_asked: false,
            first: None,
            has_data: false,
            messages: KeyMessages::default(),
            limit,
        }
    }

    /// Returns the time at which the association ends, or `NEVER` once application messages may pass and a sealed
    /// packet of the peer was opened.
    pub(super) fn limit(&self) -> Time {
        if self.is_open() && self.has_opened { Time::NEVER } else { self.limit }
    }

    /// Stores the message of the connect command until application messages may pass.
    pub(super) fn hold_first(&mut self, first: FirstMessage) {
        self.first = Some(first);
    }

    pub(super) fn take_first(&mut self) -> Option<FirstMessage> {
        self.first.take().inspect(|_| self.has_data = true)
    }

    /// Records that the application sends a message.
    pub(super) fn note_data(&mut self) {
        self.has_data = true;
    }

    /// Reports whether the application has sent a message. Key-management messages do not count.
    pub(super) fn has_data(&self) -> bool {
        self.has_data
    }

    pub(super) fn terms(&self) -> &ProtectionTerms {
        &self.terms
    }

    /// Returns the epoch of the keys that seal our packets.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.send.as_ref().map(|sending| sending.epoch)
    }

    /// Returns the current epoch, but only once for each epoch.
    pub(super) fn take_new_epoch(&mut self) -> Option<u64> {
        let epoch = self.epoch();
        if std::mem::replace(&mut self.told, epoch) == epoch { None } else { epoch }
    }

    pub(super) fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// Reports whether application messages may pass in both directions.
    pub(super) fn is_open(&self) -> bool {
        self.send.is_some() && self.is_enforced && self.is_peer_known
    }

    /// Records that the caller knows the peer.
    pub(super) fn know_peer(&mut self) {
        self.is_peer_known = true;
    }

    /// Installs the keys of epoch `epoch`, which must follow the newest epoch so far. The keys of that newest epoch
    /// must already be in use.
    pub(super) fn install(
        &mut self,
        epoch: u64,
        keys: RecordKeys,
        from: SealFrom,
        now: Time,
    ) -> Result<(), KeyError> {
        let wanted = self.receive.last().map_or(FIRST_EPOCH, |newest| newest.epoch + 1);
        if epoch != wanted {
            return Err(KeyError::Epoch { epoch, wanted });
        }
        if self.next.is_some() {
            return Err(KeyError::Unused);
        }
        if self.receive.len() >= 2 {
            self.receive.remove(0);
        }
        self.receive.push(Receiving {
            epoch,
            cipher: keys.receive,
            window: ReplayWindow::new(),
            forged: 0,
            until: Time::NEVER,
        });
        let sending = Sending { epoch, cipher: keys.send, number: 0, since: now };
        match from {
            SealFrom::Now => {
                // Only the client seals from now on, because the server already has these keys. With the first keys,
                // the server's answer was the last message that the client accepted in the clear.
                self.is_enforced = true;
                self.begin_sending(sending, now);
            }
            SealFrom::PeersFirst => self.next = Some(sending),
        }
        Ok(())
    }

    /// Begins to seal with new keys. The older keys for receiving expire after [`OLD_KEYS`].
    fn begin_sending(&mut self, sending: Sending, now: Time) {
        for older in self.receive.iter_mut().filter(|receiving| receiving.epoch < sending.epoch) {
            older.until = older.until.min(now + OLD_KEYS);
        }
        self.send = Some(sending);
        self.has_asked = false;
    }

    /// Wipes expired keys for receiving.
    pub(super) fn forget_expired(&mut self, now: Time) {
        self.receive.retain(|receiving| now <= receiving.until);
    }

    /// Reports whether packets are sealed.
    #[inline]
    pub(super) fn seals(&self) -> bool {
        self.send.is_some()
    }

    /// Seals a packet if there are keys. Returns false if the keys have reached their record limit.
    #[inline]
    pub(super) fn seal(&mut self, packet: &mut PacketWriter<'_>) -> bool {
        let Some(sending) = &mut self.send else { return true };
        if sending.number >= sending.cipher.record_limit() {
            return false;
        }
        let (number, cipher) = (sending.number, &sending.cipher);
        packet.seal(
            sending.epoch,
            number,
            |associated, text| cipher.seal(number, associated, text),
            |sample| cipher.mask(sample),
        );
        sending.number += 1;
        true
    }

    /// Reports, once for each epoch, that new keys are due, because the present keys have sealed many records or are
    /// old. `own` is the verification tag of this end. The tag determines the addition to the age of the keys.
    #[inline]
    pub(super) fn take_worn(&mut self, own: VerificationTag, now: Time) -> bool {
        let is_due = |s: &Sending| {
            let spread = Duration::from_secs((own.0 % KEYS_SPREAD_S).into());
            s.number >= s.cipher.record_limit() / WORN_PART || now - s.since >= KEYS_LIFETIME + spread
        };
        let is_worn = !self.has_asked && self.next.is_none() && self.send.as_ref().is_some_and(is_due);
        self.has_asked |= is_worn;
        is_worn
    }

    /// Returns the reason for which the association must end, if any.
    pub(super) fn fault(&self) -> Option<AbortCause> {
        let (is_spent, is_forged) = (
            // The last record is reserved for the ABORT.
            self.send.as_ref().is_some_and(|s| s.number + 1 >= s.cipher.record_limit()),
            self.receive.iter().any(|r| r.forged >= r.cipher.forgery_limit()),
        );
        let keys = match (is_spent, is_forged) {
            (true, _) => Some("the keys have sealed as much as they may"),
            (false, true) => Some("too many packets were forged"),
            (false, false) => None,
        };
        let violation = self.messages.fault().map(|reason| AbortCause::new(PROTOCOL_VIOLATION, reason));
        keys.map(|reason| AbortCause::new(0, reason)).or(violation)
    }

    /// Decrypts a record into the front of `room`, which grows if necessary. The record number counts as received only after
    /// [`take_opened`](Self::take_opened), because an attacker's copy from another address may arrive before the peer's
    /// own packet.
    pub(super) fn open(
        &mut self,
        record: &Record<'_>,
        room: &mut Vec<u8>,
        now: Time,
    ) -> Result<Opened, Unopened> {
        self.forget_expired(now);
        let matches = |receiving: &&mut Receiving| receiving.epoch % 4 == u64::from(record.epoch);
        let receiving = self.receive.iter_mut().rev().find(matches).ok_or(Unopened::NoKeys)?;
        let low = record.number(receiving.cipher.mask(&record.sample));
        let number = receiving.window.expand(low);
        receiving.window.check(number).map_err(Unopened::Stale)?;
        let length = record.ciphertext.len();
        if room.len() < length {
            room.resize(length, 0);
        }
        let text = &mut room[..length];
        if !receiving.cipher.open(number, &record.associated(low), record.ciphertext, record.tag, text) {
            receiving.forged += 1;
            return Err(Unopened::Forged);
        }
        let length = Record::chunks(text).ok_or(Unopened::Forged)?.len();
        Ok(Opened { length, epoch: receiving.epoch, number })
    }

    /// Marks the number of a record as received. Returns true if the record is the first proof that the peer has the
    /// newest keys.
    pub(super) fn take_opened(&mut self, opened: &Opened, now: Time) -> bool {
        self.has_opened = true;
        if let Some(receiving) = self.receive.iter_mut().find(|r| r.epoch == opened.epoch) {
            receiving.window.take(opened.number);
        }
        let Some(sending) = self.next.take_if(|next| next.epoch == opened.epoch) else { return false };
        self.is_enforced = true;
        self.begin_sending(sending, now);
        true
    }

    /// Returns the octets that protection adds to a packet.
    pub(super) fn overhead(&self) -> usize {
        RECORD_OVERHEAD
    }

    /// Returns the state of the key-management messages.
    pub(super) fn messages(&self) -> &KeyMessages {
        &self.messages
    }

    pub(super) fn messages_mut(&mut self) -> &mut KeyMessages {
        &mut self.messages
    }

    /// Reports whether a chunk of this type is accepted. `is_sealed` is true if the chunk came in a sealed packet.
    pub(super) fn takes(&self, chunk_type: ChunkType, is_sealed: bool) -> bool {
        // These requests are not accepted before the caller knows the peer. The peer repeats them.
        let waits = matches!(chunk_type, ChunkType::ASCONF | ChunkType::RE_CONFIG | ChunkType::SHUTDOWN);
        if is_sealed { self.is_open() || !waits } else { self.takes_in_the_clear(chunk_type) }
    }

    /// Reports whether a chunk is accepted in the clear before protection is enforced. These are chunks of the
    /// handshake, and chunks that carry or acknowledge key-management messages. Before protection is enforced, an
    /// attacker can end the association, but could as easily have prevented its setup. SHUTDOWN is not accepted, so an
    /// attacker cannot feign a graceful end.
    fn takes_in_the_clear(&self, chunk_type: ChunkType) -> bool {
        !self.is_enforced
            && matches!(
                chunk_type,
                ChunkType::DATA
                    | ChunkType::I_DATA
                    | ChunkType::SACK
                    | ChunkType::ABORT
                    | ChunkType::ERROR
                    | ChunkType::COOKIE_ACK
            )
    }

    pub(super) fn memory(&self) -> usize {
        let sending: usize = self.send.iter().chain(&self.next).map(|s| s.cipher.memory()).sum();
        let receiving: usize = self.receive.iter().map(|r| r.cipher.memory() + r.window.memory()).sum();
        let first = self.first.as_ref().map_or(0, |first| first.message.len());
        size_of::<Protection>() + sending + receiving + first + self.messages.memory()
    }
}
