//! Derivation and use of the proxy's secret keys.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::digest::hex;

/// Returns a fingerprint of a key, in 16 hexadecimal digits. Operators can compare the fingerprints of proxies' keys without revealing
/// the keys.
pub fn fingerprint(secret: &[u8; 32]) -> String {
    hex(&derived(secret, "fingerprint")[..8])
}

/// Derives a separate key for one purpose from `secret`.
pub(super) fn derived(secret: &[u8; 32], purpose: &str) -> [u8; 32] {
    let mut mac = keyed(secret);
    mac.update(purpose.as_bytes());
    mac.finalize().into_bytes().into()
}

/// Returns an HMAC with a key. The key is padded with zeros to the hash's block size (RFC 2104 section 2).
pub(super) fn keyed(secret: &[u8; 32]) -> Hmac<Sha256> {
    let mut key = [0; 64];
    key[..32].copy_from_slice(secret);
    Hmac::<Sha256>::new(&key.into())
}

/// Decodes N bytes from twice as many hexadecimal digits.
pub(super) fn bytes_of<const N: usize>(hex: &[u8]) -> Option<[u8; N]> {
    let hex = std::str::from_utf8(hex).ok().filter(|hex| hex.len() == 2 * N && hex.is_ascii())?;
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_use_has_another_key() {
        let secret = [1; 32];
        assert_eq!(derived(&secret, "flows"), derived(&secret, "flows"));
        assert_ne!(derived(&secret, "flows"), derived(&secret, "tags"));
        assert_ne!(derived(&secret, "flows"), derived(&[2; 32], "flows"));
    }

    #[test]
    fn hexadecimal_digits_of_another_length_or_alphabet_are_refused() {
        assert_eq!(bytes_of::<2>(b"0aff"), Some([0x0a, 0xff]));
        for wrong in [&b"0af"[..], b"0aff0", b"0afg", "0\u{e4}f".as_bytes()] {
            assert_eq!(bytes_of::<2>(wrong), None, "{wrong:?}");
        }
    }
}
