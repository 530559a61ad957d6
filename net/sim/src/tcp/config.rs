//! Settings of the TCP model, and the settings of the compared TCPs.

use std::time::Duration;

/// Settings of one end of a TCP connection.
#[derive(Clone, PartialEq, Debug)]
pub struct TcpConfig {
    /// User bytes of a full segment.
    pub mss: usize,
    /// Bytes of IP and TCP headers, with the options that every segment has.
    pub header: usize,
    /// True if segments carry timestamps (RFC 7323). The round trip of retransmitted data is then measured, too.
    pub timestamps: bool,
    /// First congestion window, in segments.
    pub initial_window: u32,
    /// Limit on the bytes in flight: the peer's window or the send buffer, whichever is less.
    pub window_max: u64,
    /// Congestion control.
    pub growth: Growth,
    /// True if slow start counts acknowledged segments (RFC 3465). Otherwise it counts acknowledgements.
    pub counts_segments: bool,
    /// Loss recovery.
    pub recovery: Recovery,
    /// Time-out before the first round trip is measured.
    pub rto_initial: Duration,
    /// Lower bound of the quantity that `rto_floor` names.
    pub rto_min: Duration,
    /// Quantity that `rto_min` bounds.
    pub rto_floor: RtoFloor,
    /// Delay of an acknowledgement that waits for a second segment.
    pub ack_delay: Duration,
    /// Number of first segments that are acknowledged immediately.
    pub quick_acks: u32,
}

/// Congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// One segment per round trip, and half of the window after a loss (RFC 5681).
    Reno,
    /// A cubic function of time, and seven tenths of the window after a loss (RFC 9438).
    Cubic,
}

/// Loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// Recovery after three duplicate acknowledgements, one loss per round trip, without SACK (RFC 6582).
    NewReno {
        /// True if each of the first two duplicates permits a new segment (RFC 3042).
        limited_transmit: bool,
    },
    /// Recovery by SACK blocks and time (RFC 8985), with the tail-loss probe and proportional rate reduction (RFC 6937).
    Rack,
}

/// The quantity that [`TcpConfig::rto_min`] bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RtoFloor {
    /// The time-out itself (RFC 6298).
    TimeOut,
    /// The addition to the smoothed round trip, as in Linux.
    Variance,
}

impl TcpConfig {
    /// Returns the settings of FreeBSD 4.10, with which the papers (`docs/papers.md`) compare: NewReno without SACK and without
    /// limited transmit, timestamps, and a minimum time-out of one second. The send buffer is 32 KiB, the default of a FreeBSD
    /// socket. The first SYN is sent again after three seconds.
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

    /// Returns the settings of Linux with this congestion control: SACK, RACK, tail-loss probe, timestamps, and ten segments at
    /// first.
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

    /// Returns the settings of Linux if it is configured as in the papers' time: Reno, two segments at first, and an `rto_min`
    /// of one second. SACK, RACK, tail-loss probe and timestamps are off. Limited transmit stays on, because Linux cannot turn
    /// it off. The receiver's window is 64 KiB, at which Linux starts. The model leaves out the growth of the window in Linux.
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
