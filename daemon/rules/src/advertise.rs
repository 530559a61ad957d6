//! Defines the forms of the send-buffer advertisement (setting `advertise`, and option `--advertise` of rules). Also defines
//! the interval of the form `timer`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::nearest;

/// Form in which a connection's packets advertise its send buffer to routers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advertise {
    /// No advertisement.
    #[default]
    Off,
    /// Bytes that wait, and occupancy in percent, once in each [`AdvertiseInterval`], also while no data is sent.
    Timer,
    /// Bytes that wait, and occupancy in percent, in every packet with data.
    Backlog,
    /// Occupancy in percent, in every packet with data.
    Percent,
    /// Occupancy in percent, rounded up to tens, in every packet with data.
    Quantised,
    /// Occupancy in percent, rounded up to tens: in the first packet of a burst, in every eighth packet with data, and after a
    /// change of the occupancy by 10 percentage points or more.
    Economical,
    /// Share of the used buffer that cannot leave now, in tenths, in every packet with data, as in the 2016 patch for Linux.
    SeedCompat,
}

/// Interval of advertisements in the form [`Advertise::Timer`]: 100 ms to one hour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct AdvertiseInterval(u32);

/// Error: a value is not a valid interval of advertisements.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid advertisement interval `{0}`: it takes {min} to {max} ms", min = AdvertiseInterval::MIN_MS, max = AdvertiseInterval::MAX_MS)]
pub struct AdvertiseIntervalError(String);

impl AdvertiseInterval {
    /// Lower limit, in milliseconds.
    pub const MIN_MS: u32 = 100;
    /// Upper limit, in milliseconds.
    pub const MAX_MS: u32 = 3_600_000;

    /// Returns the interval in milliseconds.
    pub const fn ms(self) -> u32 {
        self.0
    }
}

impl Default for AdvertiseInterval {
    /// Returns five seconds, the default interval of the 2016 project.
    fn default() -> AdvertiseInterval {
        AdvertiseInterval(5000)
    }
}

impl TryFrom<u32> for AdvertiseInterval {
    type Error = AdvertiseIntervalError;
    fn try_from(ms: u32) -> Result<AdvertiseInterval, AdvertiseIntervalError> {
        let is_in_range = (AdvertiseInterval::MIN_MS..=AdvertiseInterval::MAX_MS).contains(&ms);
        is_in_range.then_some(AdvertiseInterval(ms)).ok_or_else(|| AdvertiseIntervalError(ms.to_string()))
    }
}

impl From<AdvertiseInterval> for u32 {
    fn from(interval: AdvertiseInterval) -> u32 {
        interval.0
    }
}

impl fmt::Display for AdvertiseInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for AdvertiseInterval {
    type Err = AdvertiseIntervalError;
    fn from_str(ms: &str) -> Result<AdvertiseInterval, AdvertiseIntervalError> {
        let number: u32 = ms.parse().map_err(|_| AdvertiseIntervalError(ms.into()))?;
        number.try_into()
    }
}

/// Form of a connection's send-buffer advertisement, with the interval that the form [`Advertise::Timer`] uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Advertisement {
    /// The form of the advertisement.
    pub form: Advertise,
    /// Interval of the form [`Advertise::Timer`].
    pub interval: AdvertiseInterval,
}

/// Error: a word is not the name of a form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid advertisement form `{word}`: expected one of {}{}", Advertise::WORDS.join(", "), hint(.word))]
pub struct AdvertiseError {
    /// The word.
    pub word: String,
}

fn hint(word: &str) -> String {
    nearest(word, Advertise::WORDS.iter().copied())
        .map(|n| format!("; did you mean `{n}`?"))
        .unwrap_or_default()
}

impl Advertise {
    /// All forms, in the order of [`Advertise::WORDS`].
    pub const ALL: [Advertise; 7] = [
        Advertise::Off,
        Advertise::Timer,
        Advertise::Backlog,
        Advertise::Percent,
        Advertise::Quantised,
        Advertise::Economical,
        Advertise::SeedCompat,
    ];

    /// The words of all forms.
    pub const WORDS: &'static [&'static str] =
        &["off", "timer", "backlog", "percent", "quantised", "economical", "seed-compat"];

    /// Returns the word of this form.
    pub const fn word(self) -> &'static str {
        Advertise::WORDS[self as usize]
    }
}

impl fmt::Display for Advertise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Advertise {
    type Err = AdvertiseError;
    fn from_str(word: &str) -> Result<Advertise, AdvertiseError> {
        let found = Advertise::ALL.into_iter().find(|form| form.word().eq_ignore_ascii_case(word));
        found.ok_or_else(|| AdvertiseError { word: word.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_reads_back_and_what_is_out_of_range_names_the_range() {
        for ms in [100, 5000, 3_600_000] {
            let interval: AdvertiseInterval = ms.to_string().parse().unwrap();
            assert_eq!((interval.ms(), interval.to_string()), (ms, ms.to_string()));
        }
        for wrong in ["99", "3600001", "-1", "5s", ""] {
            let told = wrong.parse::<AdvertiseInterval>().unwrap_err().to_string();
            assert_eq!(told, format!("invalid advertisement interval `{wrong}`: it takes 100 to 3600000 ms"));
        }
        assert!(AdvertiseInterval::try_from(99).is_err());
    }

    #[test]
    fn each_form_reads_back_from_its_word_and_a_wrong_word_names_the_nearest() {
        for form in Advertise::ALL {
            assert_eq!(form.to_string().parse(), Ok(form));
        }
        let told = "economic".parse::<Advertise>().unwrap_err().to_string();
        assert!(told.ends_with("quantised, economical, seed-compat; did you mean `economical`?"), "{told}");
    }
}
