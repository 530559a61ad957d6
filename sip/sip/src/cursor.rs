//! Reads grammar elements of RFC 3261 section 25.1 from the front of a byte slice.
//!
//! The value of a header field may contain folds (CR LF and white space). CR LF therefore counts as white space here. The line parser has
//! verified that a space or a tab follows each CR LF.

use crate::fault::Fault;

/// Limit on parameters of one header field value or URI.
pub(crate) const PARAMS_MAX: usize = 32;

/// Reports whether a byte may be part of a token.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(&byte)
}

/// Reports whether a byte is white space or part of a fold.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Removes white space at both ends.
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|&b| !is_space(b)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|&b| !is_space(b)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// Parses an unsigned decimal number. Returns `None` if other characters occur, or if the number exceeds 64 bits.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &d| sum.checked_mul(10)?.checked_add(u64::from(d - b'0')))
}

/// Parameters of the form `name` or `name=value`, in their order. Values are as received, including quotes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Params<'a>(Vec<(&'a [u8], Option<&'a [u8]>)>);

impl<'a> Params<'a> {
    /// Returns the value of a parameter. The inner `None` means that the parameter has no value. Names are case-insensitive.
    pub(crate) fn get(&self, name: &str) -> Option<Option<&'a [u8]>> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| *value)
    }

    /// Iterates over all parameters.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn push(&mut self, name: &'a [u8], value: Option<&'a [u8]>) -> Result<(), Fault> {
        if self.0.len() == PARAMS_MAX {
            return Err(Fault::bad("Too Many Parameters"));
        }
        self.0.push((name, value));
        Ok(())
    }
}

/// A reader of a byte slice. It contains the bytes that were not read yet.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Cursor<'a> {
        Cursor { rest }
    }

    pub(crate) fn skip_space(&mut self) {
        self.take_while(is_space);
    }

    pub(crate) fn take_while(&mut self, f: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|&b| !f(b)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Consumes a separator, such as SLASH, SEMI or EQUAL, with the white space around it. Returns false if the next byte after white
    /// space is not the separator.
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let mut ahead = *self;
        ahead.skip_space();
        if ahead.rest.first() != Some(&byte) {
            return false;
        }
        ahead.rest = &ahead.rest[1..];
        ahead.skip_space();
        *self = ahead;
        true
    }

    /// Reads a token of at least one character.
    pub(crate) fn token(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let token = ahead.take_while(is_token);
        if token.is_empty() {
            return None;
        }
        *self = ahead;
        Some(token)
    }

    /// Reads a quoted string, including its quotes. Returns `None` if the next byte is not a quote, or if the closing quote is missing.
    pub(crate) fn quoted(&mut self) -> Option<&'a [u8]> {
        if self.rest.first() != Some(&b'"') {
            return None;
        }
        let mut escaped = false;
        for (at, &byte) in self.rest.iter().enumerate().skip(1) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    let (quoted, rest) = self.rest.split_at(at + 1);
                    self.rest = rest;
                    return Some(quoted);
                }
                _ => {}
            }
        }
        None
    }

    /// Reads all parameters of the form `;name[=value]` that follow, and the white space after them.
    pub(crate) fn params(&mut self) -> Result<Params<'a>, Fault> {
        let mut params = Params::default();
        while self.eat(b';') {
            let name = self.token().ok_or(Fault::bad("Parameter Without Name"))?;
            let value = if self.eat(b'=') { Some(self.param_value()?) } else { None };
            params.push(name, value)?;
        }
        self.skip_space();
        Ok(params)
    }

    /// Reads a gen-value: a token, host or quoted string.
    fn param_value(&mut self) -> Result<&'a [u8], Fault> {
        let value = match self.rest.first() {
            Some(b'"') => self.quoted().ok_or(Fault::bad("Quoted String Without End"))?,
            _ => self.take_while(|b| is_token(b) || b"[]:".contains(&b)),
        };
        if value.is_empty() { Err(Fault::bad("Parameter Without Value")) } else { Ok(value) }
    }
}

/// Splits a list at its commas, except commas within quotes or angle brackets. White space around elements is removed. Empty elements are
/// included.
pub(crate) fn split_list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let end = first_comma(bytes);
        rest = end.map(|at| &bytes[at + 1..]);
        Some(trim(&bytes[..end.unwrap_or(bytes.len())]))
    })
}

/// Returns the position of the first comma outside of quotes and angle brackets.
pub(crate) fn first_comma(bytes: &[u8]) -> Option<usize> {
    let (mut quoted, mut escaped, mut angle) = (false, false, false);
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' if !angle => quoted = !quoted,
            b'<' if !quoted => angle = true,
            b'>' if !quoted => angle = false,
            b',' if !quoted && !angle => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_quotes_and_brackets_do_not_split() {
        let list = b"\"a,\\\"b\" <sip:x;p=1,2>;q=1 , <sip:y>";
        let found: Vec<_> = split_list(list).collect();
        assert_eq!(found, [&b"\"a,\\\"b\" <sip:x;p=1,2>;q=1"[..], b"<sip:y>"]);
    }

    #[test]
    fn a_number_that_does_not_fit_is_none() {
        assert_eq!(number(b"0068"), Some(68));
        assert_eq!(number(b"18446744073709551616"), None);
        assert_eq!(number(b"-1"), None);
        assert_eq!(number(b""), None);
    }

    #[test]
    fn parameters_are_bounded() {
        let many = b";a".repeat(PARAMS_MAX + 1);
        assert!(Cursor::new(&many[..2 * PARAMS_MAX]).params().is_ok());
        assert!(Cursor::new(&many).params().is_err());
    }
}
