//! The daemons' non-default settings in an experiment, for all series and for single ones.
//!
//! A manifest has them as the runner's parameter `daemon`. The runner starts its daemons with this table, and
//! the report shows the same one: there is no second list.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// The name of this parameter in manifests.
pub(crate) const PARAMETER: &str = "daemon";

/// A connection meant for SCTP fell back to plain TCP: the carriers' race ended that way, as it sometimes does
/// for users. The cell is measured again, and the number of repeats is part of its result.
#[derive(Debug)]
pub(crate) struct FellBack(pub(crate) String);

impl fmt::Display for FellBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it fell back to TCP: {}", self.0)
    }
}

impl std::error::Error for FellBack {}

/// Settings by their names in the daemon's configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DaemonSettings {
    /// For the daemons of all series.
    #[serde(default)]
    all: toml::Table,
    /// For the daemons of one series, in addition to `all`.
    #[serde(default)]
    series: BTreeMap<String, toml::Table>,
    /// The reason for each deviation from the default.
    #[serde(default)]
    why: BTreeMap<String, String>,
}

/// A non-default setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Changed {
    /// Its series; all if absent.
    pub(crate) series: Option<String>,
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) shipped: String,
    pub(crate) why: String,
}

impl DaemonSettings {
    /// Reads them from an experiment's parameters; `None` if no daemon runs.
    ///
    /// # Errors
    /// When they are not valid settings.
    pub(crate) fn of(parameters: &toml::Table) -> Result<Option<Self>> {
        let settings = parameters.get(PARAMETER).cloned().map(toml::Value::try_into).transpose();
        settings.context("the daemons' settings")
    }

    /// Returns the configuration of a series' daemons.
    pub(crate) fn configuration(&self, series: &str) -> String {
        let mut settings = self.all.clone();
        settings.extend(self.series.get(series).cloned().unwrap_or_default());
        settings.to_string()
    }

    /// Returns all settings, each with its shipped value and the reason for the deviation.
    ///
    /// # Errors
    /// When a setting is unknown, has its shipped value, or lacks a reason.
    pub(crate) fn changed(&self) -> Result<Vec<Changed>> {
        let of_all = self.all.iter().map(|setting| (None, setting));
        let of_series = self.series.iter().flat_map(|(series, settings)| {
            settings.iter().map(move |setting| (Some(series.clone()), setting))
        });
        of_all.chain(of_series).map(|(series, (name, value))| self.one(series, name, value)).collect()
    }

    fn one(&self, series: Option<String>, name: &str, value: &toml::Value) -> Result<Changed> {
        let shipped = rules::find_setting(name)?.default_value();
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        ensure!(value != shipped, "{name} = {value} is the shipped setting");
        let why =
            self.why.get(name).with_context(|| format!("no reason is given for {name} = {value}"))?.clone();
        Ok(Changed { series, name: name.to_owned(), value, shipped, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> DaemonSettings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_series_has_the_settings_of_all_and_its_own() {
        let settings = settings(
            "all = { carriers = \"udp\" }\nseries.own = { streams = \"own\" }\nwhy = { carriers = \"c\", streams = \"s\" }",
        );
        assert_eq!(settings.configuration("own"), "carriers = \"udp\"\nstreams = \"own\"\n");
        assert_eq!(settings.configuration("other"), "carriers = \"udp\"\n");
        let changed = settings.changed().unwrap();
        let found: Vec<_> =
            changed.iter().map(|it| (it.series.as_deref(), &*it.name, &*it.shipped)).collect();
        assert_eq!(found, [(None, "carriers", "both"), (Some("own"), "streams", "shared")]);
    }

    #[test]
    fn an_unknown_unchanged_or_unexplained_setting_is_refused() {
        let faults = [
            ("all = { carrier = \"udp\" }\nwhy.carrier = \"w\"", "carrier"),
            ("all = { race_timer_ms = 250 }\nwhy.race_timer_ms = \"w\"", "shipped"),
            ("all = { race_timer_ms = 2000 }", "no reason is given"),
        ];
        for (text, problem) in faults {
            let error = settings(text).changed().unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
