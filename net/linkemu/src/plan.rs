//! Description of a requested link: name, ends, and settings of both directions. The description comes from flags or from a file.

use std::path::Path;

use netem::{DirectionConfig, Spec};
use serde::{Deserialize, Serialize};

use crate::error::LinkemuError;
use bridge::LinkEnd;

/// Longest name of a link, in bytes.
const NAME_MAX: usize = 64;

/// Description of a requested link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the link. If the name is empty, a name is formed from the ends.
    #[serde(default)]
    pub name: String,
    /// One end.
    pub a: LinkEnd,
    /// The other end.
    pub b: LinkEnd,
    /// Seed of the random numbers. `None` chooses a random seed.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Settings of the direction from a to b only.
    #[serde(default)]
    pub ab: Spec,
    /// Settings of the direction from b to a only.
    #[serde(default)]
    pub ba: Spec,
    /// Settings of both directions. The settings in `ab` and `ba` override them.
    #[serde(flatten)]
    pub both: Spec,
}

/// A file of links.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    link: Vec<Plan>,
}

impl Plan {
    /// Gives the link a name if it has no name.
    ///
    /// # Errors
    /// [`LinkemuError::Name`] if the name is not valid, and [`LinkemuError::Same`] if both ends are the same interface.
    pub(crate) fn named(mut self) -> Result<Plan, LinkemuError> {
        if self.a == self.b {
            return Err(LinkemuError::Same { end: self.a.to_string() });
        }
        if self.name.is_empty() {
            self.name = format!("{}-{}", self.a, self.b).replace([':', '/'], ".");
        }
        check_name(&self.name)?;
        Ok(self)
    }

    /// Returns the settings of both directions: first from a to b, then from b to a.
    ///
    /// # Errors
    /// [`LinkemuError::Spec`] if a setting is invalid.
    pub(crate) fn configs(&self) -> Result<[DirectionConfig; 2], LinkemuError> {
        changed(
            [&DirectionConfig::TRANSPARENT, &DirectionConfig::TRANSPARENT],
            &self.both,
            [&self.ab, &self.ba],
        )
        .map_err(|error| error.at(&self.name))
    }
}

/// An invalid setting, with its direction.
pub(crate) struct DirectionError {
    direction: &'static str,
    source: netem::SpecError,
}

impl DirectionError {
    pub(crate) fn at(self, link: &str) -> LinkemuError {
        LinkemuError::Spec { subject: format!("link {link}, {}", self.direction), source: self.source }
    }
}

/// Returns the settings of two directions: the current settings `now`, changed by `both` and then by `each`. A setting in `each`
/// overrides the same setting in `both`.
pub(crate) fn changed(
    now: [&DirectionConfig; 2],
    both: &Spec,
    each: [&Spec; 2],
) -> Result<[DirectionConfig; 2], DirectionError> {
    let direction = |n: usize, name| {
        both.with(each[n]).apply(now[n]).map_err(|source| DirectionError { direction: name, source })
    };
    Ok([direction(0, "a to b")?, direction(1, "b to a")?])
}

/// Checks the name of a link, which becomes part of a path.
///
/// # Errors
/// [`LinkemuError::Name`] if the name is empty, is too long, begins with a dot, or has a character that the error's message does
/// not list.
pub(crate) fn check_name(name: &str) -> Result<(), LinkemuError> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name =
        !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with('.') && name.chars().all(is_good);
    if is_name { Ok(()) } else { Err(LinkemuError::Name { name: name.to_owned() }) }
}

/// Returns the links of a file.
///
/// # Errors
/// Returns an error if the file cannot be read, is not valid TOML, has an invalid link, or has two links of the same name.
pub(crate) fn read_file(path: &Path) -> Result<Vec<Plan>, LinkemuError> {
    let text = std::fs::read_to_string(path).map_err(LinkemuError::file(path))?;
    let fail = |problem: String| LinkemuError::Toml { path: path.to_owned(), problem };
    let file: File = toml::from_str(&text).map_err(|error| fail(error.to_string().trim().to_owned()))?;
    let mut plans: Vec<Plan> = Vec::new();
    for plan in file.link {
        let plan = plan.named()?;
        plan.configs().map_err(|error| fail(error.to_string()))?;
        if plans.iter().any(|other| other.name == plan.name) {
            return Err(fail(format!("two links are named {}: rename one", plan.name)));
        }
        plans.push(plan);
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Plan>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read_file(file.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_has_links_with_settings_of_both_and_of_each_direction() {
        let plans = read(
            "[[link]]\na = 'red:eth0'\nb = 'eth1'\nrate = '1.5mbit'\nqueue = 50\n[link.ba]\nrate = '64kbit'\n\
             [[link]]\nname = 'x'\na = 'eth2'\nb = 'eth3'\nseed = 7\nloss = 0.03\n",
        )
        .unwrap();
        assert_eq!((plans[0].name.as_str(), plans[1].seed), ("red.eth0-eth1", Some(7)));
        let [ab, ba] = plans[0].configs().unwrap();
        assert_eq!((ab.rate, ba.rate, ba.queue_packets), (1_500_000, 64_000, 50));
    }

    #[test]
    fn an_error_in_a_file_names_file_link_direction_and_key() {
        let error = read("[[link]]\nname = 'x'\na = 'eth2'\nb = 'eth3'\n[link.ba]\nspeed = 1\n").unwrap_err();
        for part in ["/", "link x, b to a", "unknown setting `speed`"] {
            assert!(error.contains(part), "{error}");
        }
        for (text, part) in [
            ("[[link]]\na = 'eth2'\n", "missing field `b`"),
            ("[[link]]\na = 'eth2'\nb = ':'\n", "expected INTERFACE or NAMESPACE:INTERFACE"),
            ("[[link]]\na = 'x'\nb = 'y'\n[[link]]\na = 'x'\nb = 'y'\n", "two links are named x-y"),
            ("[[link]]\nname = '../x'\na = 'x'\nb = 'y'\n", "invalid link name"),
            ("[[link]]\na = 'x'\nb = 'x'\n", "both ends of the link are x"),
            ("links = 1\n", "unknown field `links`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
