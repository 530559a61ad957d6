//! What goes on, in the control socket's words.

use base::Time;
use sip::proxy::Proxy;

use crate::config::Config;
use crate::control_socket::{Answer, CONTACTS_MAX, Contact, Question, Status};

/// Answers a question.
pub(crate) fn answer(question: Question, now: Time, proxy: &Proxy, config: &Config) -> Answer {
    match question {
        Question::Status => Answer::Status(status(now, proxy, config)),
        Question::Contacts => contacts(now, proxy),
    }
}

fn status(now: Time, proxy: &Proxy, config: &Config) -> Status {
    let (counters, transactions) = (proxy.counters(), proxy.transactions());
    let listeners = config.proxy.listeners.iter();
    Status {
        uptime_s: now.as_millis() / 1000,
        listeners: listeners.map(|l| format!("{} {}", l.transport.as_lower_str(), l.address)).collect(),
        users: proxy.location().users(),
        contacts: proxy.location().contacts(),
        server_transactions: transactions.0,
        client_transactions: transactions.1,
        requests: counters.requests,
        retransmissions: counters.retransmissions,
        dropped: counters.dropped,
        overloads: counters.overloads,
        registrations: counters.registrations,
        calls: counters.calls,
        timeouts: counters.timeouts,
    }
}

fn contacts(now: Time, proxy: &Proxy) -> Answer {
    let all = proxy.location().iter().flat_map(|(user, bindings)| bindings.iter().map(move |b| (user, b)));
    let mut live = all.filter(|(_, binding)| binding.expires > now);
    let listed = live.by_ref().take(CONTACTS_MAX).map(|(user, binding)| Contact {
        user: user.to_owned(),
        uri: String::from_utf8_lossy(&binding.uri).into_owned(),
        expires_s: binding.expires.since(now).as_secs(),
        transport: binding.flow.transport.as_lower_str().to_owned(),
        source: binding.flow.address.to_string(),
    });
    let contacts = listed.collect();
    Answer::Contacts { contacts, left_out: live.count() }
}
