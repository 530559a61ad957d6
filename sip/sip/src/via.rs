//! Parses one value of Via (RFC 3261 section 20.42, RFC 3581).

use std::net::IpAddr;

use crate::cursor::{Cursor, Params, is_token, number, trim};
use crate::fault::Fault;
use crate::uri::host_port;

/// Prefix of branches that follow RFC 3261.
const COOKIE: &[u8] = b"z9hG4bK";

/// One value of Via. It contains the address of a hop on the message's path, and the branch of the transaction at this hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Via<'a> {
    /// `UDP`, `TCP`, `SCTP`, or any other token.
    pub transport: &'a [u8],
    /// Host of sent-by.
    pub host: &'a [u8],
    /// Port of sent-by, if present.
    pub port: Option<u16>,
    sent_by: &'a [u8],
    params: Params<'a>,
}

impl<'a> Via<'a> {
    /// Parses one Via value.
    ///
    /// # Errors
    /// Returns 400 if the value does not follow the grammar.
    pub fn parse(value: &'a [u8]) -> Result<Via<'a>, Fault> {
        const BAD: Fault = Fault::bad("Via Is Malformed");
        let mut cursor = Cursor::new(trim(value));
        let name = cursor.token().ok_or(BAD)?;
        let version = cursor.eat(b'/').then(|| cursor.token()).flatten().ok_or(BAD)?;
        let transport = cursor.eat(b'/').then(|| cursor.token()).flatten().ok_or(BAD)?;
        if !name.eq_ignore_ascii_case(b"SIP") || version != b"2.0" {
            return Err(BAD);
        }
        cursor.skip_space();
        let sent_by = cursor.take_while(|b| is_token(b) || b"[]:".contains(&b));
        let (host, port) = host_port(sent_by)?;
        let params = cursor.params()?;
        if !cursor.rest.is_empty() {
            return Err(BAD);
        }
        Ok(Via { transport, host, port, sent_by, params })
    }

    /// Returns `branch` if it has the form of RFC 3261: the magic cookie and at least one further byte (section 8.1.1.7; RFC 4475
    /// section 3.2.1).
    pub fn branch(&self) -> Option<&'a [u8]> {
        let branch = self.param("branch").flatten()?;
        let (cookie, rest) = branch.split_at_checked(COOKIE.len())?;
        (cookie.eq_ignore_ascii_case(COOKIE) && !rest.is_empty()).then_some(branch)
    }

    /// Returns sent-by (host and port) as received.
    pub fn sent_by(&self) -> &'a [u8] {
        self.sent_by
    }

    /// Reports whether `rport` is present (RFC 3581). Without a value, the parameter requests the source port. With a value, the parameter
    /// contains the source port.
    pub fn has_rport(&self) -> bool {
        self.param("rport").is_some()
    }

    /// Returns `received` if it is an IP address.
    pub fn received(&self) -> Option<IpAddr> {
        parse_ip(self.param("received").flatten()?)
    }

    /// Returns the port in `rport`, if present.
    pub fn rport(&self) -> Option<u16> {
        number(self.param("rport").flatten()?).and_then(|port| u16::try_from(port).ok())
    }

    /// Returns the value of a parameter. The inner `None` means that the parameter has no value.
    pub fn param(&self, name: &str) -> Option<Option<&'a [u8]>> {
        self.params.get(name)
    }

    /// Returns the Via value with the source address of its message in `received`. If the client requested `rport`, `rport` has the
    /// source port (RFC 3261 section 18.2.1, RFC 3581 section 4). If sent-by already has the source address, and `rport` was not
    /// requested, nothing is added.
    pub fn with_source(&self, source: IpAddr, port: u16) -> Vec<u8> {
        let mut out = [b"SIP/2.0/", self.transport, b" ", self.sent_by].concat();
        let has_rport = self.has_rport();
        for (name, value) in self.params.iter() {
            if name.eq_ignore_ascii_case(b"received") || name.eq_ignore_ascii_case(b"rport") {
                continue;
            }
            out.push(b';');
            out.extend_from_slice(name);
            if let Some(value) = value {
                out.push(b'=');
                out.extend_from_slice(value);
            }
        }
        if has_rport {
            out.extend_from_slice(format!(";received={source};rport={port}").as_bytes());
        } else if parse_ip(self.host) != Some(source) {
            out.extend_from_slice(format!(";received={source}").as_bytes());
        }
        out
    }
}

/// Parses an IP address. An IPv6 address may have brackets.
pub(crate) fn parse_ip(host: &[u8]) -> Option<IpAddr> {
    let host = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
    std::str::from_utf8(host).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_noted_as_rfc_3581_says() {
        let via = Via::parse(b"SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bKa;rport;x=\"y\"").unwrap();
        let noted = via.with_source("192.0.2.7".parse().unwrap(), 4711);
        let text = "SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bKa;x=\"y\";received=192.0.2.7;rport=4711";
        assert_eq!(String::from_utf8(noted.clone()).unwrap(), text);
        let noted = Via::parse(&noted).unwrap();
        assert_eq!((noted.received(), noted.rport()), ("192.0.2.7".parse().ok(), Some(4711)));
    }

    #[test]
    fn a_via_with_the_true_source_address_gets_no_received() {
        let value = b"SIP/2.0/TCP 192.0.2.7;branch=z9hG4bKa";
        let via = Via::parse(value).unwrap();
        assert_eq!(via.with_source("192.0.2.7".parse().unwrap(), 1), value);
    }

    #[test]
    fn a_branch_needs_the_magic_cookie_and_a_value_after_it() {
        let branch = |text: &'static str| Via::parse(text.as_bytes()).unwrap().branch();
        assert_eq!(branch("SIP/2.0/UDP a;branch=z9hG4bK"), None);
        assert_eq!(branch("SIP/2.0/UDP a;branch=390skdjuw"), None);
        assert_eq!(branch("SIP / 2.0 / UDP a ; branch = z9hG4bKx"), Some(&b"z9hG4bKx"[..]));
    }
}
