//! Socket options: `SOL_SCTP` with Linux' layouts, and those of other levels that `AF_UNIX` does not have.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use base::Time;
use sctp::{
    AssociationConfig, AssociationInfo, Endpoint, Extension, Extensions, Heartbeats, PathInfo, PathOptions,
    PathState, StateName, Timing,
};
use sockproto::abi::{SOL_SCTP, option};
use sockproto::{DataHeader, Kind, flag};

use crate::notification::{Fields, STORAGE};
use crate::option_value::{Given, interval};
use crate::socket::{Family, Socket, State, Style};
use crate::{ADAPTATION, Errno, SocketKey, Sockets};

/// Length of `struct sctp_event_subscribe`.
const EVENTS: usize = 14;
/// `SPP_HB_ENABLE`, `SPP_HB_DISABLE` and `SPP_HB_DEMAND`.
const HEARTBEAT_ON: u32 = 1;
const HEARTBEAT_OFF: u32 = 2;
const HEARTBEAT_NOW: u32 = 4;
/// Send buffer of an association, in bytes: twice the longest message of a program.
const SEND_BUFFER: usize = 2 * sockproto::MESSAGE_MAX;
/// Receive buffer of an association, in bytes.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Length of `struct sctp_status`.
const STATUS: usize = 176;

/// The way of closing (`SO_LINGER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linger {
    /// The association ends in the background.
    Background,
    /// The association is aborted.
    Reset,
}

/// The options of one socket; an accepted one has those of its listener.
#[derive(Clone)]
pub(crate) struct Options {
    /// `SCTP_INITMSG`: outbound streams, inbound streams, attempts, and the longest timeout in milliseconds.
    init: [u16; 4],
    rto: Rto,
    /// `sasoc_asocmaxrxt`, if set.
    max_retransmits: Option<u16>,
    cookie_life_ms: u32,
    heartbeat_ms: Option<u32>,
    heartbeats_off: bool,
    path_max_retransmits: Option<u16>,
    sack_delay_ms: Option<u32>,
    /// By type of notification, from `SCTP_DATA_IO` (0x8000) on.
    events: [u8; EVENTS],
    default_send: DataHeader,
    context: u32,
    adaptation: Option<u32>,
    udp_port: Option<u16>,
    autoclose: u32,
    linger: [i32; 2],
    v6_only: bool,
    /// Numbers that are kept and told, by level and name.
    kept: BTreeMap<(i32, i32), i32>,
}

/// `SCTP_RTOINFO`, in milliseconds, where set.
#[derive(Clone, Copy, Default)]
struct Rto {
    initial: Option<u32>,
    max: Option<u32>,
    min: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            // Linux' values.
            init: [10, u16::MAX, 8, 60_000],
            rto: Rto::default(),
            max_retransmits: None,
            cookie_life_ms: 60_000,
            heartbeat_ms: None,
            heartbeats_off: false,
            path_max_retransmits: None,
            sack_delay_ms: None,
            events: [0; EVENTS],
            default_send: DataHeader::new(Kind::Data),
            context: 0,
            adaptation: None,
            udp_port: None,
            autoclose: 0,
            linger: [0; 2],
            v6_only: false,
            kept: BTreeMap::new(),
        }
    }
}

/// Options of one `int` that are kept and told, with the value before they are set. The engine has its own ways (segment size, burst,
/// order of parts), or they have no meaning for it.
const KEPT: [(i32, i32, i32); 23] = [
    (SOL_SCTP, option::NODELAY, 0),
    (SOL_SCTP, option::DISABLE_FRAGMENTS, 0),
    (SOL_SCTP, option::MAPPED_V4, 1),
    (SOL_SCTP, option::MAXSEG, 0),
    (SOL_SCTP, option::FRAGMENT_INTERLEAVE, 0),
    (SOL_SCTP, option::PARTIAL_DELIVERY_POINT, 0),
    (SOL_SCTP, option::MAX_BURST, 4),
    // Without ASCONF it has no effect, as with Linux' default (net.sctp.addip_enable).
    (SOL_SCTP, option::AUTO_ASCONF, 0),
    (SOL_SCTP, option::RECVRCVINFO, 0),
    (SOL_SCTP, option::RECVNXTINFO, 0),
    (SOL_SCTP, option::REUSE_PORT, 0),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR, 0),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT, 0),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, 0),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE, 0),
    (libc::IPPROTO_IP, libc::IP_TOS, 0),
    (libc::IPPROTO_IP, libc::IP_TTL, 64),
    (libc::IPPROTO_IP, libc::IP_FREEBIND, 0),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, 1),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 0),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 64),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 0),
];

impl Options {
    /// Reports whether the program wants notifications of this kind.
    pub(crate) fn wants(&self, kind: u16) -> bool {
        self.events.get(usize::from(kind.wrapping_sub(0x8000))).is_some_and(|on| *on != 0)
    }

    /// Returns the bits for the ancillary data that comes with each message.
    pub(crate) fn wanted_info(&self) -> u8 {
        let sndrcv = if self.events[0] != 0 { flag::WITH_SNDRCV } else { 0 };
        let rcvinfo =
            if self.kept(SOL_SCTP, option::RECVRCVINFO) != Some(0) { flag::WITH_RCVINFO } else { 0 };
        let nxtinfo =
            if self.kept(SOL_SCTP, option::RECVNXTINFO) != Some(0) { flag::WITH_NXTINFO } else { 0 };
        sndrcv | rcvinfo | nxtinfo
    }

    pub(crate) fn default_send(&self) -> DataHeader {
        self.default_send
    }

    pub(crate) fn context(&self) -> u32 {
        self.context
    }

    pub(crate) fn udp_port(&self) -> Option<u16> {
        self.udp_port
    }

    pub(crate) fn is_v6_only(&self) -> bool {
        self.v6_only
    }

    /// Returns the time after which an unused association is closed.
    pub(crate) fn autoclose(&self) -> Option<Duration> {
        (self.autoclose != 0).then(|| Duration::from_secs(self.autoclose.into()))
    }

    pub(crate) fn linger(&self) -> Linger {
        if self.linger[0] != 0 && self.linger[1] == 0 { Linger::Reset } else { Linger::Background }
    }

    fn kept(&self, level: i32, name: i32) -> Option<i32> {
        let (_, _, before) = KEPT.into_iter().find(|(l, n, _)| (*l, *n) == (level, name))?;
        Some(self.kept.get(&(level, name)).copied().unwrap_or(before))
    }

    /// Returns the configuration of an association that begins.
    pub(crate) fn association(&self) -> AssociationConfig {
        self.association_with([0; 4])
    }

    /// The same with a `struct sctp_initmsg` that comes first where it is not 0.
    pub(crate) fn association_with(&self, init: [u16; 4]) -> AssociationConfig {
        let given = |at: usize| if init[at] == 0 { self.init[at] } else { init[at] };
        let [outbound, inbound, attempts] = [given(0), given(1), given(2)];
        let extensions = Extensions::NONE
            .with(Extension::Ecn)
            .with(Extension::PartialReliability)
            .with(Extension::StreamReconfiguration);
        AssociationConfig {
            timing: self.timing(false),
            outbound_streams: outbound.max(1),
            inbound_streams: inbound.max(1),
            adaptation: Some(self.adaptation.unwrap_or(ADAPTATION)),
            extensions,
            // Messages may wait between the program and the engine when the peer shuts down.
            takes_late_messages: true,
            send_buffer: SEND_BUFFER,
            receive_buffer: RECEIVE_BUFFER,
            max_init_retransmits: u8::try_from(attempts).unwrap_or(u8::MAX),
            ..AssociationConfig::default()
        }
    }

    /// Returns the timers: RFC 9260's, or the quick ones between two hosts with sctpify; what the program has set comes first.
    pub(crate) fn timing(&self, peer_is_sctpify: bool) -> Timing {
        let mut timing = if peer_is_sctpify { Timing::quick() } else { Timing::default() };
        let milliseconds = |ms: u32| Duration::from_millis(ms.into());
        let small = |count: u16| u8::try_from(count).unwrap_or(u8::MAX);
        if let Some(initial) = self.rto.initial {
            timing.rto_initial = milliseconds(initial);
        }
        if let Some(max) = self.rto.max {
            timing.rto_max = milliseconds(max);
        }
        if let Some(min) = self.rto.min {
            (timing.rto_min, timing.rto_margin) = (milliseconds(min), Duration::ZERO);
        }
        if let Some(count) = self.max_retransmits {
            timing.association_max_retrans = small(count);
        }
        if let Some(count) = self.path_max_retransmits {
            timing.path_max_retrans = small(count);
        }
        if let Some(interval) = self.heartbeat_ms {
            timing.heartbeat_interval = milliseconds(interval);
        }
        if let Some(delay) = self.sack_delay_ms {
            timing.sack_delay = milliseconds(delay);
        }
        // A program may have set one of the two, beyond what the other is by default: the smaller one decides nothing then.
        timing.rto_max = timing.rto_max.max(timing.rto_min);
        timing
    }
}

/// Returns the settings of associations for [`sctp::EndpointConfig`]: an accepted one takes streams and extensions from its listener,
/// and the rest from here.
pub fn association_defaults() -> AssociationConfig {
    Options::default().association()
}

impl Sockets {
    /// `setsockopt(2)`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an option that is unknown, `EINVAL` for a value that it cannot have.
    pub fn set_option(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
        option: (i32, i32),
        value: &[u8],
    ) -> Result<(), Errno> {
        for target in self.targets(engine, key, option, Given(value))? {
            self.set_option_of(now, engine, target, option, value)?;
        }
        Ok(())
    }

    fn set_option_of(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
        (level, name): (i32, i32),
        value: &[u8],
    ) -> Result<(), Errno> {
        let given = Given(value);
        let socket = self.get_mut(key)?;
        let options = &mut socket.options;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let given = given.at_least(8)?;
                options.linger = [given.long(0), given.long(4)].map(u32::cast_signed);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
                if socket.family != Family::V6 {
                    return Err(libc::ENOPROTOOPT);
                }
                if socket.port.is_some() {
                    return Err(libc::EINVAL);
                }
                options.v6_only = given.int()? != 0;
            }
            (SOL_SCTP, option::INITMSG) => {
                let given = given.exactly(8)?;
                for (at, value) in [0, 2, 4, 6].into_iter().map(|at| given.short(at)).enumerate() {
                    if value != 0 {
                        options.init[at] = value;
                    }
                }
            }
            (SOL_SCTP, option::RTOINFO) => {
                let given = given.exactly(16)?;
                let [initial, max, min] = [4, 8, 12].map(|at| interval(given.long(at)));
                let new = Rto {
                    initial: initial?.or(options.rto.initial),
                    max: max?.or(options.rto.max),
                    min: min?.or(options.rto.min),
                };
                if new.min.zip(new.max).is_some_and(|(min, max)| min > max) {
                    return Err(libc::EINVAL);
                }
                options.rto = new;
                socket.retime(now, engine);
            }
            (SOL_SCTP, option::ASSOCINFO) => {
                let given = given.exactly(20)?;
                let (retransmits, cookie_life) = (given.short(4), given.long(16));
                if retransmits != 0 {
                    options.max_retransmits = Some(retransmits);
                }
                if cookie_life != 0 {
                    options.cookie_life_ms = cookie_life;
                }
                socket.retime(now, engine);
            }
            (SOL_SCTP, option::EVENTS) => {
                if value.len() > EVENTS {
                    return Err(libc::EINVAL);
                }
                options.events[..value.len()].copy_from_slice(value);
            }
            (SOL_SCTP, option::EVENT) => {
                let given = given.at_least(8)?;
                let index = usize::from(given.short(4).wrapping_sub(0x8000));
                *options.events.get_mut(index).ok_or(libc::EINVAL)? = u8::from(value[6] != 0);
            }
            (SOL_SCTP, option::DEFAULT_SEND_PARAM) => {
                let given = given.exactly(32)?;
                let mut header = DataHeader::new(Kind::Data);
                (header.stream, header.sinfo_flags) = (given.short(0), given.short(4));
                (header.ppid, header.context) = (given.long(8), given.long(12));
                header.tsn_or_lifetime = given.long(16);
                options.default_send = header;
            }
            (SOL_SCTP, option::DEFAULT_SNDINFO) => {
                let given = given.exactly(16)?;
                let header = &mut options.default_send;
                (header.stream, header.sinfo_flags) = (given.short(0), given.short(2));
                (header.ppid, header.context) = (given.long(4), given.long(8));
            }
            (SOL_SCTP, option::CONTEXT) => options.context = given.at_least(8)?.long(4),
            (SOL_SCTP, option::ADAPTATION_LAYER) => options.adaptation = Some(given.exactly(4)?.long(0)),
            (SOL_SCTP, option::DELAYED_SACK) => {
                // Either struct sctp_sack_info, or the older one without a number of packets.
                let delay = given.at_least(8)?.long(4);
                if delay > 500 {
                    return Err(libc::EINVAL);
                }
                options.sack_delay_ms = Some(delay).filter(|delay| *delay != 0).or(options.sack_delay_ms);
                socket.retime(now, engine);
            }
            (SOL_SCTP, option::PEER_ADDR_PARAMS) => {
                if ![152, 156].contains(&value.len()) {
                    return Err(libc::EINVAL);
                }
                return socket.set_path_options(now, engine, given);
            }
            (SOL_SCTP, option::PRIMARY_ADDR) => {
                let address = given.exactly(132)?.address(4).ok_or(libc::EINVAL)?;
                let association = socket.association().ok_or(libc::EINVAL)?;
                return engine.set_primary(now, association, address.ip()).map_err(|_| libc::EINVAL);
            }
            (SOL_SCTP, option::REMOTE_UDP_ENCAPS_PORT) => {
                let port = u16::from_be(given.exactly(144)?.short(136));
                options.udp_port = Some(port).filter(|port| *port != 0);
            }
            (SOL_SCTP, option::AUTOCLOSE) if socket.style == Style::OneToMany => {
                options.autoclose = given.exactly(4)?.long(0);
            }
            (SOL_SCTP, option::AUTOCLOSE) => return Err(libc::EOPNOTSUPP),
            _ => {
                options.kept(level, name).ok_or(libc::ENOPROTOOPT)?;
                // In struct sctp_assoc_value the value is behind the identifier.
                let value = match given.association(level, name) {
                    Some(_) => given.long(4).cast_signed(),
                    None => given.int()?,
                };
                options.kept.insert((level, name), value);
            }
        }
        Ok(())
    }

    /// `getsockopt(2)`; `given` is the program's buffer, whose length counts and whose content names an address with some options.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an option that is unknown; `EINVAL` for a buffer that is too short, or without an association where there must be one.
    pub fn option(
        &mut self,
        engine: &Endpoint,
        key: SocketKey,
        (level, name): (i32, i32),
        given: &[u8],
    ) -> Result<Vec<u8>, Errno> {
        let is_one_to_many = self.is_one_to_many(key);
        let key = self.source(engine, key, (level, name), Given(given))?;
        let socket = self.get_mut(key)?;
        let options = &socket.options;
        let int = |value: i32| Fields::new().id(value).done();
        let value = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => return Ok(int(std::mem::take(&mut socket.error))),
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => {
                int(if socket.family == Family::V4 { libc::AF_INET } else { libc::AF_INET6 })
            }
            (libc::SOL_SOCKET, libc::SO_TYPE) => {
                int(if is_one_to_many { libc::SOCK_SEQPACKET } else { libc::SOCK_STREAM })
            }
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => int(libc::IPPROTO_SCTP),
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                int(i32::from(matches!(socket.state, State::Listening { .. })))
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                Fields::new().id(options.linger[0]).id(options.linger[1]).done()
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) if socket.family == Family::V6 => {
                int(i32::from(options.v6_only))
            }
            (SOL_SCTP, option::INITMSG) => options.init.into_iter().fold(Fields::new(), Fields::short).done(),
            (SOL_SCTP, option::RTOINFO) => {
                let timing = options.timing(false);
                let of = |set: Option<u32>, by_default: Duration| set.unwrap_or(milliseconds(by_default));
                let fields = Fields::new().id(socket.id).long(of(options.rto.initial, timing.rto_initial));
                let fields = fields.long(of(options.rto.max, timing.rto_max));
                fields.long(of(options.rto.min, timing.rto_min)).done()
            }
            (SOL_SCTP, option::ASSOCINFO) => {
                let info = socket.association().and_then(|association| engine.info(association));
                let window = info.as_ref().map_or(0, |info| saturating(info.peer_rwnd));
                let peers = info.as_ref().map_or(0, |info| peer_addresses(info).len());
                let retransmits = u16::from(options.timing(false).association_max_retrans);
                let fields = Fields::new().id(socket.id).short(retransmits);
                let fields = fields.short(u16::try_from(peers).unwrap_or(u16::MAX)).long(window);
                fields.long(0).long(options.cookie_life_ms).done()
            }
            (SOL_SCTP, option::EVENTS) => options.events[..given.len().min(EVENTS)].to_vec(),
            (SOL_SCTP, option::EVENT) => {
                let kind = Given(given).at_least(8)?.short(4);
                let on = u8::from(options.wants(kind));
                Fields::new().id(socket.id).short(kind).byte(on).byte(0).done()
            }
            (SOL_SCTP, option::DEFAULT_SEND_PARAM) => {
                let header = options.default_send;
                let fields = Fields::new().short(header.stream).short(0).short(header.sinfo_flags).short(0);
                let fields = fields.long(header.ppid).long(header.context).long(header.tsn_or_lifetime);
                fields.long(0).long(0).id(socket.id).done()
            }
            (SOL_SCTP, option::DEFAULT_SNDINFO) => {
                let header = options.default_send;
                let fields = Fields::new().short(header.stream).short(header.sinfo_flags);
                fields.long(header.ppid).long(header.context).id(socket.id).done()
            }
            (SOL_SCTP, option::CONTEXT) => Fields::new().id(socket.id).long(options.context).done(),
            (SOL_SCTP, option::ADAPTATION_LAYER) => {
                Fields::new().long(options.adaptation.unwrap_or(0)).done()
            }
            (SOL_SCTP, option::DELAYED_SACK) => {
                let delay = options.sack_delay_ms.unwrap_or(milliseconds(options.timing(false).sack_delay));
                match given.len() {
                    0..12 => Fields::new().id(socket.id).long(delay).done(),
                    _ => Fields::new().id(socket.id).long(delay).long(2).done(),
                }
            }
            (SOL_SCTP, option::MAXSEG | option::MAX_BURST) if given.len() >= 8 => {
                let value = options.kept(level, name).unwrap_or(0);
                Fields::new().id(socket.id).id(value).done()
            }
            (SOL_SCTP, option::PEER_ADDR_PARAMS) => socket.path_options(engine, Given(given)),
            (SOL_SCTP, option::PRIMARY_ADDR) => {
                let info = socket.association().and_then(|association| engine.info(association));
                let info = info.ok_or(libc::EINVAL)?;
                let primary = info.paths.iter().find(|path| path.primary).or(info.paths.first());
                let address = SocketAddr::new(primary.ok_or(libc::EINVAL)?.route.remote, info.remote_port);
                Fields::new().id(socket.id).storage(&socket.name_of(address)).done()
            }
            (SOL_SCTP, option::STATUS) => socket.status(engine).ok_or(libc::EINVAL)?,
            (SOL_SCTP, option::GET_PEER_ADDR_INFO) => {
                let address = Given(given).at_least(152)?.address(4).ok_or(libc::EINVAL)?;
                let info = socket
                    .association()
                    .and_then(|association| engine.info(association))
                    .ok_or(libc::EINVAL)?;
                let path = path_to(&info, address).ok_or(libc::EINVAL)?;
                Fields::new().id(socket.id).path(socket, path).done()
            }
            (SOL_SCTP, option::REMOTE_UDP_ENCAPS_PORT) => {
                let mut value = vec![0; 144];
                value[..4].copy_from_slice(&socket.id.to_ne_bytes());
                value[136..138].copy_from_slice(&options.udp_port.unwrap_or(0).to_be_bytes());
                value
            }
            (SOL_SCTP, option::GET_PEER_ADDRS) => {
                let info = socket
                    .association()
                    .and_then(|association| engine.info(association))
                    .ok_or(libc::EINVAL)?;
                socket.packed(&peer_addresses(&info), info.remote_port, given.len())?
            }
            (SOL_SCTP, option::GET_LOCAL_ADDRS) => return self.local_addresses(engine, key, given.len()),
            (SOL_SCTP, option::AUTOCLOSE) if is_one_to_many => Fields::new().long(options.autoclose).done(),
            (SOL_SCTP, option::ASSOC_NUMBER) if is_one_to_many => {
                Fields::new().long(saturating(socket.members.ids().count())).done()
            }
            (SOL_SCTP, option::ASSOC_ID_LIST) if is_one_to_many => {
                let fields = Fields::new().long(saturating(socket.members.ids().count()));
                socket.members.ids().fold(fields, Fields::id).done()
            }
            (SOL_SCTP, option::AUTOCLOSE | option::ASSOC_NUMBER | option::ASSOC_ID_LIST) => {
                return Err(libc::EOPNOTSUPP);
            }
            _ => int(options.kept(level, name).ok_or(libc::ENOPROTOOPT)?),
        };
        if given.len() < value.len() && level == SOL_SCTP {
            return Err(libc::EINVAL);
        }
        Ok(value)
    }

    fn local_addresses(&self, engine: &Endpoint, key: SocketKey, room: usize) -> Result<Vec<u8>, Errno> {
        let socket = self.get(key)?;
        let info = socket.association().and_then(|association| engine.info(association));
        let mut all: Vec<IpAddr> = match &info {
            Some(info) => info.paths.iter().map(|path| path.route.local).collect(),
            None if socket.bound.is_empty() => {
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                loopback.iter().chain(&self.addresses).copied().filter(|own| socket.takes(*own)).collect()
            }
            None => socket.bound.clone(),
        };
        all.dedup();
        all.sort_unstable();
        all.dedup();
        socket.packed(&all, socket.port.unwrap_or(0), room)
    }
}

/// Returns the path to this address and port of the peer.
fn path_to(info: &AssociationInfo, address: SocketAddr) -> Option<&PathInfo> {
    info.paths.iter().find(|path| path.route.remote == address.ip() && info.remote_port == address.port())
}

/// The addresses of the peer, each once, in the order of its paths.
fn peer_addresses(info: &AssociationInfo) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = Vec::new();
    for remote in info.paths.iter().map(|path| path.route.remote) {
        if !all.contains(&remote) {
            all.push(remote);
        }
    }
    all
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn saturating(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Fields {
    /// The members of `struct sctp_paddrinfo` behind the identifier.
    fn path(self, socket: &Socket, path: &PathInfo) -> Fields {
        // SCTP_UNCONFIRMED, SCTP_ACTIVE, SCTP_PF, SCTP_INACTIVE.
        let state = match path.state {
            PathState::Inactive => 0,
            PathState::PotentiallyFailed => 1,
            PathState::Active => 2,
            PathState::Unconfirmed => 3,
        };
        let peer = SocketAddr::new(path.route.remote, socket.peer.map_or(0, |peer| peer.port()));
        let srtt = path.srtt.map_or(0, milliseconds);
        let fields = self.storage(&socket.name_of(peer)).long(state).long(saturating(path.cwnd));
        fields.long(srtt).long(milliseconds(path.rto)).long(path.mtu.into())
    }
}

impl Socket {
    /// Gives the association, if it is up, the timers that the options name.
    pub(crate) fn retime(&self, now: Time, engine: &mut Endpoint) {
        let State::Up(association) = self.state else { return };
        let Some(info) = engine.info(association) else { return };
        engine.set_timing(now, association, self.options.timing(info.adaptation == Some(ADAPTATION)));
        if self.options.heartbeats_off {
            for path in info.paths {
                let options = PathOptions { heartbeats: Heartbeats::Off, ..path.options };
                // It may have gone: then there are no heartbeats either.
                let _ = engine.set_path_options(now, association, path.route.remote, options);
            }
        }
    }

    /// `SCTP_PEER_ADDR_PARAMS`: of one address, or of all that have none of their own.
    fn set_path_options(&mut self, now: Time, engine: &mut Endpoint, given: Given<'_>) -> Result<(), Errno> {
        let (heartbeat, retransmits) = (given.long(132), given.short(136));
        let (delay, flags) = (given.long(142), given.long(146));
        if flags & HEARTBEAT_ON != 0 && flags & HEARTBEAT_OFF != 0 || delay > 500 {
            return Err(libc::EINVAL);
        }
        let heartbeat = interval(heartbeat)?;
        if let Some(address) = given.address(4) {
            let association = self.association().ok_or(libc::EINVAL)?;
            let info = engine.info(association).ok_or(libc::EINVAL)?;
            let path = path_to(&info, address).ok_or(libc::EINVAL)?;
            let mut options = PathOptions { ..path.options };
            if flags & HEARTBEAT_OFF != 0 {
                options.heartbeats = Heartbeats::Off;
            } else if let Some(ms) = heartbeat {
                options.heartbeats = Heartbeats::Every(Duration::from_millis(ms.into()));
            } else if flags & HEARTBEAT_ON != 0 {
                options.heartbeats = Heartbeats::AsAssociation;
            }
            if retransmits != 0 {
                options.max_retrans = Some(u8::try_from(retransmits).unwrap_or(u8::MAX));
            }
            engine.set_path_options(now, association, address.ip(), options).map_err(|_| libc::EINVAL)?;
            if flags & HEARTBEAT_NOW != 0 {
                engine.request_heartbeat(now, association, address.ip()).map_err(|_| libc::EINVAL)?;
            }
            return Ok(());
        }
        if flags & HEARTBEAT_NOW != 0 {
            let association = self.association().ok_or(libc::EINVAL)?;
            for path in engine.info(association).ok_or(libc::EINVAL)?.paths {
                // A path that has gone meanwhile needs none.
                let _ = engine.request_heartbeat(now, association, path.route.remote);
            }
        }
        let options = &mut self.options;
        options.heartbeat_ms = heartbeat.or(options.heartbeat_ms);
        options.heartbeats_off =
            flags & HEARTBEAT_OFF != 0 || options.heartbeats_off && flags & HEARTBEAT_ON == 0;
        options.path_max_retransmits = Some(retransmits).filter(|n| *n != 0).or(options.path_max_retransmits);
        options.sack_delay_ms = Some(delay).filter(|delay| *delay != 0).or(options.sack_delay_ms);
        self.retime(now, engine);
        Ok(())
    }

    fn path_options(&self, engine: &Endpoint, given: Given<'_>) -> Vec<u8> {
        let timing = self.options.timing(false);
        let own = given.address(4).and_then(|address| {
            let info = engine.info(self.association()?)?;
            path_to(&info, address).cloned()
        });
        let heartbeats = own.as_ref().map(|path| path.options.heartbeats).unwrap_or_default();
        let (interval, is_on) = match heartbeats {
            Heartbeats::Every(interval) => (interval, true),
            Heartbeats::Off => (timing.heartbeat_interval, false),
            _ => (timing.heartbeat_interval, !self.options.heartbeats_off),
        };
        let retransmits =
            own.as_ref().and_then(|path| path.options.max_retrans).unwrap_or(timing.path_max_retrans);
        let mtu = own.as_ref().map_or(0, |path| u32::from(path.mtu));
        // SPP_PMTUD_ENABLE and SPP_SACKDELAY_ENABLE always hold.
        let flags = 8 | 32 | if is_on { HEARTBEAT_ON } else { HEARTBEAT_OFF };
        let address = given.0.get(4..4 + STORAGE).unwrap_or(&[0; STORAGE]);
        let fields = address.iter().copied().fold(Fields::new().id(self.id), Fields::byte);
        let fields = fields.long(milliseconds(interval)).short(retransmits.into()).long(mtu);
        let fields = fields.long(milliseconds(timing.sack_delay)).long(flags);
        let value = match given.0.len() {
            152 => fields.short(0),
            _ => fields.long(0).short(0),
        };
        value.done()
    }

    /// `SCTP_STATUS`.
    fn status(&self, engine: &Endpoint) -> Option<Vec<u8>> {
        let association = self.association()?;
        let Some(info) = engine.info(association) else {
            // SCTP_COOKIE_WAIT: nothing else is known yet.
            let mut value = Fields::new().id(self.id).long(2).done();
            value.resize(STATUS, 0);
            return Some(value);
        };
        let state = match info.state {
            StateName::Closed => 1,
            StateName::CookieWait | StateName::Accepting => 2,
            StateName::CookieEchoed => 3,
            StateName::Established => 4,
            StateName::ShutdownPending => 5,
            StateName::ShutdownSent => 6,
            StateName::ShutdownReceived => 7,
            StateName::ShutdownAckSent => 8,
        };
        let primary = info.paths.iter().find(|path| path.primary).or(info.paths.first())?;
        // Linux counts chunks: of the most common size, since the engine counts bytes.
        let fragment = engine.fragment_size(association).max(1);
        let chunks = |bytes: usize| u16::try_from(bytes.div_ceil(fragment)).unwrap_or(u16::MAX);
        let in_flight = info.send_buffered.saturating_sub(info.send_waiting);
        let fields = Fields::new().id(self.id).long(state).long(saturating(info.peer_rwnd));
        let fields = fields.short(chunks(in_flight)).short(chunks(info.receive_buffered));
        let fields =
            fields.short(info.inbound_streams).short(info.outbound_streams).long(saturating(fragment));
        Some(fields.id(self.id).path(self, primary).done())
    }

    /// A list of addresses behind the identifier and their number.
    fn packed(&self, addresses: &[IpAddr], port: u16, room: usize) -> Result<Vec<u8>, Errno> {
        let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let mut value = Fields::new().id(self.id).long(count).done();
        for address in addresses {
            let address = SocketAddr::new(*address, port);
            // Each in its own family: only the library's callers of one family must be told mapped addresses.
            value.extend_from_slice(sockproto::SockAddr::of(address, false).as_bytes());
        }
        if value.len() > room { Err(libc::ENOMEM) } else { Ok(value) }
    }
}
