//! The SCTP protocol engine (RFC 9260), without sockets, clock or threads.
//!
//! An [`Endpoint`] owns any number of associations. A driver, which has the sockets and the clock, calls it:
//!
//! * in: [`Endpoint::handle_datagram`], [`Endpoint::handle_timeout`], [`Endpoint::handle_path_error`], and commands
//!   such as [`Endpoint::connect`] and [`Endpoint::send`];
//! * out: [`Endpoint::poll_transmit`], [`Endpoint::poll_event`], [`Endpoint::recv`] and [`Endpoint::next_timeout`].
//!
//! After each input, the driver polls until no method returns anything more. The engine is deterministic: the same inputs give the same
//! packets, bit for bit. The driver passes the time ([`Time`]), all randomness comes from one seed, and nothing depends on the order of
//! a hash map.
//!
//! The documentation of [`Endpoint`] gives the order of calls and groups the methods. Begin there. Then read `association/mod.rs`
//! and its parts: `chunk_dispatch` (the action for each chunk in each state), `handshake_client`, `shutdown`, `packet_builder`, and
//! `transfer` (sending on the paths, loss recovery). Other modules: `tx` (data to send), `rx` (received data), `extension`
//! (negotiated features: AUTH, ASCONF and others), and `path` (RTO, congestion window and heartbeats of each path).
//!
//! # RFCs
//!
//! | feature | RFC | where to begin |
//! |---|---|---|
//! | associations, streams, several paths with failover | 9260 | [`Endpoint::connect`], [`Listener`] |
//! | encapsulation in UDP, and a peer whose port changes | 6951 | [`Carrier`], [`Event::PeerPort`] |
//! | names from the sockets API, for functions that the engine also has | 6458 | [`PathOptions`], [`SendOptions`] |
//! | dynamic addresses (ASCONF) | 5061 | [`Endpoint::add_local_address`], [`Event::PeerAddressChange`] |
//! | authenticated chunks | 4895 | [`AuthConfig`] |
//! | partial reliability | 3758, 7496 | [`Reliability`] |
//! | interleaved messages, stream schedulers | 8260 | [`Extension::Interleaving`], [`Scheduler`] |
//! | stream reset, more streams | 6525 | [`Endpoint::reset_streams`], [`ReconfigPolicy`] |
//! | potentially failed paths, switchover | 7829 | [`Timing`], [`PathState`] |
//! | RACK-TLP: loss detection by time, tail-loss probes | 8985 | always on |
//! | SACK without delay on request | 7053 | always on |
//! | path MTU discovery with probes, padded with PAD | 8899, 4820 | [`AssociationConfig::mtu`], [`Event::PathMtu`] |
//! | ECN | 3168, 4960 appendix A | [`Extension::Ecn`], [`Transmit::ecn`] |
//! | CUBIC and HyStart++ | 9438, 9406 | [`CongestionAlgorithm`] |
//! | checksum of zero over a lower layer that has its own check | 9653 | [`AssociationConfig::zero_checksum`] |
//! | checksum of zero of sealed data over UDP | 9653 | with [`AssociationConfig::protection`]: [`EDMID_DTLS_CHUNK`] |
//!
//! Data on all paths at once ([`Multipath`]), send-buffer advertisement ([`SendBufferConfig`]) and encrypted packets
//! ([`ProtectionConfig`], draft-ietf-tsvwg-sctp-dtls-chunk) have no RFC.
//!
//! # Releases
//!
//! A minor release may add settings, events, errors and counters, but breaks no program. Before 1.0, a minor release increments the
//! third number of the version, and a breaking release increments the second number.
//!
//! * Settings ([`EndpointConfig`], [`AssociationConfig`], [`Timing`], [`Limits`], [`PathOptions`], [`SendOptions`], [`AuthConfig`],
//!   [`ReconfigPolicy`], [`SendBufferConfig`]) have public fields. A hidden field requires that a literal of such a type ends in
//!   the type's default, for example `..AssociationConfig::default()`.
//! * Events, errors and all types that a program only reads are `#[non_exhaustive]`.
//!
//! Patterns for variants of [`TraceEvent`] should end in `..`: variants may gain fields.
//!
//! An enum without `#[non_exhaustive]` gets no further variants, because the protocol has no further cases. The enum's
//! documentation gives the details. [`Bytes`] of `bytes` 1 and `SmallVec` of `smallvec` 1 (in [`Message::pieces`]) are part of the
//! API.
//!
//! # Cargo features
//!
//! * `serde`: records of a trace can be serialized.
//! * `exhaustive`: [`Event`], [`CloseReason`] and [`TraceRecord`] can be matched exhaustively. The compiler then reports each `match`
//!   that lacks a new variant or field. With this feature, a minor release may break a program.

#![doc = include_str!("guide.md")]
#![forbid(unsafe_code)]

mod association;
mod config;
mod cookie;
mod endpoint;
mod error;
mod event;
mod extension;
mod info;
mod memory;
mod multipath;
mod negotiation;
mod path;
mod random;
mod rx;
mod trace;
mod tx;

pub use config::{
    AddressProof, AddressUse, AnswerRate, AssociationConfig, CongestionAlgorithm, EndpointConfig, Heartbeats,
    Limits, PathOptions, Preference, Scheduler, Timing,
};
pub use endpoint::{AssociationId, Connect, Endpoint, IncomingInit, InitDecision, Listener, Transmit};
pub use error::{
    AddressError, AuthKeyError, ConnectError, KeyError, PathOptionError, ReconfigError, SendError,
    StreamError,
};
pub use event::{
    AbortCause, CloseReason, Event, Message, PathError, PathReason, Reliability, SendOptions, Unreachable,
};
pub use extension::asconf::AddressChange;
pub use extension::auth::{AuthConfig, HmacAlgorithm};
pub use extension::protection::{
    FIRST_EPOCH, KEY_PPID, KeyRole, ProtectionConfig, ProtectionTerms, RecordCipher, RecordKeys, SealFrom,
};
pub use extension::reconfig::{ReconfigOutcome, ReconfigPolicy, StreamDirection};
pub use extension::send_buffer::{PeerSendBuffer, SendBufferCadence, SendBufferConfig, SendBufferForm};
pub use extension::zero_checksum::EDMID_DTLS_CHUNK;
pub use extension::{Extension, Extensions};
pub use info::{AssociationInfo, Counters, EndpointCounters, LimitedBy, PathInfo, PathState, StateName};
pub use multipath::{Multipath, PathScheduler};
pub use trace::{DropReason, TraceEvent, TraceRecord};
// Types of other crates that are part of the API. A program needs no dependency on these crates.
pub use base::{Carrier, Ecn, Route, Shard, Time};
#[doc(no_inline)]
pub use bytes::Bytes;
pub use wire::{ChunkSet, ChunkType, Ppid, Steer, StreamId, steer};
