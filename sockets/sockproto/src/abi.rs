//! Constants of Linux's socket API for SCTP (`linux/sctp.h`, RFC 6458 section 8), and sizes of its structures in bytes.
#![allow(missing_docs, reason = "each constant is named as in linux/sctp.h")]

/// The option level `SOL_SCTP`, which is also the IP protocol number of SCTP.
pub const SOL_SCTP: i32 = 132;

/// Names of socket options.
pub mod option {
    pub const RTOINFO: i32 = 0;
    pub const ASSOCINFO: i32 = 1;
    pub const INITMSG: i32 = 2;
    pub const NODELAY: i32 = 3;
    pub const AUTOCLOSE: i32 = 4;
    pub const PRIMARY_ADDR: i32 = 6;
    pub const ADAPTATION_LAYER: i32 = 7;
    pub const DISABLE_FRAGMENTS: i32 = 8;
    pub const PEER_ADDR_PARAMS: i32 = 9;
    pub const DEFAULT_SEND_PARAM: i32 = 10;
    pub const EVENTS: i32 = 11;
    pub const MAPPED_V4: i32 = 12;
    pub const MAXSEG: i32 = 13;
    pub const STATUS: i32 = 14;
    pub const GET_PEER_ADDR_INFO: i32 = 15;
    pub const DELAYED_SACK: i32 = 16;
    pub const CONTEXT: i32 = 17;
    pub const FRAGMENT_INTERLEAVE: i32 = 18;
    pub const PARTIAL_DELIVERY_POINT: i32 = 19;
    pub const MAX_BURST: i32 = 20;
    pub const ASSOC_NUMBER: i32 = 28;
    pub const ASSOC_ID_LIST: i32 = 29;
    pub const AUTO_ASCONF: i32 = 30;
    pub const RECVRCVINFO: i32 = 32;
    pub const RECVNXTINFO: i32 = 33;
    pub const DEFAULT_SNDINFO: i32 = 34;
    pub const REUSE_PORT: i32 = 36;
    pub const BINDX_ADD: i32 = 100;
    pub const BINDX_REM: i32 = 101;
    pub const PEELOFF: i32 = 102;
    pub const CONNECTX_OLD: i32 = 107;
    pub const GET_PEER_ADDRS: i32 = 108;
    pub const GET_LOCAL_ADDRS: i32 = 109;
    pub const CONNECTX: i32 = 110;
    pub const CONNECTX3: i32 = 111;
    pub const PEELOFF_FLAGS: i32 = 122;
    pub const EVENT: i32 = 127;
    pub const REMOTE_UDP_ENCAPS_PORT: i32 = 132;
}

/// Types of ancillary data.
pub mod cmsg {
    pub const INIT: i32 = 0;
    pub const SNDRCV: i32 = 1;
    pub const SNDINFO: i32 = 2;
    pub const RCVINFO: i32 = 3;
    pub const NXTINFO: i32 = 4;
    pub const PRINFO: i32 = 5;
    pub const AUTHINFO: i32 = 6;
    pub const DSTADDRV4: i32 = 7;
    pub const DSTADDRV6: i32 = 8;
    /// Size of `struct sctp_sndrcvinfo`.
    pub const SNDRCV_SIZE: usize = 32;
    /// Size of `struct sctp_sndinfo`.
    pub const SNDINFO_SIZE: usize = 16;
    /// Size of `struct sctp_rcvinfo`.
    pub const RCVINFO_SIZE: usize = 28;
    /// Size of `struct sctp_nxtinfo`.
    pub const NXTINFO_SIZE: usize = 16;
    /// Size of `struct sctp_prinfo`.
    pub const PRINFO_SIZE: usize = 8;
}

/// Bits of `sinfo_flags`.
pub mod sinfo {
    pub const UNORDERED: u16 = 1;
    pub const ADDR_OVER: u16 = 2;
    pub const ABORT: u16 = 4;
    pub const SACK_IMMEDIATELY: u16 = 8;
    pub const PR_TTL: u16 = 0x10;
    pub const PR_RTX: u16 = 0x20;
    pub const PR_PRIO: u16 = 0x30;
    pub const SENDALL: u16 = 0x40;
    pub const EOF: u16 = 0x200;
    /// Flags of `SCTP_NXTINFO`. `COMPLETE` means that the next message is complete. `NOTIFICATION` means that the next message is
    /// a notification.
    pub const COMPLETE: u16 = 0x100;
    pub const NOTIFICATION: u16 = 0x8000;
    /// All bits that a one-to-one socket accepts with a message to send.
    pub const OF_ONE: u16 = UNORDERED | ADDR_OVER | SACK_IMMEDIATELY | PR_PRIO;
    /// All bits that a one-to-many socket accepts with a message to send.
    pub const OF_MANY: u16 = OF_ONE | ABORT | SENDALL | EOF;
}

/// Types of notifications.
pub mod notification {
    pub const ASSOC_CHANGE: u16 = 0x8001;
    pub const PEER_ADDR_CHANGE: u16 = 0x8002;
    pub const SEND_FAILED: u16 = 0x8003;
    pub const SHUTDOWN_EVENT: u16 = 0x8005;
    pub const ADAPTATION: u16 = 0x8007;
    pub const AUTHENTICATION: u16 = 0x8008;
    pub const SENDER_DRY: u16 = 0x8009;
    pub const SEND_FAILED_EVENT: u16 = 0x800d;
    /// States of `ASSOC_CHANGE`.
    pub const COMM_UP: u16 = 0;
    pub const COMM_LOST: u16 = 1;
    pub const SHUTDOWN_COMP: u16 = 3;
    pub const CANT_STR_ASSOC: u16 = 4;
}

/// The bit `MSG_NOTIFICATION` of `msg_flags`.
pub const MSG_NOTIFICATION: i32 = 0x8000;
