//! Send-buffer advertisement: routers may read how much waits to be sent, and prefer flows that have little left.
//!
//! Never sends and never changes what an endpoint does: a receiver counts the chunk and reports it, no more. It shows
//! how much an application has to say and when it pauses; therefore it is off unless it is asked for. Begin at
//! [`Advertiser::is_due`].

use std::time::Duration;

use base::Time;
use wire::{ChunkType, SendBuffer};

/// DATA packets after which the economical cadence advertises again.
const PACKETS_BETWEEN: u32 = 8;

/// Change in points of occupancy at which it advertises at once.
const POINTS_AT_ONCE: u8 = 10;

/// The part of a pause that a packet without DATA waits for one with DATA.
const GRACE: u32 = 8;

/// The shortest pause of [`SendBufferCadence::Every`]; what is shorter counts as this.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Settings of the advertisement of a send buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendBufferConfig {
    /// The form of the advertisement.
    pub form: SendBufferForm,
    /// The interval of the advertisement.
    pub cadence: SendBufferCadence,
    /// The occupancy is rounded up to a multiple of this, 1 to 100 points: 10 tells tens only. Not for
    /// [`SendBufferForm::SeedTenths`].
    pub precision: u8,
    /// The type of the chunk: 150, or another that routers and ends have agreed on. Types below 128 end the packet for
    /// peers that do not know them, and those from 192 on, as well as 64 to 127, are reported by them.
    pub chunk_type: ChunkType,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The form in which a send buffer is advertised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SendBufferForm {
    /// Occupancy in percent of the send buffer: 4 octets.
    Percent,
    /// The same, and the bytes that wait: 8 octets.
    Backlog,
    /// Tenths, 0 to 10, of what is used of the buffer: 4 octets, by the formula of the 2016 patch for Linux.
    SeedTenths,
}

/// The interval between advertisements of a send buffer: in packets with DATA only, except for [`Every`](SendBufferCadence::Every).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SendBufferCadence {
    /// In every packet.
    EveryPacket,
    /// In the first packet of a burst, in every 8th, and when the occupancy has changed by 10 points.
    Economical,
    /// Once in each such pause, 10 ms at least: in a packet with DATA where one leaves by then, else in a packet of its own. While DATA
    /// is in flight that waits an eighth of the pause for more. It goes by the path in use while that is active, is never sent
    /// again, and waits for no answer.
    Every(Duration),
}

/// The settings of [`SendBufferConfig::default`].
const DEFAULT: SendBufferConfig = SendBufferConfig {
    form: SendBufferForm::Percent,
    cadence: SendBufferCadence::Economical,
    precision: 10,
    chunk_type: SendBuffer::TYPE,
    _non_exhaustive: (),
};

impl Default for SendBufferConfig {
    /// Percent, in tens, economically.
    fn default() -> Self {
        DEFAULT
    }
}

impl SendBufferConfig {
    /// The backlog, exactly, every 5 seconds: the pause of the 2016 project.
    pub const fn backlog() -> SendBufferConfig {
        SendBufferConfig::backlog_every(Duration::from_secs(5))
    }

    /// The backlog, exactly, once in each such pause.
    pub const fn backlog_every(pause: Duration) -> SendBufferConfig {
        SendBufferConfig {
            form: SendBufferForm::Backlog,
            cadence: SendBufferCadence::Every(pause),
            precision: 1,
            ..DEFAULT
        }
    }

    /// As the 2016 patch for Linux does it: tenths, in every packet.
    pub const fn seed() -> SendBufferConfig {
        SendBufferConfig {
            form: SendBufferForm::SeedTenths,
            cadence: SendBufferCadence::EveryPacket,
            ..DEFAULT
        }
    }

    /// Octets of the chunk.
    pub(crate) fn len(&self) -> usize {
        SendBuffer::len_with(self.form == SendBufferForm::Backlog)
    }
}

/// The peer's advertisement of its send buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct PeerSendBuffer {
    /// Occupancy, 0 to 100 percent; or 0 to 10 tenths, if the peer sends tenths.
    pub occupancy: u8,
    /// Bytes that wait for their first transmission, if the peer says so.
    pub backlog: Option<u32>,
}

/// State of our send buffer when a packet is filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// Bytes never sent yet.
    pub(crate) queued: usize,
    /// Bytes sent and not acknowledged.
    pub(crate) outstanding: usize,
    /// Most bytes that may be queued or outstanding now.
    pub(crate) capacity: usize,
    /// The smaller of the congestion window and what the peer's window has room for beyond what is in flight, in bytes. The patch
    /// of 2016 compares with these two as Linux keeps them.
    pub(crate) window: usize,
}

/// Decides when to advertise, and what.
#[derive(Debug)]
pub(crate) struct Advertiser {
    pub(crate) config: SendBufferConfig,
    /// The last advertisement, and when it was made.
    last: Option<(u8, Time)>,
    /// Packets with DATA since.
    packets: u32,
    /// Time at which it is looked at whether to speak without DATA.
    alone_at: Time,
    alone: Alone,
}

/// Progress towards a packet without DATA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Alone {
    /// The pause is not over.
    Waits,
    /// It is, and a packet with DATA is likely to come.
    Yields,
    /// The next packet is to be one.
    Due,
}

/// The association's state when the pause is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outlook {
    /// No packet of its own may leave.
    Closed,
    /// DATA is in flight: more may follow what is acknowledged.
    Busy,
    /// Nothing is.
    Quiet,
}

impl Advertiser {
    pub(crate) fn new(config: SendBufferConfig, now: Time) -> Advertiser {
        let mut advertiser =
            Advertiser { config, last: None, packets: 0, alone_at: Time::NEVER, alone: Alone::Waits };
        advertiser.wait(now);
        advertiser
    }

    /// Speaks without DATA after another pause, if ever.
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

    /// The pause is over.
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

    /// Reports whether a packet without DATA is due.
    pub(crate) fn is_alone_due(&self) -> bool {
        self.alone == Alone::Due
    }

    /// Reports whether the next packet with DATA is to have the chunk.
    pub(crate) fn is_due(&self, fill: &Fill, now: Time) -> bool {
        let Some((occupancy, at)) = self.last else { return true };
        match self.config.cadence {
            SendBufferCadence::EveryPacket => true,
            SendBufferCadence::Every(_) => self.pause().is_some_and(|pause| now >= at + pause),
            SendBufferCadence::Economical => {
                let is_first = fill.outstanding == 0;
                let points = self.occupancy(fill).abs_diff(occupancy);
                is_first || self.packets + 1 >= PACKETS_BETWEEN || points >= POINTS_AT_ONCE
            }
        }
    }

    /// The chunk for a packet that has all else.
    pub(crate) fn advertise(&mut self, fill: &Fill, now: Time) -> SendBuffer {
        let occupancy = self.occupancy(fill);
        self.last = Some((occupancy, now));
        self.packets = 0;
        self.wait(now);
        let has_backlog = self.config.form == SendBufferForm::Backlog;
        let backlog = has_backlog.then(|| u32::try_from(fill.queued).unwrap_or(u32::MAX));
        SendBuffer { chunk_type: self.config.chunk_type, occupancy, backlog }
    }

    /// A packet with DATA left without the chunk.
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

/// ceil(100 × backlog / capacity), rounded up to a multiple of `precision`, at most 100.
fn percent(fill: &Fill, precision: u8) -> u8 {
    let precision = usize::from(precision.max(1));
    let percent = (100 * fill.queued).div_ceil(fill.capacity.max(1));
    u8::try_from(percent.next_multiple_of(precision).min(100)).unwrap_or(100)
}

/// Bytes that cannot leave now, in tenths of the buffer used. The patch counted the kernel's bookkeeping beside user data, some 36 %:
/// so its figures never exceeded 7.
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
    fn the_backlog_is_exact_and_stays_at_the_greatest_number() {
        let config = SendBufferConfig::backlog();
        assert_eq!(said(config, &queued(11)), (2, Some(11)));
        assert_eq!(said(config, &queued(1 << 33)), (100, Some(u32::MAX)));
        assert_eq!((config.len(), SendBufferConfig::default().len()), (8, 4));
    }

    #[test]
    fn the_seed_counts_what_the_windows_hold_back_in_tenths_of_what_is_used() {
        let fill = |queued, outstanding, window| Fill { queued, outstanding, capacity: 1, window };
        let config = SendBufferConfig::seed();
        assert_eq!(said(config, &fill(0, 0, 0)), (0, None));
        assert_eq!(said(config, &fill(500, 500, 500)), (3, None));
        assert_eq!(said(config, &fill(1_000_000, 0, 0)), (7, None));
        assert_eq!(said(config, &fill(100, 100, 5000)), (0, None));
    }

    #[test]
    fn economy_speaks_first_then_every_eighth_time_and_when_ten_points_change() {
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
    fn on_a_timer_it_speaks_when_the_time_has_passed_and_in_every_packet_always() {
        let mut a = Advertiser::new(SendBufferConfig::backlog(), MS(0));
        a.advertise(&queued(1), MS(1));
        assert!(!a.is_due(&queued(900), MS(5000)) && a.is_due(&queued(1), MS(5001)));
        let mut a = Advertiser::new(SendBufferConfig::seed(), MS(0));
        a.advertise(&queued(1), MS(1));
        assert!(a.is_due(&queued(1), MS(1)) && a.next_timeout() == Time::NEVER);
    }

    #[test]
    fn on_a_timer_it_speaks_alone_once_a_pause_yields_to_data_and_is_silent_where_it_may_not() {
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
    fn no_pause_is_too_short_for_the_timer() {
        let mut a = Advertiser::new(SendBufferConfig::backlog_every(Duration::ZERO), MS(0));
        a.advertise(&queued(1), MS(1));
        assert!(a.next_timeout() == MS(11) && !a.is_due(&queued(1), MS(10)));
    }

    proptest! {
        #[test]
        fn nothing_overflows_and_all_is_within_bounds(
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
