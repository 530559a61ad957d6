//! Parses the addresses (`name-addr` and `addr-spec`) of To, From, Contact, Route, Record-Route and Path (RFC 3261 section 20.10).

use crate::cursor::{Cursor, Params, is_space, is_token, split_list, trim};
use crate::fault::Fault;

/// One address with its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address<'a> {
    /// The URI as received; see [`Uri::parse`](crate::Uri::parse).
    pub uri: &'a [u8],
    params: Params<'a>,
}

impl<'a> Address<'a> {
    /// Parses one address.
    ///
    /// # Errors
    /// Returns 400 if the value does not follow the grammar.
    pub fn parse(value: &'a [u8]) -> Result<Address<'a>, Fault> {
        let mut cursor = Cursor::new(trim(value));
        let uri = if cursor.rest.first() == Some(&b'"') {
            cursor.quoted().ok_or(Fault::bad("Quoted String Without End"))?;
            cursor.skip_space();
            bracketed(&mut cursor)?
        } else if let Some(open) = cursor.rest.iter().position(|&b| b == b'<') {
            // An unquoted display name consists of tokens. RFC 4475 section 3.1.2.15 requires a rejection otherwise.
            if !cursor.rest[..open].iter().all(|&b| is_token(b) || is_space(b)) {
                return Err(Fault::bad("Display Name Is Not Quoted"));
            }
            cursor.rest = &cursor.rest[open..];
            bracketed(&mut cursor)?
        } else {
            bare(&mut cursor)?
        };
        let params = cursor.params()?;
        if cursor.rest.is_empty() {
            Ok(Address { uri, params })
        } else {
            Err(Fault::bad("Text After Address"))
        }
    }

    /// Returns the value of a parameter. The inner `None` means that the parameter has no value.
    pub fn param(&self, name: &str) -> Option<Option<&'a [u8]>> {
        self.params.get(name)
    }

    /// Returns the value of the `tag` parameter.
    pub fn tag(&self) -> Option<&'a [u8]> {
        self.param("tag").flatten()
    }
}

/// Parses all addresses in one field value, or in the joined values of several fields.
///
/// # Errors
/// Returns the same errors as [`Address::parse`].
pub fn addresses(value: &[u8]) -> Result<Vec<Address<'_>>, Fault> {
    split_list(value).map(Address::parse).collect()
}

fn bracketed<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Fault> {
    let inside = cursor.rest.strip_prefix(b"<").ok_or(Fault::bad("Text After Display Name"))?;
    let end = inside.iter().position(|&b| b == b'>').ok_or(Fault::bad("Address Without Bracket"))?;
    cursor.rest = &inside[end + 1..];
    let uri = &inside[..end];
    // RFC 4475 section 3.1.2.14: the grammar allows no white space around the URI.
    if uri.iter().any(|&b| is_space(b)) { Err(Fault::bad("Space In URI")) } else { Ok(uri) }
}

/// Parses an address without brackets. Parameters after the URI belong to the header field, not to the URI. The URI must not contain a
/// comma or a question mark (section 20).
fn bare<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Fault> {
    let uri = cursor.take_while(|b| b != b';' && !is_space(b));
    match uri {
        _ if uri.iter().any(|b| b",?".contains(b)) => Err(Fault::bad("URI That Needs Brackets")),
        b"" => Err(Fault::bad("Empty Address")),
        _ => Ok(uri),
    }
}
