//! Combines the rules table and the settings into decisions about SCTP, and states their causes.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::{
    Advertisement, Chain, Framing, IpNet, Outcome, Policy, PortRange, Rule, RuleMatch, RulesTable, Secure,
    Settings, UnixMs, print_rule,
};

/// The settings and the rules table, which together decide on connections.
///
/// A decision starts from the default policy of the chain. The lookup then searches the chain's rules with the opposite policy,
/// and the first matching rule decides. If the default policy is enable and no disable rule matches, the first matching enable
/// rule is considered. It decides only if it requests something in addition to SCTP, such as encryption or framing.
///
/// Both default policies are disable unless the operator changes them. SCTP then reaches only listeners that local-enable rules
/// name, or for which programs request SCTP. Connections are tried over SCTP only if a remote-enable rule names the destination,
/// or if the SYN's mark requests SCTP.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rulebook {
    /// The settings. They include the default policies.
    pub settings: Settings,
    /// The rules of both chains and both policies.
    pub table: RulesTable,
    default_hits: [u64; 2],
}

/// A decision about SCTP, and its cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Enable: SCTP if the peer supports it. Disable: plain TCP.
    pub policy: Policy,
    /// The cause of the decision.
    pub because: Because,
}

/// The cause of a decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Because {
    /// The setting `enable` is 0.
    DisabledGlobally,
    /// No rule matched, so the chain's default policy decided.
    Default(Chain),
    /// The first rule that matched.
    Rule {
        /// The rule's chain.
        chain: Chain,
        /// The rule's policy.
        policy: Policy,
        /// The rule's place among the chain's rules with this policy, from 1.
        number: usize,
        /// The deciding rule.
        rule: Arc<Rule>,
    },
}

impl Decision {
    /// Reports whether the deciding rule names a single host or requires SCTP. Such a rule overrides learned entries.
    pub fn is_order(&self) -> bool {
        self.rule().is_some_and(|rule| rule.refuses_plain() || rule.address.is_some_and(IpNet::is_host))
    }

    /// Reports whether the connection must fail if it cannot be carried over SCTP.
    pub fn is_required(&self) -> bool {
        self.rule().is_some_and(Rule::refuses_plain)
    }

    /// Returns the encryption that the deciding rule requests; `None` means that the setting `encryption` applies.
    pub fn secure(&self) -> Option<&Secure> {
        self.rule().and_then(|rule| rule.secure.as_ref())
    }

    /// Returns the deciding rule's framing: the protocol whose messages the connection carries. A native peer gets each message
    /// of this protocol as one SCTP message. `None` means that bytes are sent without framing.
    pub fn framing(&self) -> Option<Framing> {
        self.rule().and_then(|rule| rule.framing)
    }

    /// Reports whether the deciding rule requires a separate association for each connection. A rule with an advertisement also
    /// requires separate associations. On a shared association, the advertisement would describe all connections of the
    /// association.
    pub fn wants_own(&self) -> bool {
        self.rule().is_some_and(|rule| rule.own || rule.advertise.is_some())
    }

    /// Returns the send-buffer advertisement of the deciding rule. If the rule has none, returns the advertisement of the
    /// settings.
    pub fn advertisement(&self, settings: &Settings) -> Advertisement {
        match self.rule() {
            Some(Rule { advertise: Some(form), advertise_interval, .. }) => Advertisement {
                form: *form,
                interval: advertise_interval.unwrap_or(settings.advertise_interval),
            },
            _ => settings.advertisement(),
        }
    }

    fn rule(&self) -> Option<&Rule> {
        match &self.because {
            Because::Rule { rule, .. } => Some(rule),
            Because::Default(_) | Because::DisabledGlobally => None,
        }
    }
}

/// Entry of a list for a firewall. The firewall refuses plain TCP to destinations for which a rule requires SCTP. The first
/// matching entry decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guarded {
    /// Addresses of the destinations; `None` is any address.
    pub address: Option<IpNet>,
    /// Ports of the destinations; `None` is any port.
    pub ports: Option<PortRange>,
    /// True if plain TCP is refused. If false, plain TCP passes, regardless of later entries.
    pub is_refused: bool,
}

const fn slot(chain: Chain) -> usize {
    match chain {
        Chain::Local => 0,
        Chain::Remote => 1,
    }
}

impl Rulebook {
    /// Creates a rulebook without hits.
    pub fn new(settings: Settings, table: RulesTable) -> Rulebook {
        Rulebook { settings, table, default_hits: [0; 2] }
    }

    /// Decides about SCTP for a program that listens on this address and port (chain `local`) or connects to them (chain
    /// `remote`). Counts a hit for the rule or the default policy that decided.
    pub fn decide(&mut self, chain: Chain, address: IpAddr, port: u16) -> Decision {
        let decision = self.explain(chain, address, port);
        self.count(&decision.because, 1);
        decision
    }

    /// Counts connections to this address and port that a firewall has let pass. The counts are those that [`Rulebook::decide`]
    /// would have made.
    pub fn count_passed(&mut self, address: IpAddr, port: u16, connections: u64) {
        let decision = self.explain(Chain::Remote, address, port);
        self.count(&decision.because, connections);
    }

    /// Counts connections that a firewall has let pass to destinations that no rule names.
    pub fn count_unnamed(&mut self, connections: u64) {
        if self.settings.enable {
            self.count(&Because::Default(Chain::Remote), connections);
        }
    }

    fn count(&mut self, because: &Because, decisions: u64) {
        match because {
            Because::DisabledGlobally => {}
            Because::Default(chain) => {
                let hits = &mut self.default_hits[slot(*chain)];
                *hits = hits.saturating_add(decisions);
            }
            Because::Rule { chain, policy, number, .. } => {
                self.table.count_hits(*chain, *policy, *number, decisions);
            }
        }
    }

    /// Returns the result of [`Rulebook::decide`], but counts nothing.
    pub fn explain(&self, chain: Chain, address: IpAddr, port: u16) -> Decision {
        if !self.settings.enable {
            return Decision { policy: Policy::Disable, because: Because::DisabledGlobally };
        }
        match self.deciding_rule(chain, address, port) {
            Some(found) => Decision { policy: found.policy, because: Because::from(found) },
            None => Decision { policy: self.default_policy(chain), because: Because::Default(chain) },
        }
    }

    /// Returns the rule that decides on a connection; `None` if the default policy decides.
    fn deciding_rule(&self, chain: Chain, address: IpAddr, port: u16) -> Option<RuleMatch<'_>> {
        let exception = self.default_policy(chain).opposite();
        // A rule that requests more than SCTP decides even if the default policy is enable.
        let required = || {
            self.table.find(chain, Policy::Enable, address, port).filter(|found| found.rule.asks_for_more())
        };
        self.table.find(chain, exception, address, port).or_else(required)
    }

    /// Returns the obstacle that keeps a program from requesting SCTP for its listener on this address and port. The obstacle
    /// is the setting `enable`, or a disable rule. If the default policy is disable, a matching enable rule removes the obstacle
    /// of a disable rule.
    pub fn forbids_asking(&self, address: IpAddr, port: u16) -> Option<Because> {
        let decision = self.explain(Chain::Local, address, port);
        match decision.because {
            _ if decision.policy.is_enable() => None,
            Because::Default(_) => {
                self.table.find(Chain::Local, Policy::Disable, address, port).map(Because::from)
            }
            because => Some(because),
        }
    }

    /// Reports whether the rules and settings allow SCTP to any program on this host. Listeners for which programs request SCTP
    /// do not count.
    pub fn serves_any(&self) -> bool {
        let mut enabled = self.table.list(Some(Chain::Local), Some(Policy::Enable));
        let is_default = self.default_policy(Chain::Local).is_enable();
        self.settings.enable && (is_default || enabled.next().is_some())
    }

    /// Returns the firewall's entries, which decide whether plain TCP to a destination is refused. The list is empty if no rule
    /// requires SCTP.
    pub fn guarded(&self) -> Vec<Guarded> {
        let guard = |policy: Policy| {
            self.table.list(Some(Chain::Remote), Some(policy)).map(|found| Guarded {
                address: found.rule.address,
                ports: found.rule.ports,
                is_refused: found.rule.refuses_plain(),
            })
        };
        let is_default = self.default_policy(Chain::Remote).is_enable();
        let exceptions = guard(Policy::Disable).filter(|_| is_default);
        let mut all: Vec<Guarded> = exceptions.chain(guard(Policy::Enable)).collect();
        // Entries after the last entry that refuses plain TCP have no effect.
        let length = all.iter().rposition(|g| g.is_refused).map_or(0, |last| last + 1);
        all.truncate(if self.settings.enable { length } else { 0 });
        all
    }

    /// Counts the outcome of a connection for the rule that decided on it.
    pub fn record(&mut self, chain: Chain, address: IpAddr, port: u16, now: UnixMs, outcome: Outcome) {
        if let Some(policy) = self.deciding_rule(chain, address, port).map(|found| found.policy) {
            self.table.record(chain, policy, address, port, now, outcome);
        }
    }

    /// Returns the policy for connections that no rule matches.
    pub fn default_policy(&self, chain: Chain) -> Policy {
        Policy::from_enabled(match chain {
            Chain::Local => self.settings.default_local_enable,
            Chain::Remote => self.settings.default_remote_enable,
        })
    }

    /// Returns the name of the setting that holds a chain's default policy.
    pub const fn default_setting(chain: Chain) -> &'static str {
        match chain {
            Chain::Local => "default_local_enable",
            Chain::Remote => "default_remote_enable",
        }
    }

    /// Returns the number of decisions by the default policy of this chain.
    pub fn default_hits(&self, chain: Chain) -> u64 {
        self.default_hits[slot(chain)]
    }
}

impl From<RuleMatch<'_>> for Because {
    fn from(found: RuleMatch<'_>) -> Because {
        Because::Rule {
            chain: found.chain,
            policy: found.policy,
            number: found.number,
            rule: Arc::clone(found.rule),
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::DisabledGlobally => f.write_str("sctpify is disabled (setting enable=0)"),
            Because::Default(chain) => {
                write!(
                    f,
                    "no {chain} rule matches, so the default policy applies (setting {})",
                    Rulebook::default_setting(*chain)
                )
            }
            Because::Rule { chain, policy, number, rule } => {
                write!(f, "rule {number} of {chain}-{policy}")?;
                match print_rule(rule) {
                    text if text.is_empty() => f.write_str(" (everything)"),
                    text => write!(f, ": {text}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Advertise, parse_table};

    fn book(table: &str) -> Rulebook {
        Rulebook::new(Settings::default(), parse_table(table).unwrap())
    }

    fn decide(book: &mut Rulebook, chain: Chain, address: &str, port: u16) -> Decision {
        book.decide(chain, address.parse().unwrap(), port)
    }

    #[test]
    fn an_empty_rulebook_allows_no_connection_over_sctp() {
        let mut book = Rulebook::default();
        for chain in Chain::ALL {
            let decision = decide(&mut book, chain, "10.0.0.1", 22);
            assert_eq!(decision, Decision { policy: Policy::Disable, because: Because::Default(chain) });
        }
    }

    #[test]
    fn only_exceptions_to_the_default_are_searched() {
        let rules = "-A -c remote -p disable -P 22\n-A -c remote -p enable -P 22\n";
        let mut book = book(rules);
        assert_eq!(decide(&mut book, Chain::Remote, "10.0.0.1", 22).policy, Policy::Enable);
        book.settings.default_remote_enable = true;
        assert_eq!(decide(&mut book, Chain::Remote, "10.0.0.1", 22).policy, Policy::Disable);
        assert_eq!(decide(&mut book, Chain::Remote, "10.0.0.1", 23).policy, Policy::Enable);
    }

    #[test]
    fn a_decision_says_which_rule_and_counts_its_hit() {
        let mut book = book("-A -c local -p enable -P 80\n-A -c local -p enable -P 22 --name ssh\n");
        let decision = decide(&mut book, Chain::Local, "::ffff:10.0.0.1", 22);
        assert_eq!(decision.because.to_string(), "rule 2 of local-enable: -P 22 --name ssh");
        decide(&mut book, Chain::Local, "10.0.0.1", 23);
        let hits: Vec<u64> = book.table.list(None, None).map(|r| r.hits).collect();
        assert_eq!((hits, book.default_hits(Chain::Local)), (vec![0, 1], 1));
    }

    #[test]
    fn a_rule_sets_the_advertisement_form_and_otherwise_the_setting_does() {
        let mut book = book("-A -c remote -p enable -P 22 --advertise timer\n-A -c local -p enable -P 22\n");
        book.settings.advertise = Advertise::Percent;
        for default in [false, true] {
            book.settings.default_remote_enable = default;
            let told = decide(&mut book, Chain::Remote, "10.0.0.1", 22);
            let form = told.advertisement(&book.settings).form;
            assert!(form == Advertise::Timer && told.wants_own(), "{told:?}");
            let told = decide(&mut book, Chain::Local, "10.0.0.1", 22);
            let form = told.advertisement(&book.settings).form;
            assert!(form == Advertise::Percent && !told.wants_own(), "{told:?}");
        }
        let refused = crate::parse_table("-A -c remote -p disable --advertise timer").unwrap_err();
        assert_eq!(refused, (1, crate::LineError::Table(crate::TableError::AdvertiseElsewhere)));
    }

    #[test]
    fn a_rule_sets_the_advertisement_interval_and_otherwise_the_setting_does() {
        let mut book = book(
            "-A -c remote -p enable -P 22 --advertise timer --advertise-interval 250\n\
             -A -c remote -p enable -P 23 --advertise timer\n",
        );
        book.settings.advertise_interval = "700".parse().unwrap();
        let interval = |port| {
            let decision = book.explain(Chain::Remote, "10.0.0.1".parse().unwrap(), port);
            decision.advertisement(&book.settings).interval.ms()
        };
        assert_eq!([22, 23, 24].map(interval), [250, 700, 700]);
        for elsewhere in ["--advertise-interval 250", "--advertise percent --advertise-interval 250"] {
            let refused = crate::parse_table(&format!("-A -c remote -p enable {elsewhere}")).unwrap_err();
            assert_eq!(refused, (1, crate::LineError::Table(crate::TableError::IntervalElsewhere)));
        }
    }

    #[test]
    fn programs_may_request_sctp_unless_a_rule_or_the_global_switch_forbids_it() {
        let mut book = book("-A -c local -p disable -P 80 --name web\n-A -c local -p enable -P 22\n");
        let forbids = |book: &Rulebook, port| book.forbids_asking("10.0.0.1".parse().unwrap(), port);
        for default in [false, true] {
            book.settings.default_local_enable = default;
            assert_eq!([22, 443].map(|port| forbids(&book, port)), [None, None], "{default}");
            let by_rule = forbids(&book, 80).unwrap().to_string();
            assert_eq!(by_rule, "rule 1 of local-disable: -P 80 --name web", "{default}");
        }
        book.settings.enable = false;
        assert_eq!(forbids(&book, 22), Some(Because::DisabledGlobally));
    }

    #[test]
    fn a_rule_for_a_single_host_overrides_learned_entries_and_a_network_does_not() {
        let book = book("-A -c remote -p enable -d 10.0.0.1\n-A -c remote -p enable -d 10.0.0.0/24\n");
        let is_order = |address: &str| book.explain(Chain::Remote, address.parse().unwrap(), 22).is_order();
        assert!(is_order("10.0.0.1") && !is_order("10.0.0.2"));
    }

    #[test]
    fn the_outcome_of_a_connection_is_counted_for_its_rule() {
        let mut book = book("-A -c remote -p enable -P 80\n-A -c remote -p enable -P 22\n");
        let outcome = Outcome::Tcp(Some(crate::Failure::NoAnswer));
        book.record(Chain::Remote, "10.0.0.1".parse().unwrap(), 22, UnixMs(7), outcome);
        let usages: Vec<_> = book.table.list(None, None).map(|r| r.usage).collect();
        assert_eq!((usages[0].calls_today, usages[1].calls_today, usages[1].failures_today), (0, 1, 1));
    }

    #[test]
    fn explaining_counts_nothing() {
        let book_before = book("-A -c local -p enable -P 22\n");
        let book = book_before.clone();
        book.explain(Chain::Local, "10.0.0.1".parse().unwrap(), 22);
        assert_eq!(book, book_before);
    }

    #[test]
    fn connections_that_a_firewall_passes_count_as_hits_of_their_rule_or_default() {
        let mut book = book("-A -c remote -p disable -P 22\n");
        book.count_unnamed(3);
        book.settings.default_remote_enable = true;
        book.count_passed("10.0.0.1".parse().unwrap(), 22, 5);
        book.settings.enable = false;
        book.count_unnamed(7);
        let hits: Vec<u64> = book.table.list(None, None).map(|r| r.hits).collect();
        assert_eq!((book.default_hits(Chain::Remote), hits), (3, vec![5]));
    }

    #[test]
    fn an_enable_rule_that_decides_under_the_default_policy_enable_counts_outcomes() {
        let mut book = book("-A -c local -p enable -P 22\n-A -c local -p enable -P 5060 --framing sip\n");
        book.settings.default_local_enable = true;
        for port in [22, 5060] {
            let outcome = Outcome::Tcp(None);
            book.record(Chain::Local, "10.0.0.1".parse().unwrap(), port, UnixMs(7), outcome);
        }
        let counts: Vec<_> = book.table.list(None, None).map(|found| found.usage.calls_today).collect();
        assert_eq!(counts, [0, 1], "the default policy decides on port 22");
    }

    #[test]
    fn the_global_switch_overrides_every_rule() {
        let mut book = book("-A -c local -p enable -P 22\n");
        book.settings.enable = false;
        let decision = decide(&mut book, Chain::Local, "10.0.0.1", 22);
        assert_eq!(decision, Decision { policy: Policy::Disable, because: Because::DisabledGlobally });
    }

    #[test]
    fn a_rule_sets_the_framing_under_either_default_policy() {
        let mut book = book("-A -c local -p enable -P 5060 --framing sip\n");
        for default in [false, true] {
            book.settings.default_local_enable = default;
            assert_eq!(decide(&mut book, Chain::Local, "10.0.0.1", 5060).framing(), Some(Framing::Sip));
            assert_eq!(decide(&mut book, Chain::Local, "10.0.0.1", 5061).framing(), None);
        }
    }

    #[test]
    fn nothing_is_served_before_a_local_rule_or_the_default_allows_something() {
        let mut book = book("-A -c remote -p enable -P 22\n-A -c local -p disable -P 22\n");
        assert!(!book.serves_any());
        book.settings.default_local_enable = true;
        assert!(book.serves_any());
        book.settings.enable = false;
        assert!(!book.serves_any());
        assert!(self::book("-A -c local -p enable -P 22\n").serves_any());
    }

    const REQUIRED: &str =
        "-A -c remote -p enable -d 10.0.0.0/8 -P 22 --require\n-A -c remote -p enable -P 22\n";

    #[test]
    fn a_rule_that_requires_sctp_overrides_the_default_and_learned_entries() {
        let mut book = book(REQUIRED);
        for default in [false, true] {
            book.settings.default_remote_enable = default;
            let decision = decide(&mut book, Chain::Remote, "10.0.0.1", 22);
            assert!(decision.is_required() && decision.is_order(), "{decision:?}");
            assert!(!decide(&mut book, Chain::Remote, "192.0.2.1", 22).is_required());
        }
    }

    #[test]
    fn the_firewall_gets_all_entries_up_to_the_last_rule_that_requires_sctp() {
        let mut book = book(&format!("-A -c remote -p disable -d 10.1.0.0/16\n{REQUIRED}"));
        let refused = |book: &Rulebook| book.guarded().iter().map(|g| g.is_refused).collect::<Vec<_>>();
        assert_eq!(refused(&book), [true]);
        book.settings.default_remote_enable = true;
        assert_eq!(refused(&book), [false, true], "exceptions to the default come first");
        book.settings.enable = false;
        assert_eq!(refused(&book), []);
    }
}
