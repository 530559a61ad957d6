//! Sealing and opening of an association's packets: epochs, record numbers and the replay window
//! ([`crate::extension::protection`] has the terms).
//!
//! Invariants: no number is sealed twice by one key, whatever the path; nothing that is not sealed counts once protection is
//! enforced; and no message of the application passes before the peer is known. Begin at [`Protection::seal`] and
//! [`Protection::open`].

use std::time::Duration;

use base::Time;
use smallvec::SmallVec;
use wire::{ChunkType, PacketWriter, RECORD_OVERHEAD, RECORD_TAG_LEN, Record, VerificationTag};

use super::FirstMessage;
use super::key_messages::KeyMessages;
use super::replay::{ReplayWindow, Stale};
use crate::error::KeyError;
use crate::event::AbortCause;
use crate::extension::protection::{FIRST_EPOCH, ProtectionTerms, RecordCipher, RecordKeys, SealFrom};

/// Time that the keys of the epoch before are kept for packets that are under way.
const OLD_KEYS: Duration = Duration::from_secs(30);

/// The cause code of a protocol violation (RFC 9260 section 3.3.10.13).
pub(super) const PROTOCOL_VIOLATION: u16 = 13;

/// Share of the records of a key that may be sealed until new ones are asked for.
const WORN_PART: u64 = 4;

/// Time after which new keys are asked for, and the part of it that differs by association: a host may have set up many at once.
const KEYS_LIFETIME: Duration = Duration::from_secs(3600);
const KEYS_SPREAD_S: u32 = 1800;

/// A record that was decrypted.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Octets of the chunks in it.
    pub(crate) length: usize,
    epoch: u64,
    number: u64,
}

/// Why a packet was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unopened {
    /// No keys of its epoch are there.
    NoKeys,
    /// It was not sealed by the peer's keys, or was changed.
    Forged,
    /// It was there before, or is too old to tell.
    Stale(Stale),
}

/// The protection of an association.
#[derive(Debug)]
pub(super) struct Protection {
    terms: ProtectionTerms,
    send: Option<Sending>,
    /// Keys for sending that the peer is not known to have yet.
    next: Option<Sending>,
    /// By epoch, the newest last.
    receive: SmallVec<[Receiving; 2]>,
    /// The first sealed packet of the peer was opened: what is not sealed does not count any more.
    is_enforced: bool,
    /// A sealed packet of the peer was opened: it has the keys.
    has_opened: bool,
    is_peer_known: bool,
    /// The epoch that the caller was told of.
    told: Option<u64>,
    /// New keys were asked for since the last ones came.
    has_asked: bool,
    /// The application's message that was to go with the COOKIE ECHO.
    first: Option<FirstMessage>,
    /// The application has sent a message.
    has_data: bool,
    messages: KeyMessages,
    /// Time at which the association ends unless messages may pass by then.
    limit: Time,
}

#[derive(Debug)]
struct Sending {
    epoch: u64,
    cipher: Box<dyn RecordCipher>,
    /// The number of the next record.
    number: u64,
    /// Time at which the keys came.
    since: Time,
}

#[derive(Debug)]
struct Receiving {
    epoch: u64,
    cipher: Box<dyn RecordCipher>,
    window: ReplayWindow,
    /// Records that these keys did not open.
    forged: u64,
    /// Time at which it ends, once there are newer keys.
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

    /// Returns the time at which the association ends for want of keys.
    pub(super) fn limit(&self) -> Time {
        if self.is_open() && self.has_opened { Time::NEVER } else { self.limit }
    }

    /// Keeps the application's first message until messages may pass.
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

    /// Reports whether the application has sent a message. Others are about keys.
    pub(super) fn has_data(&self) -> bool {
        self.has_data
    }

    pub(super) fn terms(&self) -> &ProtectionTerms {
        &self.terms
    }

    /// The epoch of the keys that packets are sealed with.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.send.as_ref().map(|sending| sending.epoch)
    }

    /// Returns the epoch, once for each that messages of the application pass under.
    pub(super) fn take_new_epoch(&mut self) -> Option<u64> {
        let epoch = self.epoch();
        if std::mem::replace(&mut self.told, epoch) == epoch { None } else { epoch }
    }

    pub(super) fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// Reports whether messages of the application may pass, both ways.
    pub(super) fn is_open(&self) -> bool {
        self.send.is_some() && self.is_enforced && self.is_peer_known
    }

    /// Records that the caller knows the peer.
    pub(super) fn know_peer(&mut self) {
        self.is_peer_known = true;
    }

    /// Adds the keys of an epoch.
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
                // The client seals as soon as the server has answered, and the server's answer is the last that it takes in the clear.
                self.is_enforced = true;
                self.begin_sending(sending, now);
            }
            SealFrom::PeersFirst => self.next = Some(sending),
        }
        Ok(())
    }

    /// Seals with new keys from now on, and lets the older ones of the peer expire.
    fn begin_sending(&mut self, sending: Sending, now: Time) {
        for older in self.receive.iter_mut().filter(|receiving| receiving.epoch < sending.epoch) {
            older.until = older.until.min(now + OLD_KEYS);
        }
        self.send = Some(sending);
        self.has_asked = false;
    }

    /// Wipes the peer's keys that have expired.
    pub(super) fn forget_expired(&mut self, now: Time) {
        self.receive.retain(|receiving| now <= receiving.until);
    }

    /// Reports whether packets are sealed.
    #[inline]
    pub(super) fn seals(&self) -> bool {
        self.send.is_some()
    }

    /// Seals a packet; returns false if the keys may not seal any more.
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

    /// Reports, once for each epoch, that new keys are due: the keys have sealed much, or are old. `own` is a number of this end of the association.
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

    /// Reports why the association must end, if so.
    pub(super) fn fault(&self) -> Option<AbortCause> {
        let (is_spent, is_forged) = (
            // The last one is for the ABORT.
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

    /// Decrypts a record into `room`. Its number stays free until [`take_opened`](Self::take_opened): somebody may send a copy from elsewhere
    /// before the record itself arrives.
    pub(super) fn open(
        &mut self,
        record: &Record<'_>,
        room: &mut Vec<u8>,
        now: Time,
    ) -> Result<Opened, Unopened> {
        self.forget_expired(now);
        let matches = |receiving: &&mut Receiving| receiving.epoch % 4 == u64::from(record.epoch);
        let receiving = self.receive.iter_mut().rev().find(matches).ok_or(Unopened::NoKeys)?;
        let low = record.number(receiving.cipher.mask(&record.sample()));
        let number = receiving.window.expand(low);
        receiving.window.check(number).map_err(Unopened::Stale)?;
        room.clear();
        room.extend_from_slice(record.ciphertext);
        if !receiving.cipher.open(number, &record.associated(low), room) {
            receiving.forged += 1;
            return Err(Unopened::Forged);
        }
        room.truncate(room.len() - RECORD_TAG_LEN);
        let length = Record::chunks(room).ok_or(Unopened::Forged)?.len();
        Ok(Opened { length, epoch: receiving.epoch, number })
    }

    /// Takes the number of a record; returns true if it is the first by which the peer shows that it has the newest keys.
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

    /// Octets by which packets grow.
    pub(super) fn overhead(&self) -> usize {
        RECORD_OVERHEAD
    }

    /// Messages of the peer about keys.
    pub(super) fn messages(&self) -> &KeyMessages {
        &self.messages
    }

    pub(super) fn messages_mut(&mut self) -> &mut KeyMessages {
        &mut self.messages
    }

    /// Reports whether a chunk may come in a packet that was sealed, or was not.
    pub(super) fn takes(&self, chunk_type: ChunkType, is_sealed: bool) -> bool {
        // The peer repeats a request that comes before the caller knows it.
        let waits = matches!(chunk_type, ChunkType::ASCONF | ChunkType::RE_CONFIG | ChunkType::SHUTDOWN);
        if is_sealed { self.is_open() || !waits } else { self.takes_in_the_clear(chunk_type) }
    }

    /// Reports whether a chunk may come in the clear before protection is enforced: the handshake's, and what carries messages about
    /// keys. Anybody can end the association at that time, as anybody could keep it from beginning. Nobody can make its end look like one
    /// that the peer wants.
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
