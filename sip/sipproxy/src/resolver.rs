//! Looks up SIP domains in DNS by RFC 3263: NAPTR, SRV, then addresses.
//!
//! A few threads query the configured name servers over UDP, and over TCP if an answer was truncated. The loop never waits for a thread.
//! `hickory-proto` parses and writes DNS messages. The proxy core caches the results.
//!
//! Invariants:
//!
//! - Each [`Lookup`] gets one result. The result has no targets if DNS has no targets or does not answer.
//! - Up to [`QUEUE_MAX`] lookups wait.
//! - A result has up to [`TARGETS_MAX`] targets.
//!
//! Begin with [`Resolver::open`].

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use mio::Waker;
use rand::RngExt as _;
use sip::Transport;
use sip::proxy::{Listener, Lookup, ResolvedTarget};

use crate::error::SipError;

/// Number of resolver threads.
const THREADS: usize = 4;
/// Limit on lookups that wait for a thread.
const QUEUE_MAX: usize = 10_000;
/// Limit on targets per name.
const TARGETS_MAX: usize = 16;
/// Limit on the SRV records or NAPTR services that are examined per name.
const RECORDS_MAX: usize = 32;
/// Time limit for one answer of one name server.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Number of rounds over all name servers, per query.
const TRIES: usize = 2;
/// Limit on the lifetime of a result.
const GOOD_MAX: Duration = Duration::from_secs(3600);
/// Lifetime of a result without targets.
const GOOD_FOR_NONE: Duration = Duration::from_secs(30);

/// The result of a lookup.
pub(crate) struct Resolved {
    /// The lookup that this result answers.
    pub(crate) lookup: Lookup,
    /// The targets, the preferred one first.
    pub(crate) targets: Vec<ResolvedTarget>,
    /// Lifetime of the result.
    pub(crate) good_for: Duration,
}

/// The event loop's handle to the resolver threads.
pub(crate) struct Resolver {
    asked: SyncSender<Lookup>,
    resolved: Receiver<Resolved>,
}

impl Resolver {
    /// Starts the threads, which wake the loop with each result.
    ///
    /// # Errors
    /// If the kernel cannot start a thread.
    pub(crate) fn open(
        servers: &[SocketAddr],
        listeners: &[Listener],
        waker: &Arc<Waker>,
    ) -> Result<Resolver, SipError> {
        let (asked, lookups) = sync_channel::<Lookup>(QUEUE_MAX);
        // The channel has room for all lookups that wait or are in progress, so a thread never waits for the loop.
        let (answer, resolved) = sync_channel(QUEUE_MAX + THREADS);
        let lookups = Arc::new(Mutex::new(lookups));
        for _ in 0..THREADS {
            let (lookups, answer, waker) = (lookups.clone(), answer.clone(), waker.clone());
            let dns = Dns { servers: servers.to_vec(), listeners: listeners.to_vec() };
            let run = move || {
                loop {
                    let next = lookups.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(lookup) = next else { return };
                    let found = dns.targets(&lookup);
                    let good_for = found.good_for();
                    let resolved = Resolved { lookup, targets: found.targets, good_for };
                    if answer.send(resolved).is_err() || waker.wake().is_err() {
                        return;
                    }
                }
            };
            let spawned = std::thread::Builder::new().name("resolver".to_owned()).spawn(run);
            spawned.map_err(SipError::system("start a thread"))?;
        }
        Ok(Resolver { asked, resolved })
    }

    /// Submits a lookup. If the queue is full, returns an empty result at once.
    pub(crate) fn ask(&self, lookup: Lookup) -> Option<Resolved> {
        let refused = self.asked.try_send(lookup).err()?;
        let (std::sync::mpsc::TrySendError::Full(lookup)
        | std::sync::mpsc::TrySendError::Disconnected(lookup)) = refused;
        Some(Resolved { lookup, targets: Vec::new(), good_for: Duration::ZERO })
    }

    /// Returns the next result, if one is ready.
    pub(crate) fn next(&self) -> Option<Resolved> {
        self.resolved.try_recv().ok()
    }
}

/// Targets of a lookup, and the lowest TTL, in seconds, of the records that led to the targets.
#[derive(Debug, Default)]
struct Found {
    targets: Vec<ResolvedTarget>,
    ttl: Option<u32>,
}

impl Found {
    fn note(&mut self, record: &Record) {
        self.ttl = Some(self.ttl.map_or(record.ttl(), |ttl| ttl.min(record.ttl())));
    }

    fn good_for(&self) -> Duration {
        match self.ttl.filter(|_| !self.targets.is_empty()) {
            Some(seconds) => Duration::from_secs(seconds.into()).min(GOOD_MAX),
            None => GOOD_FOR_NONE,
        }
    }
}

/// The servers to query, and the listeners, which limit the usable transports and address families.
struct Dns {
    servers: Vec<SocketAddr>,
    listeners: Vec<Listener>,
}

impl Dns {
    /// Resolves a lookup by RFC 3263 sections 4.1 and 4.2.
    fn targets(&self, lookup: &Lookup) -> Found {
        let mut found = Found::default();
        let usual =
            if lookup.is_secure { Transport::Tls } else { lookup.transport.unwrap_or(Transport::Udp) };
        if let Some(port) = lookup.port {
            self.addresses(&lookup.name, port, usual, &mut found);
            return found;
        }
        let is_named = lookup.is_secure || lookup.transport.is_some();
        let services = if is_named { Vec::new() } else { self.naptr(&lookup.name, &mut found) };
        let services = match services {
            none if none.is_empty() => {
                let all = if is_named { vec![usual] } else { self.transports() };
                all.into_iter().map(|t| (t, format!("{}.{}", srv_prefix(t), lookup.name))).collect()
            }
            some => some,
        };
        for (transport, name) in services {
            for (target, port) in self.srv(&name, &mut found) {
                self.addresses(&target, port, transport, &mut found);
            }
        }
        if found.targets.is_empty() {
            self.addresses(&lookup.name, usual.default_port(), usual, &mut found);
        }
        found
    }

    /// Returns the transports of the proxy's listeners, each once, in the configuration's order.
    fn transports(&self) -> Vec<Transport> {
        let mut known = Vec::new();
        for listener in &self.listeners {
            if !known.contains(&listener.transport) {
                known.push(listener.transport);
            }
        }
        known
    }

    /// Returns the transports that the NAPTR records offer, each with the name of its SRV records. The transports are sorted by order and
    /// preference. Transports without a listener are left out.
    fn naptr(&self, name: &str, found: &mut Found) -> Vec<(Transport, String)> {
        let ours = self.transports();
        let mut services = Vec::new();
        for record in self.ask(name, RecordType::NAPTR) {
            let RData::NAPTR(naptr) = record.data() else { continue };
            let transport = ours.iter().find(|t| naptr.services().eq_ignore_ascii_case(naptr_service(**t)));
            if let (Some(transport), true) = (transport, naptr.flags().eq_ignore_ascii_case(b"s")) {
                found.note(&record);
                let replacement = naptr.replacement().to_ascii();
                services.push(((naptr.order(), naptr.preference()), *transport, replacement));
            }
        }
        services.sort_by_key(|(order, _, _)| *order);
        services.into_iter().take(RECORDS_MAX).map(|(_, transport, name)| (transport, name)).collect()
    }

    /// Returns the targets of the SRV records with their ports, ordered by priority and weight (RFC 2782).
    fn srv(&self, name: &str, found: &mut Found) -> Vec<(String, u16)> {
        let mut targets = Vec::new();
        for record in self.ask(name, RecordType::SRV).iter().take(RECORDS_MAX) {
            let RData::SRV(srv) = record.data() else { continue };
            // Skips root targets: "A Target of "." means that the service is decidedly not available".
            if !srv.target().is_root() {
                found.note(record);
                targets.push(Weighed {
                    priority: srv.priority(),
                    weight: srv.weight(),
                    target: (srv.target().to_ascii(), srv.port()),
                });
            }
        }
        in_turn(targets, |sum| rand::rng().random_range(0..=sum))
    }

    fn addresses(&self, name: &str, port: u16, transport: Transport, found: &mut Found) {
        for (kind, is_ipv4) in [(RecordType::AAAA, false), (RecordType::A, true)] {
            let is_ours = |l: &Listener| l.transport == transport && l.address.is_ipv4() == is_ipv4;
            if !self.listeners.iter().any(is_ours) {
                continue;
            }
            for record in self.ask(name, kind) {
                let ip: IpAddr = match record.data() {
                    RData::A(address) => address.0.into(),
                    RData::AAAA(address) => address.0.into(),
                    _ => continue,
                };
                found.note(&record);
                let target = ResolvedTarget { transport, address: (ip, port).into() };
                if found.targets.len() < TARGETS_MAX && !found.targets.contains(&target) {
                    found.targets.push(target);
                }
            }
        }
    }

    /// Returns the records of the first valid answer. Returns none if the name does not exist, or no server answers.
    fn ask(&self, name: &str, kind: RecordType) -> Vec<Record> {
        let Ok(mut name) = Name::from_ascii(name) else { return Vec::new() };
        name.set_fqdn(true);
        let query = Query::query(name, kind);
        for server in self.servers.iter().cycle().take(TRIES * self.servers.len()) {
            match ask_server(*server, &query) {
                Ok(message) if is_answer(&message) => return message.answers().to_vec(),
                Ok(message) => {
                    tracing::debug!(%server, code = %message.response_code(), "a name server failed")
                }
                Err(error) => tracing::debug!(%server, %error, "a name server does not answer"),
            }
        }
        tracing::warn!(name = %query.name(), %kind, "no name server has answered");
        Vec::new()
    }
}

fn is_answer(message: &Message) -> bool {
    matches!(message.response_code(), ResponseCode::NoError | ResponseCode::NXDomain)
}

fn srv_prefix(transport: Transport) -> &'static str {
    match transport {
        Transport::Udp => "_sip._udp",
        Transport::Tcp => "_sip._tcp",
        Transport::Tls => "_sips._tcp",
        Transport::Sctp => "_sip._sctp",
    }
}

fn naptr_service(transport: Transport) -> &'static [u8] {
    match transport {
        Transport::Udp => b"SIP+D2U",
        Transport::Tcp => b"SIP+D2T",
        Transport::Tls => b"SIPS+D2T",
        Transport::Sctp => b"SIP+D2S",
    }
}

/// An SRV record.
#[derive(Clone, Debug)]
struct Weighed {
    priority: u16,
    weight: u16,
    target: (String, u16),
}

/// Sorts records by priority, and orders records of equal priority at random, by weight. `draw` returns a random number from 0 to its
/// argument.
fn in_turn(mut records: Vec<Weighed>, mut draw: impl FnMut(u32) -> u32) -> Vec<(String, u16)> {
    // Within a priority, records of weight 0 come first, so only a draw of 0 selects them.
    records.sort_by_key(|record| (record.priority, record.weight));
    let mut ordered = Vec::new();
    while let Some(priority) = records.first().map(|record| record.priority) {
        let group = records.iter().take_while(|record| record.priority == priority);
        let drawn = draw(group.clone().map(|record| u32::from(record.weight)).sum());
        let mut sum = 0;
        let reaches = |record: &Weighed| {
            sum += u32::from(record.weight);
            sum >= drawn
        };
        let at = group.map(reaches).position(|reached| reached).unwrap_or(0);
        ordered.push(records.remove(at).target);
    }
    ordered
}

fn ask_server(server: SocketAddr, query: &Query) -> io::Result<Message> {
    let mut question = Message::new();
    question.set_id(rand::random()).set_recursion_desired(true).add_query(query.clone());
    let bytes = question.to_vec().map_err(io::Error::other)?;
    let answer = ask_by_udp(server, &bytes, &question)?;
    if answer.truncated() { ask_by_tcp(server, &bytes, &question) } else { Ok(answer) }
}

fn ask_by_udp(server: SocketAddr, bytes: &[u8], question: &Message) -> io::Result<Message> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    socket.send(bytes)?;
    let mut buffer = [0; 4096];
    // Reads up to eight datagrams, and skips datagrams that do not answer the question.
    for _ in 0..8 {
        let length = socket.recv(&mut buffer)?;
        if let Some(answer) = answer_to(question, &buffer[..length]) {
            return Ok(answer);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn ask_by_tcp(server: SocketAddr, bytes: &[u8], question: &Message) -> io::Result<Message> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer)?;
    answer_to(question, &answer).ok_or(io::ErrorKind::InvalidData.into())
}

/// Parses a message, and returns it if it answers this question. An attacker off the path knows neither the question's ID nor its source
/// port.
fn answer_to(question: &Message, bytes: &[u8]) -> Option<Message> {
    let answer = Message::from_vec(bytes).ok()?;
    (answer.id() == question.id() && answer.queries() == question.queries()).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(priority: u16, weight: u16, name: &str) -> Weighed {
        Weighed { priority, weight, target: (name.to_owned(), 5060) }
    }

    #[test]
    fn srv_records_come_by_priority_then_as_they_are_drawn_by_weight() {
        let all = [record(2, 0, "last"), record(1, 3, "three"), record(1, 1, "one"), record(1, 0, "none")];
        for (draws, names) in [
            ([0, 0, 0, 0], ["none", "one", "three", "last"]),
            ([4, 1, 0, 0], ["three", "one", "none", "last"]),
            ([1, 0, 3, 0], ["one", "none", "three", "last"]),
        ] {
            let mut draws = draws.into_iter();
            let ordered = in_turn(all.to_vec(), |_| draws.next().unwrap());
            let ordered: Vec<_> = ordered.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(ordered, names);
        }
    }
}
