//! Settings of an endpoint and of its associations, and all limits by name. Begin at [`EndpointConfig`].

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
    /// Lifetime of a state cookie (Valid.Cookie.Life, RFC 9260 section 16). A peer's Cookie Preservative can extend the lifetime of its
    /// cookie to up to twice this value.
    pub cookie_lifetime: Duration,
    /// Minimum age at which the key that signs cookies is replaced. The replacement happens when the next cookie is signed. The previous
    /// key stays valid until the next replacement.
    pub cookie_key_lifetime: Duration,
    /// Shard of this endpoint: its part of the host's associations. The verification tags identify the shard, so packets can be distributed
    /// by their tags (see [`Shard`]). The driver must give the endpoint only packets of its shard. It must begin each association in the
    /// shard that [`Shard::of_peer`] returns.
    pub shard: Shard,
    /// Settings of accepted associations. [`Connect`](crate::Connect) has separate settings.
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
    /// Number of outbound streams to request, 1 to 65,535.
    pub outbound_streams: u16,
    /// Number of inbound streams to allow, 1 to 65,535.
    pub inbound_streams: u16,
    /// Limit on the bytes of user data that wait to be sent or acknowledged. [`send`](crate::Endpoint::send) refuses messages beyond this
    /// limit. The buffer begins with `buffer_start` bytes, and grows within this limit to twice the sum of the congestion windows.
    pub send_buffer: usize,
    /// True if messages are accepted after the peer's SHUTDOWN, until the driver calls [`shutdown`](crate::Endpoint::shutdown). The
    /// SHUTDOWN is answered only after that call. The setting is for drivers that may still hold messages of programs when the SHUTDOWN
    /// arrives. RFC 9260 section 9.2 requires that outstanding data is sent first. With this setting, the driver must call `shutdown` after
    /// every [`PeerShutdown`](crate::Event::PeerShutdown).
    pub takes_late_messages: bool,
    /// Limit on the bytes of user data that wait to be read. Values below 1,500 count as 1,500. The buffer begins with `buffer_start`
    /// bytes, and grows within this limit to four times the bytes read in a round trip. The free part of the buffer is advertised as
    /// a_rwnd. Data and bookkeeping together occupy up to the larger of three times this limit and 96 KiB. Chunks of any size keep within
    /// this bound.
    pub receive_buffer: usize,
    /// Initial size of each buffer, in bytes. The send buffer returns to this size when the congestion windows are small. The value should
    /// be 8 KiB or more.
    pub buffer_start: usize,
    /// Largest MTU of all links, IP header included, in bytes (576 to 65,535). A path begins with this size or 1,500 bytes, whichever is
    /// less. Probes then find larger sizes up to this limit, and smaller sizes where routers require them (RFC 8899).
    pub mtu: u16,
    /// Adaptation Layer Indication to announce (RFC 5061 section 4.2.6).
    pub adaptation: Option<u32>,
    /// Extensions to offer. An extension is used if the peer offers it too. The default is [`Extension::Ecn`] alone.
    pub extensions: Extensions,
    /// Authentication of chunks, if [`Extension::Auth`] is among the extensions.
    pub auth: AuthConfig,
    /// Protection of all packets by DTLS chunks. With `None`, protection is neither offered nor accepted. If both ends agree on protection,
    /// messages of the application wait until the caller has [installed keys](crate::Endpoint::install_keys) and [knows the
    /// peer](crate::Endpoint::know_peer). AUTH is not used under protection, even if a key is [required](AuthConfig::required). The
    /// caller's key management must then require the key.
    pub protection: Option<ProtectionConfig>,
    /// Proof required before the peer's addresses change, and before an address that the peer lists is used.
    pub address_proof: AddressProof,
    /// Policy for the peer's requests about streams, if [`Extension::StreamReconfiguration`] is among the extensions.
    ///
    /// [`Extension::StreamReconfiguration`]: crate::Extension::StreamReconfiguration
    pub reconfig: ReconfigPolicy,
    /// Advertisement of the waiting data to routers. With `None`, no advertisement is sent, and the peer's advertisements are not read. An
    /// advertisement reveals the amount of the application's data, and the pauses in it, to every observer on the path.
    pub advertisement: Option<SendBufferConfig>,
    /// Error detection method (EDMID, RFC 9653 section 4) of a lower layer that makes the checksum superfluous, such as 1 for DTLS. Packets
    /// with a checksum of zero are then accepted. They are also sent if the peer has announced the same method. IP and UDP do not make the
    /// checksum superfluous. With `None`, [`EDMID_DTLS_CHUNK`](crate::EDMID_DTLS_CHUNK) applies to packets under protection.
    pub zero_checksum: Option<u32>,
    /// Rule that chooses the stream that sends next.
    pub scheduler: Scheduler,
    /// Congestion control of each path.
    pub congestion: CongestionAlgorithm,
    /// Initial congestion window of a path, in packets. Values below the window of RFC 9260 section 7.2.1 (about three packets) have no
    /// effect, so 0 keeps that window. RFC 6928 allows TCP ten packets. See also
    /// [`set_initial_packets`](crate::Endpoint::set_initial_packets).
    pub initial_packets: u8,
    /// Use of one path, or of all paths at once, for new data.
    pub multipath: Multipath,
    /// Limit on the retransmissions of INIT, and of COOKIE ECHO, before the attempt fails (Max.Init.Retransmits).
    pub max_init_retransmits: u8,
    /// Number of retransmissions of INIT, and of COOKIE ECHO, that leave the timeout unchanged. Each further retransmission doubles the
    /// timeout. RFC 9260 section 6.3.3 requires 0. Larger values suit programs that wait only a fraction of a second for an answer: one or
    /// two losses then do not use up that time.
    pub steady_init_retransmits: u8,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Minimum a_rwnd of an INIT or INIT ACK, in bytes (RFC 9260 section 3.3.2).
pub(crate) const LEAST_WINDOW: u32 = 1500;

/// Rule that chooses the stream that sends next (RFC 8260 section 3). Without [`Extension::Interleaving`](crate::Extension::Interleaving),
/// a message is sent completely before another message begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Scheduler {
    /// Messages leave in the order in which they were handed over (SCTP_SS_FCFS).
    #[default]
    FirstCome,
    /// The streams send one message each in turn, or one chunk each if messages interleave (SCTP_SS_RR).
    RoundRobin,
    /// The streams send one packet each in turn (SCTP_SS_RR_PKT).
    RoundRobinPerPacket,
    /// The stream with the lowest priority number sends first (SCTP_SS_PRIO). Streams with the same priority take turns.
    Priority,
    /// All streams get the same number of bytes (fair capacity, SCTP_SS_FC).
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
    /// Returns the timeout of T1-init or T1-cookie after retransmission number `retransmits`. `rto` is the timeout before that
    /// retransmission.
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

/// Proof required before the addresses of a peer change (RFC 5061), and before an address that the peer lists is used.
///
/// An ASCONF is signed with a shared key or, without one, with the empty key. A signature with the empty key depends only on the contents
/// of INIT and INIT ACK ([RFC 4895, section 8.1]). Any observer of these two packets can therefore forge the signature. A key counts as
/// shared if it has at least one byte. A sealed packet counts as signed with a shared key.
///
/// [RFC 4895, section 8.1]: https://www.rfc-editor.org/rfc/rfc4895#section-8.1
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddressProof {
    /// The rules of RFC 5061 and RFC 9260. A signature is sufficient, with any key and from any address. The answer to a HEARTBEAT confirms
    /// the address to which the HEARTBEAT was sent, even if the answer comes from another address.
    #[default]
    Signature,
    /// Without a shared key, addresses change only with proof over a confirmed path:
    ///
    /// - An ASCONF takes effect only if it arrives over a confirmed path, from that path's UDP port.
    /// - An added address is used only after two proofs. First the address must answer a HEARTBEAT. Then a second HEARTBEAT is sent over a
    ///   confirmed path, and its answer must come from the added address. An end with this setting sends such answers from its own new
    ///   addresses. Other implementations do not send such answers, so addresses that they add are never used.
    /// - [`move_to_local_address`](crate::Endpoint::move_to_local_address) requires a shared key, or
    ///   [`protection`](AssociationConfig::protection).
    ///
    /// With or without a shared key, an unconfirmed path is confirmed only by an answer from its remote address to its local address.
    ConfirmedPath,
}

/// Congestion control of a path: the limit on data in flight, and the reaction to loss and delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CongestionAlgorithm {
    /// RFC 9260 section 7.2. It halves the window on loss, and adds one packet in each round trip.
    Rfc9260,
    /// CUBIC (RFC 9438) with HyStart++ (RFC 9406).
    #[default]
    Cubic,
    /// Congestion control for paths that lose packets without congestion, such as radio links. It models the rate and the delay of the
    /// path. It treats losses as congestion only if the delay grows too, or if more than a tenth of the packets is lost. It is not suitable
    /// for paths shared with flows that are entitled to an equal share.
    LossTolerant,
}

/// Minimum margin of the RTO over the round trip. This margin is five times the delay of the peer's SACK ([`QUICK_SACK_DELAY`]), and longer
/// than the delays that a busy host adds. Linux uses a margin of 200 ms.
const QUICK_RTO_MARGIN: Duration = Duration::from_millis(100);
/// Limit on the delay of a SACK. All other timers of [`Timing::quick`] rely on it.
const QUICK_SACK_DELAY: Duration = Duration::from_millis(20);
/// Time for which the primary path must have worked again before data returns to it. Links on railways and in lifts usually come and go at
/// shorter intervals.
const QUICK_PRIMARY_RETURN: Duration = Duration::from_secs(5);
/// Loss limit of a path, in percent of its data, before another path replaces it. In a queue with room for five or six packets, CUBIC alone
/// causes this much loss. A path that loses less may merely be shared by many flows.
const QUICK_LOSS_MAX: u8 = 5;
/// Delay of data in flight beyond which data moves to a much quicker path. The limit is longer than the delay of usual queues, and much
/// shorter than the time that people are willing to wait.
const QUICK_DELAY_MAX: Duration = Duration::from_millis(500);
/// Consecutive timeouts that an association survives. At the maximum RTO, these timeouts last a quarter of an hour. The retransmissions of
/// TCP last as long by default.
const QUICK_OUTAGE_RETRANS: u8 = 180;

/// Timers and thresholds of an association. The defaults come from RFC 9260 section 16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// RTO before the first measurement (RTO.Initial).
    pub rto_initial: Duration,
    /// Minimum RTO (RTO.Min).
    pub rto_min: Duration,
    /// Minimum margin of the RTO over the smoothed round trip. It replaces the clock granularity G of RFC 6298 section 2 (RFC 9260 section
    /// 6.3.1). It also covers occasional delays in hosts and queues.
    pub rto_margin: Duration,
    /// Maximum RTO (RTO.Max).
    pub rto_max: Duration,
    /// Delay of a SACK. Values above 500 ms count as 500 ms (RFC 9260 section 6.2).
    pub sack_delay: Duration,
    /// Interval between heartbeats on an idle path (HB.Interval). The RTO of the path is added to it.
    pub heartbeat_interval: Duration,
    /// Consecutive timeouts that a path survives; one more makes it inactive (Path.Max.Retrans).
    pub path_max_retrans: u8,
    /// Consecutive timeouts that leave a path active; one more makes it potentially failed (PFMR, RFC 7829). With `None`, timeouts never
    /// make a path potentially failed.
    pub potentially_failed_max_retrans: Option<u8>,
    /// Consecutive timeouts that leave the primary path primary. One more makes another path primary permanently (PSMR, RFC 7829 section
    /// 5). PFMR is the minimum of this value; if PFMR is `None`, Path.Max.Retrans is the minimum. Smaller values count as the minimum. If
    /// this field is `None`, the primary path never changes, and data returns to it once it works again.
    pub primary_switchover_max_retrans: Option<u8>,
    /// Time for which the primary path must have worked again after a failure before data returns to it. The time doubles with each
    /// recovery within a minute of the previous one, up to 16 times this value. During this time, heartbeats are four times as frequent as
    /// on other idle paths. At least eight heartbeats must be answered without a failure in between.
    pub primary_return: Duration,
    /// True if a path with data in flight is doubted after about two round trips of silence. The earliest chunk is then repeated on another
    /// active path, and a HEARTBEAT is sent on the silent path. A timeout counts against the silent path if the chunk is acknowledged and
    /// the HEARTBEAT is not answered. The doubt replaces the tail-loss probe while another path is active, except if every chunk is sent on
    /// all paths.
    pub doubts_silence: bool,
    /// Loss limit of a path in use, in percent of its data, 1 to 99; `None` means no limit. A path is too lossy if it has lost 30 chunks
    /// beyond this share, in six or more loss events (RFC 9260 section 7.2.4). The lossy path becomes potentially failed if another path
    /// can replace it. The replacement must be active, and must not have just recovered from a failure. Its known loss must be less than
    /// half of the lossy path's loss. It must not share a link with the lossy path, except a link that all active paths share. If links are
    /// unknown, two addresses of the same family count as on different links, but two addresses of different families do not. The limit has
    /// no effect if all paths carry data at once.
    pub loss_max: Option<u8>,
    /// Limit on the delay of data in flight on the path in use; `None` means no limit. A path is too slow if its delay exceeds this limit
    /// plus four times the delay on another path. The other path must fulfil the conditions of [`loss_max`](Self::loss_max), and share no
    /// link at all with the slow path. The slow path becomes potentially failed if the other path answers while the delay lasts. A queue
    /// that the association has filled itself is no reason to move. Therefore the delay counts only in two cases. In the first, up to
    /// 14,600 bytes are in flight. In the second, the rate of the path has fallen to an eighth of its best rate, or less. The limit has no
    /// effect if all paths carry data at once.
    pub delay_max: Option<Duration>,
    /// Consecutive timeouts, over all paths, that an association survives. One more ends it (Association.Max.Retrans).
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
    /// Returns settings for associations whose two ends both use these settings. Data leaves a silent path within a fraction of a second,
    /// and idle paths are probed every second. The values of RFC 9260 suit the networks of the 1990s. `docs/failover.md` gives the reason
    /// for each value here.
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

    /// Returns the minimum PSMR that RFC 7829 section 5 allows for a path whose Path.Max.Retrans is `path_max_retrans`.
    //= rfc7829#5-1 5-2 5-6 5-7
    pub(crate) fn least_switchover(&self, path_max_retrans: u8) -> u8 {
        self.potentially_failed_max_retrans.unwrap_or(path_max_retrans)
    }
}

/// Settings of one path that override the settings of its association (RFC 6458 section 8.1.12, SCTP_PEER_ADDR_PARAMS, and RFC 7829 section
/// 7.2, SCTP_PEER_ADDR_THLDS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// Heartbeats while the path is idle.
    pub heartbeats: Heartbeats,
    /// Consecutive timeouts that the path survives; one more makes it inactive. `None` means [`Timing::path_max_retrans`].
    pub max_retrans: Option<u8>,
    /// Consecutive timeouts that leave the path primary, if it is the primary path; one more makes another path primary (PSMR). `None`
    /// means [`Timing::primary_switchover_max_retrans`].
    pub switchover_max_retrans: Option<u8>,
    /// Weight of the path under [`PathScheduler::Weighted`](crate::PathScheduler::Weighted). The paths share new data in proportion to
    /// their weights. `None` means 1.
    pub weight: Option<NonZeroU16>,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Heartbeats of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heartbeats {
    /// Heartbeats at [`Timing::heartbeat_interval`].
    #[default]
    AsAssociation,
    /// Heartbeats at this interval, to which the path's RTO is added.
    Every(Duration),
    /// No heartbeats once the path is confirmed, except [requested](crate::Endpoint::request_heartbeat) ones. Only data then shows that the
    /// path has failed, or works again.
    Off,
}

/// Link of an address, and the use of the address for data. The operator of the host that has the address sets both, because an operator
/// knows the links and their costs. The engine sees only how well its paths work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressUse {
    /// Rank among the addresses of the same end.
    pub preference: Preference,
    /// Interval between heartbeats on spare paths of the address. The RTO is added to the interval. The interval has effect only if it is
    /// longer than the usual interval of the path. It is rounded down to tenths of a second, and limited to [`AddressUse::HEARTBEAT_MAX`].
    pub heartbeat: Option<Duration>,
    /// Number of the link that has the address; 0 if the link is not known. Addresses of one end with the same number are assumed to fail
    /// together. Addresses with different numbers are assumed to fail independently. If the link of one of two addresses is not known, the
    /// family decides: two addresses of the same family count as on different links.
    pub link: u8,
}

impl AddressUse {
    /// Maximum of [`heartbeat`](Self::heartbeat) at either end.
    pub const HEARTBEAT_MAX: Duration = Duration::from_secs(600);
}

/// Rank of an address among the addresses of its end. No further ranks will be added, so a `match` may be exhaustive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// An address that carries data while it works.
    Primary,
    /// An address that carries data while no primary address works. If all paths carry data at once, the address carries data together with
    /// the primary addresses.
    #[default]
    Secondary,
    /// An address that carries data only while no other address works.
    Backup,
}

/// Bounds on memory and work, which no peer can change.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Number of associations of the endpoint.
    pub associations: usize,
    /// Addresses accepted from one INIT or INIT ACK; further ones are ignored. Also the limit on the addresses that a peer can have after
    /// ASCONFs.
    pub peer_addresses: usize,
    /// Paths of one association.
    pub paths: usize,
    /// Waiting replies to packets that belong to no association. Further replies are dropped.
    pub queued_replies: usize,
    /// Gap ack blocks in one SACK. Also the limit on separate ranges of TSNs that are kept above the cumulative TSN.
    pub gap_ranges: usize,
    /// Duplicate TSNs reported in one SACK.
    pub duplicates: usize,
    /// Bytes of unrecognized parameters or chunks reported back in one packet.
    pub reported_bytes: usize,
    /// Messages that wait for earlier messages of their stream, or for missing fragments.
    pub parked_messages: usize,
    /// Unanswered heartbeats of one association to unconfirmed addresses at one time (HB.Max.Burst, RFC 9260 sections 5.4 and 16); 0 counts
    /// as 1.
    pub unproven_heartbeats: usize,
    /// Rate of answers to INITs. An INIT does not count once its cookie has come back. Under protection, an INIT counts until both ends
    /// have agreed on keys.
    pub inits: AnswerRate,
    /// Rate of answers to packets that belong to no association (RFC 9260 section 8.4).
    pub stray_answers: AnswerRate,
    /// Entries, of 8 bytes each, in a table of source neighbourhoods (IPv4 /24, IPv6 /56). `inits` and `stray_answers` have one such table
    /// each.
    pub source_places: usize,
    /// Bytes that all associations together may hold: received data, data to be sent, and bookkeeping. Allocations count in the sizes that
    /// the allocator hands out.
    ///
    /// - From three quarters of the limit on, no buffer grows.
    /// - From seven eighths on, no association begins, and buffers shrink as they empty.
    /// - From the limit on, an association can hold 8 KiB of received data (16 KiB with bookkeeping), and 8 KiB or one message to be sent.
    pub memory: usize,
    /// Bytes of `memory` that all associations with one host may hold. The three steps of `memory` apply to this limit too. So one host
    /// cannot use up the memory of all hosts. The address with which an association began identifies the host: an IPv4 address, or an IPv6
    /// /64, because one host may have all addresses of a /64.
    pub memory_of_host: usize,
    /// Trace records, of about 150 bytes each, that wait to be polled; 0 counts as 1. Further records replace the oldest.
    pub trace_records: usize,
    /// Used cookies that are remembered, of about 40 bytes each. A remembered cookie cannot begin another association after its first one
    /// has ended. The limit applies twice: to cookies of handshakes with a [required](AuthConfig::required) key [by
    /// direction](AuthConfig::by_direction), and to all other cookies. If more other cookies are used, the oldest of them are forgotten. If
    /// the table of the cookies with such keys is full, no association with such a key begins until one of these cookies expires.
    pub spent_cookies: usize,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Rate limit on answers to INITs or to packets out of the blue. It has one token bucket for all sources, and one for each source
/// neighbourhood. Packets beyond the limit are dropped and counted. The two buckets need no other parameters, so a struct literal may name
/// all fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerRate {
    /// Answers per second to all sources; 0 counts as 1.
    pub per_second: u32,
    /// Size of a burst of answers to all sources; 0 counts as 1.
    pub burst: u32,
    /// Answers per second to one neighbourhood; 0 counts as 1.
    pub source_per_second: u32,
    /// Size of a burst of answers to one neighbourhood; 0 counts as 1.
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
