//! SIP and SIPS URIs (RFC 3261 section 19.1); of others the scheme alone.

use crate::cursor::{Params, number};
use crate::fault::Fault;

/// A URI's scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// `sip:`
    Sip,
    /// `sips:`
    Sips,
    /// Any other; nothing but the scheme was looked at.
    Other,
}

/// A URI's parts, as they came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uri<'a> {
    /// Its scheme.
    pub scheme: Scheme,
    /// What is before the `@`, password included; escapes as they came.
    pub user: Option<&'a [u8]>,
    /// Host name or address; an IPv6 address with its brackets.
    pub host: &'a [u8],
    /// Port, 1 to 65,535.
    pub port: Option<u16>,
    /// Behind the `?`.
    pub headers: Option<&'a [u8]>,
    params: Params<'a>,
}

impl<'a> Uri<'a> {
    /// Takes a URI apart.
    ///
    /// # Errors
    /// 400 when it does not follow the grammar.
    pub fn parse(uri: &'a [u8]) -> Result<Uri<'a>, Fault> {
        // "<", ">", quotes, white space and controls are in no URI (RFC 3261 section 25.1).
        if uri.iter().any(|&b| b <= b' ' || b == 0x7f || b"<>\"".contains(&b)) {
            return Err(Fault::bad("Character That Is In No URI"));
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
        // In the user part `;`, `?` and `/` are allowed, `@` is not: the first one ends it.
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

    /// A parameter's value; the inner `None` if it has none.
    pub fn param(&self, name: &str) -> Option<Option<&'a [u8]>> {
        self.params.get(name)
    }

    /// The `transport` parameter.
    pub fn transport(&self) -> Option<&'a [u8]> {
        self.param("transport").flatten()
    }

    /// The address-of-record that a location service knows this by (RFC 3261 section 10.3, step 5): escapes undone, the
    /// host in lower case, no parameters, and no port.
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

/// `host[:port]` of a URI or Via.
pub(crate) fn host_port(text: &[u8]) -> Result<(&[u8], Option<u16>), Fault> {
    let host_end = if text.first() == Some(&b'[') {
        text.iter().position(|&b| b == b']').map(|at| at + 1).ok_or(Fault::bad("Address Without Bracket"))?
    } else {
        text.iter().position(|&b| b == b':').unwrap_or(text.len())
    };
    let (host, port) = text.split_at(host_end);
    let is_host = |b: &u8| b.is_ascii_alphanumeric() || b"-.[]:_".contains(b);
    if host.is_empty() || !host.iter().all(is_host) {
        return Err(Fault::bad("Host Is No Name"));
    }
    let port = match port.strip_prefix(b":") {
        None if port.is_empty() => None,
        None => return Err(Fault::bad("Port Is No Number")),
        Some(digits) => {
            let port = number(digits).and_then(|n| u16::try_from(n).ok()).filter(|&n| n > 0);
            Some(port.ok_or(Fault::bad("Port Is No Number"))?)
        }
    };
    Ok((host, port))
}

/// With `%HH` undone; others stay.
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
    fn what_is_no_uri_is_refused() {
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
    fn equal_users_have_one_address_of_record() {
        let of = |uri: &'static str| Uri::parse(uri.as_bytes()).unwrap().address_of_record();
        assert_eq!(of("sip:%61lice:pw@Example.COM:5060;x"), "alice@example.com");
        assert_ne!(of("sip:Alice@example.com"), of("sip:alice@example.com"));
    }
}
