//! The AEADs of TLS 1.3 from `aws-lc-rs`, applied to DTLS records (RFC 9147 section 4).

use aws_lc_rs::aead::quic::{self, HeaderProtectionKey};
use aws_lc_rs::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::CipherSuite;
use sctp::RecordCipher;
use zeroize::Zeroizing;

/// Length of an authentication tag, in bytes.
const TAG_LEN: usize = 16;

/// Limit on records that one AES-GCM key seals: 2^24.5 (RFC 9147 section 4.5.3).
const AES_GCM_RECORDS: u64 = 23_726_566;

/// Limit on records that one ChaCha20-Poly1305 key seals. The 48-bit record number ends before this cipher reaches a safety limit.
const CHACHA_RECORDS: u64 = 1 << 48;

/// Limit on records that fail to open under one key: 2^36 (RFC 9147 section 4.5.3).
const FORGERIES: u64 = 1 << 36;

/// A cipher suite of TLS 1.3: an AEAD and a hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Suite {
    Aes128GcmSha256,
    Aes256GcmSha384,
    ChaCha20Poly1305Sha256,
}

impl Suite {
    pub(crate) fn of(suite: CipherSuite) -> Option<Suite> {
        match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => Some(Suite::Aes128GcmSha256),
            CipherSuite::TLS13_AES_256_GCM_SHA384 => Some(Suite::Aes256GcmSha384),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some(Suite::ChaCha20Poly1305Sha256),
            _ => None,
        }
    }

    /// Returns the length of the record key and of the record number key, in bytes. Both have the same length.
    pub(crate) fn key_len(self) -> usize {
        match self {
            Suite::Aes128GcmSha256 => 16,
            Suite::Aes256GcmSha384 | Suite::ChaCha20Poly1305Sha256 => 32,
        }
    }

    fn aead(self) -> &'static aead::Algorithm {
        match self {
            Suite::Aes128GcmSha256 => &aead::AES_128_GCM,
            Suite::Aes256GcmSha384 => &aead::AES_256_GCM,
            Suite::ChaCha20Poly1305Sha256 => &aead::CHACHA20_POLY1305,
        }
    }

    /// Returns the algorithm that masks record numbers. DTLS 1.3 and QUIC compute such masks in the same way (RFC 9147 section 4.2.3,
    /// RFC 9001 section 5.4).
    fn mask(self) -> &'static quic::Algorithm {
        match self {
            Suite::Aes128GcmSha256 => &quic::AES_128,
            Suite::Aes256GcmSha384 => &quic::AES_256,
            Suite::ChaCha20Poly1305Sha256 => &quic::CHACHA20,
        }
    }

    fn records(self) -> u64 {
        match self {
            Suite::Aes128GcmSha256 | Suite::Aes256GcmSha384 => AES_GCM_RECORDS,
            Suite::ChaCha20Poly1305Sha256 => CHACHA_RECORDS,
        }
    }
}

/// Keys of one direction in one epoch.
pub(crate) struct Cipher {
    suite: Suite,
    key: LessSafeKey,
    iv: Zeroizing<[u8; NONCE_LEN]>,
    number_key: HeaderProtectionKey,
}

impl Cipher {
    /// Makes the cipher from a record key and a record number key, of [`Suite::key_len`] bytes each. Returns `None` if a length is wrong.
    pub(crate) fn new(suite: Suite, key: &[u8], number_key: &[u8], iv: [u8; NONCE_LEN]) -> Option<Cipher> {
        let key = LessSafeKey::new(UnboundKey::new(suite.aead(), key).ok()?);
        let number_key = HeaderProtectionKey::new(suite.mask(), number_key).ok()?;
        Some(Cipher { suite, key, iv: Zeroizing::new(iv), number_key })
    }

    /// Returns the nonce of a record (RFC 8446 section 5.3).
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = *self.iv;
        nonce[4..].iter_mut().zip(number.to_be_bytes()).for_each(|(octet, n)| *octet ^= n);
        Nonce::assume_unique_for_key(nonce)
    }
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cipher").field("suite", &self.suite).finish_non_exhaustive()
    }
}

impl RecordCipher for Cipher {
    fn seal(&self, number: u64, associated: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        let sealed = self.key.seal_in_place_separate_tag(self.nonce(number), Aad::from(associated), text);
        let mut tag = [0; TAG_LEN];
        match sealed {
            Ok(sealed) => tag.copy_from_slice(sealed.as_ref()),
            // Sealing fails only for a plaintext of several gigabytes. In that case, zeros replace the plaintext, so it does not leave the
            // host.
            Err(_) => text.fill(0),
        }
        tag
    }

    fn open(
        &self,
        number: u64,
        associated: &[u8],
        ciphertext: &[u8],
        tag: &[u8; TAG_LEN],
        text: &mut [u8],
    ) -> bool {
        self.key
            .open_separate_gather(self.nonce(number), Aad::from(associated), ciphertext, tag, text)
            .is_ok()
    }

    fn mask(&self, sample: &[u8; TAG_LEN]) -> [u8; 2] {
        let mask = self.number_key.new_mask(sample).unwrap_or_default();
        [mask[0], mask[1]]
    }

    fn record_limit(&self) -> u64 {
        self.suite.records()
    }

    fn forgery_limit(&self) -> u64 {
        FORGERIES
    }

    fn memory(&self) -> usize {
        size_of::<Cipher>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Test vector of RFC 9001 appendix A.5, with ChaCha20-Poly1305. QUIC has the same AEAD, nonce and mask as DTLS, but other labels for
    /// the keys.
    #[test]
    fn chacha_seals_and_masks_as_in_rfc_9001() {
        let key = hex("c6d98ff3441c3fe1b2182094f69caa2ed4b716b65488960a7a984979fb23e1c8");
        let number_key = hex("25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4");
        let iv: [u8; 12] = hex("e0459b3474bdd0e44a41c144").try_into().unwrap();
        let cipher = Cipher::new(Suite::ChaCha20Poly1305Sha256, &key, &number_key, iv).unwrap();
        let mut text = vec![1];
        let tag = cipher.seal(654_360_564, &hex("4200bff4"), &mut text);
        assert_eq!([text.clone(), tag.to_vec()].concat(), hex("655e5cd55c41f69080575d7999c25a5bfb"));
        let sample: [u8; 16] = hex("5e5cd55c41f69080575d7999c25a5bfb").try_into().unwrap();
        assert_eq!(cipher.mask(&sample), [0xae, 0xfe]);
        let mut opened = [0];
        assert!(cipher.open(654_360_564, &hex("4200bff4"), &text, &tag, &mut opened));
        assert_eq!(opened, [1]);
    }

    /// Test vectors of RFC 9001 appendix A.2 and A.3, with AES-128. The first gives the mask of the client's packet, and the second gives
    /// the server's whole packet.
    #[test]
    fn aes_masks_and_seals_as_in_rfc_9001() {
        let client = Cipher::new(
            Suite::Aes128GcmSha256,
            &hex("1f369613dd76d5467730efcbe3b1a22d"),
            &hex("9f50449e04a0e810283a1e9933adedd2"),
            [0; 12],
        );
        let sample: [u8; 16] = hex("d1b1c98dd7689fb8ec11d242b123dc9b").try_into().unwrap();
        assert_eq!(client.unwrap().mask(&sample), [0x43, 0x7b]);
        let iv: [u8; 12] = hex("0ac1493ca1905853b0bba03e").try_into().unwrap();
        let server = Cipher::new(
            Suite::Aes128GcmSha256,
            &hex("cf3a5331653c364c88f0f379b6067e37"),
            &hex("c206b8d9b9f0f37644430b490eeaa314"),
            iv,
        )
        .unwrap();
        let mut text = hex(
            "02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf73988cfc79825df566dc5430b9a045a1200130100002e00330024001d\
             00209d3c940d89690b84d08a60993c144eca684d1081287c834d5311bcf32bb9da1a002b00020304",
        );
        let tag = server.seal(1, &hex("c1000000010008f067a5502a4262b50040750001"), &mut text);
        assert_eq!(text[..8], hex("5a482cd0991cd25b"));
        assert_eq!(tag.to_vec(), hex("3d20398c276456cbc42158407dd074ee"));
    }

    #[test]
    fn a_record_with_a_wrong_number_associated_data_or_ciphertext_does_not_open() {
        for suite in [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384, Suite::ChaCha20Poly1305Sha256] {
            let key = vec![7; suite.key_len()];
            let cipher = Cipher::new(suite, &key, &key, [3; 12]).unwrap();
            let mut text = b"chunks".to_vec();
            let tag = cipher.seal(9, b"head", &mut text);
            let opens = |number, associated: &[u8], text: &[u8], tag: &[u8; TAG_LEN]| {
                cipher.open(number, associated, text, tag, &mut vec![0; text.len()])
            };
            assert!(opens(9, b"head", &text, &tag));
            assert!(!opens(10, b"head", &text, &tag));
            assert!(!opens(9, b"hea", &text, &tag));
            let (mut changed, mut other_tag) = (text.clone(), tag);
            changed[2] ^= 1;
            other_tag[15] ^= 1;
            assert!(!opens(9, b"head", &changed, &tag));
            assert!(!opens(9, b"head", &text, &other_tag));
        }
        assert!(Cipher::new(Suite::Aes128GcmSha256, &[0; 15], &[0; 16], [0; 12]).is_none());
    }
}
