//! Settings of an endpoint and of its associations, and every limit by name.

use std::num::NonZeroU16;
use std::time::Duration;

use base::Shard;

use crate::extension::auth::AuthConfig;
use crate::extension::protection::ProtectionConfig;
use crate::extension::reconfig::ReconfigPolicy;
use crate::extension::send_buffer::SendBufferConfig;
use crate::extension::{Extension, Extensions};
use crate::multipath::Multipath;

/// Settings of an [`Endpoint`](crate::Endpoint).
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Lifetime of a state cookie (Valid.Cookie.Life, RFC 9260 section 16).
    pub cookie_lifetime: Duration,
    /// Interval at which the key that signs cookies is replaced; the previous one stays valid for as long again.
    pub cookie_key_lifetime: Duration,
    /// Which part of a host's associations this endpoint has: its verification tags say so, by which packets are led to it
    /// (see [`Shard`]). The driver gives it the packets of its part only, and begins an association where
    /// [`Shard::of_peer`] says.
    pub shard: Shard,
    /// Settings of accepted associations; [`Connect`](crate::Connect) brings its own.
    pub association: AssociationConfig,
    /// Bounds on memory and work.
    pub limits: Limits,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for EndpointConfig {
    fn default() -> Self {
        EndpointConfig {
            cookie_lifetime: Duration::from_secs(60),
            cookie_key_lifetime: Duration::from_secs(600),
            shard: Shard::WHOLE,
            association: AssociationConfig::default(),
            limits: Limits::default(),
            _non_exhaustive: (),
        }
    }
}

/// Settings of one association.
#[derive(Clone, Debug)]
pub struct AssociationConfig {
    /// Timers and thresholds.
    pub timing: Timing,
    /// Outbound streams to ask for, 1 to 65,535.
    pub outbound_streams: u16,
    /// Inbound streams to allow, 1 to 65,535.
    pub inbound_streams: u16,
    /// Most bytes of user data that may wait to be sent or acknowledged before [`send`](crate::Endpoint::send) refuses. The
    /// buffer begins with `buffer_start` and follows the congestion windows.
    pub send_buffer: usize,
    /// Messages are taken after the peer's SHUTDOWN as well, until [`shutdown`](crate::Endpoint::shutdown): only then is it answered. For a
    /// driver whose programs have handed over messages that have not reached the engine (RFC 9260 section 9.2: those outstanding
    /// are sent first). The driver must then call `shutdown` after every [`PeerShutdown`](crate::Event::PeerShutdown).
    pub takes_late_messages: bool,
    /// Most bytes of user data that may wait to be read; what is left is advertised as a_rwnd. The buffer begins with
    /// `buffer_start` and follows what is read in a round trip. Bookkeeping comes on top, but all together never takes
    /// more than three times this, or than 96 KiB if that is more, however small the pieces. Less than 1,500 counts as 1,500.
    pub receive_buffer: usize,
    /// Bytes that each buffer begins with, and comes back to; at least 8 KiB are of use.
    pub buffer_start: usize,
    /// MTU of the largest link, IP header included, in bytes (576 to 65,535). A path begins with this, but with no more than
    /// 1,500; more, and less where routers on the way take less, is found by probes (RFC 8899).
    pub mtu: u16,
    /// Adaptation Layer Indication to announce (RFC 5061 section 4.2.6).
    pub adaptation: Option<u32>,
    /// Extensions to offer; those that the peer offers too are used. By default only [`Extension::Ecn`].
    pub extensions: Extensions,
    /// Authentication of chunks, if that is among the extensions.
    pub auth: AuthConfig,
    /// Protection of all packets by DTLS chunks; `None`: none is offered, and that of a peer not accepted. Where it is agreed on,
    /// messages of the application wait until the caller has [installed keys](crate::Endpoint::install_keys) and
    /// [knows the peer](crate::Endpoint::know_peer), and AUTH is not used. A host that requires a key of AUTH takes no protected association, since nothing
    /// in it proves that key.
    pub protection: Option<ProtectionConfig>,
    /// Proof required before the peer's addresses change, and before a listed one is used.
    pub address_proof: AddressProof,
    /// Which requests of the peer about streams are fulfilled, if [`Extension::StreamReconfiguration`] is among the
    /// extensions.
    ///
    /// [`Extension::StreamReconfiguration`]: crate::Extension::StreamReconfiguration
    pub reconfig: ReconfigPolicy,
    /// Advertisement of the waiting data to routers; `None`: none. It reveals the amount of the application's data and its
    /// pauses to everybody on the path. The peer's advertisements are read only if this is set.
    pub advertisement: Option<SendBufferConfig>,
    /// The error detection method (EDMID, RFC 9653 section 4) of a lower layer that makes the checksum superfluous, such
    /// as 1 for DTLS. Packets with a checksum of zero are then taken, and sent if the peer
    /// has named the same. Neither IP nor UDP is such a layer.
    pub zero_checksum: Option<u32>,
    /// Which stream sends next.
    pub scheduler: Scheduler,
    /// Congestion control of each path.
    pub congestion: CongestionAlgorithm,
    /// Packets that may be in flight on a path before anything was acknowledged there, where that is more than RFC 9260 section
    /// 7.2.1 lets (about three); ten is what RFC 6928 lets TCP. 0 leaves it at that. See also
    /// [`set_initial_packets`](crate::Endpoint::set_initial_packets).
    pub initial_packets: u8,
    /// Use of one path or of all at once for new data.
    pub multipath: Multipath,
    /// INIT retransmissions before giving up (Max.Init.Retransmits).
    pub max_init_retransmits: u8,
    /// Retransmissions of INIT, and of COOKIE ECHO, after which the timeout begins to double. RFC 9260 section 6.3.3 doubles it from the
    /// first one on (0): where a program waits a fraction of a second for an answer, one loss or two should not use it up.
    pub steady_init_retransmits: u8,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The least a_rwnd of an INIT or INIT ACK, in bytes (RFC 9260 section 3.3.2).
pub(crate) const LEAST_WINDOW: u32 = 1500;

/// Which stream sends next (RFC 8260 section 3). Unless [`Extension::Interleaving`](crate::Extension::Interleaving) was
/// negotiated, a message that has begun ends before another begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Scheduler {
    /// Messages leave in the order in which they were handed over (SCTP_SS_FCFS).
    #[default]
    FirstCome,
    /// One message of each stream in turn, or one chunk where messages interleave (SCTP_SS_RR).
    RoundRobin,
    /// One packet of each stream in turn (SCTP_SS_RR_PKT).
    RoundRobinPerPacket,
    /// The stream of the least priority number first (SCTP_SS_PRIO); streams of one priority take turns.
    Priority,
    /// Each stream gets as many bytes as the others (fair capacity, SCTP_SS_FC).
    FairBandwidth,
    /// Each stream gets bytes in proportion to its weight (SCTP_SS_WFQ).
    //= rfc8260#3-1
    WeightedFair,
}

impl Default for AssociationConfig {
    fn default() -> Self {
        AssociationConfig {
            timing: Timing::default(),
            outbound_streams: 16,
            inbound_streams: 2048,
            takes_late_messages: false,
            send_buffer: 1 << 20,
            receive_buffer: 1 << 20,
            buffer_start: 64 << 10,
            mtu: 1500,
            adaptation: None,
            //= rfc8260#2.2.1-3
            extensions: Extensions::NONE.with(Extension::Ecn),
            auth: AuthConfig::default(),
            protection: None,
            address_proof: AddressProof::default(),
            reconfig: ReconfigPolicy::default(),
            advertisement: None,
            zero_checksum: None,
            scheduler: Scheduler::default(),
            congestion: CongestionAlgorithm::default(),
            initial_packets: 0,
            multipath: Multipath::default(),
            max_init_retransmits: 8,
            steady_init_retransmits: 0,
            _non_exhaustive: (),
        }
    }
}

impl AssociationConfig {
    /// The timeout of T1-init or T1-cookie after so many retransmissions, before which it was `rto`.
    //= rfc9260#4-3 5.1-12 5.1.4-3
    pub(crate) fn next_t1(&self, rto: Duration, retransmits: u8) -> Duration {
        if retransmits <= self.steady_init_retransmits { rto } else { (rto * 2).min(self.timing.rto_max) }
    }

    /// The window that INIT and INIT ACK announce.
    //= rfc9260#3.3.2-10
    pub(crate) fn first_window(&self) -> usize {
        //= rfc9260#3.3.2-8
        self.buffer_start.min(self.receive_buffer).max(LEAST_WINDOW as usize)
    }
}

/// The proof that is needed before the addresses of a peer change (RFC 5061), and before one that it lists is used.
///
/// An ASCONF is signed with a shared key or, where there is none, with the empty one. With the empty key the signature is made of what
/// INIT and INIT ACK show to everybody on their way ([RFC 4895, section 8.1]): it proves nothing against somebody who has seen these
/// two packets. A key counts as shared if it has at least one byte.
///
/// [RFC 4895, section 8.1]: https://www.rfc-editor.org/rfc/rfc4895#section-8.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddressProof {
    /// As RFC 5061 and RFC 9260 have it: the signature is enough whatever the key, from whatever address, and an address is
    /// confirmed once a HEARTBEAT to it was answered, wherever the answer came from.
    #[default]
    Signature,
    /// Without a shared key addresses change only by proof over a confirmed path. An ASCONF that is not signed with a shared key
    /// counts only if it comes by a confirmed path, UDP port included. An address that it adds is used only once it has answered
    /// a HEARTBEAT, and has then sent the answer to another one that went by a path confirmed before, too; an end of this kind does that
    /// for addresses that it adds itself. So a peer of another make cannot add addresses that are used.
    /// [`move_to_local_address`](crate::Endpoint::move_to_local_address) needs a shared key.
    ///
    /// With a key or without, an unconfirmed path is confirmed only by an answer that came from its remote address to its local one.
    ConfirmedPath,
}

/// Congestion control of a path: the data in flight, and the reaction to loss and delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CongestionAlgorithm {
    /// RFC 9260 section 7.2: halves the window on loss, and adds one packet each round trip.
    Rfc9260,
    /// CUBIC (RFC 9438) with HyStart++ (RFC 9406).
    #[default]
    Cubic,
    /// For paths that lose packets without being full, such as radio links: models the path's rate and delay, and takes
    /// losses for congestion only where delay grows too, or where more than a tenth is lost. Not for paths shared with
    /// others who have a claim to an equal share.
    LossTolerant,
}

/// Margin beyond the round trip within which an acknowledgement may come before it counts as lost, where a peer's SACK waits for
/// [`QUICK_SACK_DELAY`]: five times that, and more than a busy host adds. Linux allows 200 ms.
const QUICK_RTO_MARGIN: Duration = Duration::from_millis(100);
/// The longest that a SACK may wait: all that waits for one counts on it.
const QUICK_SACK_DELAY: Duration = Duration::from_millis(20);
/// Time that a first path must have worked again before data goes back to it: longer than the links of trains and lifts come and go.
const QUICK_PRIMARY_RETURN: Duration = Duration::from_secs(5);
/// Percent of its data that a path may lose before another takes its place. CUBIC itself makes a queue lose that much where it leaves
/// room for five or six packets: what loses less may just be shared by many.
const QUICK_LOSS_MAX: u8 = 5;
/// Delay of data in flight beyond which another, much quicker path carries the data: longer than usual queues, and much less than what
/// people wait for.
const QUICK_DELAY_MAX: Duration = Duration::from_millis(500);
/// Timeouts in a row that an association survives: a quarter of an hour at the greatest RTO, as long as TCP's own retries last by
/// default.
const QUICK_OUTAGE_RETRANS: u8 = 180;

/// Timers and thresholds of an association; the defaults are those of RFC 9260 section 16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// RTO before the first measurement (RTO.Initial).
    pub rto_initial: Duration,
    /// Least RTO (RTO.Min).
    pub rto_min: Duration,
    /// Least time by which the RTO exceeds the smoothed round trip: the clock granularity G of RFC 9260 section 6.3.1, C1, and RFC
    /// 6298 section 2, made longer than what hosts and queues add now and then.
    pub rto_margin: Duration,
    /// Greatest RTO (RTO.Max).
    pub rto_max: Duration,
    /// Delay of a SACK; more than 500 ms counts as 500 ms (RFC 9260 section 6.2).
    pub sack_delay: Duration,
    /// Pause between heartbeats on an idle path, to which its RTO is added (HB.Interval).
    pub heartbeat_interval: Duration,
    /// Timeouts in a row after which a path is inactive (Path.Max.Retrans).
    pub path_max_retrans: u8,
    /// Timeouts in a row after which a path is potentially failed (PFMR, RFC 7829); `None`: never.
    pub potentially_failed_max_retrans: Option<u8>,
    /// Timeouts in a row after which another path takes the place of the primary one for good (PSMR, RFC 7829 section 5);
    /// `None`: never, data goes back to the primary path once that works again. Less than PFMR, or than Path.Max.Retrans
    /// without PFMR, counts as that.
    pub primary_switchover_max_retrans: Option<u8>,
    /// Time that the primary path must have worked again after a failure before data goes back to it; twice as long after each
    /// further failure, up to 16 times, until it has worked for a minute. Meanwhile it is asked four times as often as other idle
    /// paths, and must have given eight answers without a failure between them.
    pub primary_return: Duration,
    /// True if a path is doubted that was silent for about two round trips with data in flight. Another active path then
    /// repeats the earliest chunk. If that is acknowledged, and a HEARTBEAT on the silent path is not, the path counts a
    /// timeout. This replaces the tail-loss probe wherever another path is active.
    pub doubts_silence: bool,
    /// Percent of its data that a path in use may lose, 1 to 99; `None`: any. One that loses more, by 30 chunks and in at least six
    /// events (RFC 9260 section 7.2.4), is potentially failed if there is another active path of its family that shares no address
    /// with it, has not just failed, and is not known to lose half as much. Not where all paths carry data at once.
    pub loss_max: Option<u8>,
    /// Limit on the delay of data in flight on the path in use; `None`: no limit. If it takes longer than this and four times as long as it
    /// would by another path besides, that one is used: an active one of its family that shares no address with it and answers
    /// while the delay lasts. Only where little is in flight, or the path has fallen to an eighth of its rate: a queue that the
    /// association has filled itself is no reason. Not where all paths carry data at once.
    pub delay_max: Option<Duration>,
    /// Timeouts in a row over all paths after which the association fails (Association.Max.Retrans).
    pub association_max_retrans: u8,
    /// Limit on the duration of a shutdown (T5-shutdown-guard).
    pub shutdown_guard: Duration,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

//= rfc9260#16-1
impl Default for Timing {
    fn default() -> Self {
        Timing {
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_secs(1),
            rto_margin: Duration::ZERO,
            rto_max: Duration::from_secs(60),
            sack_delay: Duration::from_millis(200),
            heartbeat_interval: Duration::from_secs(30),
            path_max_retrans: 5,
            //= rfc7829#3.2-1
            potentially_failed_max_retrans: Some(0),
            //= rfc7829#5-8
            primary_switchover_max_retrans: None,
            //= rfc9260#6.4-1
            primary_return: Duration::ZERO,
            doubts_silence: false,
            loss_max: None,
            delay_max: None,
            association_max_retrans: 10,
            //= rfc9260#9.2-12
            shutdown_guard: Duration::from_secs(300),
            _non_exhaustive: (),
        }
    }
}

impl Timing {
    /// For two ends that both have it: a silent path is left in a fraction of a second, and an idle one is probed each second.
    /// RFC 9260's values are those of 1990s networks. Each has its reason in `docs/failover.md`.
    pub fn quick() -> Timing {
        Timing {
            rto_initial: Duration::from_millis(300),
            rto_min: QUICK_RTO_MARGIN,
            rto_margin: QUICK_RTO_MARGIN,
            rto_max: Duration::from_secs(5),
            sack_delay: QUICK_SACK_DELAY,
            heartbeat_interval: Duration::from_secs(1),
            path_max_retrans: 4,
            primary_return: QUICK_PRIMARY_RETURN,
            doubts_silence: true,
            loss_max: Some(QUICK_LOSS_MAX),
            delay_max: Some(QUICK_DELAY_MAX),
            association_max_retrans: QUICK_OUTAGE_RETRANS,
            shutdown_guard: Duration::from_secs(60),
            ..Timing::default()
        }
    }

    /// The least PSMR that RFC 7829 section 5 allows a path whose Path.Max.Retrans is `path_max_retrans`.
    //= rfc7829#5-1 5-2 5-6 5-7
    pub(crate) fn least_switchover(&self, path_max_retrans: u8) -> u8 {
        self.potentially_failed_max_retrans.unwrap_or(path_max_retrans)
    }
}

/// Settings of one path that differ from those of its association (RFC 6458 section 8.1.12, SCTP_PEER_ADDR_PARAMS, and RFC
/// 7829 section 7.2, SCTP_PEER_ADDR_THLDS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// Heartbeats while the path is idle.
    pub heartbeats: Heartbeats,
    /// Timeouts in a row after which the path is inactive; `None`: [`Timing::path_max_retrans`].
    pub max_retrans: Option<u8>,
    /// Timeouts in a row after which the path, being the primary one, is so no longer (PSMR); `None`:
    /// [`Timing::primary_switchover_max_retrans`].
    pub switchover_max_retrans: Option<u8>,
    /// The path's part of new data under [`PathScheduler::Weighted`](crate::PathScheduler::Weighted), in proportion to the
    /// weights of the others; `None`: 1.
    pub weight: Option<NonZeroU16>,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Heartbeats of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heartbeats {
    /// At [`Timing::heartbeat_interval`].
    #[default]
    AsAssociation,
    /// At an interval of the path's own, to which its RTO is added.
    Every(Duration),
    /// None once the path is confirmed, but for those that are
    /// [asked for](crate::Endpoint::request_heartbeat): its failure is found by data only, and so is its return.
    Off,
}

/// The link of one end's address, and its use for data, as the operator of that end wants it. An operator knows the links and their
/// costs; the engine sees only how well its paths work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressUse {
    /// Rank among the addresses of that end.
    pub preference: Preference,
    /// The interval between heartbeats on an idle path of the address that is not the one in use, to which the RTO is added.
    /// It counts in tenths of a second, where it is longer than the path's own; at most [`AddressUse::HEARTBEAT_MAX`].
    pub heartbeat: Option<Duration>,
    /// Number of the link that has the address; 0 if it is not known. Addresses of one end with the same number fail together, those with
    /// different numbers do not. Of unknown ones, other addresses of a family are taken for another link's.
    pub link: u8,
}

impl AddressUse {
    /// The longest interval that either end can ask for.
    pub const HEARTBEAT_MAX: Duration = Duration::from_secs(600);
}

/// Rank of an address among the addresses of its end. There are no further ranks, so a `match` may be exhaustive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// Carries data as long as it works.
    Primary,
    /// Carries data while no primary one works, and together with them if all paths carry data at once.
    #[default]
    Secondary,
    /// Carries data only while no other one works.
    Backup,
}

/// Bounds on memory and work that no peer can move.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Associations of the endpoint.
    pub associations: usize,
    /// Addresses taken from one INIT or INIT ACK; the rest are ignored.
    pub peer_addresses: usize,
    /// Paths of one association.
    pub paths: usize,
    /// Replies to packets of no association that wait to be sent; further ones are dropped.
    pub queued_replies: usize,
    /// Gap ack blocks in one SACK, and separate ranges of TSNs kept above the cumulative TSN.
    pub gap_ranges: usize,
    /// Duplicate TSNs reported in one SACK.
    pub duplicates: usize,
    /// Bytes of unrecognized parameters or chunks reported back in one packet.
    pub reported_bytes: usize,
    /// Messages kept while they wait for earlier ones of their stream or for missing fragments.
    pub parked_messages: usize,
    /// Heartbeats of one association that are out at once to addresses not proved yet (HB.Max.Burst, RFC 9260 sections 5.4
    /// and 16); at least 1.
    pub unproven_heartbeats: usize,
    /// INITs answered. One whose cookie comes back is not counted.
    pub inits: AnswerRate,
    /// Answers to packets that belong to no association (RFC 9260 section 8.4).
    pub stray_answers: AnswerRate,
    /// Places in the table of source neighbourhoods (IPv4 /24, IPv6 /56) that both rates share; 8 bytes each, twice.
    pub source_places: usize,
    /// Bytes that all associations together may hold, received and to be sent, with what it takes to keep them. From three
    /// quarters on no buffer grows, from seven eighths on no association begins and buffers shrink as they empty; beyond
    /// the whole each association may hold 8 KiB of its own each way, 16 KiB of what it receives with what it takes to keep it,
    /// and one message to be sent. The count goes by what the allocator gives, not by what was asked of it.
    pub memory: usize,
    /// Share of `memory` for all associations with one host. It goes by the same three steps, so that one host cannot take
    /// what is there for all. The host is the one that the association began with: an IPv4 address, or an IPv6 /64, of which a
    /// host may have all addresses.
    pub memory_of_host: usize,
    /// Records of a trace that wait to be polled; beyond, the oldest go. At least 1; about 150 bytes each.
    pub trace_records: usize,
    /// Cookies remembered as used up, so that none makes a second association after the first is over; about 40 bytes
    /// each. Beyond, the oldest are forgotten; where a key by direction is required no new association begins until one
    /// expires. Those with such a key and the others have as many each.
    pub spent_cookies: usize,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Rate limit on answers to packets out of the blue: token buckets for all of them, and for each source neighbourhood. Beyond,
/// they are dropped and counted. The two buckets have no other parameters, so a literal names all fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerRate {
    /// Answers per second to all sources; at least 1.
    pub per_second: u32,
    /// Answers at once to all sources.
    pub burst: u32,
    /// Answers per second to one neighbourhood; at least 1.
    pub source_per_second: u32,
    /// Answers at once to one neighbourhood.
    pub source_burst: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            associations: 65_536,
            peer_addresses: 16,
            paths: 32,
            queued_replies: 256,
            gap_ranges: 256,
            duplicates: 16,
            reported_bytes: 512,
            parked_messages: 16_384,
            unproven_heartbeats: 1,
            inits: AnswerRate {
                per_second: 20_000,
                burst: 32_768,
                source_per_second: 2_000,
                source_burst: 8_192,
            },
            stray_answers: AnswerRate {
                per_second: 2_000,
                burst: 4_096,
                source_per_second: 200,
                source_burst: 512,
            },
            source_places: 4_096,
            memory: 1 << 30,
            memory_of_host: 1 << 28,
            trace_records: 65_536,
            spent_cookies: 16_384,
            _non_exhaustive: (),
        }
    }
}
