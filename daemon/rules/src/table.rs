//! Holds the four chains of rules. A lookup searches one chain in order until a rule matches.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::{
    Advertise, Chain, DeclaredRules, IpNet, Outcome, Policy, PortRange, Rule, RuleError, UnixMs, Usage,
};

/// Limit on the rules of a table, over all four chains. A lookup searches one chain, so the limit also bounds the time of a
/// lookup.
pub const MAX_RULES: usize = 4096;

/// The rules table: local-enable, local-disable, remote-enable and remote-disable.
///
/// The table does not contain the default policies: see [`crate::Rulebook`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RulesTable {
    chains: [Vec<Counted>; 4],
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Counted {
    rule: Arc<Rule>,
    /// True if the configuration file declares the rule.
    is_declared: bool,
    hits: u64,
    usage: Usage,
}

/// A rule with its place in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleMatch<'a> {
    /// The rule's chain.
    pub chain: Chain,
    /// The rule's policy.
    pub policy: Policy,
    /// The rule's place among the chain's rules with this policy, from 1.
    pub number: usize,
    /// The rule.
    pub rule: &'a Arc<Rule>,
    /// True if the configuration file declares the rule.
    pub is_declared: bool,
    /// Number of decisions that the rule has made.
    pub hits: u64,
    /// Outcomes of the connections on which the rule decided.
    pub usage: Usage,
}

/// Result of adding a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// The rule is now the last one of its chain, with this number.
    New(usize),
    /// The same rule exists already, with this number. Nothing changed.
    Same(usize),
    /// A rule with the same match existed, with this number. The new rule has replaced it.
    Renamed(usize),
}

/// The reason why the table did not change.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// The name or comment is invalid.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The limit [`MAX_RULES`] is reached.
    #[error("the table is full ({MAX_RULES} rules): delete one, or use a wider prefix")]
    Full,
    /// Only rules for outgoing connections that may use SCTP can require SCTP.
    #[error("--require goes with remote-enable rules only")]
    RequireElsewhere,
    /// The host that connects chooses the association, and only a connection over SCTP has one.
    #[error("--own goes with remote-enable rules only: the connecting host chooses the association")]
    OwnElsewhere,
    /// Only rules for connections that may use SCTP can set an advertisement.
    #[error("--advertise goes with enable rules only")]
    AdvertiseElsewhere,
    /// An interval applies only to the form `timer`. Other forms advertise in packets with data, not at intervals.
    #[error("--advertise-interval goes with --advertise timer only")]
    IntervalElsewhere,
    /// Connections that stay plain TCP have no SCTP messages.
    #[error("--framing goes with enable rules only")]
    FramingElsewhere,
    /// Connections that stay plain TCP are not encrypted.
    #[error("--secure goes with enable rules only")]
    SecureElsewhere,
    /// Peers begin the associations of local rules, so these associations follow the setting `encryption`. A local rule can
    /// only refuse associations that are not encrypted, or that belong to the wrong peer.
    #[error(
        "local rules take --secure require or --secure require=PEER only: the setting encryption is for all listeners"
    )]
    SecureLocal,
    /// The rule is one of the configuration file.
    #[error("the configuration file declares this rule: change its [[rule]] there, and run `sctpify reload`")]
    Declared,
    /// The chain has no rule with this match.
    #[error("no such rule in {0}-{1}: `shimrules -L -c {0} -p {1}` lists its rules")]
    NoSuchRule(Chain, Policy),
    /// The chain has no rule with this number.
    #[error("{chain}-{policy} has no rule {number}: it has {len}")]
    NoSuchNumber {
        /// The chain.
        chain: Chain,
        /// The chain's policy.
        policy: Policy,
        /// The requested number.
        number: usize,
        /// Number of the chain's rules.
        len: usize,
    },
}

const fn slot(chain: Chain, policy: Policy) -> usize {
    match (chain, policy) {
        (Chain::Local, Policy::Enable) => 0,
        (Chain::Local, Policy::Disable) => 1,
        (Chain::Remote, Policy::Enable) => 2,
        (Chain::Remote, Policy::Disable) => 3,
    }
}

impl Counted {
    fn at(&self, chain: Chain, policy: Policy, index: usize) -> RuleMatch<'_> {
        let Counted { rule, is_declared, hits, usage } = self;
        RuleMatch {
            chain,
            policy,
            number: index + 1,
            rule,
            is_declared: *is_declared,
            hits: *hits,
            usage: *usage,
        }
    }
}

impl RulesTable {
    /// Returns the number of rules in all chains.
    pub fn len(&self) -> usize {
        self.chains.iter().map(Vec::len).sum()
    }

    /// Reports whether the table has no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a rule to its chain. If the chain has a rule with the same match, the new rule replaces that rule, because a
    /// second rule with the same match could never decide.
    ///
    /// # Errors
    /// Fails if the table is full or the rule is invalid.
    pub fn add(&mut self, chain: Chain, policy: Policy, rule: Rule) -> Result<Added, TableError> {
        rule.check()?;
        if rule.require && (chain, policy) != (Chain::Remote, Policy::Enable) {
            return Err(TableError::RequireElsewhere);
        }
        if rule.own && (chain, policy) != (Chain::Remote, Policy::Enable) {
            return Err(TableError::OwnElsewhere);
        }
        if rule.advertise.is_some() && !policy.is_enable() {
            return Err(TableError::AdvertiseElsewhere);
        }
        if rule.advertise_interval.is_some() && rule.advertise != Some(Advertise::Timer) {
            return Err(TableError::IntervalElsewhere);
        }
        if rule.framing.is_some() && !policy.is_enable() {
            return Err(TableError::FramingElsewhere);
        }
        if let Some(secure) = &rule.secure {
            if !policy.is_enable() {
                return Err(TableError::SecureElsewhere);
            }
            if chain == Chain::Local && !secure.is_required() {
                return Err(TableError::SecureLocal);
            }
        }
        let full = self.len() >= MAX_RULES;
        let rules = &mut self.chains[slot(chain, policy)];
        if let Some(i) = rules.iter().position(|r| r.rule.has_same_match(&rule)) {
            if *rules[i].rule == rule {
                return Ok(Added::Same(i + 1));
            }
            if rules[i].is_declared {
                return Err(TableError::Declared);
            }
            rules[i].rule = Arc::new(rule);
            return Ok(Added::Renamed(i + 1));
        }
        if full {
            return Err(TableError::Full);
        }
        rules.push(Counted { rule: Arc::new(rule), is_declared: false, hits: 0, usage: Usage::default() });
        Ok(Added::New(rules.len()))
    }

    /// Puts the rules that the configuration file declares in front of the others, in place of those that it declared before. Another rule
    /// with the same match as a declared one remains, but never decides.
    ///
    /// # Errors
    /// Fails if the table would have more than [`MAX_RULES`] rules. The table is then unchanged.
    pub fn declare(&mut self, declared: &DeclaredRules) -> Result<(), TableError> {
        let mut table = declared.table().clone();
        for (new, old) in table.chains.iter_mut().zip(&self.chains) {
            new.iter_mut().for_each(|rule| rule.is_declared = true);
            new.extend(old.iter().filter(|rule| !rule.is_declared).cloned());
        }
        if table.len() > MAX_RULES {
            return Err(TableError::Full);
        }
        table.keep_hits_of(self);
        *self = table;
        Ok(())
    }

    /// Returns the number of matches for which `old` refuses plain TCP and this table does not. Only the first rule with a match counts,
    /// because later ones never decide.
    pub fn weaker_than(&self, old: &RulesTable) -> usize {
        let refused = self.refused();
        old.refused().iter().filter(|(key, refuses)| **refuses && refused.get(*key) != Some(&true)).count()
    }

    /// Returns all matches of the table. The value is true if plain TCP is refused.
    fn refused(&self) -> HashMap<(Chain, Policy, Option<IpNet>, Option<PortRange>), bool> {
        let mut refused = HashMap::new();
        for found in self.list(None, None) {
            let key = (found.chain, found.policy, found.rule.address, found.rule.ports);
            refused.entry(key).or_insert(found.rule.refuses_plain());
        }
        refused
    }

    /// Removes the rule that has the same match as `rule`, and returns the removed rule. Names and comments need not be equal.
    ///
    /// # Errors
    /// Fails if no rule has this match, or the configuration file declares the rule.
    pub fn delete(&mut self, chain: Chain, policy: Policy, rule: &Rule) -> Result<Arc<Rule>, TableError> {
        let rules = &mut self.chains[slot(chain, policy)];
        let i = rules.iter().position(|r| r.rule.has_same_match(rule));
        removed(rules, i.ok_or(TableError::NoSuchRule(chain, policy))?)
    }

    /// Removes the rule with this number (from 1), and returns it.
    ///
    /// # Errors
    /// Fails if the chain has no rule with this number, or the configuration file declares the rule.
    pub fn delete_number(
        &mut self,
        chain: Chain,
        policy: Policy,
        number: usize,
    ) -> Result<Arc<Rule>, TableError> {
        let rules = &mut self.chains[slot(chain, policy)];
        let error = TableError::NoSuchNumber { chain, policy, number, len: rules.len() };
        match number.checked_sub(1) {
            Some(i) if i < rules.len() => removed(rules, i),
            _ => Err(error),
        }
    }

    /// Removes all rules of the matching chains, except those of the configuration file. Returns the number of removed rules. `None` matches
    /// every chain or policy.
    pub fn flush(&mut self, chain: Option<Chain>, policy: Option<Policy>) -> usize {
        let before = self.len();
        for c in Chain::ALL.into_iter().filter(|&c| chain.is_none_or(|w| w == c)) {
            for p in Policy::ALL.into_iter().filter(|&p| policy.is_none_or(|w| w == p)) {
                self.chains[slot(c, p)].retain(|rule| rule.is_declared);
            }
        }
        before - self.len()
    }

    /// Returns the rules of the matching chains, in search order. `None` matches every chain or policy.
    pub fn list(&self, chain: Option<Chain>, policy: Option<Policy>) -> impl Iterator<Item = RuleMatch<'_>> {
        let fits = move |&(c, p): &(Chain, Policy)| {
            chain.is_none_or(|wanted| wanted == c) && policy.is_none_or(|wanted| wanted == p)
        };
        let all = Chain::ALL.into_iter().flat_map(|c| Policy::ALL.map(|p| (c, p)));
        all.filter(fits).flat_map(|(chain, policy)| {
            let rules = self.chains[slot(chain, policy)].iter().enumerate();
            rules.map(move |(i, r)| r.at(chain, policy, i))
        })
    }

    /// Returns the first rule of one chain that matches this address and port.
    pub fn find(&self, chain: Chain, policy: Policy, address: IpAddr, port: u16) -> Option<RuleMatch<'_>> {
        let rules = &self.chains[slot(chain, policy)];
        let i = rules.iter().position(|r| r.rule.matches(address, port))?;
        Some(rules[i].at(chain, policy, i))
    }

    /// Counts the outcome of a connection for the first rule that matches the connection, if any.
    pub(crate) fn record(
        &mut self,
        chain: Chain,
        policy: Policy,
        address: IpAddr,
        port: u16,
        now: UnixMs,
        outcome: Outcome,
    ) {
        let rules = &mut self.chains[slot(chain, policy)];
        if let Some(found) = rules.iter_mut().find(|r| r.rule.matches(address, port)) {
            found.usage.count(now, outcome);
        }
    }

    /// Adds `decisions` to the hits of a rule. Has no effect if no rule has this number.
    pub(crate) fn count_hits(&mut self, chain: Chain, policy: Policy, number: usize, decisions: u64) {
        let rule = number.checked_sub(1).and_then(|i| self.chains[slot(chain, policy)].get_mut(i));
        if let Some(rule) = rule {
            rule.hits = rule.hits.saturating_add(decisions);
        }
    }

    /// Copies the counts of the rules in `old` to the rules of this table that have the same match. The time is linear in the
    /// number of rules if most rules have the same order as in `old`.
    pub fn keep_hits_of(&mut self, old: &RulesTable) {
        for (rules, old_rules) in self.chains.iter_mut().zip(&old.chains) {
            let mut next = 0;
            for r in rules {
                let (before, behind) = old_rules.split_at(next);
                let places = (next..).zip(behind).chain((0..).zip(before));
                let is_same = |o: &Counted| o.is_declared == r.is_declared && o.rule.has_same_match(&r.rule);
                let same = places.into_iter().find(|(_, o)| is_same(o));
                if let Some((place, o)) = same {
                    (r.hits, r.usage) = (o.hits, o.usage);
                    next = place + 1;
                }
            }
        }
    }
}

/// Removes a rule of a chain.
fn removed(rules: &mut Vec<Counted>, index: usize) -> Result<Arc<Rule>, TableError> {
    if rules[index].is_declared { Err(TableError::Declared) } else { Ok(rules.remove(index).rule) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(address: &str, ports: &str) -> Rule {
        Rule {
            address: Some(address.parse().unwrap()),
            ports: Some(ports.parse().unwrap()),
            ..Rule::default()
        }
    }

    #[test]
    fn the_first_match_decides_even_if_a_later_one_is_more_specific() {
        let mut table = RulesTable::default();
        let wide = Rule { ports: Some("1:1024".parse().unwrap()), ..Rule::default() };
        table.add(Chain::Remote, Policy::Enable, wide).unwrap();
        table.add(Chain::Remote, Policy::Enable, rule("10.1.2.0/24", "1000")).unwrap();
        let found = table.find(Chain::Remote, Policy::Enable, "10.1.2.3".parse().unwrap(), 1000).unwrap();
        assert_eq!(found.number, 1);
    }

    #[test]
    fn a_rule_with_the_same_match_is_not_doubled() {
        let mut table = RulesTable::default();
        let r = rule("10.0.0.0/8", "22");
        assert_eq!(table.add(Chain::Local, Policy::Enable, r.clone()), Ok(Added::New(1)));
        assert_eq!(table.add(Chain::Local, Policy::Enable, r.clone()), Ok(Added::Same(1)));
        let named = Rule { name: Some("ssh".into()), ..r.clone() };
        assert_eq!(table.add(Chain::Local, Policy::Enable, named), Ok(Added::Renamed(1)));
        assert_eq!(
            table.add(Chain::Local, Policy::Disable, r),
            Ok(Added::New(1)),
            "another chain is another list"
        );
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn rules_are_deleted_by_match_or_by_number() {
        let mut table = RulesTable::default();
        for port in ["1", "2", "3"] {
            table.add(Chain::Local, Policy::Enable, rule("10.0.0.0/8", port)).unwrap();
        }
        table.delete(Chain::Local, Policy::Enable, &rule("10.0.0.0/8", "2")).unwrap();
        assert_eq!(
            table.delete_number(Chain::Local, Policy::Enable, 2),
            Ok(Arc::new(rule("10.0.0.0/8", "3")))
        );
        assert!(matches!(
            table.delete_number(Chain::Local, Policy::Enable, 2),
            Err(TableError::NoSuchNumber { len: 1, .. })
        ));
        assert!(table.delete_number(Chain::Local, Policy::Enable, 0).is_err());
        assert!(table.delete(Chain::Local, Policy::Enable, &rule("10.0.0.0/8", "2")).is_err());
    }

    #[test]
    fn flush_empties_the_chains_that_fit() {
        let mut table = RulesTable::default();
        for chain in Chain::ALL {
            for policy in Policy::ALL {
                table.add(chain, policy, rule("10.0.0.0/8", "1")).unwrap();
            }
        }
        assert_eq!(table.flush(Some(Chain::Local), Some(Policy::Enable)), 1);
        assert_eq!(table.flush(Some(Chain::Remote), None), 2);
        assert_eq!(table.flush(None, None), 1);
        assert!(table.is_empty());
    }

    #[test]
    fn the_last_free_place_is_given_and_the_next_rule_refused() {
        let mut table = RulesTable::default();
        for port in 0..MAX_RULES as u16 {
            table.add(Chain::Local, Policy::Enable, rule("10.0.0.0/8", &port.to_string())).unwrap();
        }
        let one_more = rule("10.0.0.0/8", "65535");
        assert_eq!(table.add(Chain::Remote, Policy::Disable, one_more), Err(TableError::Full));
    }

    #[test]
    fn hits_survive_a_reload_of_the_same_rules() {
        let mut old = RulesTable::default();
        old.add(Chain::Local, Policy::Enable, rule("10.0.0.0/8", "1")).unwrap();
        old.count_hits(Chain::Local, Policy::Enable, 1, 1);
        let mut new = RulesTable::default();
        new.add(Chain::Local, Policy::Enable, rule("10.0.0.0/8", "9")).unwrap();
        new.add(Chain::Local, Policy::Enable, rule("10.0.0.0/8", "1")).unwrap();
        new.keep_hits_of(&old);
        let hits: Vec<u64> = new.list(None, None).map(|r| r.hits).collect();
        assert_eq!(hits, [0, 1]);
    }

    #[test]
    fn declared_rules_come_first_keep_their_hits_and_change_only_by_a_new_declaration() {
        let (chain, policy) = (Chain::Remote, Policy::Enable);
        let declared = |text: &str| text.parse::<DeclaredRules>().unwrap();
        let ports = |table: &RulesTable| -> Vec<(String, bool)> {
            table
                .list(None, None)
                .map(|found| (found.rule.ports.unwrap().to_string(), found.is_declared))
                .collect()
        };
        let mut table = RulesTable::default();
        for port in ["1", "2"] {
            table.add(chain, policy, rule("10.0.0.0/8", port)).unwrap();
        }
        table.count_hits(chain, policy, 2, 7);
        let lines =
            "-A -c remote -p enable -d 10.0.0.0/8 -P 3\n-A -c remote -p enable -d 10.0.0.0/8 -P 2 --own\n";
        table.declare(&declared(lines)).unwrap();
        let expected = [("3", true), ("2", true), ("1", false), ("2", false)];
        let expected = expected.map(|(port, is_declared)| (port.to_owned(), is_declared));
        assert_eq!(ports(&table), expected);
        assert!(table.find(chain, policy, "10.0.0.1".parse().unwrap(), 2).unwrap().is_declared);
        table.count_hits(chain, policy, 1, 5);
        table.declare(&declared(lines)).unwrap();
        assert_eq!(table.list(None, None).map(|found| found.hits).collect::<Vec<_>>(), [5, 0, 0, 7]);
        assert_eq!(crate::print_table(&table).lines().count(), 2, "the rules of the other file");

        assert_eq!(table.delete_number(chain, policy, 1), Err(TableError::Declared));
        assert_eq!(table.delete(chain, policy, &rule("10.0.0.0/8", "2")), Err(TableError::Declared));
        assert_eq!(table.add(chain, policy, rule("10.0.0.0/8", "2")), Err(TableError::Declared));
        assert_eq!(table.add(chain, policy, rule("10.0.0.0/8", "3")), Ok(Added::Same(1)));
        assert_eq!(table.flush(None, None), 2);
        assert_eq!(ports(&table), expected[..2]);

        table.add(chain, policy, rule("10.0.0.0/8", "4")).unwrap();
        table.declare(&declared("-A -c remote -p enable -d 10.0.0.0/8 -P 5\n")).unwrap();
        assert_eq!(ports(&table), [("5".to_owned(), true), ("4".to_owned(), false)]);
    }

    #[test]
    fn a_declaration_that_does_not_fit_changes_nothing() {
        let mut table = RulesTable::default();
        for port in 0..MAX_RULES as u16 {
            table.add(Chain::Local, Policy::Enable, rule("10.0.0.0/8", &port.to_string())).unwrap();
        }
        let before = table.clone();
        let one_more = "-A -c remote -p enable -P 22\n".parse().unwrap();
        assert_eq!(table.declare(&one_more), Err(TableError::Full));
        assert_eq!(table, before);
    }

    #[test]
    fn a_declared_rule_that_hides_a_stricter_one_counts_as_weaker() {
        let mut table = RulesTable::default();
        let strict = Rule { require: true, ..rule("10.0.0.0/8", "22") };
        table.add(Chain::Remote, Policy::Enable, strict).unwrap();
        let old = table.clone();
        assert_eq!(table.weaker_than(&old), 0);
        table.declare(&"-A -c remote -p enable -d 10.0.0.0/8 -P 22\n".parse().unwrap()).unwrap();
        assert_eq!(table.weaker_than(&old), 1);
        assert_eq!(table.weaker_than(&table), 0, "the next reload");
    }
}
