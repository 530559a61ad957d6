//! I/O around the engine: the sockets, the clock and the poll of one peer. It makes no protocol decisions.
//!
//! Begin with [`Host::open`]. Then call [`Host::turn`] repeatedly, and handle the events of [`Host::engine`] between
//! the turns.

mod waiting;

use crate::awake::Awake;
use crate::keys::Keys;
use crate::options::{CarrierKind, Options};
use crate::shards::Post;
use crate::trace_file::TraceFile;
use anyhow::{Context, Result, bail, ensure};
use base::{Carrier, Route, Shard, Time};
use mio::{Events, Poll, Token};
use netio::{Carriers, PacketIo, RawCarrier, UdpCarrier};
use sctp::{
    AssociationConfig, AssociationId, AuthConfig, ChunkType, Endpoint, EndpointConfig, Event, Extension,
    Extensions, HmacAlgorithm, IncomingInit, InitDecision, Listener, ReconfigPolicy, Timing,
};
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::time::{Duration, Instant};

/// Limit on the sent and received packets since the last wait, up to which the host may busy-poll. More packets
/// indicate a bulk transfer. During a bulk transfer, the host sleeps: one turn then handles many packets, which costs
/// less processor time per packet.
const FEW_PACKETS: usize = 4;

/// Error detection method "SCTP over DTLS" (RFC 9653 section 4), the only one that the RFC defines.
const EDMID_DTLS: u32 = 1;

/// One peer: its sockets, its engine and its clock.
pub struct Host {
    /// The engine.
    pub engine: Endpoint,
    io: PacketIo,
    door: Door,
    poll: Poll,
    ready: Events,
    start: Instant,
    /// Exchange of packets with the other shards, if the peer has several shards.
    post: Option<Post>,
    trace: Option<TraceFile>,
    /// Set if the last wait ended with a packet. The next packet is then likely to arrive soon.
    is_lively: bool,
    /// Packets sent and received since the last wait began.
    packets: usize,
    awake: Awake,
    /// Set if the kernel delivers packets one at a time, as it does with the carrier IP.
    come_singly: bool,
    keys: Option<Keys>,
}

/// Accept policy: accepts INITs for one port at the local addresses. Without a port, it refuses all INITs.
struct Door {
    port: Option<u16>,
    local_addresses: Vec<IpAddr>,
}

impl Listener for Door {
    fn on_init(&mut self, init: &IncomingInit) -> InitDecision {
        if self.port == Some(init.local_port) && self.local_addresses.contains(&init.route.local) {
            InitDecision::Accept { local_addresses: self.local_addresses.clone() }
        } else {
            InitDecision::Refuse
        }
    }
}

impl Host {
    /// Opens the carriers in the calling thread's network namespace. Accepts associations on `port`, if given.
    ///
    /// # Errors
    /// When the UDP port is in use, when privileges are missing, or when the kernel has SCTP and would answer itself.
    pub fn open(options: &Options, port: Option<u16>) -> Result<Host> {
        let (mut udp, mut raw) = (None, None);
        if options.carrier.has_udp() {
            let bound = UdpCarrier::bind(options.udp_port);
            udp = Some(bound.with_context(|| format!("UDP port {}", options.udp_port))?);
        }
        if options.carrier.has_ip() {
            if let Some(found) = netio::kernel_sctp() {
                bail!("{found}");
            }
            let mut opened = RawCarrier::open().context("IP protocol 132 (requires root)")?;
            if !options.no_shortcuts {
                // An error is ignored: the carrier also works without shortcuts, but more slowly.
                let _ = opened.take_shortcuts(None);
            }
            raw = Some(opened);
        }
        let carriers = Carriers::new(udp, raw);
        Host::around(options, port, carriers, Poll::new()?, Shard::WHOLE)
    }

    /// Opens the `count` shards of one peer: hosts on one UDP port, one host for each thread. Each host serves its
    /// share of the associations. A host forwards a packet of another host's association to the other host.
    ///
    /// # Errors
    /// Those of [`Host::open`]. Also when `options` select a carrier other than UDP, select a trace, or select
    /// protection without a host key file.
    pub fn open_shards(options: &Options, port: u16, count: NonZeroU8) -> Result<Vec<Host>> {
        ensure!(options.carrier == CarrierKind::Udp, "shards need --carrier udp");
        ensure!(options.trace.is_none(), "shards cannot share the file of --trace");
        let has_one_key = !options.protect || options.host_key.is_some();
        ensure!(has_one_key, "shards need --host-key with --protect: all have the same key");
        let carriers = UdpCarrier::bind_shards(options.udp_port, count);
        let carriers = carriers.with_context(|| format!("UDP port {}", options.udp_port))?;
        let shards: Vec<Shard> = Shard::all(count).collect();
        let polls = shards.iter().map(|_| Poll::new()).collect::<std::io::Result<Vec<_>>>()?;
        let posts = Post::between(&shards, &polls, Token(Carriers::TOKENS))?;
        let mut hosts = Vec::new();
        for (((carrier, poll), post), shard) in carriers.into_iter().zip(polls).zip(posts).zip(shards) {
            let host = Host::around(options, Some(port), Carriers::new(Some(carrier), None), poll, shard)?;
            hosts.push(Host { post: Some(post), ..host });
        }
        Ok(hosts)
    }

    fn around(
        options: &Options,
        port: Option<u16>,
        mut carriers: Carriers,
        poll: Poll,
        shard: Shard,
    ) -> Result<Host> {
        let has = |is_v4: bool| options.local.iter().any(|address| address.is_ipv4() == is_v4);
        carriers.keep_families(has(true), has(false));
        let addresses = netio::addresses(&[] as &[&str]).context("cannot list addresses")?;
        let mut io = PacketIo::new(carriers, addresses);
        io.register(poll.registry(), Token(0))?;
        let start = clock();
        let association = association_config(options);
        let config = EndpointConfig { association, shard, ..EndpointConfig::default() };
        let trace = options.trace.as_deref().map(TraceFile::create).transpose()?;
        let mut engine = Endpoint::new(Time::ZERO, config, rand::random());
        engine.set_tracing(trace.is_some());
        Ok(Host {
            engine,
            io,
            door: Door { port, local_addresses: options.local.clone() },
            poll,
            ready: Events::with_capacity(Carriers::TOKENS + 1),
            start,
            post: None,
            trace,
            is_lively: false,
            packets: 0,
            awake: Awake::default(),
            come_singly: options.carrier == CarrierKind::Ip,
            keys: options.protect.then(|| Keys::open(options)).transpose()?,
        })
    }

    /// Returns the engine's next event. The key management handles the event first.
    pub(crate) fn poll_event(&mut self) -> Option<(AssociationId, Event)> {
        let (id, event) = self.engine.poll_event()?;
        let now = self.now();
        let is_refused =
            self.keys.as_mut().is_some_and(|keys| keys.follow(now, id, &event, &mut self.engine));
        if is_refused {
            // The program may exit after this event, so this turn sends the ABORT first. If it cannot be sent, the
            // peer's timers end the association.
            let _ = self.turn(now);
        }
        Some((id, event))
    }

    /// Begins the key management of a new association if `--protect` was given. Otherwise, does nothing.
    ///
    /// # Errors
    /// When TLS reports an error.
    pub(crate) fn begin_keys(&mut self, id: AssociationId) -> Result<()> {
        let now = self.now();
        match &mut self.keys {
            Some(keys) => keys.begin(now, id, &mut self.engine),
            None => Ok(()),
        }
    }

    /// Returns the time since this host was opened.
    pub fn now(&self) -> Time {
        since(self.start)
    }

    /// Sends the engine's packets, waits for packets or timers until `wake` at the latest, and hands the packets and
    /// the expired timers to the engine.
    ///
    /// # Errors
    /// Those of epoll_wait(2) and recvmmsg(2), and of write(2) to the trace.
    pub fn turn(&mut self, wake: Time) -> Result<()> {
        self.transmit();
        let until = self.engine.next_timeout().min(wake);
        let is_sparse = std::mem::take(&mut self.packets) <= FEW_PACKETS;
        if !self.may_wait_in_receiving(until) || !self.receive_waiting(is_sparse)? {
            self.wait(until)?;
            let now = self.now();
            self.read_mail(now);
            self.receive(now)?;
        }
        let now = self.now();
        self.engine.handle_timeout(now);
        self.transmit();
        if let Some(trace) = &mut self.trace {
            trace.take_from(&mut self.engine)?;
        }
        Ok(())
    }

    /// Waits until a socket is readable, or `until` at the latest.
    fn wait(&mut self, until: Time) -> Result<()> {
        let wait = if self.io.has_unread() { Duration::ZERO } else { until.since(self.now()) };
        // The poll has millisecond granularity. Rounding up avoids turns in which no timer is due yet.
        let wait = wait.min(Duration::from_secs(60)).as_micros().div_ceil(1000);
        let wait = Duration::from_millis(u64::try_from(wait).unwrap_or(0));
        match self.poll.poll(&mut self.ready, Some(wait)) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for event in &self.ready {
            // The token after the sockets' tokens belongs to the mailbox. `note_ready` ignores this token. Each turn
            // reads the mailbox anyway.
            self.io.note_ready(event.token().0);
        }
        Ok(())
    }

    /// Hands the engine the packets that other shards forwarded.
    fn read_mail(&mut self, now: Time) {
        while let Some(mail) = self.post.as_ref().and_then(Post::next) {
            self.engine.handle_datagram(now, &mail.route, mail.ecn, &mail.packet, &mut self.door);
        }
    }

    /// Hands the engine the packets of the sockets that are ready.
    fn receive(&mut self, now: Time) -> Result<()> {
        let (door, post) = (&mut self.door, &self.post);
        let received = self.io.receive(now, &mut self.engine, |engine, route, ecn, packet| {
            if post.as_ref().is_none_or(|post| post.keeps(route, ecn, packet)) {
                engine.handle_datagram(now, route, ecn, packet, door);
            }
        });
        let packets = received.context("receiving failed")?;
        self.is_lively = packets > 0;
        self.packets += packets;
        Ok(())
    }

    fn transmit(&mut self) {
        let now = self.now();
        self.packets += self.io.transmit(now, &mut self.engine).packets;
    }
}

/// Returns the configuration of a peer's associations.
pub(crate) fn association_config(options: &Options) -> AssociationConfig {
    let timing = if options.short_timers {
        Timing {
            rto_initial: Duration::from_millis(200),
            rto_min: Duration::from_millis(50),
            rto_max: Duration::from_secs(2),
            heartbeat_interval: Duration::from_millis(500),
            path_max_retrans: 1,
            ..Timing::default()
        }
    } else {
        Timing::default()
    };
    let offered = [
        (options.auth.is_some(), Extension::Auth),
        (options.auth.is_some(), Extension::AddressReconfiguration),
        (options.reconf, Extension::StreamReconfiguration),
        (options.idata, Extension::Interleaving),
        (options.partial, Extension::PartialReliability),
        (true, Extension::Ecn),
    ];
    let extensions: Extensions = offered.into_iter().filter(|(on, _)| *on).map(|(_, e)| e).collect();
    AssociationConfig {
        timing,
        send_buffer: options.buffer,
        receive_buffer: options.buffer,
        extensions,
        auth: options.auth.map(auth_config).unwrap_or_default(),
        reconfig: ReconfigPolicy::default().everything(),
        multipath: options.multipath.into(),
        advertisement: options.advertisement(),
        zero_checksum: options.zero_checksum.then_some(EDMID_DTLS),
        protection: options.protect.then(|| keying::protection(true)),
        ..AssociationConfig::default()
    }
}

/// Returns the AUTH configuration for an HMAC identifier. `tests/kernel-sctp/kernel_peer.py` uses the same key and
/// also authenticates DATA.
fn auth_config(hmac: u8) -> AuthConfig {
    AuthConfig {
        chunks: [ChunkType::DATA].into_iter().collect(),
        hmac: if hmac == 1 { HmacAlgorithm::Sha1 } else { HmacAlgorithm::Sha256 },
        keys: [(1, bytes::Bytes::from_static(b"sctpify golden key"))].into(),
        active_key: 1,
        ..AuthConfig::default()
    }
}

/// Returns all usable addresses of the calling thread's network namespace.
///
/// # Errors
/// When the kernel does not list them.
pub fn own_addresses() -> Result<Vec<IpAddr>> {
    let found = netio::addresses(&[] as &[&str]).context("cannot list addresses")?;
    Ok(found.into_iter().map(|address| address.addr).collect())
}

/// Returns the routes on which a client sends its INIT, one for each carrier.
pub(crate) fn init_routes(options: &Options, remote: IpAddr) -> Vec<Route> {
    let udp = options.carrier.has_udp().then_some(Carrier::Udp { peer_port: options.peer_udp_port });
    let ip = options.carrier.has_ip().then_some(Carrier::Ip);
    udp.into_iter().chain(ip).map(|carrier| Route { local: options.local[0], remote, carrier }).collect()
}

/// Returns the time of the real clock, because the other end is a real program.
#[allow(clippy::disallowed_methods, reason = "this program talks to real ones")]
fn clock() -> Instant {
    Instant::now()
}

/// Returns the time since `start`.
fn since(start: Instant) -> Time {
    Time::from_nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
