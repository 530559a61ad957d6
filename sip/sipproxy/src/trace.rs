//! Live traces of messages, for `sctpify-sip trace`: as text, or as a pcapng file.
//!
//! Each client that traces messages (a tracer) has a queue and a thread. The loop copies messages into the queues ([`Taps`]). The threads
//! write the selected messages to the clients ([`Ear`]). The loop never waits: it counts the messages that do not fit in a queue, and the
//! next message in the queue reports the count. Without a tracer, nothing is copied.
//!
//! Text output omits the values of Authorization and Proxy-Authorization fields, but a pcapng file contains everything. In a pcapng file,
//! each message is a synthetic UDP datagram. Wireshark therefore also shows messages over TLS and SCTP. A comment of the datagram names the
//! real transport.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::Ecn;
use bytes::Bytes;
use ops::has_hung_up;
use sip::{Address, Essentials, Limits, Message, Method, Name, Network, Transport, Uri};
use wire::pcapng::{self, Captured};

pub(crate) use wire::pcapng::Direction;

use crate::clock::since_1970;
use crate::words::Wanted;

/// Limit on messages that wait in a tracer's queue.
const QUEUE_MAX: usize = 4096;
/// Limit on concurrent tracers.
const EARS_MAX: usize = 8;
/// Interval between checks of the client's connection, while no messages arrive.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time limit for one check of the client's connection.
const LOOK_LIMIT: Duration = Duration::from_millis(1);

/// A message that the proxy received or sent.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    /// Time since 1970.
    pub(crate) at: Duration,
    /// Direction of the message.
    pub(crate) direction: Direction,
    /// The transport.
    pub(crate) transport: Transport,
    /// Address of the proxy's listener.
    pub(crate) local: SocketAddr,
    /// The peer's address.
    pub(crate) peer: SocketAddr,
    /// The message.
    pub(crate) bytes: Bytes,
    /// Number of messages dropped since the previous message in this queue.
    missed: u64,
}

/// The queues of all tracers.
#[derive(Debug, Default)]
pub(crate) struct Taps(Vec<Tap>);

#[derive(Debug)]
struct Tap {
    queue: SyncSender<Passed>,
    ear: Weak<()>,
    missed: u64,
}

/// The receiving end of a tracer's queue. The queue is removed after this end is dropped.
#[derive(Debug)]
pub(crate) struct Ear {
    queue: Receiver<Passed>,
    _alive: Arc<()>,
}

impl Taps {
    /// Adds a tracer. Returns `None` if [`EARS_MAX`] tracers already exist.
    pub(crate) fn open(&mut self) -> Option<Ear> {
        self.0.retain(|tap| tap.ear.strong_count() > 0);
        if self.0.len() >= EARS_MAX {
            return None;
        }
        let (sender, queue) = sync_channel(QUEUE_MAX);
        let alive = Arc::new(());
        self.0.push(Tap { queue: sender, ear: Arc::downgrade(&alive), missed: 0 });
        Some(Ear { queue, _alive: alive })
    }

    /// Copies a message to the queues of all tracers.
    pub(crate) fn note(
        &mut self,
        direction: Direction,
        transport: Transport,
        local: SocketAddr,
        peer: SocketAddr,
        bytes: &Bytes,
    ) {
        if self.0.is_empty() {
            return;
        }
        let at = since_1970();
        self.0.retain_mut(|tap| {
            let missed = tap.missed;
            let passed = Passed { at, direction, transport, local, peer, bytes: bytes.clone(), missed };
            tap.missed = if tap.queue.try_send(passed).is_ok() { 0 } else { missed + 1 };
            tap.ear.strong_count() > 0
        });
    }
}

impl Ear {
    /// Writes the selected messages to the client, until it disconnects.
    ///
    /// # Errors
    /// If writing fails, for example because the client has disconnected.
    pub(crate) fn write_to(&self, mut to: &UnixStream, filter: &Filter) -> io::Result<()> {
        to.set_read_timeout(Some(LOOK_LIMIT))?;
        let mut buffer = Vec::new();
        if filter.pcapng {
            pcapng::begin(&mut buffer)?;
        }
        // Messages that the filter excludes may report missing messages too.
        let mut missed = 0;
        loop {
            to.write_all(&buffer)?;
            buffer.clear();
            match self.queue.recv_timeout(LOOK_EVERY) {
                Ok(passed) => {
                    missed += passed.missed;
                    if filter.wants(&passed) {
                        let missed = std::mem::take(&mut missed);
                        Passed { missed, ..passed }.write(filter.pcapng, &mut buffer)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) if has_hung_up(to) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }
}

/// Limits for the messages of a trace. The transports have applied the configured limits already.
const NO_LIMITS: Limits = Limits { message: usize::MAX, headers: usize::MAX };

/// The filter of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pcapng: bool,
    method: Option<Method>,
    user: Option<String>,
    call_id: Option<String>,
    peer: Option<Network>,
}

impl Filter {
    /// Creates the filter that a client requests on the control socket.
    ///
    /// # Errors
    /// A sentence about the invalid part.
    pub(crate) fn new(wanted: &Wanted) -> Result<Filter, String> {
        let peer = wanted.peer.as_deref().map(str::parse::<Network>).transpose();
        Ok(Filter {
            pcapng: wanted.pcapng,
            method: wanted.method.as_ref().map(|name| Method::from_bytes(Bytes::from(name.to_uppercase()))),
            user: wanted.user.clone(),
            call_id: wanted.call_id.clone(),
            peer: peer.map_err(|error| error.to_string())?,
        })
    }

    fn wants(&self, passed: &Passed) -> bool {
        if self.peer.is_some_and(|network| !network.contains(passed.peer.ip())) {
            return false;
        }
        if self.method.is_none() && self.user.is_none() && self.call_id.is_none() {
            return true;
        }
        let Ok(message) = Message::parse(passed.bytes.clone(), &NO_LIMITS) else { return false };
        let Ok(known) = Essentials::of(&message) else { return false };
        self.method.as_ref().is_none_or(|method| *method == known.cseq.method)
            && self.call_id.as_ref().is_none_or(|id| known.call_id == id.as_bytes())
            && self.user.as_ref().is_none_or(|user| is_about(&message, user))
    }
}

/// Reports whether this user is in From or To. The user is a name, with or without a domain.
fn is_about(message: &Message, user: &str) -> bool {
    [Name::From, Name::To].into_iter().any(|name| {
        let address = message.first(name).and_then(|value| Address::parse(value).ok());
        let uri = address.and_then(|address| Uri::parse(address.uri).ok());
        uri.is_some_and(|uri| {
            let whole = uri.address_of_record();
            whole == *user || whole.split_once('@').is_some_and(|(name, _)| name == user)
        })
    })
}

impl Passed {
    fn write(&self, pcapng: bool, out: &mut Vec<u8>) -> io::Result<()> {
        if !pcapng {
            return self.write_text(out);
        }
        let (from, to) = match self.direction {
            Direction::In => (self.peer, self.local),
            Direction::Out => (self.local, self.peer),
        };
        let mut comment = format!("SIP over {}", self.transport.as_str());
        if self.missed > 0 {
            comment += &format!("; {} messages before this one are missing", self.missed);
        }
        let captured = Captured {
            at_ns: u64::try_from(self.at.as_nanos()).unwrap_or(u64::MAX),
            from: from.ip(),
            to: to.ip(),
            udp: Some((from.port(), to.port())),
            ecn: Ecn::default(),
            direction: Some(self.direction),
            comment: &comment,
            packet: &self.bytes,
        };
        pcapng::write(out, &captured)
    }

    /// Writes a line about the transmission, then the message and an empty line.
    fn write_text(&self, out: &mut Vec<u8>) -> io::Result<()> {
        if self.missed > 0 {
            writeln!(out, "# {} messages are missing here", self.missed)?;
        }
        let seconds = self.at.as_secs() % 86_400;
        let arrow = if self.direction == Direction::In { "<-" } else { "->" };
        writeln!(
            out,
            "# {:02}:{:02}:{:02}.{:06} UTC {} {} {arrow} {}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            self.at.subsec_micros(),
            self.transport.as_lower_str(),
            self.local,
            self.peer
        )?;
        let text = String::from_utf8_lossy(&self.bytes);
        let mut is_secret = false;
        for line in text.lines() {
            let name = line.split(':').next().unwrap_or_default().trim();
            // A line that begins with a blank continues the field before it (RFC 3261 section 7.3.1).
            let continues = line.starts_with([' ', '\t']);
            if continues && is_secret {
                continue;
            }
            is_secret = !continues
                && ["Authorization", "Proxy-Authorization"].iter().any(|n| name.eq_ignore_ascii_case(n));
            // Control characters in a message must not reach the terminal.
            let shown = line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c });
            match is_secret {
                true => writeln!(out, "{name}: (omitted)")?,
                false => writeln!(out, "{}", shown.collect::<String>())?,
            }
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = "OPTIONS sip:bob@b.example SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKx\r\n\
        Max-Forwards: 70\r\nFrom: <sip:alice@a.example>;tag=1\r\nTo: <sip:bob@b.example>\r\nCall-ID: c1\r\n\
        CSeq: 1 OPTIONS\r\nAuthorization: Digest realm=\"a\",\r\n\tresponse=\"0123\"\r\nContent-Length: 0\r\n\r\n";

    fn passed(peer: &str, text: &'static str) -> Passed {
        Passed {
            at: Duration::new(86_400 + 3_661, 5_000),
            direction: Direction::In,
            transport: Transport::Sctp,
            local: "192.0.2.9:5060".parse().unwrap(),
            peer: peer.parse().unwrap(),
            bytes: Bytes::from_static(text.as_bytes()),
            missed: 2,
        }
    }

    #[test]
    fn a_trace_filter_matches_by_method_user_call_id_and_peer() {
        let with = |change: fn(&mut Wanted)| {
            let mut wanted = Wanted::default();
            change(&mut wanted);
            Filter::new(&wanted).unwrap().wants(&passed("192.0.2.1:5060", MESSAGE))
        };
        assert!(with(|_| {}));
        assert!(with(|w| w.method = Some("options".to_owned())));
        assert!(!with(|w| w.method = Some("INVITE".to_owned())));
        assert!(
            with(|w| w.user = Some("bob".to_owned()))
                && with(|w| w.user = Some("alice@a.example".to_owned()))
        );
        assert!(!with(|w| w.user = Some("bob@a.example".to_owned())));
        assert!(with(|w| w.call_id = Some("c1".to_owned())) && !with(|w| w.call_id = Some("c".to_owned())));
        assert!(with(|w| w.peer = Some("192.0.2.0/24".to_owned())));
        assert!(!with(|w| w.peer = Some("192.0.3.0/24".to_owned())));
        assert!(Filter::new(&Wanted { peer: Some("bob".to_owned()), ..Wanted::default() }).is_err());
    }

    #[test]
    fn trace_text_shows_time_and_addresses_and_omits_credentials() {
        let mut out = Vec::new();
        passed("192.0.2.1:5060", MESSAGE).write(false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let head = "# 2 messages are missing here\n\
                    # 01:01:01.000005 UTC sctp 192.0.2.9:5060 <- 192.0.2.1:5060\nOPTIONS sip:bob@b.example SIP/2.0\n";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains("Authorization: (omitted)\n") && !text.contains("0123"), "{text}");
        assert!(text.ends_with("Content-Length: 0\n\n\n"), "{text:?}");
    }

    #[test]
    fn a_full_trace_queue_counts_missed_messages_and_a_tap_without_reader_closes() {
        let mut taps = Taps::default();
        let ear = taps.open().unwrap();
        let address = "192.0.2.1:5060".parse().unwrap();
        let bytes = Bytes::from_static(b"x");
        let note = |taps: &mut Taps| taps.note(Direction::Out, Transport::Udp, address, address, &bytes);
        (0..QUEUE_MAX + 3).for_each(|_| note(&mut taps));
        assert_eq!(ear.queue.recv().unwrap().missed, 0);
        note(&mut taps);
        assert_eq!(ear.queue.try_iter().last().unwrap().missed, 3);
        drop(ear);
        note(&mut taps);
        assert!(taps.0.is_empty());
        let ears: Vec<_> = std::iter::from_fn(|| taps.open()).collect();
        assert_eq!(ears.len(), EARS_MAX);
    }
}
