//! Registers the agent's user, refreshes the registration at half its lifetime, and removes it on request.

use std::time::Duration;

use base::Time;
use bytes::Bytes;
use rand_chacha::rand_core::Rng;

use super::{Agent, AgentEvent, Purpose, Sleeper, request};
use crate::address::Address;
use crate::cursor::number;
use crate::header::{Header, Name};
use crate::message::{Message, Method};

/// Base time and maximum of the wait after refreshes that found no registrar (RFC 5626 section 4.5, for a client with one registrar).
const RETRY: Duration = Duration::from_secs(30);
const RETRY_MAX: Duration = Duration::from_secs(1800);

/// Minimum time between two refreshes, whatever lifetime the registrar grants.
const REFRESH_MIN: Duration = Duration::from_secs(1);

/// The agent's registration. All its REGISTERs share a Call-ID (RFC 3261 section 10.2.4).
#[derive(Debug)]
pub(super) struct Registration {
    token: String,
    cseq: u32,
    /// The requested lifetime. A lifetime of zero removes the registration.
    expires: Duration,
    /// Time of the next REGISTER. [`Time::NEVER`] while a response is awaited, and without a registration.
    refresh_at: Time,
    /// True if the registrar accepted the previous REGISTER that had a response.
    is_accepted: bool,
    /// Number of consecutive refreshes that found no registrar.
    failures: u32,
}

impl Registration {
    pub(super) fn new(token: String) -> Registration {
        Registration {
            token,
            cseq: 0,
            expires: Duration::ZERO,
            refresh_at: Time::NEVER,
            is_accepted: false,
            failures: 0,
        }
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
        self.registration.refresh_at = Time::NEVER;
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

    /// Registers again if the refresh is due. An entry of the timers from before a newer REGISTER has no effect.
    pub(super) fn refresh(&mut self, now: Time) {
        if self.registration.refresh_at <= now {
            self.register(now, self.registration.expires);
        }
    }

    fn refresh_at(&mut self, time: Time) {
        self.registration.refresh_at = time;
        self.wake_at(time, Sleeper::Register);
    }

    /// Handles the response to REGISTER, or its absence. If no registrar is available for the refresh of an accepted registration, tries
    /// again later. A rejection is final.
    pub(super) fn on_registered(&mut self, now: Time, since: Time, status: u16, response: Option<&Message>) {
        let is_answer = response.is_some();
        let is_wanted = !self.registration.expires.is_zero();
        let Some(response) = response.filter(|_| (200..300).contains(&status)) else {
            let is_unavailable = matches!(status, 408 | 500..=599);
            self.registration.is_accepted &= is_unavailable;
            if is_wanted && self.registration.is_accepted {
                let wait = self.retry_wait();
                self.refresh_at(now + wait);
            }
            self.tell(AgentEvent::NotRegistered { status, is_answer });
            return;
        };
        (self.registration.is_accepted, self.registration.failures) = (true, 0);
        self.tell(AgentEvent::Registered { took: now.since(since) });
        if is_wanted {
            let granted = self.granted(response).unwrap_or(self.registration.expires);
            self.refresh_at(now + (granted / 2).max(REFRESH_MIN));
        }
    }

    /// Returns the wait after a refresh that found no registrar: a random part of a limit that doubles with each failure, from half of the
    /// limit to the whole. After an outage, the agents therefore do not all register at the same moment.
    fn retry_wait(&mut self) -> Duration {
        self.registration.failures += 1;
        let doublings = self.registration.failures.min(RETRY_MAX.as_secs().ilog2());
        let limit = (RETRY * (1 << doublings)).min(RETRY_MAX);
        let half = u64::try_from((limit / 2).as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(half + self.rng.next_u64() % (half + 1))
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
