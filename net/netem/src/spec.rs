//! Settings of one direction of a link as text. The table [`KEYS`] defines the flags of the command line, the keys in files, the
//! help, and the conversion of settings to text.
//!
//! [`Spec::apply`] refuses unknown keys, values that a key does not accept, and settings that conflict. Begin at [`KEYS`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::{DirectionConfig, Distribution, Loss, LossPlace};
use crate::units::{bytes, rate, rate_text, share, share_text, time, time_text};

/// Minimum MTU of an IPv4 link, in bytes (RFC 791: every internet module must be able to forward datagrams of 68 octets).
const MTU_MIN: usize = 68;

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// Name of the setting. Files may write `_` instead of `-`.
    pub name: &'static str,
    /// Placeholder for the value in the help.
    pub value: &'static str,
    /// Meaning and default of the setting.
    pub doc: &'static str,
    set: fn(&mut DirectionConfig, &str) -> Result<(), String>,
    get: fn(&DirectionConfig) -> String,
}

/// All settings.
pub const KEYS: &[Key] = &[
    Key {
        name: "rate",
        value: "RATE",
        doc: "Rate of the link, such as 1.5mbit. The lengths of IP packets count, plus overhead [default: unlimited]",
        set: |c, v| rate(v).map(|it| c.rate = it),
        get: |c| rate_text(c.rate),
    },
    Key {
        name: "burst",
        value: "BYTES",
        doc: "Bytes that may pass at once after a pause [default: 0]",
        set: |c, v| bytes(v).map(|it| c.burst = it),
        get: |c| c.burst.to_string(),
    },
    Key {
        name: "overhead",
        value: "BYTES",
        doc: "Overhead of each packet on the wire in bytes, such as 38 for Ethernet [default: 0]",
        set: |c, v| bytes(v).map(|it| c.overhead = it),
        get: |c| c.overhead.to_string(),
    },
    Key {
        name: "delay",
        value: "TIME",
        doc: "One-way delay, such as 35ms, added to the transmission time",
        set: |c, v| time(v).map(|it| c.delay = it),
        get: |c| time_text(c.delay),
    },
    Key {
        name: "jitter",
        value: "TIME",
        doc: "Jitter: maximum deviation of the delay with distribution uniform, else its standard deviation",
        set: |c, v| time(v).map(|it| c.jitter = it),
        get: |c| time_text(c.jitter),
    },
    Key {
        name: "distribution",
        value: "SHAPE",
        doc: "Distribution of the delay: uniform (default), normal or pareto",
        set: |c, v| one_of(v, DISTRIBUTIONS).map(|it| c.distribution = it),
        get: |c| name_of(&c.distribution, DISTRIBUTIONS),
    },
    Key {
        name: "correlation",
        value: "SHARE",
        doc: "Correlation of the delays of consecutive packets, such as 25%",
        set: |c, v| share(v).map(|it| c.correlation = it),
        get: |c| share_text(c.correlation),
    },
    Key {
        name: "order",
        value: "yes|no",
        doc: "Keep packets in order, except packets that reorder selects [default: no]",
        set: |c, v| one_of(v, YES_NO).map(|it| c.keep_order = it),
        get: |c| name_of(&c.keep_order, YES_NO),
    },
    Key {
        name: "queue",
        value: "LENGTH",
        doc: "Limit of the queue: packets (50), bytes (64kb) or both (50/64kb) [default: 1000 packets]. No \
              effect without a rate",
        set: set_queue,
        get: queue_text,
    },
    Key {
        name: "loss",
        value: "LOSS",
        doc: "Random loss: 3%, bursts:BEGIN:END, or ge:BEGIN:END:BAD:GOOD (Gilbert-Elliott). BEGIN: probability \
              per packet that a burst or bad state begins. END: that it ends. BAD, GOOD: probability of loss in this state",
        set: |c, v| loss(v).map(|it| c.loss = it),
        get: |c| loss_text(c.loss),
    },
    Key {
        name: "loss-place",
        value: "PLACE",
        doc: "Place of random loss: queue (default: before the queue, lost packets use no link time) or wire (lost \
              packets use link time)",
        set: |c, v| one_of(v, PLACES).map(|it| c.loss_place = it),
        get: |c| name_of(&c.loss_place, PLACES),
    },
    Key {
        name: "reorder",
        value: "SHARE",
        doc: "Probability that a packet is delayed further, by up to reorder-by",
        set: |c, v| share(v).map(|it| c.reorder = it),
        get: |c| share_text(c.reorder),
    },
    Key {
        name: "reorder-by",
        value: "TIME",
        doc: "Limit on the extra delay of a reordered packet",
        set: |c, v| time(v).map(|it| c.reorder_by = it),
        get: |c| time_text(c.reorder_by),
    },
    Key {
        name: "duplicate",
        value: "SHARE",
        doc: "Probability that a packet is duplicated",
        set: |c, v| share(v).map(|it| c.duplicate = it),
        get: |c| share_text(c.duplicate),
    },
    Key {
        name: "corrupt",
        value: "SHARE",
        doc: "Probability that a bit of a packet is flipped",
        set: |c, v| share(v).map(|it| c.corrupt = it),
        get: |c| share_text(c.corrupt),
    },
    Key {
        name: "mtu",
        value: "BYTES",
        doc: "MTU: length of the longest IP packet [default: unlimited]",
        set: set_mtu,
        get: |c| if c.mtu == usize::MAX { "unlimited".to_owned() } else { c.mtu.to_string() },
    },
    Key {
        name: "mtu-report",
        value: "yes|no",
        doc: "Answer a packet that was dropped because of the MTU with ICMP [default: yes]",
        set: |c, v| one_of(v, YES_NO).map(|it| c.reports_mtu = it),
        get: |c| name_of(&c.reports_mtu, YES_NO),
    },
    Key {
        name: "mark-above",
        value: "BYTES",
        doc: "Queue length in bytes above which ECN-capable packets are marked [default: never]",
        set: set_mark,
        get: |c| c.mark_above.map_or("never".to_owned(), |bytes| bytes.to_string()),
    },
    Key {
        name: "ecn",
        value: "keep|clear|drop",
        doc: "Treatment of ECN: keep the bits (default), clear them, or drop ECN-capable packets",
        set: set_ecn,
        get: |c| ecn_text(c).to_owned(),
    },
    Key {
        name: "cut",
        value: "yes|no",
        doc: "Cut the link: all packets are dropped silently [default: no]",
        set: |c, v| one_of(v, YES_NO).map(|it| c.cut = it),
        get: |c| name_of(&c.cut, YES_NO),
    },
];

const YES_NO: &[(&str, bool)] = &[("yes", true), ("no", false), ("true", true), ("false", false)];
const PLACES: &[(&str, LossPlace)] = &[("queue", LossPlace::BeforeQueue), ("wire", LossPlace::OnTheWire)];
const DISTRIBUTIONS: &[(&str, Distribution)] =
    &[("uniform", Distribution::Uniform), ("normal", Distribution::Normal), ("pareto", Distribution::Pareto)];

/// Settings as text, by key. A setting without an entry stays unchanged.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Spec(BTreeMap<String, Value>);

/// Value of a setting, in one of the forms that a file may use.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// `true`
    Truth(bool),
    /// `50`
    Whole(u64),
    /// `0.03`
    Fraction(f64),
    /// `"35ms"`
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Truth(truth) => truth.fmt(f),
            Value::Whole(number) => number.fmt(f),
            Value::Fraction(number) => number.fmt(f),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// Reason why settings are refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpecError {
    /// The key is unknown.
    #[error("unknown setting `{key}`: expected one of {}", KEYS.iter().map(|k| k.name).collect::<Vec<_>>().join(", "))]
    Unknown {
        /// The key as it was written.
        key: String,
    },
    /// The key does not accept the value.
    #[error("{key} = {value}: {problem}")]
    Bad {
        /// The key.
        key: &'static str,
        /// The value as it was written.
        value: String,
        /// The fault, and a correct form.
        problem: String,
    },
    /// Settings conflict, would let no packet pass, or have no effect without another setting. Some settings without effect are
    /// accepted, such as `queue` without `rate`.
    #[error("{key}: {problem}")]
    Senseless {
        /// The key to change.
        key: &'static str,
        /// The fault and its remedy.
        problem: String,
    },
    /// A word contains no `=`.
    #[error("invalid setting `{word}`: expected KEY=VALUE, such as delay=35ms")]
    NoSetting {
        /// The word.
        word: String,
    },
}

impl Spec {
    /// Parses words of the form `KEY=VALUE`, separated by commas or blanks.
    ///
    /// # Errors
    /// If a word contains no `=`. This function checks neither keys nor values: [`Spec::apply`] does.
    pub fn parse(text: &str) -> Result<Spec, SpecError> {
        let mut spec = Spec::default();
        for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
            let (key, value) =
                word.split_once('=').ok_or_else(|| SpecError::NoSetting { word: word.to_owned() })?;
            spec.set(key, value);
        }
        Ok(spec)
    }

    /// Sets the value of one key.
    pub fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), Value::Text(value.to_owned()));
    }

    /// Reports whether no key has a value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the settings of `self` and of `over`. If both contain a key, the result has the value of `over`.
    pub fn with(&self, over: &Spec) -> Spec {
        let mut all = self.clone();
        for (key, value) in &over.0 {
            let key = canonical(key);
            all.0.retain(|other, _| canonical(other) != key);
            all.0.insert(key, value.clone());
        }
        all
    }

    /// Returns a copy of `config`, changed by these settings.
    ///
    /// # Errors
    /// If a key is unknown, if a key does not accept its value, or if the resulting settings are [`SpecError::Senseless`].
    pub fn apply(&self, config: &DirectionConfig) -> Result<DirectionConfig, SpecError> {
        let mut config = config.clone();
        for (name, value) in &self.0 {
            let name = canonical(name);
            let key = KEYS.iter().find(|key| key.name == name).ok_or(SpecError::Unknown { key: name })?;
            let value = value.to_string();
            (key.set)(&mut config, value.trim()).map_err(|problem| SpecError::Bad {
                key: key.name,
                value,
                problem,
            })?;
        }
        check(&config)?;
        Ok(config)
    }
}

fn canonical(key: &str) -> String {
    key.replace('_', "-")
}

/// Returns the settings as pairs of key and text. Omits the settings whose value is the same as in
/// [`DirectionConfig::TRANSPARENT`].
pub fn settings(config: &DirectionConfig) -> Vec<(&'static str, String)> {
    let all = KEYS.iter().map(|key| (key, (key.get)(config)));
    all.filter(|(key, value)| *value != (key.get)(&DirectionConfig::TRANSPARENT))
        .map(|(key, value)| (key.name, value))
        .collect()
}

fn check(c: &DirectionConfig) -> Result<(), SpecError> {
    let faults = [
        (c.burst > 0 && c.rate == 0, "burst", "requires a rate: also set rate"),
        (
            c.mark_above.is_some() && c.rate == 0,
            "mark-above",
            "requires a rate, because a link without one has no queue: also set rate",
        ),
        (c.correlation >= 1.0, "correlation", "the delay would never change: must be below 100%"),
        (
            c.correlation > 0.0 && c.jitter.is_zero(),
            "correlation",
            "requires a varying delay: also set jitter",
        ),
        (
            c.distribution == Distribution::Uniform && c.jitter > c.delay,
            "jitter",
            "exceeds the delay, so packets would arrive before they were sent: set a longer delay",
        ),
        (
            c.reorder > 0.0 && c.reorder_by.is_zero(),
            "reorder",
            "requires an extra delay: also set reorder-by",
        ),
        (c.queue_packets == 0 || c.queue_bytes == 0, "queue", "no packet would pass: must be at least 1"),
        (c.mtu < MTU_MIN, "mtu", "is below 68 bytes, the minimum of every link (RFC 791)"),
    ];
    match faults.into_iter().find(|(is_fault, ..)| *is_fault) {
        Some((_, key, problem)) => Err(SpecError::Senseless { key, problem: problem.to_owned() }),
        None => Ok(()),
    }
}

fn one_of<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    let found = names.iter().find(|(name, _)| *name == text);
    let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    found.map(|(_, value)| *value).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

fn name_of<T: PartialEq>(value: &T, names: &[(&str, T)]) -> String {
    names.iter().find(|(_, other)| other == value).map_or_else(String::new, |(name, _)| (*name).to_owned())
}

fn set_queue(config: &mut DirectionConfig, text: &str) -> Result<(), String> {
    let (mut packets, mut most) = (None, None);
    for part in text.split('/') {
        match part.trim().parse::<usize>() {
            Ok(number) => packets = Some(number),
            Err(_) => {
                most = Some(bytes(part).map_err(|_| "expected packets, bytes or both: 50, 64kb or 50/64kb")?)
            }
        }
    }
    config.queue_packets = packets.unwrap_or(usize::MAX);
    config.queue_bytes = most.unwrap_or(usize::MAX);
    Ok(())
}

fn queue_text(config: &DirectionConfig) -> String {
    match (config.queue_packets, config.queue_bytes) {
        (packets, usize::MAX) => packets.to_string(),
        (usize::MAX, bytes) => format!("{bytes}b"),
        (packets, bytes) => format!("{packets}/{bytes}b"),
    }
}

fn set_mtu(config: &mut DirectionConfig, text: &str) -> Result<(), String> {
    config.mtu = if text == "unlimited" { usize::MAX } else { bytes(text)? };
    Ok(())
}

fn set_mark(config: &mut DirectionConfig, text: &str) -> Result<(), String> {
    config.mark_above = if text == "never" { None } else { Some(bytes(text)?) };
    Ok(())
}

fn set_ecn(config: &mut DirectionConfig, text: &str) -> Result<(), String> {
    let names = [("keep", (false, false)), ("clear", (true, false)), ("drop", (false, true))];
    (config.bleaches, config.drops_ect) = one_of(text, &names)?;
    Ok(())
}

fn ecn_text(config: &DirectionConfig) -> &'static str {
    match (config.bleaches, config.drops_ect) {
        (_, true) => "drop",
        (true, false) => "clear",
        (false, false) => "keep",
    }
}

fn loss(text: &str) -> Result<Loss, String> {
    let mut words = text.split([':', ' ']).filter(|word| !word.is_empty());
    let kind = words.next().unwrap_or_default();
    let shares = words.map(share).collect::<Result<Vec<f64>, String>>()?;
    match (kind, &shares[..]) {
        ("none", []) => Ok(Loss::None),
        ("bursts", &[begin, end]) => Ok(Loss::Bursts { begin, end }),
        ("ge", &[begin, end, bad, good]) => Ok(Loss::GilbertElliott { begin, end, bad, good }),
        ("bursts" | "ge", _) => Err("expected bursts:BEGIN:END or ge:BEGIN:END:BAD:GOOD".to_owned()),
        (_, []) => share(kind).map(|p| if p > 0.0 { Loss::Uniform(p) } else { Loss::None }),
        _ => Err("expected 3%, bursts:BEGIN:END or ge:BEGIN:END:BAD:GOOD".to_owned()),
    }
}

fn loss_text(loss: Loss) -> String {
    let words = |shares: &[f64]| shares.iter().map(|p| share_text(*p)).collect::<Vec<_>>().join(":");
    match loss {
        Loss::None => "none".to_owned(),
        Loss::Uniform(p) => share_text(p),
        Loss::Bursts { begin, end } => format!("bursts:{}", words(&[begin, end])),
        Loss::GilbertElliott { begin, end, bad, good } => format!("ge:{}", words(&[begin, end, bad, good])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn config(text: &str) -> Result<DirectionConfig, SpecError> {
        Spec::parse(text)?.apply(&DirectionConfig::TRANSPARENT)
    }

    #[test]
    fn equal_settings_in_flags_and_in_a_file_give_equal_links() {
        let flags =
            config("rate=1.5mbit delay=35ms queue=50 loss=3% mtu=1400 mtu-report=no cut=yes").unwrap();
        let file = "rate = '1.5mbit'\ndelay = '35ms'\nqueue = 50\nloss = 0.03\nmtu = 1400\nmtu_report = 'no'\ncut = true";
        let file: Spec = toml::from_str(file).unwrap();
        assert_eq!(file.apply(&DirectionConfig::TRANSPARENT), Ok(flags.clone()));
        assert_eq!((flags.rate, flags.delay), (1_500_000, Duration::from_millis(35)));
        assert_eq!((flags.queue_packets, flags.queue_bytes), (50, usize::MAX));
        assert_eq!((flags.loss, flags.mtu, flags.reports_mtu), (Loss::Uniform(0.03), 1400, false));
        assert!(flags.cut);
    }

    #[test]
    fn settings_converted_to_text_and_back_are_equal() {
        for text in [
            "rate=2mbit,burst=3000,queue=50/64kb,loss=ge:1%:20%:90%:0.1%,loss-place=wire,mark-above=9000",
            "delay=10ms,jitter=2ms,distribution=pareto,correlation=25%,order=yes,corrupt=1%,duplicate=2%",
            "reorder=5%,reorder-by=3ms,ecn=clear,mtu=1280,mtu-report=no,loss=bursts:1%:50%,overhead=38",
        ] {
            let once = config(text).unwrap();
            let words: Vec<String> =
                settings(&once).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
            assert_eq!(config(&words.join(" ")), Ok(once), "{words:?}");
        }
        assert_eq!(settings(&DirectionConfig::TRANSPARENT), []);
    }

    #[test]
    fn an_error_names_the_key_and_a_remedy() {
        for (text, part) in [
            ("speed=1mbit", "unknown setting `speed`: expected one of rate, burst"),
            ("delay=35", "delay = 35: not a time: expected a number and its unit"),
            ("loss=3", "loss = 3: more than 1: write 3% for"),
            ("loss=bursts:1%", "expected bursts:BEGIN:END"),
            ("queue=many", "queue = many: expected packets, bytes or both"),
            ("order=perhaps", "order = perhaps: expected one of yes, no"),
            ("burst=3000", "burst: requires a rate"),
            ("delay=1ms jitter=2ms", "jitter: exceeds the delay"),
            ("correlation=10%", "set jitter"),
            ("reorder=1%", "reorder-by"),
            ("rate=1mbit queue=0", "queue: no packet would pass"),
            ("mtu=20", "mtu: is below 68 bytes"),
            ("delay", "expected KEY=VALUE"),
        ] {
            let error = config(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_later_setting_overrides_an_earlier_setting_written_with_underscores() {
        let base: Spec = toml::from_str("mtu_report = false\nmtu = 1400").unwrap();
        let both = base.with(&Spec::parse("mtu-report=yes").unwrap());
        let config = both.apply(&DirectionConfig::TRANSPARENT).unwrap();
        assert!(config.reports_mtu && config.mtu == 1400);
    }
}
