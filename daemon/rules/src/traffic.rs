//! Counts the monthly traffic of interfaces with a cap.
//!
//! The kernel counts the bytes of an interface since the interface exists. [`TrafficTable`] adds the growth of this count to the month of
//! the interface, and begins again with each month. Months begin at midnight UTC, on the day that the [`Cap`] names. Traffic while the daemon
//! is stopped counts, too, if the interface is the same afterwards. Begin with [`TrafficTable::note`].

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::{Cap, UnixMs};

/// Limit on the interfaces. If there are more, the one that was read least recently is forgotten.
const INTERFACES_MAX: usize = 64;
/// Limit on the length in bytes of an interface's name and of [`Reading::of`].
const NAME_BYTES_MAX: usize = 64;

/// Returns the first day of the month that contains this time and begins on this day of the calendar month.
fn month_of(now: UnixMs, day: i8) -> Date {
    let millis = i64::try_from(now.0).unwrap_or(i64::MAX);
    let now = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
    let today = now.to_zoned(TimeZone::UTC).date();
    let in_month =
        if today.day() >= day { today } else { today.first_of_month().yesterday().unwrap_or(today) };
    in_month.with().day(day).build().unwrap_or(in_month)
}

/// The kernel's count of an interface's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Bytes received and sent since the interface exists.
    pub bytes: u64,
    /// The interface that the kernel counts. Another interface of the same name has another text here, also after a restart of the host.
    pub of: String,
}

/// The traffic of one interface in the current month.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MonthTraffic {
    /// Name of the interface.
    pub interface: String,
    /// First day of the month.
    pub month: Date,
    /// Bytes of this month, received and sent.
    pub bytes: u64,
    /// The last reading of the kernel's count.
    last: u64,
    /// The interface of the last reading.
    of: String,
    /// Time of the last reading, in milliseconds since 1970.
    read_unix_ms: u64,
}

impl MonthTraffic {
    /// Begins a month, unless it is the current month or an earlier one. A host without a clock of its own may start in the past, so a month
    /// never goes back.
    fn begin(&mut self, month: Date) {
        if month > self.month {
            (self.month, self.bytes) = (month, 0);
        }
    }
}

/// The traffic of interfaces, by name. Invariant: up to [`INTERFACES_MAX`] interfaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrafficTable {
    interfaces: BTreeMap<String, MonthTraffic>,
}

impl TrafficTable {
    /// Adds a reading, and returns the traffic of the month with it. The first reading of an interface begins its count at zero.
    pub fn note(&mut self, now: UnixMs, interface: &str, cap: &Cap, reading: Reading) -> &MonthTraffic {
        let month = month_of(now, cap.day);
        if !self.interfaces.contains_key(interface) && self.interfaces.len() >= INTERFACES_MAX {
            self.forget_oldest();
        }
        let known = self.interfaces.entry(interface.to_owned()).or_insert_with(|| MonthTraffic {
            interface: interface.to_owned(),
            month,
            bytes: 0,
            last: reading.bytes,
            of: reading.of.clone(),
            read_unix_ms: now.0,
        });
        let is_same = known.of == reading.of && known.last <= reading.bytes;
        let grown = reading.bytes - if is_same { known.last } else { 0 };
        known.begin(month);
        known.bytes = known.bytes.saturating_add(grown);
        (known.last, known.of, known.read_unix_ms) = (reading.bytes, reading.of, now.0);
        known
    }

    /// Begins the months that are due at this time, also of interfaces that have gone. `cap_of` returns the cap of an interface.
    pub fn begin_months(&mut self, now: UnixMs, cap_of: impl Fn(&str) -> Option<Cap>) {
        for traffic in self.interfaces.values_mut() {
            if let Some(cap) = cap_of(&traffic.interface) {
                traffic.begin(month_of(now, cap.day));
            }
        }
    }

    /// Returns the traffic of all interfaces, by name.
    pub fn iter(&self) -> impl Iterator<Item = &MonthTraffic> {
        self.interfaces.values()
    }

    /// Adds an entry that was stored. Returns false if it is invalid, or the table is full.
    pub fn restore(&mut self, entry: MonthTraffic) -> bool {
        let is_name = |text: &str| (1..=NAME_BYTES_MAX).contains(&text.len());
        let is_valid =
            is_name(&entry.interface) && is_name(&entry.of) && self.interfaces.len() < INTERFACES_MAX;
        if is_valid {
            self.interfaces.insert(entry.interface.clone(), entry);
        }
        is_valid
    }

    fn forget_oldest(&mut self) {
        let oldest = self.interfaces.values().min_by_key(|traffic| traffic.read_unix_ms);
        if let Some(name) = oldest.map(|traffic| traffic.interface.clone()) {
            self.interfaces.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkUse;

    const CAP: Cap = Cap { bytes: 1_000, then: LinkUse::Never, day: 15 };

    fn at(time: &str) -> UnixMs {
        UnixMs(time.parse::<Timestamp>().unwrap().as_millisecond().try_into().unwrap())
    }

    /// Returns the month and its bytes after a reading.
    fn note(table: &mut TrafficTable, time: &str, bytes: u64, of: &str) -> (String, u64) {
        let traffic = table.note(at(time), "wwan0", &CAP, Reading { bytes, of: of.into() });
        (traffic.month.to_string(), traffic.bytes)
    }

    #[test]
    fn a_month_begins_on_its_day_at_midnight_utc() {
        for (time, day, month) in [
            ("2026-12-01T00:00:00Z", 1, "2026-12-01"),
            ("2026-11-30T23:59:59Z", 1, "2026-11-01"),
            ("2027-01-14T12:00:00Z", 15, "2026-12-15"),
            ("2027-01-15T00:00:00Z", 15, "2027-01-15"),
            ("2027-03-01T00:00:00Z", 28, "2027-02-28"),
        ] {
            assert_eq!(month_of(at(time), day).to_string(), month, "{time}");
        }
        assert_eq!(month_of(UnixMs(u64::MAX), 1).year(), 9999);
    }

    #[test]
    fn growth_counts_and_a_new_month_begins_at_zero() {
        let mut table = TrafficTable::default();
        let december = || "2026-12-15".to_owned();
        assert_eq!(note(&mut table, "2026-12-20T00:00:00Z", 5_000, "a"), (december(), 0));
        assert_eq!(note(&mut table, "2026-12-20T00:00:10Z", 5_700, "a"), (december(), 700));
        assert_eq!(note(&mut table, "2027-01-14T23:59:59Z", 5_900, "a"), (december(), 900));
        assert_eq!(note(&mut table, "2027-01-15T00:00:01Z", 6_000, "a"), ("2027-01-15".into(), 100));
    }

    #[test]
    fn the_month_of_an_interface_that_has_gone_begins_without_a_reading() {
        let mut table = TrafficTable::default();
        note(&mut table, "2026-12-20T00:00:00Z", 0, "a");
        note(&mut table, "2026-12-20T00:00:10Z", 900, "a");
        table.begin_months(at("2027-01-20T00:00:00Z"), |_| None);
        assert_eq!(table.iter().map(|traffic| traffic.bytes).collect::<Vec<_>>(), [900]);
        table.begin_months(at("2027-01-20T00:00:00Z"), |_| Some(CAP));
        assert_eq!(table.iter().map(|traffic| traffic.bytes).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn another_interface_of_the_name_counts_from_zero() {
        let mut table = TrafficTable::default();
        let time = "2026-12-20T00:00:00Z";
        note(&mut table, time, 5_000, "a");
        assert_eq!(note(&mut table, time, 5_100, "b").1, 5_100);
        // The count of the same interface may begin again, too.
        assert_eq!(note(&mut table, time, 40, "b").1, 5_140);
    }

    #[test]
    fn a_clock_in_the_past_does_not_change_the_month() {
        let mut table = TrafficTable::default();
        note(&mut table, "2026-12-20T00:00:00Z", 0, "a");
        assert_eq!(note(&mut table, "1970-01-01T00:00:09Z", 10, "a"), ("2026-12-15".into(), 10));
        assert_eq!(note(&mut table, "2026-12-20T00:00:10Z", 20, "a"), ("2026-12-15".into(), 20));
    }

    #[test]
    fn many_interfaces_take_bounded_memory() {
        let mut table = TrafficTable::default();
        for number in 0..200_u64 {
            let reading = Reading { bytes: number, of: "a".into() };
            table.note(UnixMs(number), &format!("ppp{number}"), &CAP, reading);
        }
        let names: Vec<&str> = table.iter().map(|traffic| traffic.interface.as_str()).collect();
        assert_eq!(names.len(), INTERFACES_MAX);
        assert!(names.contains(&"ppp199") && !names.contains(&"ppp0"), "{names:?}");
        let mut restored = TrafficTable::default();
        assert!(table.iter().all(|traffic| restored.restore(traffic.clone())));
        assert_eq!(restored, table);
        assert!(!restored.restore(table.iter().next().unwrap().clone()));
    }
}
