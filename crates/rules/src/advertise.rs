//! What is told of the send buffer: the words of the setting `advertise` and of the rules' `--advertise`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::nearest;

/// How much the packets of a connection tell routers of what waits to be sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advertise {
    /// Nothing.
    #[default]
    Off,
    /// Bytes and percent, every five seconds.
    Timer,
    /// Bytes and percent, in every packet with data.
    Backlog,
    /// Percent, in every packet with data.
    Percent,
    /// Tens of percent, in every packet with data.
    Quantised,
    /// Tens of percent, where they change and in every eighth packet.
    Economical,
    /// Tenths of what is used, in every packet with data, as the patch of 2016 has it.
    SeedCompat,
}

/// A word that names no form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{word}` is no form of advertisement: say one of {}{}", Advertise::WORDS.join(", "), hint(.word))]
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

    /// The word of this form.
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
    fn each_form_reads_back_from_its_word_and_a_wrong_word_names_the_nearest() {
        for form in Advertise::ALL {
            assert_eq!(form.to_string().parse(), Ok(form));
        }
        let told = "economic".parse::<Advertise>().unwrap_err().to_string();
        assert!(told.ends_with("quantised, economical, seed-compat; did you mean `economical`?"), "{told}");
    }
}
