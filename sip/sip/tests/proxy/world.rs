//! A proxy for example.com with a virtual clock. The tests send and receive the messages of user agents, each of which has an address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;
use bytes::Bytes;
use md5::{Digest as _, Md5};
use sip::digest::Algorithm;
use sip::proxy::{Authentication, Listener, NextHop, Outgoing, Output, Proxy, ProxyConfig};
use sip::{Change, ConnectionId, Essentials, Hop, Limits, Message, Name, Transport, Via};

pub(crate) const ALICE: &str = "192.0.2.1:5060";
pub(crate) const BOB: &str = "192.0.2.2:5060";
pub(crate) const CAROL: &str = "192.0.2.3:5060";
/// Address of the proxy of other.example.
pub(crate) const OTHER: &str = "192.0.2.200:5060";

/// A message that the proxy sent.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) hop: Hop,
    pub(crate) domain: Option<std::sync::Arc<str>>,
    pub(crate) message: Message,
    pub(crate) on_failure: Option<u64>,
    pub(crate) is_new: bool,
}

impl Sent {
    pub(crate) fn to(&self) -> String {
        self.hop.address.to_string()
    }

    /// Returns the method or the status.
    pub(crate) fn what(&self) -> String {
        match self.message.method() {
            Some(method) => String::from_utf8_lossy(method.as_bytes()).into_owned(),
            None => self.message.status().to_string(),
        }
    }

    pub(crate) fn value(&self, name: Name) -> String {
        let value = self.message.first(name).cloned().unwrap_or_default();
        String::from_utf8_lossy(&value).into_owned()
    }

    pub(crate) fn branch(&self) -> Vec<u8> {
        let via = self.message.first(Name::Via).cloned().unwrap();
        Via::parse(&via).unwrap().branch().unwrap().to_vec()
    }

    /// Returns the response of a user agent to this request.
    pub(crate) fn answer(&self, status: u16) -> Message {
        self.message.response(status, "Whatever", "uas")
    }
}

pub(crate) struct World {
    pub(crate) proxy: Proxy,
    pub(crate) now: Time,
    pub(crate) changes: Vec<Change>,
    pub(crate) lookups: Vec<sip::proxy::Lookup>,
    pub(crate) queries: Vec<sip::proxy::Query>,
    cseq: u32,
}

pub(crate) fn config() -> ProxyConfig {
    let listener = |transport| Listener { transport, address: "192.0.2.100:5060".parse().unwrap() };
    ProxyConfig {
        domains: vec!["example.com".to_owned()],
        listeners: vec![listener(Transport::Udp), listener(Transport::Tcp)],
        next_hops: vec![NextHop {
            domain: "other.example".to_owned(),
            transport: Transport::Tcp,
            address: OTHER.parse().unwrap(),
        }],
        ..ProxyConfig::default()
    }
}

pub(crate) fn with_password() -> ProxyConfig {
    let passwords = BTreeMap::from([("alice".to_owned(), "secret".to_owned())]);
    let (realm, algorithms) = ("example.com".to_owned(), Algorithm::ALL.to_vec());
    let authentication = Some(Authentication { realm, passwords, algorithms });
    ProxyConfig { authentication, ..config() }
}

pub(crate) fn udp(address: &str) -> Hop {
    let address: SocketAddr = address.parse().unwrap();
    Hop { listener: 0, transport: Transport::Udp, address, connection: None }
}

pub(crate) fn tcp(address: &str, connection: u64) -> Hop {
    Hop { listener: 1, transport: Transport::Tcp, connection: Some(ConnectionId(connection)), ..udp(address) }
}

impl World {
    pub(crate) fn new(config: ProxyConfig) -> World {
        World::with_seed(config, [7; 32])
    }

    pub(crate) fn with_seed(config: ProxyConfig, seed: [u8; 32]) -> World {
        let proxy = Proxy::new(Time::ZERO, config, seed);
        World {
            proxy,
            now: Time::ZERO,
            changes: Vec::new(),
            lookups: Vec::new(),
            queries: Vec::new(),
            cseq: 0,
        }
    }

    pub(crate) fn put(&mut self, from: Hop, text: &str) -> Vec<Sent> {
        let text = text.trim_start().replace('\n', "\r\n");
        self.put_bytes(from, text.as_bytes())
    }

    pub(crate) fn put_bytes(&mut self, from: Hop, bytes: &[u8]) -> Vec<Sent> {
        self.proxy.handle_message(self.now, from, Bytes::copy_from_slice(bytes));
        self.sent()
    }

    pub(crate) fn put_message(&mut self, from: Hop, message: &Message) -> Vec<Sent> {
        self.put_bytes(from, &message.to_bytes())
    }

    /// Returns the messages sent since the last call.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        while let Some(output) = self.proxy.poll_output() {
            match output {
                Output::Store(change) => self.changes.push(change),
                Output::Resolve(lookup) => self.lookups.push(lookup),
                Output::Ask(query) => self.queries.push(query),
                Output::Send(out) => {
                    let message = Message::parse(out.bytes.clone(), &Limits::default()).unwrap();
                    // The rejection of a malformed request contains the malformed fields, so its required fields do not parse.
                    assert!(message.status() == 400 || Essentials::of(&message).is_ok(), "{message:?}");
                    let Outgoing { hop, domain, on_failure, is_new, .. } = out;
                    sent.push(Sent { hop, domain, message, on_failure, is_new });
                }
            }
        }
        sent
    }

    /// Lets time pass from timer to timer. Returns the messages sent.
    pub(crate) fn pass(&mut self, time: Duration) -> Vec<Sent> {
        let end = self.now + time;
        let mut sent = Vec::new();
        while self.proxy.next_timeout() <= end {
            self.now = self.proxy.next_timeout();
            self.proxy.handle_timeout(self.now);
            sent.extend(self.sent());
        }
        self.now = end;
        sent
    }

    /// Registers a user at an address, and returns the response.
    pub(crate) fn register(&mut self, user: &str, from: Hop, more: &str) -> Sent {
        self.cseq += 1;
        let (cseq, address) = (self.cseq, from.address);
        let transport = from.transport.as_lower_str();
        let contact = format!("Contact: <sip:{user}@{address};transport={transport}>\n");
        let more = if more.contains("Contact:") { more.to_owned() } else { contact + more };
        let text = request("REGISTER", "sip:example.com", user, user, &format!("r{cseq}"), from, &more);
        self.put(from, &text).pop().unwrap()
    }
}

/// Returns a request between users of example.com.
pub(crate) fn request(
    method: &str,
    uri: &str,
    from_user: &str,
    to_user: &str,
    branch: &str,
    from: Hop,
    more: &str,
) -> String {
    let (transport, address) = (from.transport.as_str(), from.address);
    let number = branch.trim_matches(|c: char| !c.is_ascii_digit());
    let number = if number.is_empty() { "1" } else { number };
    let max = if more.contains("Max-Forwards") { "" } else { "Max-Forwards: 70\n" };
    format!(
        "{method} {uri} SIP/2.0\nVia: SIP/2.0/{transport} {address};branch=z9hG4bK{branch}\n{max}\
         From: <sip:{from_user}@example.com>;tag=f\nTo: <sip:{to_user}@example.com>\nCall-ID: call\n\
         CSeq: {number} {method}\n{more}Content-Length: 0\n\n"
    )
}

/// Returns an INVITE from alice to bob.
pub(crate) fn invite(from: Hop, more: &str) -> String {
    let contact = format!("Contact: <sip:alice@{}>\n", from.address);
    request("INVITE", "sip:bob@example.com", "alice", "bob", "i1", from, &(contact + more))
}

/// Returns the `Route` fields of the caller's requests within the dialog of a forwarded request: its Record-Route in reverse order.
pub(crate) fn callers_routes(forwarded: &Sent) -> String {
    let routes: Vec<_> = forwarded.message.elements(Name::RecordRoute).collect();
    routes.iter().rev().map(|route| format!("Route: {}\n", String::from_utf8_lossy(route))).collect()
}

/// Returns a request from alice within the dialog that bob's answer ([`Sent::answer`]) created.
pub(crate) fn from_alice(method: &str, number: u32, forwarded: &Sent) -> String {
    let (uri, branch) = (format!("sip:bob@{BOB};transport=udp"), format!("{method}{number}"));
    let text = request(method, &uri, "alice", "bob", &branch, udp(ALICE), &callers_routes(forwarded));
    text.replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=uas")
}

/// Returns a summary of messages and their destinations.
pub(crate) fn summary(sent: &[Sent]) -> Vec<(String, String)> {
    sent.iter().map(|sent| (sent.what(), sent.to())).collect()
}

pub(crate) fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(what, to)| ((*what).to_owned(), (*to).to_owned())).collect()
}

fn md5(text: &str) -> String {
    Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns an answer to a challenge, for a REGISTER to example.com. Uses MD5, and no qop.
pub(crate) fn answer_to(challenge: &Sent, user: &str, password: &str) -> String {
    answer_for(challenge, user, password, "REGISTER", "sip:example.com")
}

/// Returns an answer to a challenge, for a request with this method and Request-URI. Uses MD5, and no qop.
pub(crate) fn answer_for(challenge: &Sent, user: &str, password: &str, method: &str, uri: &str) -> String {
    let (name, field) = match challenge.what().as_str() {
        "401" => (Name::WwwAuthenticate, "Authorization"),
        _ => (Name::ProxyAuthenticate, "Proxy-Authorization"),
    };
    let value = challenge.value(name);
    let nonce = value.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap();
    let (a1, a2) = (md5(&format!("{user}:example.com:{password}")), md5(&format!("{method}:{uri}")));
    let response = md5(&format!("{a1}:{nonce}:{a2}"));
    format!(
        "{field}: Digest username=\"{user}\",realm=\"example.com\",nonce=\"{nonce}\",uri=\"{uri}\",\
         response=\"{response}\"\n"
    )
}
