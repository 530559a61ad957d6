//! Key management for worlds. It has the messages of a real method (hello, answer, end), but its keys hide nothing. The cipher
//! authenticates and counts records, and does not encrypt their text.
//!
//! The text of a record stays readable, so captures and tests see the chunks inside ([`crate::chunk_names`]). The cipher detects
//! a record that was forged, changed, or sealed under another number. Begin at [`Keying::on_event`].

use std::cell::Cell;
use std::collections::BTreeMap;

use base::Time;
use bytes::Bytes;
use sctp::{
    AbortCause, AssociationId, Endpoint, Event, FIRST_EPOCH, KeyRole, ProtectionConfig, RecordCipher,
    RecordKeys, SealFrom,
};

/// Number of the key-management method in worlds, from the range for private use.
const METHOD: u8 = 250;

/// Length of a hello, in bytes. A ClientHello with X25519MLKEM768 has about this length.
const HELLO_LEN: usize = 1400;

/// Length of an answer, in bytes. The first flight of a TLS server has about this length.
const ANSWER_LEN: usize = 1600;

/// Default limit on the records that a key may seal.
const RECORDS: u64 = 1 << 24;

const HELLO: u8 = 1;
const ANSWER: u8 = 2;
const END: u8 = 3;

/// Returns the offer of protection by this method.
pub fn protection(required: bool) -> ProtectionConfig {
    ProtectionConfig::new(METHOD, required)
}

/// Key management of a host.
#[derive(Debug, Default)]
pub struct Keying {
    negotiations: BTreeMap<AssociationId, Negotiation>,
    /// Limit on the records that each key may seal, for keys created from now on; 0 means the default.
    pub records: u64,
    /// Limit on the records that each key may fail to open, for keys created from now on; 0 means no limit.
    pub forgeries: u64,
    /// Number of refused messages.
    pub refused: usize,
}

#[derive(Debug)]
struct Negotiation {
    epoch: u64,
    hello: Bytes,
}

impl Keying {
    /// Begins key management, if protection is offered. The hello leaves with the COOKIE ECHO.
    pub fn begin(&mut self, now: Time, id: AssociationId, endpoint: &mut Endpoint) {
        let hello = hello(FIRST_EPOCH, id);
        if endpoint.send_key_message(now, id, hello.clone()).is_ok() {
            self.negotiations.insert(id, Negotiation { epoch: FIRST_EPOCH, hello });
        }
    }

    /// Begins to agree on new keys.
    pub fn renew(&mut self, now: Time, id: AssociationId, endpoint: &mut Endpoint) {
        let Some(epoch) = endpoint.epoch(id).filter(|_| !self.negotiations.contains_key(&id)) else { return };
        let hello = hello(epoch + 1, id);
        if endpoint.send_key_message(now, id, hello.clone()).is_ok() {
            self.negotiations.insert(id, Negotiation { epoch: epoch + 1, hello });
        }
    }

    /// Handles an event of the endpoint.
    pub fn on_event(&mut self, now: Time, id: AssociationId, event: &Event, endpoint: &mut Endpoint) {
        match event {
            Event::KeyMessage { message, sealed } => {
                let is_taken = self.on_message(now, id, (message, *sealed), endpoint).is_some();
                if !is_taken {
                    self.refused += 1;
                    endpoint.abort(
                        now,
                        id,
                        AbortCause::user("a message about keys that does not belong here"),
                    );
                }
            }
            Event::KeysWorn => self.renew(now, id, endpoint),
            Event::Closed(_) => drop(self.negotiations.remove(&id)),
            _ => {}
        }
    }

    fn on_message(
        &mut self,
        now: Time,
        id: AssociationId,
        (message, sealed): (&Bytes, bool),
        endpoint: &mut Endpoint,
    ) -> Option<()> {
        // Once packets are sealed, only sealed messages count.
        if !sealed && endpoint.epoch(id).is_some() {
            return None;
        }
        match *message.first()? {
            HELLO => {
                let epoch = endpoint.epoch(id).map_or(FIRST_EPOCH, |epoch| epoch + 1);
                // If two hellos cross, the negotiation of the association's client continues. For the first keys, only the client
                // may begin.
                let is_client = endpoint.protection(id)?.role == KeyRole::Client;
                if is_client && self.negotiations.contains_key(&id) {
                    return (epoch > FIRST_EPOCH).then_some(());
                }
                let mut answer = [vec![ANSWER], epoch.to_be_bytes().to_vec()].concat();
                answer.resize(ANSWER_LEN, 0);
                let answer = Bytes::from(answer);
                self.install(now, id, epoch, (message, &answer), SealFrom::PeersFirst, endpoint)?;
                endpoint.send_key_message(now, id, answer).ok()?;
                self.negotiations.remove(&id);
            }
            ANSWER => {
                let Negotiation { epoch, hello } = self.negotiations.remove(&id)?;
                self.install(now, id, epoch, (&hello, message), SealFrom::Now, endpoint)?;
                endpoint.send_key_message(now, id, Bytes::from_static(&[END])).ok()?;
                endpoint.know_peer(now, id).ok()?;
            }
            END => endpoint.know_peer(now, id).ok()?,
            _ => return None,
        }
        Some(())
    }

    fn install(
        &self,
        now: Time,
        id: AssociationId,
        epoch: u64,
        (hello, answer): (&[u8], &[u8]),
        from: SealFrom,
        endpoint: &mut Endpoint,
    ) -> Option<()> {
        let terms = endpoint.protection(id)?;
        let secret = mixed(mixed(mixed(epoch, hello), answer), &terms.transcript);
        let records = if self.records == 0 { RECORDS } else { self.records };
        let forgeries = if self.forgeries == 0 { u64::MAX } else { self.forgeries };
        let cipher = |direction: u8| {
            let key = mixed(secret, &[direction]);
            Box::new(OpenCipher { key, records, forgeries, last: Cell::new(None) })
        };
        // The association's client always seals with the key of direction 0, and the server seals with the key of direction 1.
        // Either end may have begun this negotiation.
        let (ours, theirs) = match terms.role {
            KeyRole::Client => (0, 1),
            KeyRole::Server => (1, 0),
        };
        let keys = RecordKeys { send: cipher(ours), receive: cipher(theirs) };
        endpoint.install_keys(now, id, epoch, keys, from).ok()
    }
}

fn hello(epoch: u64, id: AssociationId) -> Bytes {
    let mut hello = vec![HELLO];
    let mut state = mixed(epoch, format!("{id:?}").as_bytes());
    while hello.len() < HELLO_LEN {
        state = mixed(state, &[]);
        hello.extend_from_slice(&state.to_be_bytes());
    }
    hello.into()
}

/// A cipher whose tags are simple keyed hashes. It encrypts only the record number.
#[derive(Debug)]
struct OpenCipher {
    key: u64,
    records: u64,
    forgeries: u64,
    /// Number of the last sealed record.
    last: Cell<Option<u64>>,
}

impl OpenCipher {
    fn tag(&self, number: u64, associated: &[u8], text: &[u8]) -> [u8; 16] {
        let first = mixed(mixed(self.key ^ number, associated), text);
        let second = mixed(first, &number.to_be_bytes());
        let mut tag = [0; 16];
        tag[..8].copy_from_slice(&first.to_be_bytes());
        tag[8..].copy_from_slice(&second.to_be_bytes());
        tag
    }
}

impl RecordCipher for OpenCipher {
    fn seal(&self, number: u64, associated: &[u8], text: &mut [u8]) -> [u8; 16] {
        let last = self.last.replace(Some(number));
        assert!(last.is_none_or(|last| last < number), "record {number} was sealed after {last:?}");
        self.tag(number, associated, text)
    }

    fn open(
        &self,
        number: u64,
        associated: &[u8],
        ciphertext: &[u8],
        tag: &[u8; 16],
        text: &mut [u8],
    ) -> bool {
        text.copy_from_slice(ciphertext);
        self.tag(number, associated, ciphertext) == *tag
    }

    fn mask(&self, sample: &[u8; 16]) -> [u8; 2] {
        let [.., a, b] = mixed(self.key, sample).to_be_bytes();
        [a, b]
    }

    fn record_limit(&self) -> u64 {
        self.records
    }

    fn forgery_limit(&self) -> u64 {
        self.forgeries
    }

    fn memory(&self) -> usize {
        size_of::<OpenCipher>()
    }
}

/// Mixes bytes into a number: FNV-1a by words, with the final steps of splitmix64.
fn mixed(state: u64, bytes: &[u8]) -> u64 {
    let mut hash = state ^ 0xcbf2_9ce4_8422_2325;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x100_0000_01b3);
        hash ^= hash >> 29;
    }
    hash = (hash ^ bytes.len() as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
