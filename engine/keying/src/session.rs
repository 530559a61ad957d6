//! One handshake, from the first message to the proof of the peer's key. [`Session`] is a state machine without clock or sockets.

use std::sync::Arc;

use aws_lc_rs::constant_time;
use bytes::Bytes;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use sctp::{FIRST_EPOCH, KeyRole, ProtectionTerms, RecordKeys, SealFrom};
use zeroize::Zeroizing;

use crate::cipher::Suite;
use crate::identity::{Binding, HostKey, PublicKey};
use crate::schedule::{self, CONFIRMATION_LEN, Exporter, LABEL, PresharedKey};
use crate::sessions::RENEWALS_MAX;
use crate::tls::{self, ALPN, Secrets, Sign};

/// Server name that `rustls` requires of a client. The name is not sent to the server.
const SERVER: &str = "peer.invalid";

/// Bit of the first octet of a client's first message, set if the client has a pre-shared key.
const HAS_PSK: u8 = 0x80;

/// Limit on the bytes that are accepted from a peer in one handshake.
const HANDSHAKE_MAX: usize = 16 * 1024;

/// Reasons why a handshake failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum KeyingError {
    /// TLS reported an error.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The message does not belong to this handshake, or TLS data follows the end of the handshake.
    #[error("a message about keys that does not belong here")]
    Unexpected,
    /// The peer's messages are longer than any valid handshake.
    #[error("a handshake of more than {HANDSHAKE_MAX} bytes")]
    TooLong,
    /// The peer presented another key than in an earlier handshake of the same association.
    #[error("the peer has another key ({found}) than it began with ({known})")]
    OtherPeer {
        /// The key of the first handshake.
        known: PublicKey,
        /// The key of the current handshake.
        found: PublicKey,
    },
    /// The endpoint refused a step.
    #[error(transparent)]
    Endpoint(#[from] sctp::KeyError),
    /// The peer requested new keys too often.
    #[error("the peer asked for new keys more than {RENEWALS_MAX} times in a minute")]
    TooOften,
    /// The server's keys differ from the client's keys.
    #[error(
        "the peer has other keys: its pre-shared key differs, or somebody changed INIT or INIT ACK on the way"
    )]
    OtherKeys,
    /// The keys could not be made, or differ from the keys that `rustls` exports.
    #[error("the keys could not be made")]
    Keys,
}

/// A host's key and TLS settings, which all its handshakes share.
pub struct Keyring {
    public: PublicKey,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyring of {}", self.public)
    }
}

impl Keyring {
    /// Makes a keyring that holds the host's private key and signs with it.
    ///
    /// # Errors
    /// Returns an error if TLS refuses the settings.
    pub fn new(key: HostKey) -> Result<Keyring, KeyingError> {
        let public = key.public();
        Keyring::with_signer(public, Arc::new(move |message: &[u8]| Some(key.sign(message))))
    }

    /// Makes a keyring that calls `sign` for each signature. Another process may thus hold the private key. `sign` returns `None` if it
    /// cannot sign.
    ///
    /// # Errors
    /// Returns an error if TLS refuses the settings.
    pub fn with_signer(public: PublicKey, sign: Sign) -> Result<Keyring, KeyingError> {
        let (client, server) = tls::configs(public, sign)?;
        Ok(Keyring { public, client: Arc::new(client), server: Arc::new(server) })
    }

    /// Returns the host's public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }
}

/// A step that the caller performs after a message. The order of the steps matters.
#[derive(Debug)]
pub enum Step {
    /// Install these keys ([`install_keys`](sctp::Endpoint::install_keys)).
    Install {
        /// The epoch of the keys.
        epoch: u64,
        /// The keys.
        keys: RecordKeys,
        /// The moment from which the keys seal packets.
        from: SealFrom,
    },
    /// Send this message ([`send_key_message`](sctp::Endpoint::send_key_message)).
    Send(Bytes),
    /// The handshake has ended, and the peer has proven that it holds this key. If the caller accepts the key, it calls
    /// [`know_peer`](sctp::Endpoint::know_peer).
    Peer {
        /// The peer's public key.
        key: PublicKey,
        /// Secret that is equal at both ends if both took part in the same handshake.
        binding: Binding,
        /// True if both ends have mixed in the same pre-shared key.
        has_psk: bool,
    },
}

/// A handshake of one association, at one end.
pub struct Session {
    connection: Connection,
    secrets: Arc<Secrets>,
    role: KeyRole,
    epoch: u64,
    psk: Option<PresharedKey>,
    /// True if the client's first message reports that it has a pre-shared key.
    client_has_psk: bool,
    /// The peer's key from the association's first handshake. `None` during the first handshake.
    known: Option<PublicKey>,
    received: usize,
    has_keys: bool,
    is_over: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("role", &self.role)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Begins a handshake as the client. Returns the session and its first message. `known` is the peer's key if the association has had a
    /// handshake before.
    ///
    /// # Errors
    /// Returns an error if TLS refuses the settings or cannot begin the handshake.
    pub fn client(
        keyring: &Keyring,
        epoch: u64,
        psk: Option<PresharedKey>,
        known: Option<PublicKey>,
    ) -> Result<(Session, Bytes), KeyingError> {
        let secrets = Arc::new(Secrets::default());
        let mut config = (*keyring.client).clone();
        config.key_log = secrets.clone();
        let name = ServerName::try_from(SERVER).map_err(|_| KeyingError::Keys)?;
        let connection = ClientConnection::new(Arc::new(config), name)?;
        let mut session = Session::new(connection.into(), secrets, KeyRole::Client, epoch, (psk, known));
        let hello = session.written(None)?.ok_or(KeyingError::Unexpected)?;
        Ok((session, hello))
    }

    /// Makes the session of a server. The caller then passes the client's first message to [`Session::on_message`].
    ///
    /// # Errors
    /// Returns an error if TLS refuses the settings.
    pub fn server(
        keyring: &Keyring,
        epoch: u64,
        psk: Option<PresharedKey>,
        known: Option<PublicKey>,
    ) -> Result<Session, KeyingError> {
        let secrets = Arc::new(Secrets::default());
        let mut config = (*keyring.server).clone();
        config.key_log = secrets.clone();
        let connection = ServerConnection::new(Arc::new(config))?;
        Ok(Session::new(connection.into(), secrets, KeyRole::Server, epoch, (psk, known)))
    }

    fn new(
        connection: Connection,
        secrets: Arc<Secrets>,
        role: KeyRole,
        epoch: u64,
        (psk, known): (Option<PresharedKey>, Option<PublicKey>),
    ) -> Session {
        let client_has_psk = role == KeyRole::Client && psk.is_some();
        Session {
            connection,
            secrets,
            role,
            epoch,
            psk,
            client_has_psk,
            known,
            received: 0,
            has_keys: false,
            is_over: false,
        }
    }

    /// Reports whether a message begins a handshake. The first record of such a message is a ClientHello.
    pub fn is_hello(message: &[u8]) -> bool {
        const HANDSHAKE: u8 = 22;
        const CLIENT_HELLO: u8 = 1;
        message.get(1) == Some(&HANDSHAKE) && message.get(6) == Some(&CLIENT_HELLO)
    }

    /// Returns the lowest seven bits of the epoch that a message about keys belongs to. Returns `None` for an empty message.
    pub fn epoch_of(message: &[u8]) -> Option<u8> {
        message.first().map(|first| first & !HAS_PSK)
    }

    /// After the handshake, returns the pre-shared key that was mixed into the keys, if any. During the handshake, returns the pre-shared
    /// key that this end may mix in.
    pub fn psk(&self) -> Option<&PresharedKey> {
        self.psk.as_ref()
    }

    /// Returns this end's role in the handshake.
    pub fn role(&self) -> KeyRole {
        self.role
    }

    /// Returns the epoch of the keys that this handshake makes.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Reports whether the handshake has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Handles a message of the peer. `sealed` is true if the message came in a sealed packet ([`sctp::Event::KeyMessage`]).
    ///
    /// # Errors
    /// See [`KeyingError`]. After an error, the association must end.
    pub fn on_message(
        &mut self,
        message: &[u8],
        sealed: bool,
        terms: &ProtectionTerms,
    ) -> Result<Vec<Step>, KeyingError> {
        // As soon as this end has the keys, each further message of the peer is sealed. Messages about later epochs are always sealed.
        let must_be_sealed = self.has_keys || self.epoch > FIRST_EPOCH;
        let is_of_epoch = Session::epoch_of(message) == Some(low(self.epoch));
        let is_first = self.role == KeyRole::Server && self.received == 0;
        let peer_has_psk = message.first().is_some_and(|first| first & HAS_PSK != 0);
        if self.is_over || !is_of_epoch || (must_be_sealed && !sealed) || (peer_has_psk && !is_first) {
            return Err(KeyingError::Unexpected);
        }
        if is_first {
            self.client_has_psk = peer_has_psk;
            self.psk.take_if(|psk| !peer_has_psk && !psk.is_required());
        }
        self.received += message.len();
        if self.received > HANDSHAKE_MAX {
            return Err(KeyingError::TooLong);
        }
        let records =
            message.get(1..).filter(|records| !records.is_empty()).ok_or(KeyingError::Unexpected)?;
        let rest = self.read(records)?;
        let exporter = self.exporter()?.filter(|_| !self.has_keys);
        let (mut steps, mut confirmation) = (Vec::new(), None);
        if let Some(exporter) = exporter {
            self.has_keys = true;
            let from = match self.role {
                KeyRole::Client => {
                    self.confirm(rest, &exporter, terms)?;
                    SealFrom::Now
                }
                KeyRole::Server => {
                    confirmation = Some(self.confirmation(&exporter, terms)?);
                    SealFrom::PeersFirst
                }
            };
            let keys = schedule::keys(&exporter, self.psk.as_ref(), terms, self.role, self.epoch)
                .ok_or(KeyingError::Keys)?;
            steps.push(Step::Install { epoch: self.epoch, keys, from });
        }
        steps.extend(self.written(confirmation.as_deref())?.map(Step::Send));
        if !self.connection.is_handshaking() {
            steps.push(self.peer(terms)?);
            self.is_over = true;
        }
        Ok(steps)
    }

    fn confirmation(
        &self,
        exporter: &Exporter,
        terms: &ProtectionTerms,
    ) -> Result<Zeroizing<Vec<u8>>, KeyingError> {
        schedule::confirmation(exporter, self.psk.as_ref(), self.client_has_psk, terms, self.epoch)
            .ok_or(KeyingError::Keys)
    }

    /// Compares the server's confirmation with the confirmation that this end computes. If the pre-shared key is optional, also accepts a
    /// confirmation that was computed without this key, and then discards the key.
    fn confirm(
        &mut self,
        found: &[u8],
        exporter: &Exporter,
        terms: &ProtectionTerms,
    ) -> Result<(), KeyingError> {
        if found.len() != CONFIRMATION_LEN {
            return Err(KeyingError::Unexpected);
        }
        loop {
            let own = self.confirmation(exporter, terms)?;
            if constant_time::verify_slices_are_equal(found, &own).is_ok() {
                return Ok(());
            }
            self.psk.take_if(|psk| !psk.is_required()).ok_or(KeyingError::OtherKeys)?;
        }
    }

    /// Passes the records of a message to TLS, one by one. Refuses an incomplete record, and a record after the end of the handshake.
    /// Returns the octets after the records, which are the server's confirmation in a message to the client.
    fn read<'a>(&mut self, mut records: &'a [u8]) -> Result<&'a [u8], KeyingError> {
        const HEADER: usize = 5;
        while !records.is_empty() {
            if self.role == KeyRole::Client && !self.connection.is_handshaking() {
                break;
            }
            let length = records.get(3..HEADER).and_then(|field| field.try_into().ok());
            let length = length.map(|field| HEADER + usize::from(u16::from_be_bytes(field)));
            let (mut record, rest) = length
                .and_then(|length| records.split_at_checked(length))
                .filter(|_| self.connection.is_handshaking())
                .ok_or(KeyingError::Unexpected)?;
            while !record.is_empty() {
                // After an alert that ends the connection, `read_tls` reads nothing. Without the check of `read`, this loop would then not
                // end.
                let read = self.connection.read_tls(&mut record).map_err(|_| KeyingError::Unexpected)?;
                let state = self.connection.process_new_packets()?;
                if read == 0 || state.peer_has_closed() || state.plaintext_bytes_to_read() > 0 {
                    return Err(KeyingError::Unexpected);
                }
            }
            records = rest;
        }
        Ok(records)
    }

    /// Returns the exporter, or `None` if its secret is not known yet.
    fn exporter(&self) -> Result<Option<Exporter>, KeyingError> {
        let Some(secret) = self.secrets.exporter() else { return Ok(None) };
        let suite = self.connection.negotiated_cipher_suite().ok_or(KeyingError::Keys)?;
        let suite = Suite::of(suite.suite()).ok_or(KeyingError::Keys)?;
        Ok(Some(Exporter::new(suite, &secret)))
    }

    /// Checks the result of a completed handshake. Returns the step that reports the peer's key.
    fn peer(&self, terms: &ProtectionTerms) -> Result<Step, KeyingError> {
        let exporter = self.exporter()?.ok_or(KeyingError::Keys)?;
        let context = schedule::binding(terms);
        let (mut binding, mut check) = (Binding::default(), Zeroizing::new([0; 32]));
        exporter.export(&context, binding.as_mut()).ok_or(KeyingError::Keys)?;
        self.connection.export_keying_material(&mut *check, LABEL, Some(&context))?;
        if *binding.as_mut() != *check {
            return Err(KeyingError::Keys);
        }
        // `rustls` requires an agreed application protocol only for QUIC, so this function checks it.
        if self.connection.alpn_protocol() != Some(ALPN) {
            return Err(KeyingError::Unexpected);
        }
        let spki = self.connection.peer_certificates().and_then(|keys| keys.first());
        let key = spki.and_then(|spki| PublicKey::from_spki(spki)).ok_or(KeyingError::Unexpected)?;
        match self.known {
            Some(known) if known != key => Err(KeyingError::OtherPeer { known, found: key }),
            _ => Ok(Step::Peer { key, binding, has_psk: self.psk.is_some() }),
        }
    }

    /// Returns one message with the pending output of TLS, followed by the confirmation. Returns `None` if both are empty.
    fn written(&mut self, confirmation: Option<&Vec<u8>>) -> Result<Option<Bytes>, KeyingError> {
        let is_first = self.role == KeyRole::Client && self.received == 0;
        let flag = if is_first && self.client_has_psk { HAS_PSK } else { 0 };
        let mut message = vec![low(self.epoch) | flag];
        while self.connection.wants_write() {
            self.connection.write_tls(&mut message).map_err(|_| KeyingError::Keys)?;
        }
        message.extend(confirmation.into_iter().flatten());
        Ok((message.len() > 1).then(|| message.into()))
    }
}

/// Returns the lowest seven bits of an epoch.
fn low(epoch: u64) -> u8 {
    (epoch % 128) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(role: KeyRole, transcript: u8) -> ProtectionTerms {
        ProtectionTerms { role, method: crate::METHOD, transcript: [transcript; 32] }
    }

    fn keyring() -> Keyring {
        Keyring::new(HostKey::generate().unwrap()).unwrap()
    }

    /// The outcome of a handshake at one end.
    #[derive(Default)]
    struct End {
        keys: Option<RecordKeys>,
        peer: Option<(PublicKey, Binding)>,
        has_psk: bool,
    }

    impl End {
        fn follow(&mut self, steps: Vec<Step>) -> Option<Bytes> {
            let mut message = None;
            for step in steps {
                match step {
                    Step::Install { keys, .. } => self.keys = Some(keys),
                    Step::Send(bytes) => message = Some(bytes),
                    Step::Peer { key, binding, has_psk } => {
                        (self.peer, self.has_psk) = (Some((key, binding)), has_psk);
                    }
                }
            }
            message
        }
    }

    /// Runs a handshake with the client's and the server's transcript and pre-shared key. Returns the error if the client refuses.
    fn play(
        rings: (&Keyring, &Keyring),
        transcripts: (u8, u8),
        psks: (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<(End, End), KeyingError> {
        let psk = |key: Option<&[u8]>| key.map(|key| PresharedKey::new(key).unwrap());
        play_with(rings, transcripts, (psk(psks.0), psk(psks.1)))
    }

    fn play_with(
        rings: (&Keyring, &Keyring),
        transcripts: (u8, u8),
        psks: (Option<PresharedKey>, Option<PresharedKey>),
    ) -> Result<(End, End), KeyingError> {
        let (mut client, hello) = Session::client(rings.0, FIRST_EPOCH, psks.0, None).unwrap();
        let mut server = Session::server(rings.1, FIRST_EPOCH, psks.1, None).unwrap();
        let (at_client, at_server) =
            (terms(KeyRole::Client, transcripts.0), terms(KeyRole::Server, transcripts.1));
        let (mut c, mut s) = (End::default(), End::default());
        let answer = s.follow(server.on_message(&hello, false, &at_server).unwrap()).unwrap();
        assert!(
            s.keys.is_some() && s.peer.is_none(),
            "the server has the keys before the client has answered"
        );
        let end = c.follow(client.on_message(&answer, false, &at_client)?).unwrap();
        assert!(s.follow(server.on_message(&end, true, &at_server).unwrap()).is_none());
        assert!(client.is_over() && server.is_over());
        Ok((c, s))
    }

    /// Reports whether `b` opens a record that `a` seals.
    fn fit(a: &End, b: &End) -> bool {
        let (Some(from), Some(to)) = (&a.keys, &b.keys) else { return false };
        let mut text = b"chunks".to_vec();
        let tag = from.send.seal(5, b"head", &mut text);
        let mut opened = [0; 6];
        to.receive.open(5, b"head", &text, &tag, &mut opened) && opened == *b"chunks"
    }

    #[test]
    fn both_ends_learn_the_others_key_and_have_the_same_keys() {
        let (a, b) = (keyring(), keyring());
        let (c, s) = play((&a, &b), (1, 1), (None, None)).unwrap();
        assert!(fit(&c, &s) && fit(&s, &c) && !fit(&c, &c));
        let ((of_server, one), (of_client, other)) = (c.peer.unwrap(), s.peer.unwrap());
        assert_eq!((of_server, of_client, one), (b.public(), a.public(), other));
    }

    #[test]
    fn a_client_refuses_a_server_with_another_transcript_or_pre_shared_key() {
        let rings = (&keyring(), &keyring());
        assert_eq!(play(rings, (1, 2), (None, None)).err(), Some(KeyingError::OtherKeys));
        let (one, two) = (Some(&[1; 16][..]), Some(&[2; 16][..]));
        let (c, s) = play(rings, (1, 1), (one, one)).unwrap();
        assert!(fit(&c, &s) && fit(&s, &c));
        for psks in [(one, None), (one, two), (None, one)] {
            assert_eq!(play(rings, (1, 1), psks).err(), Some(KeyingError::OtherKeys), "{psks:?}");
        }
        assert!(PresharedKey::new(&[1; 15]).is_none());
    }

    #[test]
    fn an_optional_pre_shared_key_is_mixed_in_where_both_ends_have_it() {
        let rings = (&keyring(), &keyring());
        let required = |octet| PresharedKey::new(&[octet; 16]);
        let optional = |octet| required(octet).map(PresharedKey::optional);
        let all = [
            (optional(1), optional(1), Some(true)),
            (optional(1), required(1), Some(true)),
            (required(1), optional(1), Some(true)),
            (optional(1), None, Some(false)),
            (None, optional(1), Some(false)),
            (required(1), None, None),
            (None, required(1), None),
            (optional(1), required(2), None),
            (required(1), optional(2), None),
        ];
        for (of_client, of_server, is_mixed) in all {
            let case = format!("{of_client:?} {of_server:?} {is_mixed:?}");
            let played = play_with(rings, (1, 1), (of_client, of_server));
            let mixed = played.map(|(client, server)| {
                assert!(fit(&client, &server) && fit(&server, &client), "{case}");
                assert_eq!(client.has_psk, server.has_psk, "{case}");
                client.has_psk
            });
            assert_eq!(mixed.ok(), is_mixed, "{case}");
        }
        // The client reports that it has an optional key, so the server mixes in the server's optional key. The two keys differ, so the
        // client refuses the confirmation.
        assert_eq!(play_with(rings, (1, 1), (optional(1), optional(2))).err(), Some(KeyingError::OtherKeys));
    }

    #[test]
    fn only_the_first_message_of_a_client_may_say_that_it_has_a_pre_shared_key() {
        let (a, b) = (keyring(), keyring());
        let terms = |role| terms(role, 1);
        let (mut client, hello) =
            Session::client(&a, FIRST_EPOCH, PresharedKey::new(&[1; 16]), None).unwrap();
        let mut server = Session::server(&b, FIRST_EPOCH, PresharedKey::new(&[1; 16]), None).unwrap();
        assert_eq!(hello[0], low(FIRST_EPOCH) | HAS_PSK);
        let steps = server.on_message(&hello, false, &terms(KeyRole::Server)).unwrap();
        let mut answer = End::default().follow(steps).unwrap().to_vec();
        answer[0] |= HAS_PSK;
        let refused = client.on_message(&answer, false, &terms(KeyRole::Client)).err();
        assert_eq!(refused, Some(KeyingError::Unexpected));
    }

    #[test]
    fn a_client_refuses_the_answer_to_a_hello_whose_pre_shared_key_flag_was_altered() {
        let (a, b) = (keyring(), keyring());
        let terms = |role| terms(role, 1);
        let optional = || PresharedKey::new(&[1; 16]).map(PresharedKey::optional);
        for psks in [(optional(), optional()), (optional(), None), (None, optional())] {
            let case = format!("{psks:?}");
            let (mut client, hello) = Session::client(&a, FIRST_EPOCH, psks.0, None).unwrap();
            let mut server = Session::server(&b, FIRST_EPOCH, psks.1, None).unwrap();
            let mut altered = hello.to_vec();
            altered[0] ^= HAS_PSK;
            let steps = server.on_message(&altered, false, &terms(KeyRole::Server)).unwrap();
            let answer = End::default().follow(steps).unwrap();
            let refused = client.on_message(&answer, false, &terms(KeyRole::Client)).err();
            assert_eq!(refused, Some(KeyingError::OtherKeys), "{case}");
        }
    }

    #[test]
    fn a_pre_shared_key_and_the_transcript_are_part_of_all_keys() {
        let exporter = Exporter::new(Suite::Aes128GcmSha256, &[7; 32]);
        let psk = PresharedKey::new(&[1; 16]);
        let keys = |role, psk: Option<&PresharedKey>, transcript| {
            let terms = terms(role, transcript);
            let keys = schedule::keys(&exporter, psk, &terms, role, FIRST_EPOCH);
            (
                End { keys, ..End::default() },
                schedule::confirmation(&exporter, psk, true, &terms, FIRST_EPOCH).unwrap(),
            )
        };
        let (client, confirmed) = keys(KeyRole::Client, psk.as_ref(), 1);
        for (psk, transcript, fits) in [(psk.as_ref(), 1, true), (None, 1, false), (psk.as_ref(), 2, false)] {
            let (server, own) = keys(KeyRole::Server, psk, transcript);
            assert_eq!([fit(&client, &server), fit(&server, &client), own == confirmed], [fits; 3]);
        }
    }

    #[test]
    fn a_server_must_confirm_its_keys() {
        let (a, b) = (keyring(), keyring());
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let (mut client, hello) = Session::client(&a, FIRST_EPOCH, None, None).unwrap();
            let mut server = Session::server(&b, FIRST_EPOCH, None, None).unwrap();
            let steps = server.on_message(&hello, false, &terms(KeyRole::Server, 1)).unwrap();
            let mut answer = End::default().follow(steps).unwrap().to_vec();
            change(&mut answer);
            client.on_message(&answer, false, &terms(KeyRole::Client, 1)).err()
        };
        assert_eq!(refused(&|_| {}), None);
        assert_eq!(refused(&|answer| *answer.last_mut().unwrap() ^= 1), Some(KeyingError::OtherKeys));
        assert_eq!(refused(&|answer| answer.truncate(answer.len() - 1)), Some(KeyingError::Unexpected));
        assert_eq!(
            refused(&|answer| answer.truncate(answer.len() - CONFIRMATION_LEN)),
            Some(KeyingError::Unexpected)
        );
    }

    #[test]
    fn handshake_messages_contain_no_host_key_in_the_clear() {
        let (a, b) = (keyring(), keyring());
        let (mut client, hello) = Session::client(&a, FIRST_EPOCH, None, None).unwrap();
        let mut server = Session::server(&b, FIRST_EPOCH, None, None).unwrap();
        let terms = terms(KeyRole::Server, 1);
        let answer = End::default().follow(server.on_message(&hello, false, &terms).unwrap()).unwrap();
        let end = End::default().follow(client.on_message(&answer, false, &terms).unwrap()).unwrap();
        for (message, key) in [(&hello, &a), (&answer, &a), (&end, &a), (&answer, &b)] {
            assert!(!message.windows(32).any(|w| w == key.public().as_bytes()));
        }
        assert_eq!(Session::epoch_of(&hello), Some(3));
        assert!(hello.len() > 1300, "the hybrid key share: {}", hello.len());
    }

    #[test]
    fn a_peer_that_comes_with_another_key_is_refused() {
        let (a, b, other) = (keyring(), keyring(), keyring());
        let (mut client, hello) = Session::client(&a, 4, None, Some(other.public())).unwrap();
        let mut server = Session::server(&b, 4, None, None).unwrap();
        let terms = terms(KeyRole::Server, 1);
        let answer = End::default().follow(server.on_message(&hello, true, &terms).unwrap()).unwrap();
        let refused = client.on_message(&answer, true, &terms).unwrap_err();
        assert_eq!(refused, KeyingError::OtherPeer { known: other.public(), found: b.public() });
    }

    #[test]
    fn a_malformed_handshake_message_is_refused_without_a_panic() {
        let ring = keyring();
        let terms = terms(KeyRole::Server, 1);
        let (_, hello) = Session::client(&ring, FIRST_EPOCH, None, None).unwrap();
        let records = [&[3][..], &[3, 22, 3, 3, 0, 9, 1], &[3, 22, 3, 3], &[3, 23, 3, 3, 0, 1, 0]];
        let others = [&[][..], &[4, 22], &[0x83, 1], &[0x84, 22], &[3, 255, 255, 255, 255, 255, 255]];
        let trailing = [&hello[..], &[0]].concat();
        for wrong in others.into_iter().chain(records).chain([&trailing[..]]) {
            let mut server = Session::server(&ring, FIRST_EPOCH, None, None).unwrap();
            assert!(server.on_message(wrong, false, &terms).is_err(), "{wrong:?}");
        }
        for at in 1..hello.len() {
            let mut server = Session::server(&ring, FIRST_EPOCH, None, None).unwrap();
            let mut changed = hello.to_vec();
            changed[at] ^= 0x55;
            let _ = server.on_message(&changed, false, &terms);
        }
        let mut server = Session::server(&ring, FIRST_EPOCH, None, None).unwrap();
        let mut long = vec![3];
        long.resize(HANDSHAKE_MAX + 1, 0);
        assert_eq!(server.on_message(&long, false, &terms).unwrap_err(), KeyingError::TooLong);
    }

    #[test]
    fn a_handshake_fails_where_the_key_cannot_be_used() {
        let (a, b) = (keyring(), HostKey::generate().unwrap());
        let broken = Keyring::with_signer(b.public(), Arc::new(|_: &[u8]| None)).unwrap();
        let (_, hello) = Session::client(&a, FIRST_EPOCH, None, None).unwrap();
        let mut server = Session::server(&broken, FIRST_EPOCH, None, None).unwrap();
        let refused = server.on_message(&hello, false, &terms(KeyRole::Server, 1)).unwrap_err();
        assert!(matches!(refused, KeyingError::Tls(_)), "{refused}");
    }

    /// Makes a `rustls` connection in the given role. `change` first modifies this crate's TLS settings.
    fn raw(
        role: KeyRole,
        change: impl FnOnce(&mut ClientConfig, &mut ServerConfig),
    ) -> (Connection, Arc<Secrets>) {
        let key = HostKey::generate().unwrap();
        let sign: Sign = Arc::new({
            let key = HostKey::from_pkcs8(&key.to_pkcs8().unwrap()).unwrap();
            move |message: &[u8]| Some(key.sign(message))
        });
        let (mut client, mut server) = tls::configs(key.public(), sign).unwrap();
        change(&mut client, &mut server);
        let secrets = Arc::new(Secrets::default());
        server.key_log = secrets.clone();
        let connection = match role {
            KeyRole::Client => {
                let name = ServerName::try_from(SERVER).unwrap();
                ClientConnection::new(Arc::new(client), name).unwrap().into()
            }
            KeyRole::Server => ServerConnection::new(Arc::new(server)).unwrap().into(),
        };
        (connection, secrets)
    }

    /// Returns the confirmation that belongs to a raw server's handshake.
    fn confirmed(server: &Connection, secrets: &Secrets, terms: &ProtectionTerms) -> Vec<u8> {
        let suite = Suite::of(server.negotiated_cipher_suite().unwrap().suite()).unwrap();
        let exporter = Exporter::new(suite, &secrets.exporter().unwrap());
        schedule::confirmation(&exporter, None, false, terms, FIRST_EPOCH).unwrap().to_vec()
    }

    /// Returns everything that a connection has to send, as one message of the first epoch.
    fn flight(connection: &mut Connection) -> Vec<u8> {
        let mut message = vec![low(FIRST_EPOCH)];
        while connection.wants_write() {
            connection.write_tls(&mut message).unwrap();
        }
        message
    }

    fn read(connection: &mut Connection, message: &[u8]) {
        connection.read_tls(&mut &message[1..]).unwrap();
        connection.process_new_packets().unwrap();
    }

    /// Runs a handshake between a session in the given role and a raw `rustls` peer. The peer adds the result of `more` to its last flight.
    fn last_flight(
        role: KeyRole,
        change: impl FnOnce(&mut ClientConfig, &mut ServerConfig),
        more: impl FnOnce(&mut Connection) -> Vec<u8>,
    ) -> Result<Vec<Step>, KeyingError> {
        let ring = keyring();
        let terms = terms(role, 1);
        match role {
            KeyRole::Client => {
                let (mut server, secrets) = raw(KeyRole::Server, change);
                let (mut client, hello) = Session::client(&ring, FIRST_EPOCH, None, None).unwrap();
                read(&mut server, &hello);
                let mut answer = flight(&mut server);
                answer.extend(more(&mut server));
                answer.extend(confirmed(&server, &secrets, &terms));
                client.on_message(&answer, false, &terms)
            }
            KeyRole::Server => {
                let (mut client, _) = raw(KeyRole::Client, change);
                let mut server = Session::server(&ring, FIRST_EPOCH, None, None).unwrap();
                let hello = flight(&mut client);
                let answer =
                    End::default().follow(server.on_message(&hello, false, &terms).unwrap()).unwrap();
                read(&mut client, &answer[..answer.len() - CONFIRMATION_LEN]);
                let mut end = flight(&mut client);
                end.extend(more(&mut client));
                server.on_message(&end, true, &terms)
            }
        }
    }

    #[test]
    fn nothing_may_follow_the_end_of_a_handshake() {
        fn closed(connection: &mut Connection) -> Vec<u8> {
            connection.send_close_notify();
            flight(connection)[1..].to_vec()
        }
        let closed_and_filled = |connection: &mut Connection| [closed(connection), vec![0; 5000]].concat();
        let key_update = |connection: &mut Connection| {
            connection.refresh_traffic_keys().unwrap();
            flight(connection)[1..].to_vec()
        };
        for role in [KeyRole::Client, KeyRole::Server] {
            assert!(last_flight(role, |_, _| {}, |_| Vec::new()).is_ok());
            let filled = last_flight(role, |_, _| {}, |_| vec![0; 5000]);
            let refused = [
                filled,
                last_flight(role, |_, _| {}, |_| vec![23]),
                last_flight(role, |_, _| {}, closed),
                last_flight(role, |_, _| {}, closed_and_filled),
            ];
            for refused in refused {
                assert_eq!(refused.unwrap_err(), KeyingError::Unexpected, "{role:?}");
            }
        }
        let refused = last_flight(KeyRole::Server, |_, _| {}, key_update);
        assert_eq!(refused.unwrap_err(), KeyingError::Unexpected);
    }

    #[test]
    fn a_peer_without_the_alpn_protocol_is_refused() {
        for role in [KeyRole::Client, KeyRole::Server] {
            let unnamed = |client: &mut ClientConfig, server: &mut ServerConfig| {
                client.alpn_protocols.clear();
                server.alpn_protocols.clear();
            };
            let refused = last_flight(role, unnamed, |_| Vec::new());
            assert_eq!(refused.unwrap_err(), KeyingError::Unexpected, "{role:?}");
        }
    }

    #[test]
    fn a_message_that_must_be_sealed_is_refused_in_the_clear() {
        let (a, b) = (keyring(), keyring());
        let (mut client, hello) = Session::client(&a, FIRST_EPOCH, None, None).unwrap();
        let mut server = Session::server(&b, FIRST_EPOCH, None, None).unwrap();
        let terms = terms(KeyRole::Server, 1);
        let answer = End::default().follow(server.on_message(&hello, false, &terms).unwrap()).unwrap();
        let end = End::default().follow(client.on_message(&answer, false, &terms).unwrap()).unwrap();
        assert_eq!(server.on_message(&end, false, &terms).unwrap_err(), KeyingError::Unexpected);
        let (_, hello) = Session::client(&a, 4, None, None).unwrap();
        let mut server = Session::server(&b, 4, None, None).unwrap();
        assert_eq!(server.on_message(&hello, false, &terms).unwrap_err(), KeyingError::Unexpected);
        assert!(server.on_message(&hello, true, &terms).is_ok());
    }
}
