//! Registers the agent's user, refreshes the registration at half its lifetime, and removes it on request.

use std::time::Duration;

use base::Time;
use bytes::Bytes;

use super::{Agent, AgentEvent, Purpose, Sleeper, request};
use crate::address::Address;
use crate::cursor::number;
use crate::header::{Header, Name};
use crate::message::{Message, Method};

/// The agent's registration. All its REGISTERs share a Call-ID (RFC 3261 section 10.2.4).
#[derive(Debug)]
pub(super) struct Registration {
    token: String,
    cseq: u32,
    /// The requested lifetime. A lifetime of zero removes the registration.
    expires: Duration,
}

impl Registration {
    pub(super) fn new(token: String) -> Registration {
        Registration { token, cseq: 0, expires: Duration::ZERO }
    }

    pub(super) fn next_cseq(&mut self) -> u32 {
        self.cseq += 1;
        self.cseq
    }
}

impl Agent {
    /// Registers for `expires`, rounded down to seconds, and refreshes the registration before its expiry. If `expires` is zero, removes
    /// the registration.
    pub fn register(&mut self, now: Time, expires: Duration) {
        self.registration.expires = expires;
        let cseq = self.registration.next_cseq();
        let (user, domain, token) = (&self.config.user, &self.config.domain, &self.registration.token);
        let headers = vec![
            Header::new(Name::From, &format!("<sip:{user}@{domain}>;tag={}", &token[..8])),
            Header::new(Name::To, &format!("<sip:{user}@{domain}>")),
            Header::new(Name::CallId, token),
            Header::new(Name::CSeq, &format!("{cseq} REGISTER")),
            Header::new(Name::Contact, &self.contact()),
            Header::new(Name::Expires, &expires.as_secs().to_string()),
        ];
        let uri = Bytes::from(format!("sip:{domain}"));
        let register = request(Method::Register, uri, headers, Bytes::new());
        let hop = self.config.proxy;
        self.start_client(now, Purpose::Register { since: now }, hop, register, false);
    }

    pub(super) fn refresh(&mut self, now: Time) {
        if !self.registration.expires.is_zero() {
            self.register(now, self.registration.expires);
        }
    }

    pub(super) fn on_registered(&mut self, now: Time, since: Time, status: u16, response: Option<&Message>) {
        let is_answer = response.is_some();
        let Some(response) = response.filter(|_| (200..300).contains(&status)) else {
            self.tell(AgentEvent::NotRegistered { status, is_answer });
            return;
        };
        self.tell(AgentEvent::Registered { took: now.since(since) });
        if !self.registration.expires.is_zero() {
            let granted = self.granted(response).unwrap_or(self.registration.expires);
            self.wake_at(now + granted / 2, Sleeper::Register);
        }
    }

    /// Returns the lifetime that the registrar granted our contact, if the response contains it.
    fn granted(&self, response: &Message) -> Option<Duration> {
        let ours = self.contact();
        let is_ours = |contact: &Address<'_>| contact.uri == &ours.as_bytes()[1..ours.len() - 1];
        let contacts = response.elements(Name::Contact).filter_map(|contact| Address::parse(contact).ok());
        let expires = contacts.filter(is_ours).find_map(|contact| contact.param("expires").flatten());
        expires.and_then(number).map(Duration::from_secs)
    }
}
