//! Parameter types of the IANA registry.

pub(super) const HEARTBEAT_INFO: u16 = 1;
pub(super) const IPV4_ADDRESS: u16 = 5;
pub(super) const IPV6_ADDRESS: u16 = 6;
pub(super) const STATE_COOKIE: u16 = 7;
pub(super) const UNRECOGNIZED_PARAMETER: u16 = 8;
pub(super) const COOKIE_PRESERVATIVE: u16 = 9;
pub(super) const HOST_NAME: u16 = 11;
pub(super) const SUPPORTED_ADDRESS_TYPES: u16 = 12;
pub(super) const OUTGOING_SSN_RESET: u16 = 13;
pub(super) const INCOMING_SSN_RESET: u16 = 14;
pub(super) const SSN_TSN_RESET: u16 = 15;
pub(super) const RECONFIG_RESPONSE: u16 = 16;
pub(super) const ADD_OUTGOING_STREAMS: u16 = 17;
pub(super) const ADD_INCOMING_STREAMS: u16 = 18;
pub(super) const ECN_CAPABLE: u16 = 0x8000;
pub(super) const ZERO_CHECKSUM_ACCEPTABLE: u16 = 0x8001;
pub(super) const RANDOM: u16 = 0x8002;
pub(super) const CHUNK_LIST: u16 = 0x8003;
pub(super) const REQUESTED_HMAC: u16 = 0x8004;
pub(super) const PADDING: u16 = 0x8005;
pub(super) const DTLS_KEY_MANAGEMENT: u16 = 0x8006;
pub(super) const SUPPORTED_EXTENSIONS: u16 = 0x8008;
pub(super) const FORWARD_TSN_SUPPORTED: u16 = 0xc000;
pub(super) const ADD_IP: u16 = 0xc001;
pub(super) const DEL_IP: u16 = 0xc002;
pub(super) const ERROR_CAUSE: u16 = 0xc003;
pub(super) const SET_PRIMARY: u16 = 0xc004;
pub(super) const SUCCESS_INDICATION: u16 = 0xc005;
pub(super) const ADAPTATION_LAYER_INDICATION: u16 = 0xc006;
/// Type of a parameter that this project defines and IANA has not assigned. Because of its two highest bits, a receiver that does not know
/// the type skips the parameter and reports it (RFC 9260 section 3.2.1).
pub(super) const ADDRESS_USE: u16 = 0xe5c0;
