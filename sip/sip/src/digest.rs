//! Digest authentication (RFC 3261 section 22, RFC 8760): challenges and their answers.
//!
//! This module computes the hashes, and reads and writes the header fields. [`Nonces`] decides whether the nonce of an answer is valid.

mod nonces;

pub use nonces::{NONCE_LIFETIME, NONCES_MAX, Nonce, Nonces};

use md5::Md5;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::cursor::Cursor;
use crate::fault::Fault;

/// The hash algorithm of a challenge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// SHA-256 (RFC 8760).
    Sha256,
    /// MD5, for clients that do not support SHA-256.
    Md5,
}

impl Algorithm {
    /// All algorithms, the strongest first. A client uses the first algorithm that it supports (RFC 8760 section 2.4).
    pub const ALL: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Md5];

    /// Returns the algorithm's name in header fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "SHA-256",
            Algorithm::Md5 => "MD5",
        }
    }

    /// Parses an algorithm's name from a header field. Case does not matter.
    pub fn from_bytes(name: &[u8]) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|a| name.eq_ignore_ascii_case(a.as_str().as_bytes()))
    }

    /// Returns the hash of the parts, joined by colons, in hexadecimal.
    fn hash(self, parts: &[&[u8]]) -> String {
        let text = parts.join(&b':');
        match self {
            Algorithm::Sha256 => hex(&Sha256::digest(&text)),
            Algorithm::Md5 => hex(&Md5::digest(&text)),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A client's credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials<'a> {
    /// The user's name.
    pub username: &'a [u8],
    /// The user's realm.
    pub realm: &'a [u8],
    nonce: &'a [u8],
    uri: &'a [u8],
    response: &'a [u8],
    algorithm: Algorithm,
    /// The cnonce and nc, if qop is `auth`.
    qop: Option<(&'a [u8], &'a [u8])>,
}

impl<'a> Credentials<'a> {
    /// Parses the value of Authorization or Proxy-Authorization. Returns `None` for malformed values, and for unsupported schemes and
    /// algorithms (RFC 4475 section 3.3.7).
    pub fn parse(value: &'a [u8]) -> Option<Credentials<'a>> {
        let found = digest_params(value)?;
        let get =
            |name: &str| found.iter().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| *v);
        let qop = match get("qop") {
            None => None,
            Some(qop) if qop.eq_ignore_ascii_case(b"auth") => {
                // "nc-value = 8LHEX" (RFC 7616 section 3.4).
                let nc = get("nc").filter(|nc| nc.len() == 8 && nc.iter().all(u8::is_ascii_hexdigit))?;
                Some((get("cnonce")?, nc))
            }
            Some(_) => return None,
        };
        Some(Credentials {
            username: get("username")?,
            realm: get("realm")?,
            nonce: get("nonce")?,
            uri: get("uri")?,
            response: get("response")?,
            algorithm: get("algorithm").map_or(Some(Algorithm::Md5), Algorithm::from_bytes)?,
            qop,
        })
    }

    /// Returns the URI for which the client computed its answer (`digest-uri`).
    pub fn uri(&self) -> &'a [u8] {
        self.uri
    }

    /// Returns the hash algorithm of the answer.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns how many times the client has used the nonce, including this use. Without qop the count is 1.
    pub fn nonce_count(&self) -> u32 {
        let nc = self.qop.and_then(|(_, nc)| std::str::from_utf8(nc).ok());
        nc.map_or(1, |nc| u32::from_str_radix(nc, 16).unwrap_or(0))
    }

    /// Reports whether the response in the credentials was computed with this password.
    pub fn is_by(&self, password: &[u8], method: &[u8]) -> bool {
        let hash = |parts: &[&[u8]]| self.algorithm.hash(parts);
        let a1 = hash(&[self.username, self.realm, password]);
        let a2 = hash(&[method, self.uri]);
        let expected = match self.qop {
            Some((cnonce, nc)) => hash(&[a1.as_bytes(), self.nonce, nc, cnonce, b"auth", a2.as_bytes()]),
            None => hash(&[a1.as_bytes(), self.nonce, a2.as_bytes()]),
        };
        let given = self.response.to_ascii_lowercase();
        expected.as_bytes().ct_eq(&given).into()
    }
}

/// Returns the parameters after `Digest`. Returns `None` for other schemes and malformed values.
fn digest_params(value: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut cursor = Cursor::new(value);
    if !cursor.token()?.eq_ignore_ascii_case(b"Digest") {
        return None;
    }
    let mut found = Vec::new();
    loop {
        cursor.skip_space();
        let name = cursor.token()?;
        if !cursor.eat(b'=') || found.len() == crate::cursor::PARAMS_MAX {
            return None;
        }
        let value = cursor.quoted().or_else(|| cursor.token())?;
        found.push((name, unquoted(value)));
        if !cursor.eat(b',') {
            return Some(found);
        }
    }
}

/// Builds the answer to a challenge. The answer is the value of Authorization or Proxy-Authorization. Returns `None` if the scheme, the
/// algorithm or the qop of the challenge is unsupported. The caller then tries the next challenge (RFC 8760 section 2.4).
pub fn answer(
    challenge: &[u8],
    user: &str,
    password: &str,
    method: &[u8],
    uri: &[u8],
    cnonce: &str,
) -> Option<String> {
    let found = digest_params(challenge)?;
    let get =
        |name: &str| found.iter().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| *v);
    let text = |name: &str| get(name).and_then(|value| std::str::from_utf8(value).ok());
    let algorithm = get("algorithm").map_or(Some(Algorithm::Md5), Algorithm::from_bytes)?;
    let (realm, nonce) = (text("realm")?, text("nonce")?);
    let mut offered = get("qop").unwrap_or_default().split(|&b| b == b',').map(crate::cursor::trim);
    let has_qop = get("qop").is_some();
    if has_qop && !offered.any(|qop| qop.eq_ignore_ascii_case(b"auth")) {
        return None;
    }
    let a1 = algorithm.hash(&[user.as_bytes(), realm.as_bytes(), password.as_bytes()]);
    let a2 = algorithm.hash(&[method, uri]);
    let (a1, a2, n) = (a1.as_bytes(), a2.as_bytes(), nonce.as_bytes());
    let (response, qop) = if has_qop {
        let qop = format!(",qop=auth,nc=00000001,cnonce=\"{cnonce}\"");
        (algorithm.hash(&[a1, n, b"00000001", cnonce.as_bytes(), b"auth", a2]), qop)
    } else {
        (algorithm.hash(&[a1, n, a2]), String::new())
    };
    let opaque = text("opaque").map(|opaque| format!(",opaque=\"{opaque}\"")).unwrap_or_default();
    let (uri, algorithm) = (std::str::from_utf8(uri).ok()?, algorithm.as_str());
    Some(format!(
        "Digest username=\"{user}\",realm=\"{realm}\",nonce=\"{nonce}\",uri=\"{uri}\",response=\"{response}\",\
         algorithm={algorithm}{qop}{opaque}"
    ))
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value)
}

/// The rejection of credentials that were computed with the right password, but for another URI.
pub(crate) const OTHER_URI: Fault = Fault { status: 403, reason: "Credentials Are For Another URI" };

/// The rejection of a user who sent valid credentials, but acts for another user.
pub(crate) const FORBIDDEN: Fault = Fault { status: 403, reason: "Not Your Address" };

#[cfg(test)]
mod tests {
    use base::Time;

    use super::*;

    /// RFC 8760 has no worked example. RFC 7616 section 3.9.1 has an example for both algorithms.
    #[test]
    fn the_example_of_rfc_7616_is_right_by_both_algorithms() {
        for (algorithm, response) in [
            ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
            ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ] {
            let value = format!(
                "Digest username=\"Mufasa\", realm=\"http-auth@example.org\", uri=\"/dir/index.html\", \
                 algorithm={algorithm}, nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", nc=00000001, \
                 cnonce=\"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ\", qop=auth, response=\"{response}\", \
                 opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""
            );
            let credentials = Credentials::parse(value.as_bytes()).unwrap();
            assert!(credentials.is_by(b"Circle of Life", b"GET"), "{algorithm}");
            assert!(!credentials.is_by(b"Circle of Life", b"PUT"), "{algorithm}");
            assert!(!credentials.is_by(b"circle of life", b"GET"), "{algorithm}");
        }
    }

    #[test]
    fn our_answers_to_our_challenges_are_accepted() {
        let mut nonces = Nonces::new([1; 32]);
        for algorithm in Algorithm::ALL {
            let challenge = nonces.challenge(Time::ZERO, "r", algorithm, false);
            let value = answer(challenge.as_bytes(), "a", "secret", b"REGISTER", b"sip:r", "c").unwrap();
            let credentials = Credentials::parse(value.as_bytes()).unwrap();
            assert_eq!(credentials.algorithm(), algorithm);
            assert_eq!(nonces.judge(Time::ZERO, &credentials), Nonce::Good);
            assert!(credentials.is_by(b"secret", b"REGISTER") && !credentials.is_by(b"wrong", b"REGISTER"));
        }
        assert_eq!(
            answer(b"Digest realm=\"r\",nonce=\"n\",algorithm=SHA-1", "a", "b", b"X", b"u", "c"),
            None
        );
    }

    #[test]
    fn unknown_schemes_and_incomplete_credentials_are_rejected() {
        for value in ["NoOneKnowsThisScheme opaque-data=here", "Digest username=\"a\"", "Digest", ""] {
            assert_eq!(Credentials::parse(value.as_bytes()), None, "{value}");
        }
    }
}
