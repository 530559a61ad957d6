//! History of this host's links to each peer: traffic and round-trip times over an hour and a day, and total bytes. It outlives
//! associations and the daemon.
//!
//! The daemon reads the counts of its links at the end of each minute. [`LinkHistories::note`] adds the growth of these counts. Invariant: up to
//! [`LINKS_MAX`] links, each with at most [`HOUR`] and [`DAY`] samples.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use rules::UnixMs;
use serde::{Deserialize, Serialize};

use crate::FileError;
use crate::entries::EntriesFile;
use crate::link::title_of;

/// Limit on the links. If there are more, those without an association give way, the longest unread first.
const LINKS_MAX: usize = 128;
/// Limit on the length in bytes of an interface's name and of a link's name.
const NAME_BYTES_MAX: usize = 256;
/// Samples of one minute, for an hour.
const HOUR: Resolution = Resolution { step_s: 60, samples_max: 60 };
/// Samples of ten minutes, for a day.
const DAY: Resolution = Resolution { step_s: 600, samples_max: 144 };
/// The file of a history. The longest history needs about half of the limit.
const FILE: EntriesFile = EntriesFile { head: "sctpify link history, version 1", max_bytes: 4 << 20 };

/// Length and number of samples.
#[derive(Clone, Copy, Debug)]
struct Resolution {
    step_s: u64,
    samples_max: usize,
}

/// The counts of a link to a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkReading {
    /// The peer's address with which the associations began.
    pub peer: IpAddr,
    /// Interface of the link; `None` if unknown.
    pub interface: Option<String>,
    /// The operator's name for the link, if any.
    pub name: Option<String>,
    /// The link has an association with the peer.
    pub is_live: bool,
    /// Smoothed round-trip time, in microseconds; `None` if the link does not work, or before the first measurement.
    pub srtt_us: Option<u64>,
    /// Bytes of SCTP packets sent since the daemon's start.
    pub sent_bytes: u64,
    /// Bytes of SCTP packets received since the daemon's start.
    pub received_bytes: u64,
}

/// Samples of a link, oldest first. Each list has one value per sample.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Samples {
    /// Ends of the samples' intervals, in seconds since 1970. Each is a multiple of the interval's length. Intervals without an association
    /// have no sample.
    pub end_s: Vec<u64>,
    /// Bytes sent in the interval.
    pub sent_bytes: Vec<u64>,
    /// Bytes received in the interval.
    pub received_bytes: Vec<u64>,
    /// The longest smoothed round-trip time that was read in the interval, in microseconds; `None` if the link did not work.
    pub srtt_us: Vec<Option<u64>>,
}

/// History of one link to one peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkHistory {
    /// The peer's address with which the associations began.
    pub peer: IpAddr,
    /// Interface of the link; `None` if unknown.
    pub interface: Option<String>,
    /// The operator's name for the link, if any.
    pub name: Option<String>,
    /// Beginning of the history, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Time of the last reading, in milliseconds since 1970.
    pub read_unix_ms: u64,
    /// Bytes of SCTP packets sent since the beginning of the history.
    pub sent_bytes: u64,
    /// Bytes of SCTP packets received since the beginning of the history.
    pub received_bytes: u64,
    /// Samples of one minute, for an hour.
    pub hour: Samples,
    /// Samples of ten minutes, for a day.
    pub day: Samples,
}

/// Histories of all links.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkHistories {
    links: BTreeMap<(IpAddr, Option<String>), LinkHistory>,
    /// The counts of the last reading.
    counted: BTreeMap<(IpAddr, Option<String>), Counts>,
}

/// Counts since the daemon's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    sent_bytes: u64,
    received_bytes: u64,
}

impl Counts {
    /// Returns the growth since earlier counts. A smaller count was begun anew.
    fn since(self, before: Counts) -> Counts {
        let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Counts {
            sent_bytes: grown(self.sent_bytes, before.sent_bytes),
            received_bytes: grown(self.received_bytes, before.received_bytes),
        }
    }
}

impl Resolution {
    /// Returns the end of the interval of a reading, in seconds since 1970. A reading belongs to the minute that ends nearest to it.
    fn end_of(self, reading: UnixMs) -> u64 {
        let minute_s = HOUR.step_s;
        let nearest = (reading.0 / 1000).saturating_add(minute_s / 2) / minute_s * minute_s;
        nearest.div_ceil(self.step_s).saturating_mul(self.step_s)
    }
}

impl Samples {
    /// Adds the growth since the last reading to the sample of its interval.
    fn note(&mut self, resolution: Resolution, now: UnixMs, grown: Counts, srtt_us: Option<u64>) {
        let end = resolution.end_of(now);
        self.forget(resolution, now);
        if self.end_s.last() != Some(&end) {
            self.end_s.push(end);
            self.sent_bytes.push(0);
            self.received_bytes.push(0);
            self.srtt_us.push(None);
        }
        for (counts, grown) in
            [(&mut self.sent_bytes, grown.sent_bytes), (&mut self.received_bytes, grown.received_bytes)]
        {
            if let Some(count) = counts.last_mut() {
                *count = count.saturating_add(grown);
            }
        }
        if let Some(longest) = self.srtt_us.last_mut() {
            *longest = (*longest).max(srtt_us);
        }
    }

    /// Forgets samples that are too old at this time, or lie in the future because the clock was set back.
    fn forget(&mut self, resolution: Resolution, now: UnixMs) {
        let end = resolution.end_of(now);
        let begin = end.saturating_sub(resolution.step_s * resolution.samples_max as u64);
        let old = self.end_s.iter().filter(|at| **at <= begin).count();
        let future = self.end_s.iter().filter(|at| **at > end).count();
        let kept = old..self.end_s.len() - future;
        keep(&mut self.end_s, &kept);
        keep(&mut self.sent_bytes, &kept);
        keep(&mut self.received_bytes, &kept);
        keep(&mut self.srtt_us, &kept);
    }

    /// Reports whether the lists have the same length, and the samples are in order and not too many.
    fn is_valid(&self, resolution: Resolution) -> bool {
        let lengths = [self.sent_bytes.len(), self.received_bytes.len(), self.srtt_us.len()];
        self.end_s.len() <= resolution.samples_max
            && lengths.iter().all(|length| *length == self.end_s.len())
            && self.end_s.is_sorted_by(|one, next| one < next)
            && self.end_s.iter().all(|end| end.is_multiple_of(resolution.step_s))
    }
}

/// Keeps one range of a list.
fn keep<T>(list: &mut Vec<T>, range: &std::ops::Range<usize>) {
    list.truncate(range.end);
    list.drain(..range.start);
}

impl LinkHistory {
    fn new(now: UnixMs, reading: &LinkReading) -> LinkHistory {
        LinkHistory {
            peer: reading.peer,
            interface: reading.interface.clone(),
            name: None,
            since_unix_ms: now.0,
            read_unix_ms: now.0,
            sent_bytes: 0,
            received_bytes: 0,
            hour: Samples::default(),
            day: Samples::default(),
        }
    }

    fn note(&mut self, now: UnixMs, reading: &LinkReading, grown: Counts) {
        self.read_unix_ms = now.0;
        self.name.clone_from(&reading.name);
        self.sent_bytes = self.sent_bytes.saturating_add(grown.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_add(grown.received_bytes);
        self.hour.note(HOUR, now, grown, reading.srtt_us);
        self.day.note(DAY, now, grown, reading.srtt_us);
    }

    /// Returns the name of the link for people, like [`crate::PeerLink::title`].
    pub fn title(&self) -> String {
        title_of(self.interface.as_deref(), self.name.as_deref()).unwrap_or_else(|| "unknown".to_owned())
    }

    fn is_valid(&self) -> bool {
        let is_short = |name: &Option<String>| name.as_ref().is_none_or(|name| name.len() <= NAME_BYTES_MAX);
        is_short(&self.interface)
            && is_short(&self.name)
            && self.hour.is_valid(HOUR)
            && self.day.is_valid(DAY)
    }
}

impl LinkHistories {
    /// Adds a reading of all links.
    pub fn note(&mut self, now: UnixMs, readings: &[LinkReading]) {
        let before = std::mem::take(&mut self.counted);
        for reading in readings {
            let key = (reading.peer, reading.interface.clone());
            let counts = Counts { sent_bytes: reading.sent_bytes, received_bytes: reading.received_bytes };
            let grown = counts.since(before.get(&key).copied().unwrap_or_default());
            self.counted.insert(key.clone(), counts);
            if !reading.is_live && grown == Counts::default() {
                continue;
            }
            let is_known = self.links.contains_key(&key);
            if is_known || self.links.len() < LINKS_MAX || self.make_room(readings) {
                let link = self.links.entry(key).or_insert_with(|| LinkHistory::new(now, reading));
                link.note(now, reading, grown);
            }
        }
    }

    /// Returns the histories in the order of peers and interfaces, without samples that are too old at this time.
    pub fn at(&self, now: UnixMs) -> Vec<LinkHistory> {
        let mut links: Vec<LinkHistory> = self.links.values().cloned().collect();
        for link in &mut links {
            link.hour.forget(HOUR, now);
            link.day.forget(DAY, now);
        }
        links
    }

    /// Returns all histories.
    pub fn iter(&self) -> impl Iterator<Item = &LinkHistory> {
        self.links.values()
    }

    /// Adds a history that was stored. Returns false if it is invalid, or there are too many.
    pub fn restore(&mut self, link: LinkHistory) -> bool {
        let has_room = self.links.len() < LINKS_MAX;
        let is_good = has_room && link.is_valid();
        if is_good {
            self.links.insert((link.peer, link.interface.clone()), link);
        }
        is_good
    }

    /// Forgets the longest unread link without an association. Returns false if all links have one.
    fn make_room(&mut self, readings: &[LinkReading]) -> bool {
        let live = readings.iter().filter(|reading| reading.is_live);
        let live: BTreeSet<_> = live.map(|reading| (reading.peer, reading.interface.clone())).collect();
        let idle = self.links.iter().filter(|(key, _)| !live.contains(key));
        let oldest = idle.min_by_key(|(_, link)| link.read_unix_ms).map(|(key, _)| key.clone());
        oldest.is_some_and(|key| self.links.remove(&key).is_some())
    }
}

/// Loads the histories of a file. Also returns a sentence for people about unusable parts of the file, if any. If the file does not exist,
/// returns no histories.
pub fn load_history(path: &Path) -> (LinkHistories, Option<String>) {
    let mut links = LinkHistories::default();
    let problem = FILE.load(path, |entry| links.restore(entry));
    (links, problem)
}

/// Parses the text of a file. Also describes its unusable parts, if any.
pub fn parse_history(text: &str) -> (LinkHistories, Option<String>) {
    let mut links = LinkHistories::default();
    let problem = FILE.parse(text, |entry| links.restore(entry));
    (links, problem)
}

/// Writes histories to a file, wholly or not at all.
///
/// # Errors
/// If the file cannot be written. The file is then unchanged.
pub fn save_history(path: &Path, links: &LinkHistories) -> Result<(), FileError> {
    FILE.save(path, links.iter())
}

/// Prints histories as the text of a file.
///
/// # Errors
/// If an entry cannot be written as JSON.
pub fn print_history(links: &LinkHistories) -> std::io::Result<String> {
    FILE.print(links.iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;
    /// A multiple of ten minutes.
    const BEGIN_MS: u64 = 1_800_000_000_000;

    fn reading(number: u8, sent_bytes: u64, srtt_us: Option<u64>) -> LinkReading {
        LinkReading {
            peer: [10, 0, 0, number].into(),
            interface: Some("eth1".into()),
            name: Some("fibre".into()),
            is_live: true,
            srtt_us,
            sent_bytes,
            received_bytes: 2 * sent_bytes,
        }
    }

    /// Returns a time that is some minutes after the beginning.
    fn minute(number: u64) -> UnixMs {
        UnixMs(BEGIN_MS + number * MINUTE_MS)
    }

    #[test]
    fn minutes_and_ten_minutes_add_up_and_old_ones_go() {
        let mut links = LinkHistories::default();
        for number in 1..=200 {
            // Every second reading comes late.
            let at = UnixMs(minute(number).0 + 900 * (number % 2));
            links.note(at, &[reading(1, 10 * number, Some(1000 + number))]);
        }
        let all = links.at(minute(200));
        let link = &all[0];
        assert_eq!((link.sent_bytes, link.received_bytes, link.name.as_deref()), (2000, 4000, Some("fibre")));
        assert_eq!((link.hour.end_s.len(), link.day.end_s.len()), (60, 20));
        assert_eq!(link.hour.end_s[0], minute(141).0 / 1000);
        assert!(link.hour.sent_bytes.iter().all(|bytes| *bytes == 10));
        assert!(link.day.received_bytes.iter().all(|bytes| *bytes == 200), "{:?}", link.day);
        assert_eq!(link.day.srtt_us.last(), Some(&Some(1200)), "the longest of the ten minutes");
        assert_eq!(links.at(minute(230))[0].hour.end_s.len(), 30);
        assert_eq!(links.at(minute(3000))[0].day, Samples::default());
    }

    #[test]
    fn a_restarted_daemon_counts_on_and_a_link_without_an_association_has_a_gap() {
        let mut links = LinkHistories::default();
        links.note(minute(1), &[reading(1, 500, None)]);
        let text = print_history(&links).unwrap();
        let (mut links, complaint) = parse_history(&text);
        assert_eq!(complaint, None);
        links.note(minute(2), &[LinkReading { is_live: false, ..reading(1, 0, None) }]);
        links.note(minute(3), &[reading(1, 30, None)]);
        links.note(minute(4), &[LinkReading { is_live: false, ..reading(1, 35, None) }]);
        let link = &links.at(minute(4))[0];
        assert_eq!(link.sent_bytes, 535);
        assert_eq!(link.hour.sent_bytes, [500, 30, 5]);
        assert_eq!(link.hour.end_s, [1, 3, 4].map(|number| minute(number).0 / 1000));
        assert_eq!(link.since_unix_ms, minute(1).0);
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_no_samples_in_the_future() {
        let mut links = LinkHistories::default();
        links.note(minute(500), &[reading(1, 1, None)]);
        links.note(minute(10), &[reading(1, 3, None)]);
        let link = &links.at(minute(10))[0];
        assert_eq!((&*link.hour.sent_bytes, &*link.day.sent_bytes, link.sent_bytes), (&[2][..], &[2][..], 3));
        assert!(link.is_valid());
    }

    #[test]
    fn many_links_take_bounded_memory_and_those_without_an_association_give_way() {
        let mut links = LinkHistories::default();
        let idle = |number: u8| LinkReading { is_live: false, ..reading(number, 1, None) };
        let all: Vec<LinkReading> = (0..=127).map(idle).collect();
        links.note(minute(1), &all);
        links.note(minute(2), &[reading(200, 1, None)]);
        assert_eq!(links.iter().count(), LINKS_MAX);
        assert!(links.links.keys().any(|(peer, _)| *peer == IpAddr::from([10, 0, 0, 200])));
        let live: Vec<LinkReading> = (0..=255).map(|number| reading(number, 2, None)).collect();
        links.note(minute(3), &live);
        assert_eq!(links.iter().count(), LINKS_MAX);
    }

    #[test]
    fn the_longest_history_fits_into_its_file_and_damaged_entries_are_refused() {
        let mut links = LinkHistories::default();
        for number in 1..=1440 {
            let long = |peer: u8| LinkReading {
                interface: Some("i".repeat(NAME_BYTES_MAX)),
                name: Some("n".repeat(NAME_BYTES_MAX)),
                ..reading(peer, number << 40, Some(u64::from(u32::MAX)))
            };
            links.note(minute(number), &(0..=127).map(long).collect::<Vec<_>>());
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/history");
        save_history(&path, &links).unwrap();
        let (read, complaint) = load_history(&path);
        assert_eq!((read.at(minute(1440)).len(), complaint), (LINKS_MAX, None));
        let mut one = LinkHistories::default();
        one.note(minute(1), &[reading(1, 1, None)]);
        let text = print_history(&one).unwrap();
        for (good, bad) in [
            ("[1800000060]", "[1800000061]"),
            ("\"sent_bytes\":[1]", "\"sent_bytes\":[1,2]"),
            ("eth1", &"e".repeat(300)),
        ] {
            assert!(text.contains(good), "{text}");
            let (read, complaint) = parse_history(&text.replace(good, bad));
            assert_eq!((read.iter().count(), complaint.is_some()), (0, true), "{bad}");
        }
    }
}
