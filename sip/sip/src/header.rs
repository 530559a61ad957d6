//! Header fields by name, with their original bytes.

use bytes::Bytes;

macro_rules! names {
    ($($variant:ident $long:literal $short:literal $doc:literal,)*) => {
        /// The name of a header field.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Name {
            $(#[doc = $doc] $variant,)*
            /// Any other name, which [`Header::raw`] contains.
            Other,
        }

        impl Name {
            /// Parses the long or the compact form of a name (RFC 3261 section 7.3.3). Case does not matter.
            pub fn from_bytes(name: &[u8]) -> Name {
                $(if name.eq_ignore_ascii_case($long.as_bytes()) { return Name::$variant; })*
                if let [letter] = name {
                    let letter = letter.to_ascii_lowercase() as char;
                    $(if $short == letter { return Name::$variant; })*
                }
                Name::Other
            }

            /// Returns the long form of the name. The result is empty for [`Name::Other`].
            pub fn as_str(self) -> &'static str {
                match self { $(Name::$variant => $long,)* Name::Other => "" }
            }
        }
    };
}

names! {
    Via "Via" 'v' "Section 20.42.",
    From "From" 'f' "Section 20.20.",
    To "To" 't' "Section 20.39.",
    CallId "Call-ID" 'i' "Section 20.8.",
    CSeq "CSeq" ' ' "Section 20.16.",
    Contact "Contact" 'm' "Section 20.10.",
    ContentLength "Content-Length" 'l' "Section 20.14.",
    MaxForwards "Max-Forwards" ' ' "Section 20.22.",
    MaxBreadth "Max-Breadth" ' ' "RFC 5393 section 5.3.1.",
    Route "Route" ' ' "Section 20.34.",
    RecordRoute "Record-Route" ' ' "Section 20.30.",
    Expires "Expires" ' ' "Section 20.19.",
    ProxyRequire "Proxy-Require" ' ' "Section 20.29.",
    Authorization "Authorization" ' ' "Section 20.7.",
    ProxyAuthorization "Proxy-Authorization" ' ' "Section 20.28.",
    WwwAuthenticate "WWW-Authenticate" ' ' "Section 20.44.",
    ProxyAuthenticate "Proxy-Authenticate" ' ' "Section 20.27.",
    RetryAfter "Retry-After" ' ' "Section 20.33.",
    Path "Path" ' ' "RFC 3327.",
    Supported "Supported" 'k' "Section 20.37.",
    Require "Require" ' ' "Section 20.32.",
    Unsupported "Unsupported" ' ' "Section 20.40.",
    Allow "Allow" ' ' "Section 20.5.",
    MinExpires "Min-Expires" ' ' "Section 20.23.",
    ContentType "Content-Type" 'c' "Section 20.15.",
}

/// One header field: a line with its continuation lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The field's name.
    pub name: Name,
    /// The whole field as received, including its name and CR LF.
    pub raw: Bytes,
    /// The field's value as received, including folds. White space at both ends is removed.
    pub value: Bytes,
}

impl Header {
    /// Creates a field. `value` must not contain line ends.
    pub fn new(name: Name, value: &str) -> Header {
        let raw = Bytes::from(format!("{}: {value}\r\n", name.as_str()));
        let start = name.as_str().len() + 2;
        Header { name, value: raw.slice(start..raw.len() - 2), raw }
    }

    /// Creates a field with a received value, which may be folded.
    pub(crate) fn of_bytes(name: Name, value: &[u8]) -> Header {
        let mut raw = Vec::with_capacity(name.as_str().len() + value.len() + 4);
        raw.extend_from_slice(name.as_str().as_bytes());
        raw.extend_from_slice(b": ");
        let start = raw.len();
        raw.extend_from_slice(value);
        let end = raw.len();
        raw.extend_from_slice(b"\r\n");
        let raw = Bytes::from(raw);
        Header { name, value: raw.slice(start..end), raw }
    }
}
