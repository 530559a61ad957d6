//! Send-buffer advertisement: a chunk that reports to routers how much data waits in the send buffer. Routers may prefer flows that
//! have little left to send. The chunk follows "SCTP Sendbuffer Advertisement", a project of 2016 that patched Linux.
//!
//! The advertisement influences nothing else: an endpoint that receives the chunk only counts and reports it. The chunk reveals to
//! every observer how much data an application sends, and when it pauses. Therefore it is off by default. Begin at
//! [`Advertiser::is_due`].

use std::time::Duration;

use base::Time;
use wire::{ChunkType, SendBuffer};

/// Interval between chunks under [`SendBufferCadence::Economical`], in packets with DATA.
const PACKETS_BETWEEN: u32 = 8;

/// Change of the occupancy since the last advertisement, in percentage points, at which [`SendBufferCadence::Economical`]
/// advertises at once. With [`SendBufferForm::SeedTenths`], the limit is one tenth instead.
const POINTS_AT_ONCE: u8 = 10;

/// Divisor of the pause of [`SendBufferCadence::Every`]. The quotient is the time that a packet with only the chunk waits for a
/// packet with DATA.
const GRACE: u32 = 8;

/// Shortest pause of [`SendBufferCadence::Every`]. A shorter setting is raised to this value.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Settings of the advertisement of a send buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendBufferConfig {
    /// Form of the advertisement.
    pub form: SendBufferForm,
    /// Interval between advertisements.
    pub cadence: SendBufferCadence,
    /// Step of the advertised occupancy, 1 to 100 percentage points. The occupancy is rounded up to a multiple of the step, so a step
    /// of 10 reveals only tens. Not used with [`SendBufferForm::SeedTenths`].
    pub precision: u8,
    /// Type of the chunk: 150, or another type on which routers and endpoints have agreed. If the type is below 128, a peer that
    /// does not know the type ignores the rest of the packet. Such a peer reports types 64 to 127 and 192 to 255 with an ERROR
    /// chunk.
    pub chunk_type: ChunkType,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Form in which a send buffer is advertised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SendBufferForm {
    /// Chunk of 4 octets: the occupancy in percent of the send buffer.
    Percent,
    /// Chunk of 8 octets: the occupancy in percent, and the bytes that wait for their first transmission.
    Backlog,
    /// Chunk of 4 octets: the share of the used buffer that cannot leave now, in tenths (0 to 10). The formula comes from the 2016
    /// patch for Linux.
    SeedTenths,
}

/// Interval between advertisements of a send buffer. Only packets with DATA carry the chunk. With
/// [`Every`](SendBufferCadence::Every), a packet can also carry the chunk alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SendBufferCadence {
    /// Every packet with DATA.
    EveryPacket,
    /// The first packet of a burst, and every 8th packet with DATA. In addition, each packet with DATA when the occupancy differs
    /// by 10 percentage points or more from the last advertised occupancy.
    Economical,
    /// Once in each pause of this length, 10 ms or more. After the pause, the next packet with DATA carries the chunk. If no DATA
    /// is in flight at the end of the pause, a packet with only the chunk leaves at once. If DATA is in flight, the packet with
    /// only the chunk first waits for a packet with DATA, for one eighth of the pause. The packet with only the chunk leaves on the
    /// current path, and only if this path is active. It is never retransmitted, and the peer does not answer it.
    Every(Duration),
}

/// Value of [`SendBufferConfig::default`].
const DEFAULT: SendBufferConfig = SendBufferConfig {
    form: SendBufferForm::Percent,
    cadence: SendBufferCadence::Economical,
    precision: 10,
    chunk_type: SendBuffer::TYPE,
    _non_exhaustive: (),
};

impl Default for SendBufferConfig {
    /// Returns the economical cadence with the occupancy in percent, rounded up to tens.
    fn default() -> Self {
        DEFAULT
    }
}

impl SendBufferConfig {
    /// Returns settings that advertise the exact backlog every 5 seconds, the default pause of the 2016 project.
    pub const fn backlog() -> SendBufferConfig {
        SendBufferConfig::backlog_every(Duration::from_secs(5))
    }

    /// Returns settings that advertise the exact backlog once in each `pause`.
    pub const fn backlog_every(pause: Duration) -> SendBufferConfig {
        SendBufferConfig {
            form: SendBufferForm::Backlog,
            cadence: SendBufferCadence::Every(pause),
            precision: 1,
            ..DEFAULT
        }
    }

    /// Returns the settings of the 2016 patch for Linux: tenths, in every packet with DATA.
    pub const fn seed() -> SendBufferConfig {
        SendBufferConfig {
            form: SendBufferForm::SeedTenths,
            cadence: SendBufferCadence::EveryPacket,
            ..DEFAULT
        }
    }

    /// Returns the length of the chunk in octets.
    pub(crate) fn len(&self) -> usize {
        SendBuffer::len_with(self.form == SendBufferForm::Backlog)
    }
}

/// The peer's advertisement of its send buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct PeerSendBuffer {
    /// Occupancy in percent, 0 to 100; or in tenths, 0 to 10, if the peer advertises tenths.
    pub occupancy: u8,
    /// Number of the peer's bytes that wait for their first transmission, if the peer reports the number.
    pub backlog: Option<u32>,
}

/// State of our send buffer when a packet is filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// Bytes that have never been sent.
    pub(crate) queued: usize,
    /// Bytes that are sent and not acknowledged.
    pub(crate) outstanding: usize,
    /// Limit on the sum of `queued` and `outstanding`, in bytes.
    pub(crate) capacity: usize,
    /// The smaller of two sizes, in bytes: the congestion window, and the peer's receive window without the data in flight. The
    /// 2016 patch uses Linux's values of these two sizes.
    pub(crate) window: usize,
}

/// State that determines when the chunk leaves and which values it carries.
#[derive(Debug)]
pub(crate) struct Advertiser {
    pub(crate) config: SendBufferConfig,
    /// Last advertised occupancy, and the time of that advertisement.
    last: Option<(u8, Time)>,
    /// Number of packets with DATA that have left without the chunk since the last advertisement.
    packets: u32,
    /// Time of the next decision about a packet that carries only the chunk.
    alone_at: Time,
    alone: Alone,
}

/// Progress towards a packet that carries only the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Alone {
    /// The pause has not ended.
    Waits,
    /// The pause has ended, and a packet with DATA is likely to leave soon.
    Yields,
    /// A packet that carries only the chunk is due.
    Due,
}

/// State of the association at the end of the pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outlook {
    /// A packet that carries only the chunk may not leave.
    Closed,
    /// DATA is in flight. After its acknowledgement, more DATA may leave.
    Busy,
    /// No DATA is in flight.
    Quiet,
}

impl Advertiser {
    pub(crate) fn new(config: SendBufferConfig, now: Time) -> Advertiser {
        let mut advertiser =
            Advertiser { config, last: None, packets: 0, alone_at: Time::NEVER, alone: Alone::Waits };
        advertiser.wait(now);
        advertiser
    }

    /// Starts the next pause. Cadences without a pause never send the chunk alone.
    fn wait(&mut self, now: Time) {
        self.alone = Alone::Waits;
        self.alone_at = self.pause().map_or(Time::NEVER, |pause| now + pause);
    }

    fn pause(&self) -> Option<Duration> {
        match self.config.cadence {
            SendBufferCadence::Every(pause) => Some(pause.max(PAUSE_MIN)),
            SendBufferCadence::EveryPacket | SendBufferCadence::Economical => None,
        }
    }

    /// Returns the time at which [`on_timeout`](Self::on_timeout) is due.
    pub(crate) fn next_timeout(&self) -> Time {
        self.alone_at
    }

    /// Handles the end of the pause, or the end of the wait for a packet with DATA.
    pub(crate) fn on_timeout(&mut self, outlook: Outlook, now: Time) {
        let Some(pause) = self.pause().filter(|_| self.alone_at <= now) else { return };
        match (outlook, self.alone) {
            (Outlook::Busy, Alone::Waits) => {
                self.alone = Alone::Yields;
                self.alone_at = now + pause / GRACE;
            }
            (Outlook::Busy | Outlook::Quiet, _) => {
                self.alone = Alone::Due;
                self.alone_at = now + pause;
            }
            (Outlook::Closed, _) => self.wait(now),
        }
    }

    /// Reports whether a packet that carries only the chunk is due.
    pub(crate) fn is_alone_due(&self) -> bool {
        self.alone == Alone::Due
    }

    /// Reports whether the next packet with DATA must carry the chunk.
    pub(crate) fn is_due(&self, fill: &Fill, now: Time) -> bool {
        let Some((occupancy, at)) = self.last else { return true };
        match self.config.cadence {
            SendBufferCadence::EveryPacket => true,
            SendBufferCadence::Every(_) => self.pause().is_some_and(|pause| now >= at + pause),
            SendBufferCadence::Economical => {
                let is_first = fill.outstanding == 0;
                let change = self.occupancy(fill).abs_diff(occupancy);
                let at_once = if self.config.form == SendBufferForm::SeedTenths { 1 } else { POINTS_AT_ONCE };
                is_first || self.packets + 1 >= PACKETS_BETWEEN || change >= at_once
            }
        }
    }

    /// Returns the chunk for a packet whose other chunks are complete, and starts the next pause.
    pub(crate) fn advertise(&mut self, fill: &Fill, now: Time) -> SendBuffer {
        let occupancy = self.occupancy(fill);
        self.last = Some((occupancy, now));
        self.packets = 0;
        self.wait(now);
        let has_backlog = self.config.form == SendBufferForm::Backlog;
        let backlog = has_backlog.then(|| u32::try_from(fill.queued).unwrap_or(u32::MAX));
        SendBuffer { chunk_type: self.config.chunk_type, occupancy, backlog }
    }

    /// Counts a packet with DATA that left without the chunk.
    pub(crate) fn on_packet_without(&mut self) {
        self.packets = self.packets.saturating_add(1);
    }

    fn occupancy(&self, fill: &Fill) -> u8 {
        match self.config.form {
            SendBufferForm::Percent | SendBufferForm::Backlog => percent(fill, self.config.precision),
            SendBufferForm::SeedTenths => tenths(fill),
        }
    }
}

/// Returns ceil(100 × queued / capacity), rounded up to a multiple of `precision`, with a limit of 100.
fn percent(fill: &Fill, precision: u8) -> u8 {
    let precision = usize::from(precision.max(1));
    let percent = (100 * fill.queued).div_ceil(fill.capacity.max(1));
    u8::try_from(percent.next_multiple_of(precision).min(100)).unwrap_or(100)
}

/// Returns the share of the used buffer that cannot leave now, in tenths. The 2016 patch also counted the kernel's bookkeeping as
/// used. The bookkeeping was about 36 % of the user data, so the patch's figures never exceeded 7 tenths.
fn tenths(fill: &Fill) -> u8 {
    let user_bytes = fill.queued + fill.outstanding;
    let used = user_bytes * 136 / 100;
    let waiting = user_bytes.saturating_sub(fill.window);
    u8::try_from((10 * waiting).checked_div(used).unwrap_or(0).min(10)).unwrap_or(10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    fn queued(queued: usize) -> Fill {
        Fill { queued, outstanding: 1, capacity: 1000, window: 0 }
    }

    fn said(config: SendBufferConfig, fill: &Fill) -> (u8, Option<u32>) {
        let chunk = Advertiser::new(config, Time::ZERO).advertise(fill, Time::ZERO);
        assert_eq!(chunk.chunk_type, ChunkType(150));
        (chunk.occupancy, chunk.backlog)
    }

    #[test]
    fn percent_is_rounded_up_to_tens_and_zero_means_that_nothing_waits() {
        let config = SendBufferConfig::default();
        let expected = [(0, 0), (1, 10), (100, 10), (101, 20), (900, 90), (901, 100), (5000, 100)];
        for (bytes, percent) in expected {
            assert_eq!(said(config, &queued(bytes)), (percent, None), "{bytes} bytes");
        }
    }

    #[test]
    fn the_backlog_is_exact_and_saturates_at_the_32_bit_maximum() {
        let config = SendBufferConfig::backlog();
        assert_eq!(said(config, &queued(11)), (2, Some(11)));
        assert_eq!(said(config, &queued(1 << 33)), (100, Some(u32::MAX)));
        assert_eq!((config.len(), SendBufferConfig::default().len()), (8, 4));
    }

    #[test]
    fn seed_tenths_give_the_share_of_the_used_buffer_that_the_windows_hold_back() {
        let fill = |queued, outstanding, window| Fill { queued, outstanding, capacity: 1, window };
        let config = SendBufferConfig::seed();
        assert_eq!(said(config, &fill(0, 0, 0)), (0, None));
        assert_eq!(said(config, &fill(500, 500, 500)), (3, None));
        assert_eq!(said(config, &fill(1_000_000, 0, 0)), (7, None));
        assert_eq!(said(config, &fill(100, 100, 5000)), (0, None));
    }

    #[test]
    fn economical_mode_advertises_at_first_each_eighth_packet_and_on_ten_points_of_change() {
        let mut a = Advertiser::new(SendBufferConfig { precision: 1, ..SendBufferConfig::default() }, MS(0));
        assert!(a.is_due(&queued(500), MS(0)));
        a.advertise(&queued(500), MS(0));
        for _ in 0..7 {
            assert!(!a.is_due(&queued(500), MS(0)));
            a.on_packet_without();
        }
        assert!(a.is_due(&queued(500), MS(0)));
        a.advertise(&queued(500), MS(0));
        assert!(!a.is_due(&queued(590), MS(0)) && !a.is_due(&queued(410), MS(0)));
        assert!(a.is_due(&queued(591), MS(0)) && a.is_due(&queued(400), MS(0)));
        assert!(a.is_due(&Fill { outstanding: 0, ..queued(500) }, MS(0)), "a burst begins");
    }

    #[test]
    fn timer_mode_advertises_after_the_interval_and_every_packet_mode_always() {
        let mut a = Advertiser::new(SendBufferConfig::backlog(), MS(0));
        a.advertise(&queued(1), MS(1));
        assert!(!a.is_due(&queued(900), MS(5000)) && a.is_due(&queued(1), MS(5001)));
        let mut a = Advertiser::new(SendBufferConfig::seed(), MS(0));
        a.advertise(&queued(1), MS(1));
        assert!(a.is_due(&queued(1), MS(1)) && a.next_timeout() == Time::NEVER);
    }

    #[test]
    fn timer_mode_sends_the_chunk_alone_once_per_interval_if_no_data_carries_it() {
        let mut a = Advertiser::new(SendBufferConfig::backlog_every(Duration::from_millis(800)), MS(7));
        a.on_timeout(Outlook::Quiet, MS(806));
        assert!(!a.is_alone_due() && a.next_timeout() == MS(807));
        a.on_timeout(Outlook::Quiet, MS(807));
        assert!(a.is_alone_due() && a.next_timeout() == MS(1607), "time goes on if nothing can leave");
        a.advertise(&queued(1), MS(900));
        assert!(!a.is_alone_due() && a.next_timeout() == MS(1700), "with data is as good");
        a.on_timeout(Outlook::Closed, MS(1700));
        assert!(!a.is_alone_due() && a.next_timeout() == MS(2500));
        a.on_timeout(Outlook::Busy, MS(2500));
        assert!(!a.is_alone_due() && a.is_due(&queued(1), MS(2500)) && a.next_timeout() == MS(2600));
        a.on_timeout(Outlook::Busy, MS(2600));
        assert!(a.is_alone_due());
    }

    #[test]
    fn a_zero_timer_interval_is_raised_to_10_ms() {
        let mut a = Advertiser::new(SendBufferConfig::backlog_every(Duration::ZERO), MS(0));
        a.advertise(&queued(1), MS(1));
        assert!(a.next_timeout() == MS(11) && !a.is_due(&queued(1), MS(10)));
    }

    proptest! {
        #[test]
        fn occupancy_stays_within_bounds_for_any_fill_of_the_buffer(
            queued in 0..1usize << 48,
            outstanding in 0..1usize << 48,
            capacity in 0..1usize << 48,
            window in 0..1usize << 48,
            precision: u8,
        ) {
            let fill = Fill { queued, outstanding, capacity, window };
            prop_assert!(percent(&fill, precision) <= 100 && tenths(&fill) <= 10);
        }
    }
}
