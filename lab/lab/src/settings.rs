//! The non-default settings of the daemons in an experiment, for all series or for single ones.
//!
//! A manifest gives these settings in the table `daemon` of the runner's parameters. The runner configures
//! its daemons from this table, and the report shows the settings.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// Name of the parameter with these settings in manifests.
pub(crate) const PARAMETER: &str = "daemon";

/// Error of a cell whose connection should use SCTP, but fell back to plain TCP. If no INIT ACK arrives in
/// time, the daemon's race ends in such a fallback. The runner measures the cell again, and the cell's
/// result includes the number of repeats.
#[derive(Debug)]
pub(crate) struct FellBack(pub(crate) String);

impl fmt::Display for FellBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it fell back to TCP: {}", self.0)
    }
}

impl std::error::Error for FellBack {}

/// Non-default settings, by their names in the daemon's configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DaemonSettings {
    /// Settings of the daemons in all series.
    #[serde(default)]
    all: toml::Table,
    /// Settings of the daemons in single series, in addition to `all`.
    #[serde(default)]
    series: BTreeMap<String, toml::Table>,
    /// Reason for each setting.
    #[serde(default)]
    why: BTreeMap<String, String>,
}

/// A non-default setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Changed {
    /// Series to which the setting applies. If absent, the setting applies to all series.
    pub(crate) series: Option<String>,
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) shipped: String,
    pub(crate) why: String,
}

impl DaemonSettings {
    /// Reads the settings from an experiment's parameters. Returns `None` if the experiment has no daemons.
    ///
    /// # Errors
    /// Fails if the parameter is not a table of settings.
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

    /// Returns all non-default settings, each with the default value and the reason for the change.
    ///
    /// # Errors
    /// Fails if a setting is unknown, has its default value, or lacks a reason.
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
