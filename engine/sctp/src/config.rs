//! Settings of an endpoint and of its associations, and every limit by name. Begin at [`EndpointConfig`].

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
    /// Lifetime of a state cookie (Valid.Cookie.Life, RFC 9260 section 16). A peer's Cookie Preservative can extend it up to twice
    /// this.
    pub cookie_lifetime: Duration,
    /// Age from which the key that signs cookies is replaced when the next cookie is signed. The previous key stays valid until the
    /// next replacement.
    pub cookie_key_lifetime: Duration,
    /// The part of a host's associations that this endpoint has. Its verification tags name the part, so packets can be led to it by
    /// their tags (see [`Shard`]). The driver must give the endpoint only packets of its part, and must begin an association in the
    /// shard that [`Shard::of_peer`] returns.
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
    /// Limit on the bytes of user data that wait to be sent or acknowledged; [`send`](crate::Endpoint::send) refuses more. The buffer
    /// begins with `buffer_start` bytes and grows to twice the sum of the congestion windows, within this limit.
    pub send_buffer: usize,
    /// True if messages are accepted after the peer's SHUTDOWN, until the driver calls [`shutdown`](crate::Endpoint::shutdown). Only
    /// then is the SHUTDOWN answered. For drivers with messages that programs have handed over and that have not reached the engine
    /// (RFC 9260 section 9.2: outstanding data is sent first). Such a driver must call `shutdown` after every
    /// [`PeerShutdown`](crate::Event::PeerShutdown).
    pub takes_late_messages: bool,
    /// Limit on the bytes of user data that wait to be read; less than 1,500 counts as 1,500. The buffer begins with `buffer_start`
    /// bytes and grows to four times the bytes read in a round trip, within this limit. Its free part is advertised as a_rwnd. With
    /// bookkeeping the data takes up to three times this, or 96 KiB if that is more, however small the pieces are.
    pub receive_buffer: usize,
    /// Size with which each buffer begins, in bytes. The send buffer returns to it with small congestion windows. Should be 8 KiB or
    /// more.
    pub buffer_start: usize,
    /// MTU of the largest link, IP header included, in bytes (576 to 65,535). A path begins with this size, or with 1,500 if that is
    /// less. Probes find larger sizes up to this one, and smaller ones where routers require them (RFC 8899).
    pub mtu: u16,
    /// Adaptation Layer Indication to announce (RFC 5061 section 4.2.6).
    pub adaptation: Option<u32>,
    /// Extensions to offer; those that the peer offers too are used. By default only [`Extension::Ecn`].
    pub extensions: Extensions,
    /// Authentication of chunks, if that is among the extensions.
    pub auth: AuthConfig,
    /// Protection of all packets by DTLS chunks; `None`: none is offered, and a peer's offer is not accepted. Where protection is
    /// agreed on, messages of the application wait until the caller has [installed keys](crate::Endpoint::install_keys) and [knows the
    /// peer](crate::Endpoint::know_peer). AUTH is not used, even if a key is [required](AuthConfig::required): the caller's key
    /// management must then ask for the key.
    pub protection: Option<ProtectionConfig>,
    /// Proof required before the peer's addresses change, and before a listed one is used.
    pub address_proof: AddressProof,
    /// Policy for the peer's requests about streams, if [`Extension::StreamReconfiguration`] is among the extensions.
    ///
    /// [`Extension::StreamReconfiguration`]: crate::Extension::StreamReconfiguration
    pub reconfig: ReconfigPolicy,
    /// Advertisement of the waiting data to routers; `None`: none is sent, and the peer's advertisements are not read. An advertisement
    /// reveals the amount of the application's data, and its pauses, to every observer on the path.
    pub advertisement: Option<SendBufferConfig>,
    /// The error detection method (EDMID, RFC 9653 section 4) of a lower layer that makes the checksum superfluous, such as 1 for DTLS.
    /// Packets with a checksum of zero are then accepted, and sent if the peer has announced the same method. Neither IP nor UDP is
    /// such a layer.
    pub zero_checksum: Option<u32>,
    /// Rule that chooses the stream that sends next.
    pub scheduler: Scheduler,
    /// Congestion control of each path.
    pub congestion: CongestionAlgorithm,
    /// Initial congestion window of a path, in packets, if that is more than the window of RFC 9260 section 7.2.1 (about three
    /// packets); 0 keeps that window. RFC 6928 allows TCP ten. See also [`set_initial_packets`](crate::Endpoint::set_initial_packets).
    pub initial_packets: u8,
    /// Use of one path or of all at once for new data.
    pub multipath: Multipath,
    /// Retransmissions of INIT, and of COOKIE ECHO, before the attempt fails (Max.Init.Retransmits).
    pub max_init_retransmits: u8,
    /// Retransmissions of INIT, and of COOKIE ECHO, that leave the timeout unchanged; each further one doubles it. RFC 9260 section
    /// 6.3.3 requires 0. More suits a program that waits a fraction of a second for an answer: one or two losses then do not use up its
    /// time.
    pub steady_init_retransmits: u8,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The least a_rwnd of an INIT or INIT ACK, in bytes (RFC 9260 section 3.3.2).
pub(crate) const LEAST_WINDOW: u32 = 1500;

/// Rule that chooses the stream that sends next (RFC 8260 section 3). Without
/// [`Extension::Interleaving`](crate::Extension::Interleaving), a message that has begun is sent to its end before another begins.
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
    /// Returns the timeout of T1-init or T1-cookie after retransmission number `retransmits`; before it, the timeout was `rto`.
    //= rfc9260#4-3 5.1-12 5.1.4-3
    pub(crate) fn next_t1(&self, rto: Duration, retransmits: u8) -> Duration {
        if retransmits <= self.steady_init_retransmits { rto } else { (rto * 2).min(self.timing.rto_max) }
    }

    /// Returns the window that INIT and INIT ACK announce, in bytes.
    //= rfc9260#3.3.2-10
    pub(crate) fn first_window(&self) -> usize {
        //= rfc9260#3.3.2-8
        self.buffer_start.min(self.receive_buffer).max(LEAST_WINDOW as usize)
    }
}

/// Proof required before the addresses of a peer change (RFC 5061), and before an address that it lists is used.
///
/// An ASCONF is signed with a shared key or, without one, with the empty key. A signature with the empty key depends only on what INIT
/// and INIT ACK show to every observer on their path ([RFC 4895, section 8.1]): an observer of these two packets can forge it. A key
/// counts as shared if it has at least one byte; a sealed packet counts as signed with a shared key.
///
/// [RFC 4895, section 8.1]: https://www.rfc-editor.org/rfc/rfc4895#section-8.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddressProof {
    /// The rules of RFC 5061 and RFC 9260. A signature is enough, with any key and from any address. An address is confirmed once a
    /// HEARTBEAT to it has been answered, from any address.
    #[default]
    Signature,
    /// Without a shared key, addresses change only with proof over a confirmed path:
    ///
    /// - An ASCONF counts only if it arrives over a confirmed path, UDP port included.
    /// - An added address is used only after two proofs. It must answer a HEARTBEAT. Then the answer to a second HEARTBEAT, which goes
    ///   over a confirmed path, must come from the added address. An end with this setting sends such answers from its own new
    ///   addresses; other implementations do not, so addresses that they add are never used.
    /// - [`move_to_local_address`](crate::Endpoint::move_to_local_address) requires a shared key, or
    ///   [`protection`](AssociationConfig::protection).
    ///
    /// With a shared key or without, an unconfirmed path is confirmed only by an answer from its remote address to its local one.
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
    /// For paths that lose packets without being full, such as radio links. Models the path's rate and delay. Treats losses as
    /// congestion only if the delay grows too, or if more than a tenth is lost. Not for paths shared with flows that are entitled to an
    /// equal share.
    LossTolerant,
}

/// Least margin of the RTO over the round trip, if the peer delays its SACK by [`QUICK_SACK_DELAY`]: five times that, and more than a
/// busy host adds. Linux uses 200 ms.
const QUICK_RTO_MARGIN: Duration = Duration::from_millis(100);
/// Limit on the delay of a SACK. All other timers of [`Timing::quick`] rely on it.
const QUICK_SACK_DELAY: Duration = Duration::from_millis(20);
/// Time that the primary path must have worked again before data returns to it: longer than the links of trains and lifts come and go.
const QUICK_PRIMARY_RETURN: Duration = Duration::from_secs(5);
/// Percent of its data that a path may lose before another takes its place. CUBIC alone makes a queue with room for five or six packets
/// lose that much: a path that loses less may just be shared by many flows.
const QUICK_LOSS_MAX: u8 = 5;
/// Delay of data in flight beyond which a much quicker path carries the data: longer than in usual queues, and much shorter than people
/// are ready to wait.
const QUICK_DELAY_MAX: Duration = Duration::from_millis(500);
/// Consecutive timeouts that an association survives: a quarter of an hour at the greatest RTO, as long as TCP's own retries last by
/// default.
const QUICK_OUTAGE_RETRANS: u8 = 180;

/// Timers and thresholds of an association; the defaults are those of RFC 9260 section 16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// RTO before the first measurement (RTO.Initial).
    pub rto_initial: Duration,
    /// Least RTO (RTO.Min).
    pub rto_min: Duration,
    /// Least margin of the RTO over the smoothed round trip. It stands in place of the clock granularity G of RFC 6298 section 2 (RFC
    /// 9260 section 6.3.1), but also covers delays that hosts and queues add now and then.
    pub rto_margin: Duration,
    /// Greatest RTO (RTO.Max).
    pub rto_max: Duration,
    /// Delay of a SACK; more than 500 ms counts as 500 ms (RFC 9260 section 6.2).
    pub sack_delay: Duration,
    /// Pause between heartbeats on an idle path, to which its RTO is added (HB.Interval).
    pub heartbeat_interval: Duration,
    /// Consecutive timeouts that a path survives; one more makes it inactive (Path.Max.Retrans).
    pub path_max_retrans: u8,
    /// Consecutive timeouts that leave a path active; one more makes it potentially failed (PFMR, RFC 7829). `None`: it never is.
    pub potentially_failed_max_retrans: Option<u8>,
    /// Consecutive timeouts that leave a path the primary one; after one more, another path is primary for good (PSMR, RFC 7829 section
    /// 5). Values below PFMR, or below Path.Max.Retrans if there is no PFMR, count as that limit. `None`: the primary path never
    /// changes, and data returns to it once it works again.
    pub primary_switchover_max_retrans: Option<u8>,
    /// Time that the primary path must have worked again after a failure before data returns to it. The time doubles with each recovery
    /// within a minute of the one before, up to 16 times this. Meanwhile heartbeats are four times as frequent as on other idle paths,
    /// and eight must have been answered without a failure between them.
    pub primary_return: Duration,
    /// True if a path that has been silent for about two round trips with data in flight is doubted. The earliest chunk is then
    /// repeated on another active path, and a HEARTBEAT is sent on the silent one. If the chunk is acknowledged and the HEARTBEAT is
    /// not answered, a timeout counts against the silent path. This replaces the tail-loss probe wherever another path is active,
    /// unless every chunk goes by all paths.
    pub doubts_silence: bool,
    /// Percent of its data that a path in use may lose, 1 to 99; `None`: no limit. A path is too lossy if it has lost 30 chunks beyond
    /// this share, in six events of loss or more (RFC 9260 section 7.2.4). It becomes potentially failed if another path can replace
    /// it: an active path of the same address family that shares no address with it, has not just failed, and is not known to lose half
    /// as much or more. Without effect if all paths carry data at once.
    pub loss_max: Option<u8>,
    /// Limit on the delay of data in flight on the path in use; `None`: no limit. A path is too slow if the delay exceeds the sum of
    /// this limit and four times the delay on another path that can replace it, as with [`loss_max`](Self::loss_max). It becomes
    /// potentially failed if the other path answers while the delay lasts. A queue that the association has filled itself does not
    /// count: little must be in flight, or the path's rate must have fallen to an eighth of its best. Without effect if all paths carry
    /// data at once.
    pub delay_max: Option<Duration>,
    /// Consecutive timeouts, over all paths, that an association survives; one more ends it (Association.Max.Retrans).
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
    /// Returns settings for associations whose ends both use them: data leaves a silent path within a fraction of a second, and idle
    /// paths are probed each second. RFC 9260's values date from the networks of the 1990s. `docs/failover.md` has the reason for each
    /// value here.
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

    /// Returns the least PSMR that RFC 7829 section 5 allows for a path whose Path.Max.Retrans is `path_max_retrans`.
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
    /// Consecutive timeouts that the path survives; one more makes it inactive. `None`: [`Timing::path_max_retrans`].
    pub max_retrans: Option<u8>,
    /// Consecutive timeouts that leave the path the primary one, if it is; one more ends that (PSMR). `None`:
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
    /// At this interval, to which the path's RTO is added.
    Every(Duration),
    /// None once the path is confirmed, except [requested](crate::Endpoint::request_heartbeat) ones. Only data then shows that the path
    /// has failed, or works again.
    Off,
}

/// The link of one end's address, and its use for data, as the operator of that end wants it. An operator knows the links and their
/// costs; the engine sees only how well its paths work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressUse {
    /// Rank among the addresses of that end.
    pub preference: Preference,
    /// Interval between heartbeats on spare paths of the address, to which the RTO is added. Counts only if it is longer than the
    /// path's usual interval. Rounded down to tenths of a second, and limited to [`AddressUse::HEARTBEAT_MAX`].
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
    /// Carries data while no primary address works, and together with the primary ones if all paths carry data at once.
    #[default]
    Secondary,
    /// Carries data only while no other one works.
    Backup,
}

/// Bounds on memory and work, which no peer can change.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Associations of the endpoint.
    pub associations: usize,
    /// Addresses accepted from one INIT or INIT ACK (the rest are ignored), and addresses that a peer can have after ASCONFs.
    pub peer_addresses: usize,
    /// Paths of one association.
    pub paths: usize,
    /// Replies, to packets that belong to no association, that wait to be sent; further ones are dropped.
    pub queued_replies: usize,
    /// Gap ack blocks in one SACK, and separate ranges of TSNs kept above the cumulative TSN.
    pub gap_ranges: usize,
    /// Duplicate TSNs reported in one SACK.
    pub duplicates: usize,
    /// Bytes of unrecognized parameters or chunks reported back in one packet.
    pub reported_bytes: usize,
    /// Messages kept while they wait for earlier ones of their stream or for missing fragments.
    pub parked_messages: usize,
    /// Heartbeats of one association to unconfirmed addresses that await their answers at once (HB.Max.Burst, RFC 9260 sections 5.4 and
    /// 16); 0 counts as 1.
    pub unproven_heartbeats: usize,
    /// Answers to INITs. An INIT whose cookie comes back does not count.
    pub inits: AnswerRate,
    /// Answers to packets that belong to no association (RFC 9260 section 8.4).
    pub stray_answers: AnswerRate,
    /// Places in a table of source neighbourhoods (IPv4 /24, IPv6 /56), of 8 bytes each. `inits` and `stray_answers` have one such
    /// table each.
    pub source_places: usize,
    /// Bytes that all associations together may hold: received data, data to be sent, and their bookkeeping, in the sizes that the
    /// allocator gives.
    ///
    /// - From three quarters on, no buffer grows.
    /// - From seven eighths on, no association begins, and buffers shrink as they empty.
    /// - From the whole on, an association can hold 8 KiB of received data (16 KiB with bookkeeping), and 8 KiB or one message to be
    ///   sent.
    pub memory: usize,
    /// Bytes of `memory` that all associations with one host may hold, with the same three steps: one host cannot use up the memory of
    /// all. A host is the address that an association began with: an IPv4 address, or an IPv6 /64, because one host may have all
    /// addresses of a /64.
    pub memory_of_host: usize,
    /// Records of a trace that wait to be polled, of about 150 bytes each; at least 1. Further records replace the oldest.
    pub trace_records: usize,
    /// Used cookies that are remembered, of about 40 bytes each: none makes a second association after the first has ended. The limit
    /// applies twice, to cookies of handshakes with a required key by direction and to all others. Beyond it the oldest of the others
    /// are forgotten; with such a key no association begins until a cookie expires.
    pub spent_cookies: usize,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Rate limit on answers to INITs or to packets out of the blue: a token bucket for all sources, and one for each source neighbourhood.
/// Packets beyond the limit are dropped and counted. The two buckets have no other parameters, so a literal names all fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerRate {
    /// Answers per second to all sources; 0 counts as 1.
    pub per_second: u32,
    /// Answers at once to all sources; 0 counts as 1.
    pub burst: u32,
    /// Answers per second to one neighbourhood; 0 counts as 1.
    pub source_per_second: u32,
    /// Answers at once to one neighbourhood; 0 counts as 1.
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
