//! A phone: its identity, its address, and the messages that it sends.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use sip::digest;
use sip::{Address, ConnectionId, Header, Hop, Message, Name, Transport};

/// Domain of the proxy and of all users.
pub(crate) const DOMAIN: &str = "example.com";
/// Address of the proxy on each of [`TRANSPORTS`].
pub(crate) const PROXY: &str = "192.0.2.1:5060";
/// Transports of the proxy's listeners, in the order of the listeners. Each phone uses one of these transports.
pub(crate) const TRANSPORTS: [Transport; 3] = [Transport::Udp, Transport::Tcp, Transport::Sctp];
/// SDP body of all offers and answers.
const SESSION: &str = "v=0\r\no=- 1 1 IN IP4 10.0.0.1\r\ns=-\r\nc=IN IP4 10.0.0.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0 8 101\r\n\
                       a=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\na=ptime:20\r\na=sendrecv\r\n";

/// A user's phone, with its own address.
#[derive(Clone, Debug)]
pub(crate) struct Phone {
    pub(crate) number: u32,
    /// Number of restarts. The port, the connection and the Call-ID of registrations change with each restart.
    pub(crate) restarts: u16,
    pub(crate) cseq: u32,
    /// Registration lifetime to request, in seconds. 0 removes the registration.
    pub(crate) wanted_s: u32,
    /// True if the phone is on. Otherwise it receives nothing.
    pub(crate) is_on: bool,
}

/// Identity of one side of a call, as in From and To.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) user: u32,
    pub(crate) tag: Option<String>,
}

/// Contents of a request to build.
pub(crate) struct Wanted<'a> {
    pub(crate) method: &'a str,
    pub(crate) uri: &'a str,
    pub(crate) from: &'a Side,
    pub(crate) to: &'a Side,
    pub(crate) call_id: &'a str,
    pub(crate) cseq: u32,
    pub(crate) branch: &'a str,
    /// Further header fields, each with its line end.
    pub(crate) more: &'a str,
}

impl Phone {
    pub(crate) fn new(number: u32) -> Phone {
        Phone { number, restarts: 0, cseq: 0, wanted_s: 0, is_on: true }
    }

    pub(crate) fn user(&self) -> String {
        user(self.number)
    }

    /// Reports whether the phone registers a flow (RFC 5626). Half of the phones do.
    fn is_by_flow(&self) -> bool {
        self.number / 3 % 2 == 1
    }

    fn transport(&self) -> Transport {
        TRANSPORTS[self.listener()]
    }

    fn listener(&self) -> usize {
        self.number as usize % TRANSPORTS.len()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let [_, a, b, c] = self.number.to_be_bytes();
        (Ipv4Addr::new(10, a, b, c), 5060 + self.restarts % 1000).into()
    }

    /// Returns the hop from which the phone's messages come.
    pub(crate) fn hop(&self) -> Hop {
        let number = (u64::from(self.number) << 16) | u64::from(self.restarts);
        let connection = self.transport().is_reliable().then_some(ConnectionId(number));
        Hop { listener: self.listener(), transport: self.transport(), address: self.address(), connection }
    }

    /// Reports whether a message to `hop` reaches this phone.
    pub(crate) fn hears(&self, hop: Hop) -> bool {
        self.is_on && hop.address == self.address()
    }

    fn contact(&self) -> String {
        let transport = self.transport().as_lower_str();
        format!("<sip:{}@{};transport={transport}>", self.user(), self.address())
    }

    pub(crate) fn restart(&mut self) {
        self.restarts = self.restarts.wrapping_add(1);
        self.cseq = 0;
    }

    /// Builds a REGISTER. `credentials` is a header field with its line end, or empty.
    pub(crate) fn register(&mut self, credentials: &str) -> String {
        self.cseq += 1;
        let own = Side { user: self.number, tag: Some(format!("r{}", self.restarts)) };
        let to = Side { user: self.number, tag: None };
        let instance = match self.is_by_flow() {
            true => format!(";+sip.instance=\"<urn:uuid:{:032x}>\";reg-id=1", self.number),
            false => String::new(),
        };
        let (number, cseq, restarts) = (self.number, self.cseq, self.restarts);
        let (contact, expires) = (self.contact(), self.wanted_s);
        let more = format!("Contact: {contact}{instance}\r\nExpires: {expires}\r\n{credentials}");
        self.request(&Wanted {
            method: "REGISTER",
            uri: &format!("sip:{DOMAIN}"),
            from: &own,
            to: &to,
            call_id: &format!("{number}.{restarts}"),
            cseq,
            branch: &format!("z9hG4bKr{number}.{restarts}.{cseq}"),
            more: &more,
        })
    }

    pub(crate) fn request(&self, wanted: &Wanted<'_>) -> String {
        let Wanted { method, uri, from, to, call_id, cseq, branch, more } = wanted;
        let (transport, address) = (self.transport().as_str(), self.address());
        let (from, to) = (from.value(), to.value());
        let (contact, body) = match *method {
            "INVITE" => {
                (format!("Contact: {}\r\nContent-Type: application/sdp\r\n", self.contact()), SESSION)
            }
            _ => (String::new(), ""),
        };
        let length = body.len();
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/{transport} {address};rport;branch={branch}\r\nMax-Forwards: 70\r\n\
             From: {from}\r\nTo: {to}\r\nCall-ID: {call_id}\r\nCSeq: {cseq} {method}\r\n{contact}{more}\
             User-Agent: standing\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    }

    /// Builds this phone's response to a request. Responses 180 to 299 to an INVITE also carry Record-Route and Contact.
    pub(crate) fn answer(&self, request: &Message, status: u16, tag: &str) -> Bytes {
        let mut response = request.response(status, "Answer", tag);
        let is_invite = request.method().is_some_and(|method| method.as_bytes() == b"INVITE");
        if is_invite && (180..300).contains(&status) {
            let at = response.headers.len() - 1;
            let recorded = request.all(Name::RecordRoute).cloned();
            response.headers.splice(at..at, recorded);
            response.push(Header::new(Name::Contact, &self.contact()));
        }
        if is_invite && status == 200 {
            response.set(Header::new(Name::ContentLength, &SESSION.len().to_string()));
            response.push(Header::new(Name::ContentType, "application/sdp"));
            response.body = Bytes::from_static(SESSION.as_bytes());
        }
        response.to_bytes()
    }

    /// Builds the header field that answers a challenge, including the line end.
    pub(crate) fn credentials(&self, challenged: &Message, method: &str, uri: &str) -> String {
        let (asked, answered) = match challenged.status() {
            401 => (Name::WwwAuthenticate, Name::Authorization),
            _ => (Name::ProxyAuthenticate, Name::ProxyAuthorization),
        };
        let (user, password) = (self.user(), password(self.number));
        let answer = |header: &Header| {
            digest::answer(&header.value, &user, &password, method.as_bytes(), uri.as_bytes(), "cnonce")
        };
        let value = challenged.all(asked).find_map(answer).unwrap_or_default();
        format!("{}: {value}\r\n", answered.as_str())
    }
}

impl Side {
    fn value(&self) -> String {
        let tag = self.tag.as_deref().map(|tag| format!(";tag={tag}")).unwrap_or_default();
        format!("<sip:{}@{DOMAIN}>{tag}", user(self.user))
    }
}

pub(crate) fn user(number: u32) -> String {
    format!("u{number}")
}

pub(crate) fn password(number: u32) -> String {
    format!("secret{number}")
}

/// Returns the number of the phone at an address.
pub(crate) fn number_at(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V4(address) => Some(address.ip().to_bits() & 0x00ff_ffff),
        SocketAddr::V6(_) => None,
    }
}

/// Builds the Route fields of a request from a message's Record-Route. For the caller, the order is reversed, because Record-Route begins
/// with the proxy next to the callee.
pub(crate) fn routes_of(message: &Message, is_caller: bool) -> String {
    let mut recorded: Vec<&[u8]> = message.elements(Name::RecordRoute).collect();
    if is_caller {
        recorded.reverse();
    }
    recorded.iter().map(|route| format!("Route: {}\r\n", String::from_utf8_lossy(route))).collect()
}

/// Returns the URI of a message's Contact.
pub(crate) fn contact_of(message: &Message) -> String {
    let contact = message.first(Name::Contact).and_then(|value| Address::parse(value).ok());
    contact.map(|contact| String::from_utf8_lossy(contact.uri).into_owned()).unwrap_or_default()
}

/// Returns a header field's first value, or an empty text.
pub(crate) fn text_of(message: &Message, name: Name) -> String {
    message.first(name).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}
