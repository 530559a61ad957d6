//! Parses SIP and SIPS URIs (RFC 3261 section 19.1). Of other URIs, only the scheme is parsed.

use crate::cursor::{Params, number};
use crate::fault::Fault;

/// A URI's scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// `sip:`
    Sip,
    /// `sips:`
    Sips,
    /// Any other scheme. The rest of the URI is not parsed.
    Other,
}

/// A URI's parts, as received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uri<'a> {
    /// The scheme.
    pub scheme: Scheme,
    /// The part before the `@`, with escapes. The part includes the password, if the URI has one.
    pub user: Option<&'a [u8]>,
    /// Host name or address. An IPv6 address includes its brackets.
    pub host: &'a [u8],
    /// Port, 1 to 65,535.
    pub port: Option<u16>,
    /// The part after the `?`.
    pub headers: Option<&'a [u8]>,
    params: Params<'a>,
}

impl<'a> Uri<'a> {
    /// Parses a URI.
    ///
    /// # Errors
    /// Returns 400 if the URI does not follow the grammar.
    pub fn parse(uri: &'a [u8]) -> Result<Uri<'a>, Fault> {
        // No URI contains "<", ">", quotes, white space or controls (RFC 3261 section 25.1).
        if uri.iter().any(|&b| b <= b' ' || b == 0x7f || b"<>\"".contains(&b)) {
            return Err(Fault::bad("Invalid Character In URI"));
        }
        let colon = uri.iter().position(|&b| b == b':').ok_or(Fault::bad("URI Without Scheme"))?;
        let (scheme, rest) = (&uri[..colon], &uri[colon + 1..]);
        let is_scheme = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
        if !scheme.first().is_some_and(u8::is_ascii_alphabetic) || !scheme.iter().all(is_scheme) {
            return Err(Fault::bad("URI Without Scheme"));
        }
        let scheme = match scheme {
            s if s.eq_ignore_ascii_case(b"sip") => Scheme::Sip,
            s if s.eq_ignore_ascii_case(b"sips") => Scheme::Sips,
            _ => return Ok(Uri::other(rest)),
        };
        Uri::parts(scheme, rest)
    }

    fn other(rest: &'a [u8]) -> Uri<'a> {
        let params = Params::default();
        Uri { scheme: Scheme::Other, user: None, host: rest, port: None, headers: None, params }
    }

    fn parts(scheme: Scheme, rest: &'a [u8]) -> Result<Uri<'a>, Fault> {
        // The user part may contain `;`, `?` and `/`, so these characters do not end the user part. The user part cannot contain `@`, so
        // the first `@` ends it.
        let (user, rest) = match rest.iter().position(|&b| b == b'@') {
            Some(0) => return Err(Fault::bad("URI With Empty User")),
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        };
        let (rest, headers) = match rest.iter().position(|&b| b == b'?') {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        let mut pieces = rest.split(|&b| b == b';');
        let (host, port) = host_port(pieces.next().unwrap_or_default())?;
        let mut params = Params::default();
        for piece in pieces {
            let mut halves = piece.splitn(2, |&b| b == b'=');
            let name = halves.next().unwrap_or_default();
            if name.is_empty() {
                return Err(Fault::bad("URI Parameter Without Name"));
            }
            params.push(name, halves.next())?;
        }
        Ok(Uri { scheme, user, host, port, headers, params })
    }

    /// Returns the value of a parameter. The inner `None` means that the parameter has no value.
    pub fn param(&self, name: &str) -> Option<Option<&'a [u8]>> {
        self.params.get(name)
    }

    /// Returns the value of the `transport` parameter.
    pub fn transport(&self) -> Option<&'a [u8]> {
        self.param("transport").flatten()
    }

    /// Returns the address-of-record for the location service (RFC 3261 section 10.3, step 5). The address-of-record is unescaped, with
    /// the host in lower case, and without password, parameters and port.
    pub fn address_of_record(&self) -> String {
        let user = self.user.map(|user| {
            let user = user.split(|&b| b == b':').next().unwrap_or_default();
            unescape(user)
        });
        let host = String::from_utf8_lossy(self.host).to_ascii_lowercase();
        match user {
            Some(user) => format!("{}@{host}", String::from_utf8_lossy(&user)),
            None => host,
        }
    }
}

/// Reports whether two URIs name the same resource. SIP and SIPS URIs must name the same user at the same host. URIs of other schemes
/// must be identical, except for the case of the scheme.
///
/// For SIP and SIPS, the comparison follows RFC 3261 section 19.1.4, but ignores the parts that proxies may change. These parts are the
/// parameters, the headers, the password, a port that only one of the URIs has, and the scheme (SIP or SIPS). All hosts that `is_ours`
/// accepts count as one host.
///
/// A telephone number in a `tel:` URI equals the same number in a SIP URI that has one of our hosts or `user=phone` (section 19.1.6).
///
/// # Errors
/// Returns 400 if one of the URIs does not follow the grammar.
pub(crate) fn is_same_target(
    one: &[u8],
    other: &[u8],
    is_ours: impl Fn(&Uri<'_>) -> bool,
) -> Result<bool, Fault> {
    let (a, b) = (Uri::parse(one)?, Uri::parse(other)?);
    if a.scheme == Scheme::Other || b.scheme == Scheme::Other {
        let number = |text, uri| telephone_number(text, uri, &is_ours);
        return Ok(match (number(one, &a), number(other, &b)) {
            (Some(one), Some(other)) => one == other,
            _ => scheme_and_rest(one) == scheme_and_rest(other),
        });
    }
    let is_one_host = a.host.eq_ignore_ascii_case(b.host)
        && (a.port.is_none() || b.port.is_none() || a.port == b.port)
        || is_ours(&a) && is_ours(&b);
    Ok(is_one_host && a.user.map(user_of) == b.user.map(user_of))
}

/// Returns a user part without escapes and password.
fn user_of(user: &[u8]) -> Vec<u8> {
    unescape(user.split(|&b| b == b':').next().unwrap_or_default())
}

/// Returns a telephone number and its `phone-context`. The number is from a `tel:` URI, or from a SIP URI with `user=phone` or one of our
/// hosts. Visual separators are removed (RFC 3966 section 5.1.1).
fn telephone_number(
    text: &[u8],
    uri: &Uri<'_>,
    is_ours: impl Fn(&Uri<'_>) -> bool,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let subscriber = match uri.scheme {
        Scheme::Other => {
            let (scheme, rest) = scheme_and_rest(text);
            (scheme == b"tel").then(|| rest.to_vec())?
        }
        _ => {
            let is_phone = uri.param("user").flatten().is_some_and(|v| v.eq_ignore_ascii_case(b"phone"));
            uri.user.filter(|_| is_phone || is_ours(uri)).map(user_of)?
        }
    };
    let mut pieces = subscriber.split(|&b| b == b';');
    let number = pieces.next().unwrap_or_default().iter().filter(|b| !b"-.()".contains(b));
    let number: Vec<u8> = number.map(u8::to_ascii_lowercase).collect();
    let context = pieces.map(<[u8]>::to_ascii_lowercase).find(|piece| piece.starts_with(b"phone-context="));
    (!number.is_empty()).then_some((number, context.unwrap_or_default()))
}

/// Returns the scheme in lower case, and the part after its colon.
fn scheme_and_rest(uri: &[u8]) -> (Vec<u8>, &[u8]) {
    let colon = uri.iter().position(|&b| b == b':').unwrap_or(uri.len());
    (uri[..colon].to_ascii_lowercase(), uri.get(colon + 1..).unwrap_or_default())
}

/// Parses the `host[:port]` of a URI or Via.
pub(crate) fn host_port(text: &[u8]) -> Result<(&[u8], Option<u16>), Fault> {
    let host_end = if text.first() == Some(&b'[') {
        text.iter().position(|&b| b == b']').map(|at| at + 1).ok_or(Fault::bad("Address Without Bracket"))?
    } else {
        text.iter().position(|&b| b == b':').unwrap_or(text.len())
    };
    let (host, port) = text.split_at(host_end);
    let is_host = |b: &u8| b.is_ascii_alphanumeric() || b"-.[]:_".contains(b);
    if host.is_empty() || !host.iter().all(is_host) {
        return Err(Fault::bad("Invalid Host"));
    }
    let port = match port.strip_prefix(b":") {
        None if port.is_empty() => None,
        None => return Err(Fault::bad("Invalid Port")),
        Some(digits) => {
            let port = number(digits).and_then(|n| u16::try_from(n).ok()).filter(|&n| n > 0);
            Some(port.ok_or(Fault::bad("Invalid Port"))?)
        }
    };
    Ok((host, port))
}

/// Decodes `%HH`. Malformed escapes stay unchanged.
fn unescape(text: &[u8]) -> Vec<u8> {
    let hex = |b: Option<&u8>| b.and_then(|&b| (b as char).to_digit(16)).and_then(|d| u8::try_from(d).ok());
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = text.get(at) {
        match (byte, hex(text.get(at + 1)), hex(text.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_uri_are_found() {
        let uri = Uri::parse(b"sip:user;par=u%40h:pw@[2001:db8::1]:5070;transport=sctp;lr?x=y").unwrap();
        assert_eq!(uri.user, Some(&b"user;par=u%40h:pw"[..]));
        assert_eq!((uri.host, uri.port), (&b"[2001:db8::1]"[..], Some(5070)));
        assert_eq!(uri.transport(), Some(&b"sctp"[..]));
        assert_eq!((uri.param("LR"), uri.headers), (Some(None), Some(&b"x=y"[..])));
    }

    #[test]
    fn an_invalid_uri_is_refused() {
        for bad in [
            "sip:",
            "sip:@a",
            "user@a",
            "sip:a b",
            "<sip:a>",
            "sip:a:0",
            "sip:a:65536",
            "sip:a;=x",
            "sip:[::1",
        ] {
            assert!(Uri::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_changes_that_proxies_may_make_keep_the_target_the_same() {
        let is_ours = |uri: &Uri<'_>| {
            uri.scheme != Scheme::Other && [&b"example.com"[..], b"192.0.2.1"].contains(&uri.host)
        };
        let is_same = |a: &str, b: &str| {
            let one_way = is_same_target(a.as_bytes(), b.as_bytes(), is_ours).unwrap();
            assert_eq!(is_same_target(b.as_bytes(), a.as_bytes(), is_ours).unwrap(), one_way, "{a} {b}");
            one_way
        };
        for (a, b) in [
            ("sip:bob@example.com", "sip:bob@EXAMPLE.com;transport=tcp?subject=x"),
            ("sip:bob@other.example", "sips:%62ob:pw@other.example:5061"),
            ("sip:bob@example.com", "sip:bob@192.0.2.1:5060"),
            ("sip:example.com", "sip:192.0.2.1"),
            ("sip:+1-201-555-0123@gw.example;user=phone", "tel:+1.201.555.0123"),
            ("sip:+12015550123@example.com", "tel:+1(201)5550123"),
            (
                "sip:7042;phone-context=example.com@gw.example;user=phone",
                "tel:7042;phone-context=Example.com",
            ),
            ("urn:service:sos", "URN:service:sos"),
        ] {
            assert!(is_same(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("sip:bob@example.com", "sip:Bob@example.com"),
            ("sip:bob@example.com", "sip:bob@other.example"),
            ("sip:bob@example.com", "sip:example.com"),
            ("sip:bob@other.example:5070", "sip:bob@other.example:5080"),
            ("sip:+12015550123@gw.example", "tel:+12015550123"),
            ("tel:+12015550123", "tel:+12015550124"),
            ("tel:7042;phone-context=a.example", "tel:7042;phone-context=b.example"),
            ("tel:+12015550123", "urn:+12015550123"),
        ] {
            assert!(!is_same(a, b), "{a} {b}");
        }
        assert_eq!(is_same_target(b"/dir/index.html", b"sip:a", is_ours).unwrap_err().status, 400);
    }

    #[test]
    fn equal_users_have_one_address_of_record() {
        let of = |uri: &'static str| Uri::parse(uri.as_bytes()).unwrap().address_of_record();
        assert_eq!(of("sip:%61lice:pw@Example.COM:5060;x"), "alice@example.com");
        assert_ne!(of("sip:Alice@example.com"), of("sip:alice@example.com"));
    }
}
