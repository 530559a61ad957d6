//! A host's identity: an Ed25519 key without a certificate.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, Pkcs8V2Der};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use zeroize::Zeroizing;

/// Prefix of a public key's text.
const PREFIX: &str = "sctpify1:";

/// DER octets that precede the key in an Ed25519 SubjectPublicKeyInfo (RFC 8410 section 4).
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Encodings of the points of small order (RFC 8032 section 5.1.4), without the bit of the sign. Anyone can make signatures that such a key
/// verifies. The last two encodings are not canonical.
const SMALL_ORDER: [[u8; 32]; 7] = [
    encoding(0x01, 0x00, 0x00),
    encoding(0xec, 0xff, 0x7f),
    encoding(0x00, 0x00, 0x00),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5,
        0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a,
        0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    encoding(0xed, 0xff, 0x7f),
    encoding(0xee, 0xff, 0x7f),
];

/// Returns 32 octets: the first one, 30 equal ones, and the last one.
const fn encoding(first: u8, middle: u8, last: u8) -> [u8; 32] {
    let mut all = [middle; 32];
    all[0] = first;
    all[31] = last;
    all
}

/// Reports whether a public key is a point of small order.
fn is_of_small_order(key: &[u8; 32]) -> bool {
    let mut unsigned = *key;
    unsigned[31] &= 0x7f;
    SMALL_ORDER.contains(&unsigned)
}

/// Reasons why no key can be read or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The text is not a public key.
    #[error("not a host's key: it begins with {PREFIX} and has 43 letters, digits, + or / behind that")]
    Text,
    /// The public key is a point of small order, for which anyone can sign.
    #[error("no host's key: anyone can sign for it (a point of small order)")]
    Weak,
    /// The bytes are not a private key, or the key cannot be encoded.
    #[error("not an Ed25519 key in PKCS #8: the file is damaged, or another program's")]
    Private,
    /// The key cannot be generated: no random numbers are available, or memory is short.
    #[error("cannot make a key")]
    Generate,
}

/// A host's public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Returns the key's bytes (RFC 8032 section 5.1.5).
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn to_spki(self) -> Vec<u8> {
        [&SPKI_HEAD[..], &self.0].concat()
    }

    pub(crate) fn from_spki(spki: &[u8]) -> Option<PublicKey> {
        let key = spki.strip_prefix(&SPKI_HEAD)?.try_into().ok()?;
        (!is_of_small_order(&key)).then_some(PublicKey(key))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<PublicKey, IdentityError> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(IdentityError::Text)?;
        let bytes = STANDARD_NO_PAD.decode(encoded).map_err(|_| IdentityError::Text)?;
        let key = bytes.try_into().map_err(|_| IdentityError::Text)?;
        if is_of_small_order(&key) { Err(IdentityError::Weak) } else { Ok(PublicKey(key)) }
    }
}

/// A host's private key.
pub struct HostKey(Ed25519KeyPair);

impl HostKey {
    /// Makes a new private key.
    ///
    /// # Errors
    /// Returns [`IdentityError::Generate`].
    pub fn generate() -> Result<HostKey, IdentityError> {
        Ed25519KeyPair::generate().map(HostKey).map_err(|_| IdentityError::Generate)
    }

    /// Reads a private key in PKCS #8.
    ///
    /// # Errors
    /// Returns [`IdentityError::Private`].
    pub fn from_pkcs8(der: &[u8]) -> Result<HostKey, IdentityError> {
        Ed25519KeyPair::from_pkcs8(der).map(HostKey).map_err(|_| IdentityError::Private)
    }

    /// Returns the private key in PKCS #8.
    ///
    /// # Errors
    /// Returns [`IdentityError::Private`].
    pub fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, IdentityError> {
        let der: Pkcs8V2Der<'_> = self.0.as_der().map_err(|_| IdentityError::Private)?;
        Ok(Zeroizing::new(der.as_ref().to_vec()))
    }

    /// Returns the public key that belongs to this private key.
    pub fn public(&self) -> PublicKey {
        let mut key = [0; 32];
        key.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(key)
    }

    /// Signs a message (RFC 8032).
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostKey of {}", self.public())
    }
}

/// Secret that only the two ends of a handshake know.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Binding(Zeroizing<[u8; 32]>);

impl Binding {
    /// Returns six words that people at both ends compare.
    ///
    /// The words encode 66 bits of the secret. This number suffices, although neither end commits to its key share before the handshake.
    /// An attacker between two hosts takes part in two handshakes. In one handshake the attacker is the client, and the server chooses
    /// its key share last, so the attacker cannot choose the words. In the other handshake the attacker is the server, and must find a
    /// key share that gives the same words at both hosts. This search takes 2^66 attempts on average. The time limit of a handshake does
    /// not allow so many attempts.
    pub fn words(&self) -> [String; 6] {
        words(&self.0)
    }

    pub(crate) fn as_mut(&mut self) -> &mut [u8; 32] {
        &mut self.0
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Binding")
    }
}

impl PublicKey {
    /// Returns six words of the key's SHA-256 hash, for people who compare keys. Equal words do not prove that the keys are equal. An
    /// attacker has unlimited time to search for a key whose hash begins with the same 66 bits.
    pub fn words(&self) -> [String; 6] {
        let hash = digest(&SHA256, &self.0);
        let mut first = [0; 32];
        first.copy_from_slice(hash.as_ref());
        words(&first)
    }
}

/// Returns six words that encode the first 66 bits of `secret`, 11 bits in each word.
fn words(secret: &[u8; 32]) -> [String; 6] {
    const BITS: usize = 11;
    let bit = |at: usize| usize::from(secret[at / 8] >> (7 - at % 8) & 1);
    std::array::from_fn(|word| word_of((0..BITS).fold(0, |number, at| number << 1 | bit(word * BITS + at))))
}

/// Returns the word of a number below 2,048. A word consists of a consonant, a vowel, a consonant, a vowel and a final consonant. No two
/// numbers have the same word.
fn word_of(number: usize) -> String {
    const FIRST: [&str; 16] =
        ["b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z"];
    const VOWELS: [&str; 4] = ["a", "e", "i", "o"];
    const LAST: [&str; 8] = ["b", "d", "k", "l", "m", "n", "r", "s"];
    // 16 first consonants, 4 vowels, 4 vowels and 8 last consonants give 2,048 words. The middle consonant is five places after the first
    // consonant in `FIRST`.
    let (first, rest) = (number / 128, number % 128);
    let (vowel, rest) = (rest / 32, rest % 32);
    let (second, last) = (rest / 8, rest % 8);
    let middle = FIRST[(first + 5) % 16];
    [FIRST[first], VOWELS[vowel], middle, VOWELS[second], LAST[last]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_public_key_reads_back_from_its_text_and_from_its_spki() {
        let key = HostKey::generate().unwrap().public();
        let text = key.to_string();
        assert_eq!((text.len(), text.parse()), (PREFIX.len() + 43, Ok(key)));
        assert_eq!(PublicKey::from_spki(&key.to_spki()), Some(key));
        for wrong in ["", "sctpify1:", &text[1..], &text[..51], "sctpify1:????"] {
            assert_eq!(wrong.parse::<PublicKey>(), Err(IdentityError::Text), "{wrong}");
        }
        assert_eq!(PublicKey::from_spki(&key.to_spki()[..43]), None);
    }

    #[test]
    fn a_key_of_small_order_is_refused() {
        for mut point in SMALL_ORDER {
            for sign in [0, 0x80] {
                point[31] = point[31] & 0x7f | sign;
                let text = PublicKey(point).to_string();
                assert_eq!(text.parse::<PublicKey>(), Err(IdentityError::Weak), "{text}");
                assert_eq!(PublicKey::from_spki(&PublicKey(point).to_spki()), None, "{text}");
            }
        }
    }

    #[test]
    fn a_private_key_reads_back_and_is_not_shown() {
        let key = HostKey::generate().unwrap();
        let again = HostKey::from_pkcs8(&key.to_pkcs8().unwrap()).unwrap();
        assert_eq!((again.public(), again.sign(b"x")), (key.public(), key.sign(b"x")));
        assert_eq!(HostKey::from_pkcs8(b"none").unwrap_err(), IdentityError::Private);
        assert_eq!(format!("{key:?}"), format!("HostKey of {}", key.public()));
    }

    #[test]
    fn each_number_has_a_distinct_word_and_66_bits_of_a_secret_count() {
        let all: BTreeSet<String> = (0..2048).map(word_of).collect();
        assert_eq!((all.len(), all.iter().all(|word| word.len() == 5)), (2048, true));
        let (mut secret, zeros) = ([0; 32], words(&[0; 32]));
        secret[8] = 0b0100_0000;
        assert_ne!(words(&secret), zeros, "bit 65 counts");
        secret[8] = 0b0010_0000;
        assert_eq!(words(&secret), zeros, "bit 66 does not");
    }
}
