//! Encoding of a user's bindings in a store that several proxies share. All proxies use the same JSON.
//!
//! The bytes of a SIP message need not be valid text. Each byte is stored as one ISO 8859-1 character, which loses nothing and keeps ASCII
//! readable. Times are milliseconds since 1970 by the store's clock. Unknown fields are ignored, so a later version of the program can add
//! fields. Begin with [`encode`] and [`decode`].

use std::net::SocketAddr;
use std::time::Duration;

use base::Time;
use serde::{Deserialize, Serialize};
use sip::proxy::Record;
use sip::{Binding, Hop, Transport};

/// Limit on the length of a text to write or read, in bytes. It suffices for more than a thousand bindings.
pub(super) const TEXT_MAX: usize = 1 << 20;

#[derive(Serialize, Deserialize)]
struct User {
    user: String,
    bindings: Vec<StoredBinding>,
}

#[derive(Serialize, Deserialize)]
struct StoredBinding {
    uri: String,
    expires_ms: u64,
    call_id: String,
    cseq: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    path: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(default = "most")]
    q: u16,
    transport: String,
    source: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    through: Option<String>,
}

fn most() -> u16 {
    1000
}

/// Encodes a user's bindings. `today` is the time since 1970 at `now`, by the store's clock.
pub(super) fn encode(user: &str, bindings: &[Binding], now: Time, today: Duration) -> String {
    let stored = bindings.iter().map(|binding| StoredBinding {
        uri: text_of(&binding.uri),
        expires_ms: milliseconds(today + binding.expires.since(now)),
        call_id: text_of(&binding.call_id),
        cseq: binding.cseq,
        path: binding.path.iter().map(|value| text_of(value)).collect(),
        instance: binding.instance.as_deref().map(text_of),
        q: binding.q,
        transport: binding.flow.transport.as_lower_str().to_owned(),
        source: binding.flow.address,
        through: binding.through.as_deref().map(text_of),
    });
    // Strings, numbers and lists of them can always be serialized.
    serde_json::to_string(&User { user: user.to_owned(), bindings: stored.collect() }).unwrap_or_default()
}

/// Decodes the output of [`encode`], and returns the user and the record. Returns `None` for any other text.
pub(super) fn decode(version: u64, text: &str, now: Time, today: Duration) -> Option<(String, Record)> {
    if text.len() > TEXT_MAX {
        return None;
    }
    let User { user, bindings: stored } = serde_json::from_str(text).ok()?;
    let bindings = stored.into_iter().map(|stored| binding_of(stored, now, today)).collect::<Option<_>>()?;
    Some((user, Record { version, bindings }))
}

fn binding_of(stored: StoredBinding, now: Time, today: Duration) -> Option<Binding> {
    let left = Duration::from_millis(stored.expires_ms).saturating_sub(today);
    Some(Binding {
        uri: bytes_of(&stored.uri)?,
        expires: now + left,
        call_id: bytes_of(&stored.call_id)?,
        cseq: stored.cseq,
        path: stored.path.iter().map(|value| bytes_of(value)).collect::<Option<_>>()?,
        instance: stored.instance.as_deref().map(bytes_of).map_or(Some(None), |bytes| bytes.map(Some))?,
        q: stored.q,
        // Only the proxy that wrote the binding knows the listener and the connection.
        flow: Hop {
            listener: 0,
            transport: Transport::from_bytes(stored.transport.as_bytes())?,
            address: stored.source,
            connection: None,
        },
        through: Some(bytes_of(&stored.through?)?),
    })
}

/// Returns the time at which the last of the bindings expires, in milliseconds since 1970.
pub(super) fn end_of(bindings: &[Binding], now: Time, today: Duration) -> u64 {
    let last = bindings.iter().map(|binding| binding.expires).max().unwrap_or(now);
    milliseconds(today + last.since(now))
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the user's key in the store. Control characters, which an address-of-record may contain, are escaped.
pub(super) fn key_of(user: &str) -> String {
    user.escape_default().to_string()
}

fn text_of(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn bytes_of(text: &str) -> Option<Box<[u8]>> {
    text.chars().map(|c| u8::try_from(c).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding() -> Binding {
        Binding {
            uri: b"sip:b\xc3\xb6b\xff@192.0.2.1"[..].into(),
            expires: Time::ZERO + Duration::from_secs(100),
            call_id: b"c\"\x01"[..].into(),
            cseq: u32::MAX,
            path: vec![b"<sip:a;lr>"[..].into(), b"<sip:b;lr>"[..].into()],
            instance: Some(b"i"[..].into()),
            q: 700,
            flow: Hop {
                listener: 0,
                transport: Transport::Tcp,
                address: "[2001:db8::1]:99".parse().unwrap(),
                connection: None,
            },
            through: Some(b"<sip:x@192.0.2.100;lr>"[..].into()),
        }
    }

    const TODAY: Duration = Duration::from_secs(1_700_000_000);

    #[test]
    fn a_written_record_is_read_back_byte_for_byte() {
        let bindings = vec![binding(), Binding { instance: None, path: Vec::new(), ..binding() }];
        let text = encode("b\0b@example.com", &bindings, Time::ZERO, TODAY);
        let (later, day) = (Time::from_millis(5000), TODAY + Duration::from_secs(5));
        let (user, record) = decode(7, &text, later, day).unwrap();
        assert_eq!((user.as_str(), record), ("b\0b@example.com", Record { version: 7, bindings }));
    }

    #[test]
    fn an_expired_binding_has_no_time_left() {
        let text = encode("a", &[binding()], Time::ZERO, TODAY);
        let now = Time::from_millis(9);
        let (_, record) = decode(1, &text, now, TODAY + Duration::from_secs(101)).unwrap();
        assert_eq!(record.bindings[0].expires, now);
    }

    #[test]
    fn a_malformed_record_is_ignored() {
        let good = encode("a", &[binding()], Time::ZERO, TODAY);
        for text in ["", "{", "[]", &good.replace("tcp", "pigeon"), &good.replace("sip:b", "sip:\u{20ac}")] {
            assert_eq!(decode(1, text, Time::ZERO, TODAY), None, "{text}");
        }
    }

    #[test]
    fn store_keys_escape_control_characters_and_backslashes() {
        assert_eq!(key_of("bob@example.com"), "bob@example.com");
        assert_eq!(key_of("a\0\n\\"), "a\\u{0}\\n\\\\");
    }
}
