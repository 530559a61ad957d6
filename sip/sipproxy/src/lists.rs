//! Lists contacts, dialogs and connections for the control socket and the page, as a whole or in parts.

use base::{Carrier, Time};
use mio::Token;
use ops::{ListPage, Part};
use sctp::PathInfo;
use sip::proxy::{self, Listener, Proxy};
use sip::{Binding, Hop};

use crate::config::Config;
use crate::transport::{ListenerIndex, Plugin, Seen};
use crate::words::{Answer, AssociationEncryption, Connection, Contact, Dialog, Path};

/// Lists the unexpired contacts of users, ordered by user. All contacts of a user are in one part.
pub(crate) fn contacts(now: Time, proxy: &Proxy, part: &Part) -> Answer {
    let row = |user: &str, binding: &Binding| Contact {
        user: part.text(user.as_bytes()),
        uri: part.text(&binding.uri),
        expires_s: binding.expires.since(now).as_secs(),
        transport: binding.flow.transport.as_lower_str().to_owned(),
        source: binding.flow.address.to_string(),
    };
    let all = proxy.location().after(part.after.as_deref()).map(|(user, bindings)| {
        let live = bindings.iter().filter(|binding| binding.expires > now);
        (user.to_owned(), live.map(|binding| row(user, binding)).collect())
    });
    let texts =
        |row: &Contact| [&row.user, &row.uri, &row.transport, &row.source].map(String::clone).to_vec();
    let ListPage { rows: contacts, left_out, next } = part.take(all, texts);
    Answer::Contacts { contacts, left_out, next }
}

/// Lists dialogs, the most recently active first.
///
/// # Errors
/// A sentence about the fault, if `after` is not a position in the list.
pub(crate) fn dialogs(now: Time, proxy: &Proxy, part: &Part) -> Result<Answer, String> {
    let row = |dialog: &proxy::Dialog| Dialog {
        kind: if dialog.is_call { "call" } else { "subscription" }.to_owned(),
        state: if dialog.answered.is_some() { "confirmed" } else { "early" }.to_owned(),
        age_s: now.since(dialog.answered.unwrap_or(dialog.began)).as_secs(),
        from: part.text(&dialog.from),
        to: part.text(&dialog.to),
        call_id: part.text(&dialog.call_id),
        caller: side(&dialog.caller),
        callees: dialog.callees.iter().map(side).collect(),
    };
    let all =
        proxy.dialogs(part.number_after()?).map(|dialog| (dialog.number().to_string(), vec![row(dialog)]));
    let texts = |row: &Dialog| {
        let own = [&row.from, &row.to, &row.call_id, &row.state, &row.caller];
        own.into_iter().chain(&row.callees).cloned().collect()
    };
    let ListPage { rows: dialogs, left_out, next } = part.take(all, texts);
    Ok(Answer::Dialogs { dialogs, left_out, next })
}

fn side(hop: &Hop) -> String {
    format!("{} {}", hop.transport.as_lower_str(), hop.address)
}

/// Lists connections and associations by listener, the oldest first.
///
/// # Errors
/// A sentence about the fault, if `after` is not a position in the list.
pub(crate) fn connections(
    plugins: &[Box<dyn Plugin>],
    config: &Config,
    part: &Part,
) -> Result<Answer, String> {
    let after = part.number_after()?.and_then(|after| usize::try_from(after).ok()).unwrap_or(0);
    let (first, number) = ListenerIndex::of_token(Token(after));
    let listeners = plugins.iter().zip(&config.proxy.listeners).enumerate().skip(first.0);
    let all = listeners.flat_map(|(at, (plugin, listener))| {
        let seen = plugin.seen(if at == first.0 { number } else { 0 });
        seen.map(move |seen| {
            (ListenerIndex(at).token(seen.number).0.to_string(), vec![connection(listener, seen)])
        })
    });
    let texts = |row: &Connection| {
        let paths = row.paths.iter().flat_map(|path| [path.remote.to_string(), path.state.clone()]);
        let own = [&row.transport, &row.local, &row.peer, &row.state].map(String::clone);
        own.into_iter().chain(paths).collect()
    };
    let ListPage { rows: connections, left_out, next } = part.take(all, texts);
    Ok(Answer::Connections { connections, left_out, next })
}

fn connection(listener: &Listener, seen: Seen) -> Connection {
    Connection {
        transport: listener.transport.as_lower_str().to_owned(),
        local: listener.address.to_string(),
        peer: seen.peer.to_string(),
        state: seen.state.to_owned(),
        waiting_bytes: seen.waiting_bytes,
        encryption: seen
            .peer_key
            .map(|peer| AssociationEncryption { peer_key: peer.key.to_string(), verified: peer.is_verified }),
        paths: seen.paths.iter().map(path).collect(),
    }
}

fn path(info: &PathInfo) -> Path {
    Path {
        local: Some(info.route.local).filter(|local| !local.is_unspecified()),
        remote: info.route.remote,
        carrier: if info.route.carrier == Carrier::Ip { "sctp" } else { "sctp-udp" }.to_owned(),
        state: info.state.as_str().to_owned(),
        primary: info.primary,
        in_use: info.in_use,
        srtt_us: info.srtt.map(|srtt| u64::try_from(srtt.as_micros()).unwrap_or(u64::MAX)),
        data_sent_bytes: info.new_data,
        retransmissions: info.retransmissions,
        timeouts: info.timeouts,
    }
}
