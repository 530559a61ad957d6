//! Signatures on behalf of another process. The process that holds the host's key signs only TLS 1.3 handshakes.
//!
//! An intruder in the requesting process can use the key while the intrusion lasts. The intruder gets no signature that another protocol
//! would accept. Begin at [`sign_handshake`].

use crate::identity::HostKey;

/// Length of the spaces that precede the signed content, in bytes (RFC 8446 section 4.4.3).
const BLANKS: usize = 64;
/// The two context strings of signatures, each with the zero octet that follows it.
const CONTEXTS: [&[u8]; 2] = [b"TLS 1.3, server CertificateVerify\0", b"TLS 1.3, client CertificateVerify\0"];
/// Lengths of a transcript hash of SHA-256 and of SHA-384, in bytes.
const HASHES: [usize; 2] = [32, 48];

/// Maximum length of the content that is signed, in bytes.
pub const HANDSHAKE_CONTENT_MAX: usize = 64 + 34 + 48;

/// Signs the content of a CertificateVerify message; returns `None` for all other messages.
pub fn sign_handshake(key: &HostKey, message: &[u8]) -> Option<Vec<u8>> {
    is_handshake(message).then(|| key.sign(message))
}

/// Reports whether `message` is the content that a CertificateVerify message of TLS 1.3 signs.
fn is_handshake(message: &[u8]) -> bool {
    let Some((blanks, rest)) = message.split_at_checked(BLANKS) else { return false };
    let hash = CONTEXTS.iter().find_map(|context| rest.strip_prefix(*context));
    blanks.iter().all(|octet| *octet == b' ') && hash.is_some_and(|hash| HASHES.contains(&hash.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(blanks: usize, context: &[u8], hash: usize) -> Vec<u8> {
        [vec![b' '; blanks], context.to_vec(), vec![7; hash]].concat()
    }

    #[test]
    fn both_ends_handshakes_are_signed_under_both_hashes() {
        let key = HostKey::generate().unwrap();
        for context in CONTEXTS {
            for hash in HASHES {
                let content = content(BLANKS, context, hash);
                assert!(content.len() <= HANDSHAKE_CONTENT_MAX);
                assert_eq!(sign_handshake(&key, &content), Some(key.sign(&content)));
            }
        }
    }

    #[test]
    fn content_that_is_no_tls_13_certificate_verify_is_not_signed() {
        let key = HostKey::generate().unwrap();
        let context = CONTEXTS[0];
        let mut other_blank = content(BLANKS, context, 32);
        other_blank[63] = b'\t';
        for wrong in [
            Vec::new(),
            vec![b' '; BLANKS],
            content(BLANKS - 1, context, 32),
            content(BLANKS + 1, context, 32),
            content(BLANKS, context, 31),
            content(BLANKS, context, 33),
            content(BLANKS, context, 64),
            content(BLANKS, b"TLS 1.3, server CertificateVerify ", 32),
            content(BLANKS, b"TLS 1.3, exporter CertificateVerify\0", 32),
            content(0, b"ssh-ed25519", 32),
            other_blank,
        ] {
            assert_eq!(sign_handshake(&key, &wrong), None, "{wrong:?}");
        }
    }
}
