//! Rules that the configuration file declares, as tables `[[rule]]`.
//!
//! The keys of a table are the words of `sctpify rule add`: `ports`, `to` or `at`, and the options. Begin with [`DeclaredRule::set`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Added, Chain, Policy, Rule, RulesTable, TableError, nearest, parse_table, print_table};

/// Value of `ports`, `to` and `at` that matches everything.
const ANY: &str = "any";

/// The keys of one table `[[rule]]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeclaredRule {
    chain: Option<Chain>,
    is_tcp: bool,
    rule: Rule,
}

/// The reason why a declared rule was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeclaredError {
    /// A rule has no such key.
    #[error("unknown key `{key}` of a rule{}", .nearest.map_or(String::new(), |near| format!("; did you mean `{near}`?")))]
    UnknownKey {
        /// The key.
        key: String,
        /// The nearest existing key.
        nearest: Option<&'static str>,
    },
    /// The value is not valid for the key.
    #[error("{key} of a rule: {problem}")]
    Value {
        /// The key.
        key: &'static str,
        /// Description of the fault.
        problem: String,
    },
    /// The rule names no side, or both.
    #[error(
        "a rule needs `to` (connections of this host's programs to these addresses) or `at` (connections to this host's listeners)"
    )]
    Side,
    /// The table of rules refuses the rule.
    #[error(transparent)]
    Table(#[from] TableError),
    /// An earlier rule matches the same connections.
    #[error("an earlier rule has the same addresses and ports: this one would never match")]
    Doubled,
}

impl DeclaredRule {
    /// The keys of a rule, as in the configuration file.
    pub const KEYS: [&'static str; 12] = [
        "ports",
        "to",
        "at",
        "tcp",
        "require",
        "own",
        "secure",
        "advertise",
        "advertise_interval",
        "framing",
        "name",
        "comment",
    ];

    /// Sets one key.
    ///
    /// # Errors
    /// Fails if the key is unknown or the value is not valid for the key.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), DeclaredError> {
        let Some(key) = Self::KEYS.into_iter().find(|known| *known == key) else {
            return Err(DeclaredError::UnknownKey { key: key.into(), nearest: nearest(key, Self::KEYS) });
        };
        let rule = &mut self.rule;
        match key {
            "ports" => rule.ports = or_any(key, value)?,
            "to" | "at" => {
                if self.chain.is_some() {
                    return Err(DeclaredError::Side);
                }
                rule.address = or_any(key, value)?;
                self.chain = Some(if key == "to" { Chain::Remote } else { Chain::Local });
            }
            "tcp" => self.is_tcp = switch(key, value)?,
            "require" => rule.require = switch(key, value)?,
            "own" => rule.own = switch(key, value)?,
            "secure" => rule.secure = Some(parsed(key, value)?),
            "advertise" => rule.advertise = Some(parsed(key, value)?),
            "advertise_interval" => rule.advertise_interval = Some(parsed(key, value)?),
            "framing" => rule.framing = Some(parsed(key, value)?),
            "name" => rule.name = Some(value.into()),
            _ => rule.comment = Some(value.into()),
        }
        Ok(())
    }
}

fn or_any<T: FromStr<Err: fmt::Display>>(key: &'static str, value: &str) -> Result<Option<T>, DeclaredError> {
    if value == ANY { Ok(None) } else { parsed(key, value).map(Some) }
}

fn parsed<T: FromStr<Err: fmt::Display>>(key: &'static str, value: &str) -> Result<T, DeclaredError> {
    value.parse().map_err(|error: T::Err| DeclaredError::Value { key, problem: error.to_string() })
}

fn switch(key: &'static str, value: &str) -> Result<bool, DeclaredError> {
    value.parse().map_err(|_| DeclaredError::Value { key, problem: "takes true or false".into() })
}

/// The declared rules, in the order of the configuration file. Their text form has one rule per line, in the syntax of `shimrules`. Copies
/// share the rules, because the settings are copied often.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeclaredRules(Arc<RulesTable>);

impl DeclaredRules {
    /// Adds a rule after the existing ones.
    ///
    /// # Errors
    /// Fails if the rule is not complete, its options do not fit together, or an earlier rule matches the same connections.
    pub fn push(&mut self, declared: DeclaredRule) -> Result<(), DeclaredError> {
        let chain = declared.chain.ok_or(DeclaredError::Side)?;
        let policy = Policy::from_enabled(!declared.is_tcp);
        match Arc::make_mut(&mut self.0).add(chain, policy, declared.rule)? {
            Added::New(_) => Ok(()),
            Added::Same(_) | Added::Renamed(_) => Err(DeclaredError::Doubled),
        }
    }

    /// Returns the rules as a table.
    pub fn table(&self) -> &RulesTable {
        &self.0
    }

    /// Returns the keys of each rule that differ from the defaults, in the order of [`DeclaredRule::KEYS`], with their values.
    pub fn entries(&self) -> Vec<Vec<(&'static str, String)>> {
        self.0.list(None, None).map(|found| entries(found.chain, found.policy, found.rule)).collect()
    }
}

fn entries(chain: Chain, policy: Policy, rule: &Rule) -> Vec<(&'static str, String)> {
    let or_any = |text: Option<String>| text.unwrap_or_else(|| ANY.to_owned());
    let side = if chain == Chain::Remote { "to" } else { "at" };
    let on = |key, is_on: bool| is_on.then(|| (key, "true".to_owned()));
    let mut entries = vec![
        ("ports", or_any(rule.ports.map(|ports| ports.to_string()))),
        (side, or_any(rule.address.map(|address| address.to_string()))),
    ];
    entries.extend(on("tcp", !policy.is_enable()));
    entries.extend(on("require", rule.require));
    entries.extend(on("own", rule.own));
    entries.extend(rule.secure.as_ref().map(|secure| ("secure", secure.to_string())));
    entries.extend(rule.advertise.map(|form| ("advertise", form.to_string())));
    entries.extend(rule.advertise_interval.map(|ms| ("advertise_interval", ms.to_string())));
    entries.extend(rule.framing.map(|framing| ("framing", framing.to_string())));
    entries.extend(rule.name.clone().map(|name| ("name", name)));
    entries.extend(rule.comment.clone().map(|comment| ("comment", comment)));
    entries
}

impl fmt::Display for DeclaredRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(print_table(&self.0).trim_end())
    }
}

impl FromStr for DeclaredRules {
    type Err = String;

    fn from_str(text: &str) -> Result<DeclaredRules, String> {
        parse_table(text)
            .map(|table| DeclaredRules(Arc::new(table)))
            .map_err(|(line, error)| format!("line {line}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(keys: &[(&str, &str)]) -> Result<DeclaredRules, DeclaredError> {
        let (mut rules, mut rule) = (DeclaredRules::default(), DeclaredRule::default());
        keys.iter().try_for_each(|(key, value)| rule.set(key, value))?;
        rules.push(rule)?;
        Ok(rules)
    }

    #[test]
    fn every_key_sets_its_part_of_a_rule_and_is_listed_again() {
        let keys = [
            ("ports", "5000-5010"),
            ("to", "192.0.2.0/24"),
            ("require", "true"),
            ("own", "true"),
            ("secure", "require=hub"),
            ("advertise", "timer"),
            ("advertise_interval", "200"),
            ("framing", "sip"),
            ("name", "calls"),
            ("comment", "to the hub"),
        ];
        let rules = declared(&keys).unwrap();
        let listed = rules.entries().remove(0);
        let again: Vec<(&str, &str)> = listed.iter().map(|(key, value)| (*key, value.as_str())).collect();
        assert_eq!(declared(&again), Ok(rules.clone()));
        assert_eq!(again.len(), keys.len());
        assert_eq!(rules.to_string().parse(), Ok(rules));
        let local = declared(&[("at", "any"), ("ports", "any"), ("tcp", "true")]).unwrap();
        assert_eq!(local.to_string(), "-A -c local -p disable");
    }

    #[test]
    fn a_faulty_rule_is_refused_with_its_key() {
        let fault = |keys: &[(&str, &str)]| declared(keys).unwrap_err().to_string();
        assert_eq!(fault(&[("port", "22")]), "unknown key `port` of a rule; did you mean `ports`?");
        assert!(fault(&[("ports", "ssh")]).starts_with("ports of a rule: "));
        assert!(fault(&[("ports", "22")]).starts_with("a rule needs `to`"));
        assert!(fault(&[("to", "any"), ("at", "any")]).starts_with("a rule needs `to`"));
        assert_eq!(fault(&[("require", "yes")]), "require of a rule: takes true or false");
        assert_eq!(fault(&[("at", "any"), ("require", "true")]), TableError::RequireElsewhere.to_string());
        let mut rules = declared(&[("to", "any")]).unwrap();
        let mut again = DeclaredRule::default();
        again.set("to", "any").unwrap();
        assert_eq!(rules.push(again), Err(DeclaredError::Doubled));
    }
}
