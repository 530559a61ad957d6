//! Socket options: options of `SOL_SCTP` in Linux's layouts, and some options of other levels.
//!
//! A program's SCTP socket is one end of a pair of `AF_UNIX` sockets. The kernel cannot give these options their meaning for SCTP
//! on an `AF_UNIX` socket.
//!
//! The module `set` implements `setsockopt(2)`, and `get` implements `getsockopt(2)`. Begin with [`Options`].

mod get;
mod set;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;
use sctp::{
    AssociationConfig, AssociationInfo, Endpoint, Extension, Extensions, Heartbeats, PathInfo, PathOptions,
    Timing,
};
use sockproto::abi::{SOL_SCTP, option};
use sockproto::{DataHeader, Kind, flag};

use crate::ADAPTATION;
use crate::socket::{Socket, State};

/// Length of `struct sctp_event_subscribe`, in bytes.
const EVENTS: usize = 14;
/// The flags `SPP_HB_ENABLE`, `SPP_HB_DISABLE` and `SPP_HB_DEMAND` of `SCTP_PEER_ADDR_PARAMS`.
const HEARTBEAT_ON: u32 = 1;
const HEARTBEAT_OFF: u32 = 2;
const HEARTBEAT_NOW: u32 = 4;
/// Send buffer of an association, in bytes: twice the length of the longest message of a program.
const SEND_BUFFER: usize = 2 * sockproto::MESSAGE_MAX;
/// Receive buffer of an association, in bytes.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Treatment of an association whose socket is closed (`SO_LINGER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linger {
    /// The association ends in the background.
    Background,
    /// The association is aborted.
    Reset,
}

/// The options of one socket. An accepted socket begins with the options of its listener.
#[derive(Clone)]
pub(crate) struct Options {
    /// `SCTP_INITMSG`: outbound streams, inbound streams, retransmissions of INIT, and the longest timeout of INIT in milliseconds.
    /// The timeout is stored and returned, but has no effect.
    init: [u16; 4],
    rto: Rto,
    /// Limit on retransmissions of the association (`sasoc_asocmaxrxt`), if set.
    max_retransmits: Option<u16>,
    cookie_life_ms: u32,
    heartbeat_ms: Option<u32>,
    heartbeats_off: bool,
    path_max_retransmits: Option<u16>,
    sack_delay_ms: Option<u32>,
    /// Subscriptions to notifications, indexed by the notification's type minus 0x8000; 0: not wanted. The first entry is not a
    /// notification, but the subscription to `SCTP_SNDRCV` (`sctp_data_io_event`).
    events: [u8; EVENTS],
    default_send: DataHeader,
    context: u32,
    adaptation: Option<u32>,
    udp_port: Option<u16>,
    autoclose: u32,
    linger: [i32; 2],
    v6_only: bool,
    /// Values that the program has set for options of [`KEPT`], by level and name.
    kept: BTreeMap<(i32, i32), i32>,
}

/// The values of `SCTP_RTOINFO` that were set, in milliseconds.
#[derive(Clone, Copy, Default)]
struct Rto {
    initial: Option<u32>,
    max: Option<u32>,
    min: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            // These are Linux's default values.
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

/// Options whose value is one `int`. They are stored and returned, but have no effect in the engine. Each entry is the level, the
/// name and the initial value. The engine itself chooses the segment size, the burst, and the order in which parts of messages are
/// delivered. The other options do not concern the engine.
const KEPT: [(i32, i32, i32); 23] = [
    (SOL_SCTP, option::NODELAY, 0),
    (SOL_SCTP, option::DISABLE_FRAGMENTS, 0),
    (SOL_SCTP, option::MAPPED_V4, 1),
    (SOL_SCTP, option::MAXSEG, 0),
    (SOL_SCTP, option::FRAGMENT_INTERLEAVE, 0),
    (SOL_SCTP, option::PARTIAL_DELIVERY_POINT, 0),
    (SOL_SCTP, option::MAX_BURST, 4),
    // This option has no effect, because ASCONF is not supported. Linux's default (net.sctp.addip_enable = 0) has the same
    // result.
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

    /// Returns the bits of [`flag`] for the ancillary data that the program has requested with each message.
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

    /// Returns the time after which an unused association is closed (`SCTP_AUTOCLOSE`). Returns `None` if the option is not set.
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

    /// Returns the configuration of a new association.
    pub(crate) fn association(&self) -> AssociationConfig {
        self.association_with([0; 4])
    }

    /// Returns the configuration of a new association. Each field of `init` (`struct sctp_initmsg`) that is not 0 overrides the
    /// same field of the option `SCTP_INITMSG`.
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
            // When the peer shuts down, messages of the program may still wait in the socket pair.
            takes_late_messages: true,
            send_buffer: SEND_BUFFER,
            receive_buffer: RECEIVE_BUFFER,
            max_init_retransmits: u8::try_from(attempts).unwrap_or(u8::MAX),
            ..AssociationConfig::default()
        }
    }

    /// Returns the timers: the values of RFC 9260, or the quick timers ([`Timing::quick`]) if the peer is an sctpify socket server.
    /// Values that the program has set override these timers.
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
        // If a program has set only one limit of the RTO, this limit may contradict the default of the other limit. In this case,
        // the maximum is raised to the minimum.
        timing.rto_max = timing.rto_max.max(timing.rto_min);
        timing
    }
}

/// Returns the settings of associations for [`sctp::EndpointConfig`]. An accepted association takes addresses, streams and
/// extensions from its listener, and all other settings from this value.
pub fn association_defaults() -> AssociationConfig {
    Options::default().association()
}

/// Returns the path to this address and port of the peer.
fn path_to(info: &AssociationInfo, address: SocketAddr) -> Option<&PathInfo> {
    info.paths.iter().find(|path| path.route.remote == address.ip() && info.remote_port == address.port())
}

impl Socket {
    /// Sets the timers of the association as the options require, if the association is up.
    pub(crate) fn retime(&self, now: Time, engine: &mut Endpoint) {
        let State::Up(association) = self.state else { return };
        let Some(info) = engine.info(association) else { return };
        engine.set_timing(now, association, self.options.timing(info.adaptation == Some(ADAPTATION)));
    }

    /// Switches the heartbeats of all paths on or off as the options require, if the association is up. The call overrides values
    /// that were set for single paths, as in Linux.
    pub(crate) fn set_heartbeats(&self, now: Time, engine: &mut Endpoint) {
        let State::Up(association) = self.state else { return };
        let Some(info) = engine.info(association) else { return };
        let heartbeats =
            if self.options.heartbeats_off { Heartbeats::Off } else { Heartbeats::AsAssociation };
        for path in info.paths {
            let options = PathOptions { heartbeats, ..path.options };
            // An error means that the path no longer exists, so it has no heartbeats.
            let _ = engine.set_path_options(now, association, path.route.remote, options);
        }
    }
}
