//! Settings of a TCP, and the TCPs that we compare with.

use std::time::Duration;

/// Settings of one end of a TCP connection.
#[derive(Clone, PartialEq, Debug)]
pub struct TcpConfig {
    /// User bytes of a full segment.
    pub mss: usize,
    /// Bytes of IP and TCP headers, with the options that every segment has.
    pub header: usize,
    /// True if segments carry timestamps (RFC 7323), so that retransmitted data is measured, too.
    pub timestamps: bool,
    /// Segments that may be in flight at first.
    pub initial_window: u32,
    /// Most bytes in flight: the least of the peer's window and of the send buffer.
    pub window_max: u64,
    /// Congestion control.
    pub growth: Growth,
    /// True if slow start counts acknowledged segments (RFC 3465), and not acknowledgements.
    pub counts_segments: bool,
    /// Loss recovery.
    pub recovery: Recovery,
    /// The time-out before the first round trip was measured.
    pub rto_initial: Duration,
    /// The floor of the time-out.
    pub rto_min: Duration,
    /// The quantity with that floor.
    pub rto_floor: RtoFloor,
    /// Delay of an acknowledgement that waits for a second segment.
    pub ack_delay: Duration,
    /// So many first segments are acknowledged at once.
    pub quick_acks: u32,
}

/// Congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// A segment each round trip; half after a loss (RFC 5681).
    Reno,
    /// A cubic function of time; seven tenths after a loss (RFC 9438).
    Cubic,
}

/// Loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// By three duplicate acknowledgements, one loss each round trip, without SACK (RFC 6582).
    NewReno {
        /// True if each of the first two duplicates permits a new segment (RFC 3042).
        limited_transmit: bool,
    },
    /// By SACK blocks and time (RFC 8985), with the tail-loss probe and proportional rate reduction (RFC 6937).
    Rack,
}

/// The quantity that [`TcpConfig::rto_min`] bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RtoFloor {
    /// The time-out (RFC 6298).
    TimeOut,
    /// The addition to the smoothed round trip, as in Linux.
    Variance,
}

impl TcpConfig {
    /// The papers' rival, FreeBSD 4.10: NewReno without SACK and limited transmit, with timestamps, a floor of a second, the send
    /// buffer of 32 KiB that a socket had there. The first SYN is sent again after three seconds.
    pub fn freebsd_4_10() -> TcpConfig {
        TcpConfig {
            mss: 1448,
            header: 52,
            timestamps: true,
            initial_window: 2,
            window_max: 32 << 10,
            growth: Growth::Reno,
            counts_segments: false,
            recovery: Recovery::NewReno { limited_transmit: false },
            rto_initial: Duration::from_secs(3),
            rto_min: Duration::from_secs(1),
            rto_floor: RtoFloor::TimeOut,
            ack_delay: Duration::from_millis(100),
            quick_acks: 0,
        }
    }

    /// Linux with this window: SACK, RACK, tail-loss probe, timestamps, ten segments at first.
    pub fn linux(growth: Growth) -> TcpConfig {
        TcpConfig {
            mss: 1448,
            header: 52,
            timestamps: true,
            initial_window: 10,
            window_max: 4 << 20,
            growth,
            counts_segments: true,
            recovery: Recovery::Rack,
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_millis(200),
            rto_floor: RtoFloor::Variance,
            ack_delay: Duration::from_millis(40),
            quick_acks: 16,
        }
    }

    /// Linux made to do as in the papers' time: Reno, SACK, RACK, tail-loss probe and timestamps off, a floor of a second, two
    /// segments at first. Limited transmit cannot be turned off there. A receiver's window begins with 64 KiB; that it grows is
    /// left out.
    pub fn linux_without_sack() -> TcpConfig {
        TcpConfig {
            mss: 1460,
            header: 40,
            timestamps: false,
            initial_window: 2,
            window_max: 64 << 10,
            recovery: Recovery::NewReno { limited_transmit: true },
            rto_min: Duration::from_secs(1),
            ..TcpConfig::linux(Growth::Reno)
        }
    }
}
