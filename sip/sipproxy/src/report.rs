//! The proxy's state, for the control socket and as metrics. Begin with [`answer`].

use base::Time;
use ops::MetricsText;
use sip::proxy::Proxy;

use crate::config::Config;
use crate::lists;
use crate::performance::Performance;
use crate::stage::Stage;
use crate::store::{Shared, Store};
use crate::transport::Plugin;
use crate::words::{Answer, Question, Status};

/// The state of the store.
pub(crate) struct StoreReport {
    /// The store's name and state, for people. Empty without a store.
    text: String,
    /// Reachability of the store's server, and the number of failures. `None` if the store is not on a server.
    server: Option<(bool, u64)>,
}

impl StoreReport {
    /// Describes the configured store.
    pub(crate) fn of(config: &Config, store: &Store) -> StoreReport {
        let text = config.store.as_ref().map(ToString::to_string).unwrap_or_default();
        let Some(state) = store.shared().map(Shared::state) else {
            return StoreReport { text, server: None };
        };
        let is_up = state.is_up();
        let how = if is_up { "reachable".to_owned() } else { format!("not reachable: {}", state.problem()) };
        StoreReport { text: format!("{text} {how}"), server: Some((is_up, state.failures())) }
    }
}

/// Answers a read-only question. `plugins` has one plug-in per listener.
pub(crate) fn answer(
    question: &Question,
    now: Time,
    proxy: &Proxy,
    stage: Stage,
    config: &Config,
    plugins: &[Box<dyn Plugin>],
    store: StoreReport,
) -> Answer {
    match question {
        Question::Status => Answer::Status(Box::new(status(now, proxy, stage, config, plugins, store))),
        Question::Performance => Answer::Performance(Box::new(Performance::of(proxy.performance()))),
        Question::Contacts(part) => lists::contacts(now, proxy, part),
        Question::Dialogs(part) => lists::dialogs(now, proxy, part).unwrap_or_else(refused),
        Question::Connections(part) => lists::connections(plugins, config, part).unwrap_or_else(refused),
        Question::Trace(_) => refused("a trace is not a list".to_owned()),
    }
}

fn refused(reason: String) -> Answer {
    Answer::Refused { reason }
}

fn status(
    now: Time,
    proxy: &Proxy,
    stage: Stage,
    config: &Config,
    plugins: &[Box<dyn Plugin>],
    store: StoreReport,
) -> Status {
    let drains_until = if let Stage::Draining { until } = stage { Some(until) } else { None };
    let (counters, transactions) = (proxy.counters(), proxy.transactions());
    let listeners = config.proxy.listeners.iter();
    Status {
        version: version::FULL.to_owned(),
        uptime_s: now.as_millis() / 1000,
        state: stage.as_str().to_owned(),
        transactions_left: proxy.transactions_left(),
        drain_ends_in_s: drains_until.map(|until| until.since(now).as_secs()),
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
        denied: counters.denied,
        limited: counters.limited,
        invites: counters.invites,
        responses: counters.responses,
        dialogs: proxy.dialog_count(),
        connections: plugins.iter().map(|plugin| plugin.connections()).collect(),
        store: store.text,
        store_up: store.server.map(|(is_up, _)| is_up),
        store_failures: store.server.map_or(0, |(_, failures)| failures),
        store_waiting: proxy.waiting_for_store(),
        unanswered: counters.unanswered,
        late: counters.late,
    }
}

/// Returns the metrics for Prometheus.
pub(crate) fn metrics(status: &Status) -> MetricsText {
    let mut out = MetricsText::default();
    out.one("sctpify_sip_up_seconds", "gauge", "Time since the proxy started.", status.uptime_s);
    out.one("sctpify_sip_users", "gauge", "Users with contacts.", status.users);
    out.one("sctpify_sip_contacts", "gauge", "Contacts of users.", status.contacts);
    out.one("sctpify_sip_dialogs", "gauge", "Known calls and subscriptions.", status.dialogs);
    let (name, is_draining) = ("sctpify_sip_draining", u8::from(status.transactions_left.is_some()));
    out.one(name, "gauge", "1 while the proxy drains and refuses new work.", is_draining);
    if let Some(left) = status.transactions_left {
        let name = "sctpify_sip_transactions_left";
        out.one(name, "gauge", "Transactions that the drain waits for.", left);
    }
    if let Some(is_up) = status.store_up {
        let name = "sctpify_sip_store_up";
        out.one(name, "gauge", "1 if the shared store answers and reports changes.", u8::from(is_up));
        let name = "sctpify_sip_store_waiting";
        out.one(name, "gauge", "Requests waiting for the shared store.", status.store_waiting);
    }
    out.head("sctpify_sip_transactions", "gauge", "Transactions, including completed ones.");
    for (side, value) in [("server", status.server_transactions), ("client", status.client_transactions)] {
        out.series("sctpify_sip_transactions", &[("side", &side)], value);
    }
    out.head("sctpify_sip_connections", "gauge", "Connections and associations of each listener.");
    for (listener, connections) in status.listeners.iter().zip(&status.connections) {
        out.series("sctpify_sip_connections", &[("listener", listener)], connections);
    }
    out.head("sctpify_sip_responses_total", "counter", "Responses to new requests, by class.");
    for (class, count) in status.responses.iter().enumerate() {
        let class = format!("{}xx", class + 1);
        out.series("sctpify_sip_responses_total", &[("class", &class)], count);
    }
    for (name, help, value) in [
        ("requests", "Well-formed new requests.", status.requests),
        ("invites", "New INVITEs outside dialogs.", status.invites),
        ("calls", "INVITEs answered with 2xx.", status.calls),
        ("registrations", "REGISTERs answered with 200.", status.registrations),
        ("retransmissions", "Retransmitted messages received.", status.retransmissions),
        ("dropped", "Discarded input: invalid messages, and responses without transaction.", status.dropped),
        ("overloads", "Requests refused because of overload.", status.overloads),
        ("denied", "Requests refused because of their source.", status.denied),
        ("limited", "Requests above their source's rate limit.", status.limited),
        ("timeouts", "Client transactions without an answer.", status.timeouts),
        ("store_failures", "Failures to reach the shared store.", status.store_failures),
        ("unanswered", "Requests without an answer from the shared store.", status.unanswered),
        ("late", "Requests refused because the proxy drains.", status.late),
    ] {
        out.one(&format!("sctpify_sip_{name}_total"), "counter", help, value);
    }
    out
}
