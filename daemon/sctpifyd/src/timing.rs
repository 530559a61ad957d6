//! Defines timers and buffers of associations. The timers depend on the kind of peer.

use std::time::Duration;

use relay::mux::SHARED_STREAMS;
use relay::{ADAPTATION, Peer, SHARED_ADAPTATION};
use rules::{Advertise, Advertisement, Encryption, Settings};
use sctp::{
    AddressProof, AssociationConfig, ChunkType, CongestionAlgorithm, EndpointConfig, Extension, Extensions,
    Limits, Multipath, PathScheduler, ProtectionConfig, Scheduler, SendBufferCadence, SendBufferConfig,
    SendBufferForm, Timing,
};

/// Limit on the bytes that one association may buffer in each direction. It is enough for 1 Gbit/s with a round trip of 100 ms.
/// The engine chooses the buffer's size within this limit.
const ASSOCIATION_BUFFER: usize = 16 << 20;
/// Number of streams requested and allowed in each direction. A connection's separate association needs one stream in each
/// direction.
const STREAMS: u16 = 1;
/// First interval between INITs, and the number of retransmissions before the interval doubles. The interval is far below the
/// second of RFC 9260, because the race timer (250 ms by default) ends the wait. Within 250 ms, INIT and COOKIE ECHO can be
/// sent seven times in all. If 10 % of the packets are lost, fewer than one handshake in a thousand fails.
const INIT_RTO: Duration = Duration::from_millis(40);
const STEADY_INITS: u8 = 6;
/// Initial and minimum RTO of a path until the association is established.
const FIRST_RTO: Duration = Duration::from_millis(100);
/// Number of doublings after which one wait for an answer to INIT is longer than any race timer.
const DOUBLINGS_MAX: u32 = 7;
/// Step in the number of connections: with each step, the interval between a path's probes grows by one second.
const CONNECTIONS_PER_SECOND: usize = 64;
/// Maximum interval between two probes of a path (HB.Interval of RFC 9260).
const HEARTBEAT_MAX: Duration = Duration::from_secs(30);
/// Returns the timing for a peer of this kind.
///
/// Each path of each connection's association is probed, so the interval between probes grows with the number of `connections`.
pub(crate) fn timing(peer: Peer, connections: usize) -> Timing {
    match peer {
        Peer::Native => Timing::default(),
        Peer::Shim => Timing { heartbeat_interval: heartbeat_interval(connections), ..Timing::quick() },
    }
}

/// Returns the initial limit on packets in flight to a peer of this kind. Zero means RFC 9260's initial window, which is about
/// three packets. Between shims, the limit equals the initial window of the TCP that they replace (RFC 6928).
pub(crate) const fn initial_packets(peer: Peer) -> u8 {
    match peer {
        Peer::Native => 0,
        Peer::Shim => 10,
    }
}

fn heartbeat_interval(connections: usize) -> Duration {
    let seconds = 1 + connections / CONNECTIONS_PER_SECOND;
    Duration::from_secs(seconds as u64).min(HEARTBEAT_MAX)
}

/// Returns the time limit for an answer to INIT, and whether the race timer determines it.
pub(crate) fn init_patience(settings: &Settings) -> (Duration, bool) {
    let race = Duration::from_millis(u64::from(settings.race_timer_ms));
    // One wait follows each INIT. After the steady retransmissions, each wait is twice as long as the previous one, until one
    // wait is longer than any race timer.
    let wait = |n: u32| INIT_RTO * (1 << n.saturating_sub(STEADY_INITS.into()).min(DOUBLINGS_MAX));
    let tries: Duration = (0..=settings.init_rtx_max).map(wait).sum();
    (race.min(tries), race <= tries)
}

/// Returns the time to wait for the peer's answer on a shared association. `patience` is the connection's total time. Half of
/// it is left for an attempt with a separate association, which also tries other paths.
///
/// If the shared association has another path, the engine switches to it after a silence of up to two round trips and the SACK
/// delay. The answer on the other path then arrives earlier than a separate association could be established, because a
/// handshake takes two round trips. The returned time is therefore long enough for the answer on the other path.
pub(crate) fn channel_patience(patience: Duration, round_trip: Duration, has_other_path: bool) -> Duration {
    let by_this_path = patience / 2 + round_trip;
    let by_other_path = round_trip * 13 / 4 + Timing::quick().sack_delay;
    if has_other_path { by_this_path.max(by_other_path) } else { by_this_path }
}

/// Extensions of all associations. Address reconfiguration is included because the host's addresses may change, and ECN because
/// queues may mark packets.
const EXTENSIONS: Extensions =
    Extensions::NONE.with(Extension::Auth).with(Extension::AddressReconfiguration).with(Extension::Ecn);

/// Returns the configuration of a new association, before the peer is known.
pub(crate) fn association_config(mtu: u16, settings: &Settings) -> AssociationConfig {
    AssociationConfig {
        timing: Timing { rto_initial: INIT_RTO, rto_min: FIRST_RTO, ..timing(Peer::Shim, 0) },
        outbound_streams: STREAMS,
        inbound_streams: STREAMS,
        send_buffer: ASSOCIATION_BUFFER,
        receive_buffer: ASSOCIATION_BUFFER,
        mtu,
        adaptation: Some(ADAPTATION),
        protection: protection(settings.encryption),
        extensions: EXTENSIONS,
        address_proof: AddressProof::ConfirmedPath,
        multipath: match settings.multipath {
            rules::Multipath::Off => Multipath::Off,
            rules::Multipath::LowestRtt => Multipath::Concurrent { scheduler: PathScheduler::LowestRtt },
            rules::Multipath::Weighted => Multipath::Concurrent { scheduler: PathScheduler::Weighted },
            rules::Multipath::Redundant => Multipath::Concurrent { scheduler: PathScheduler::Redundant },
        },
        congestion: match settings.congestion {
            rules::Congestion::Cubic => CongestionAlgorithm::Cubic,
            rules::Congestion::Rfc9260 => CongestionAlgorithm::Rfc9260,
            rules::Congestion::LossTolerant => CongestionAlgorithm::LossTolerant,
        },
        advertisement: advertisement(settings.advertisement(), settings.advertise_type),
        // This daemon's timers limit the retries of INIT and COOKIE ECHO.
        max_init_retransmits: u8::MAX,
        steady_init_retransmits: STEADY_INITS,
        ..AssociationConfig::default()
    }
}

/// Returns the protection to offer at this value of the setting `encryption`.
fn protection(encryption: Encryption) -> Option<ProtectionConfig> {
    match encryption {
        Encryption::Off => None,
        Encryption::Try => Some(keying::protection(false)),
        Encryption::Require => Some(keying::protection(true)),
    }
}

/// Returns the configuration of send-buffer advertisements. `chunk_type` is the type of the advertisements' chunks.
pub(crate) fn advertisement(told: Advertisement, chunk_type: u8) -> Option<SendBufferConfig> {
    form_of(told).map(|config| SendBufferConfig { chunk_type: ChunkType(chunk_type), ..config })
}

fn form_of(told: Advertisement) -> Option<SendBufferConfig> {
    let each = |form, precision| SendBufferConfig {
        form,
        cadence: SendBufferCadence::EveryPacket,
        precision,
        ..SendBufferConfig::default()
    };
    let interval = Duration::from_millis(told.interval.ms().into());
    match told.form {
        Advertise::Off => None,
        Advertise::Timer => Some(SendBufferConfig::backlog_every(interval)),
        Advertise::Backlog => Some(each(SendBufferForm::Backlog, 1)),
        Advertise::Percent => Some(each(SendBufferForm::Percent, 1)),
        Advertise::Quantised => Some(each(SendBufferForm::Percent, 10)),
        Advertise::Economical => Some(SendBufferConfig::default()),
        Advertise::SeedCompat => Some(SendBufferConfig::seed()),
    }
}

/// Extensions of shared associations. With interleaving, short messages do not wait behind a long message of another
/// connection.
pub(crate) const SHARED_EXTENSIONS: Extensions = EXTENSIONS.with(Extension::Interleaving);

/// Order in which a shared association's connections send: round robin.
pub(crate) const SHARED_SCHEDULER: Scheduler = Scheduler::RoundRobin;

/// Returns the configuration of a shared association.
pub(crate) fn shared_config(mtu: u16, settings: &Settings) -> AssociationConfig {
    AssociationConfig {
        outbound_streams: SHARED_STREAMS,
        inbound_streams: SHARED_STREAMS,
        adaptation: Some(SHARED_ADAPTATION),
        extensions: SHARED_EXTENSIONS,
        scheduler: SHARED_SCHEDULER,
        ..association_config(mtu, settings)
    }
}

/// Divisor of `memory_mib` that yields the memory limit of one host's associations. If three hosts reach this limit, enough
/// memory remains for other hosts. One host still gets more memory than its path can use.
const HOST_PART: usize = 4;

/// Returns the endpoint's configuration. The field `association` applies to accepted associations.
///
/// The setting `memory_mib` limits the memory of all associations together.
pub(crate) fn endpoint_config(mtu: u16, settings: &Settings) -> EndpointConfig {
    let memory = (settings.memory_mib as usize) << 20;
    let limits = Limits { memory, memory_of_host: memory / HOST_PART, ..Limits::default() };
    EndpointConfig { association: association_config(mtu, settings), limits, ..EndpointConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_are_probed_less_often_each() {
        let seconds = |connections| timing(Peer::Shim, connections).heartbeat_interval.as_secs();
        assert_eq!([0, 63, 64, 640, 16_384].map(seconds), [1, 1, 2, 11, 30]);
    }

    #[test]
    fn without_a_key_all_configurations_require_address_proof_on_a_confirmed_path() {
        let settings = Settings::default();
        let endpoint = endpoint_config(1500, &settings);
        let all = [endpoint.association, association_config(1500, &settings), shared_config(1500, &settings)];
        assert!(all.iter().all(|config| config.address_proof == AddressProof::ConfirmedPath));
    }

    #[test]
    fn the_setting_names_the_congestion_control_of_connections_and_of_shared_associations() {
        for (word, algorithm) in [
            ("cubic", CongestionAlgorithm::Cubic),
            ("rfc9260", CongestionAlgorithm::Rfc9260),
            ("loss-tolerant", CongestionAlgorithm::LossTolerant),
        ] {
            let mut settings = Settings::default();
            settings.set("congestion", word).expect(word);
            let endpoint = endpoint_config(1500, &settings);
            let all =
                [endpoint.association, association_config(1500, &settings), shared_config(1500, &settings)];
            assert!(all.iter().all(|config| config.congestion == algorithm), "{word}");
        }
    }

    #[test]
    fn the_settings_name_the_form_of_advertisements_and_the_type_of_their_chunk() {
        let mut settings = Settings::default();
        assert_eq!(association_config(1500, &settings).advertisement, None);
        settings.set("advertise", "economical").unwrap();
        let default = Some(SendBufferConfig::default());
        assert_eq!(association_config(1500, &settings).advertisement, default);
        settings.set("advertise_type", "151").unwrap();
        let other = Some(SendBufferConfig { chunk_type: ChunkType(151), ..SendBufferConfig::default() });
        assert_eq!(shared_config(1500, &settings).advertisement, other);
        settings.set("advertise", "timer").unwrap();
        let pause = |settings: &Settings| association_config(1500, settings).advertisement.unwrap().cadence;
        assert_eq!(pause(&settings), SendBufferCadence::Every(Duration::from_secs(5)));
        settings.set("advertise_interval_ms", "250").unwrap();
        assert_eq!(pause(&settings), SendBufferCadence::Every(Duration::from_millis(250)));
        assert!(settings.set("advertise_interval_ms", "99").is_err());
        for known_or_loud in ["130", "132", "192", "0", "x"] {
            assert!(settings.set("advertise_type", known_or_loud).is_err(), "{known_or_loud}");
        }
    }

    #[test]
    fn a_shared_association_with_a_second_path_waits_longer_for_the_answer() {
        let ms = Duration::from_millis;
        assert_eq!(channel_patience(ms(250), ms(100), false), ms(225));
        assert_eq!(channel_patience(ms(250), ms(100), true), ms(345));
        assert_eq!(channel_patience(ms(250), ms(20), true), ms(145));
    }

    #[test]
    fn the_race_timer_and_the_number_of_inits_both_bound_the_wait() {
        let settings =
            |init_rtx_max, race_timer_ms| Settings { init_rtx_max, race_timer_ms, ..Settings::default() };
        assert_eq!(init_patience(&settings(0, 250)), (Duration::from_millis(40), false));
        assert_eq!(init_patience(&settings(5, 250)), (Duration::from_millis(240), false));
        assert_eq!(init_patience(&settings(6, 250)), (Duration::from_millis(250), true));
        assert_eq!(init_patience(&settings(8, 3000)), (Duration::from_millis(520), false));
        assert_eq!(init_patience(&Settings::default()), (Duration::from_millis(250), true));
        let longest = Settings { race_timer_ms: 3000, ..Settings::default() };
        assert_eq!(init_patience(&longest), (Duration::from_secs(3), true));
    }

    #[test]
    fn each_init_rtx_max_sets_its_wait_and_at_the_maximum_the_race_timer_ends_it() {
        let range = |name: &str| match rules::find_setting(name).unwrap().kind {
            rules::Kind::Number { min, max, .. } => min..=max,
            kind => panic!("{name} is {kind}"),
        };
        let longest = *range("race_timer_ms").end();
        let patience = |init_rtx_max, race_timer_ms| {
            init_patience(&Settings { init_rtx_max, race_timer_ms, ..Settings::default() })
        };
        let waits: Vec<_> = range("init_rtx_max").map(|times| patience(times, longest)).collect();
        let ms: Vec<_> = waits.iter().map(|(wait, _)| wait.as_millis()).collect();
        assert_eq!(ms, [40, 80, 120, 160, 200, 240, 280, 360, 520, 840, 1480, 2760, longest.into()]);
        let by_race = waits.iter().filter(|(_, by_race)| *by_race).count();
        assert_eq!(by_race, 1, "the last alone");
        for race in range("race_timer_ms").step_by(10) {
            assert!(patience(*range("init_rtx_max").end(), race).1, "{race}");
        }
    }
}
