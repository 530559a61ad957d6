//! Settings as the daemon reports them: the configured values, and the values in force until a restart.

use rules::{SETTINGS, Setting, Settings};
use serde::{Deserialize, Serialize};

/// Settings in the order of [`rules::SETTINGS`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SettingsReport {
    /// One row per setting.
    pub settings: Vec<SettingRow>,
}

/// One setting.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SettingRow {
    /// Name of the setting.
    pub name: String,
    /// Configured value, in the form that `set` reads.
    pub value: String,
    /// Value that the daemon uses. It can differ from the configured value until a restart. `None` if no daemon runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<String>,
    /// Value that applies if nothing is configured.
    pub default: String,
    /// Text that describes the accepted values.
    pub takes: String,
    /// A change takes effect at the next start of the daemon.
    pub needs_restart: bool,
}

/// A setting whose configured value waits for a restart of the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PendingChange {
    /// Name of the setting.
    pub name: String,
    /// Configured value.
    pub configured: String,
    /// Value in force until the restart.
    pub in_force: String,
}

impl SettingRow {
    fn new(setting: &Setting, configured: &Settings) -> SettingRow {
        SettingRow {
            name: setting.name.into(),
            value: setting.value(configured),
            in_force: None,
            default: setting.default_value(),
            takes: setting.kind.to_string(),
            needs_restart: setting.needs_restart,
        }
    }

    /// Returns the change that waits for a restart, if any.
    pub fn pending(&self) -> Option<PendingChange> {
        let in_force = self.in_force.clone().filter(|value| *value != self.value)?;
        Some(PendingChange { name: self.name.clone(), configured: self.value.clone(), in_force })
    }
}

impl SettingsReport {
    /// Returns all settings as configured.
    pub fn all(configured: &Settings) -> SettingsReport {
        SettingsReport { settings: SETTINGS.iter().map(|s| SettingRow::new(s, configured)).collect() }
    }

    /// Returns one setting as configured.
    pub fn one(setting: &Setting, configured: &Settings) -> SettingsReport {
        SettingsReport { settings: vec![SettingRow::new(setting, configured)] }
    }

    /// Adds the values that a running daemon uses.
    pub fn beside(mut self, in_force: &Settings) -> SettingsReport {
        for row in &mut self.settings {
            row.in_force = in_force.get(&row.name).ok();
        }
        self
    }

    /// Returns the changes that wait for a restart.
    pub fn pending(&self) -> Vec<PendingChange> {
        self.settings.iter().filter_map(SettingRow::pending).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_pending_only_while_a_daemon_works_with_another_value() {
        let mut configured = Settings::default();
        configured.set("multipath", "redundant").unwrap();
        let report = SettingsReport::all(&configured);
        assert_eq!(report.pending(), []);
        let change = PendingChange {
            name: "multipath".into(),
            configured: "redundant".into(),
            in_force: "off".into(),
        };
        assert_eq!(report.clone().beside(&Settings::default()).pending(), [change]);
        assert_eq!(report.beside(&configured).pending(), []);
    }
}
