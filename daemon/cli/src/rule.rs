//! `sctpify rule`: lists and changes the rules. Its commands consist of words, such as `add ssh to 192.0.2.0/24`. `shimrules` has the
//! command syntax of the papers.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use control::{Request, Response, RuleSelector};
use rules::{
    Advertise, AdvertiseInterval, Chain, Framing, IpNet, Policy, PortRange, Rule, RulesTable, Secure,
};

use crate::CliError;
use crate::commands::{addresses_of, ask_and_show};
use crate::session::{Session, unexpected};
use crate::shimrules::show_rules;

/// File with the names of services.
const SERVICES_FILE: &str = "/etc/services";
/// Frequent services, in the form of services(5), for hosts whose file lacks them. Small systems have no file.
const FREQUENT_SERVICES: &str = "\
    ftp 21/tcp\nssh 22/tcp\nsmtp 25/tcp mail\ndomain 53/tcp\nhttp 80/tcp www\npop3 110/tcp\nimap2 143/tcp imap\nldap 389/tcp\n\
    https 443/tcp\nsubmission 587/tcp\nldaps 636/tcp\nrsync 873/tcp\nimaps 993/tcp\npop3s 995/tcp\nmqtt 1883/tcp\nnfs 2049/tcp\n\
    mysql 3306/tcp\ndiameter 3868/tcp\nsip 5060/tcp\nsip-tls 5061/tcp\npostgresql 5432/tcp postgres\nredis 6379/tcp\n";
/// Word that stands for all services or all addresses.
const ANY: &str = "any";
/// Limit on the length of a rules file, in bytes. A file of this length or longer is refused. A full table of rules is shorter.
const FILE_BYTES_MAX: u64 = 3 << 20;

/// Commands of `sctpify rule`.
#[derive(Subcommand, Debug)]
pub enum RuleCommand {
    /// List rules with their hits, and learned destinations
    List {
        /// Also list comments and the usage of each rule
        #[arg(short, long)]
        verbose: bool,
    },
    /// Add rules: to hosts that programs connect to, or at this host's listeners
    ///
    /// `sctpify rule add ssh to 192.0.2.0/24` lets ssh to that network use SCTP, and `sctpify rule add ssh,postgresql at any` lets
    /// SCTP clients reach this host's sshd and PostgreSQL. A name of a host stands for the addresses that it has now. Each service
    /// and each address become a rule.
    Add {
        /// Connections that the rules match
        #[command(flatten)]
        matches: Match,
        /// Treatment of these connections
        #[command(flatten)]
        treatment: Treatment,
    },
    /// Delete rules: those of these services and hosts, or the one with a number
    #[command(
        override_usage = "sctpify rule delete [--tcp] <SERVICES> <to|at> <HOSTS>\n       sctpify rule delete <CHAIN-POLICY> <NUMBER>"
    )]
    Delete {
        /// Services, `to` or `at`, and hosts, as for `add`; or the chain, the policy and the number as `list` shows them, such as
        /// `remote-enable 1`
        #[arg(num_args = 2..=3, required = true, value_name = "WORDS")]
        words: Vec<String>,
        /// The rules keep connections on plain TCP
        #[arg(long)]
        tcp: bool,
    },
    /// Set the default policy of connections that no rule matches
    Default {
        /// Connections to other hosts, or at this host's listeners
        side: Side,
        /// enable (SCTP, except for the rules of `add --tcp`) or disable (TCP, except for the other rules)
        policy: Policy,
    },
    /// Delete all rules and all learned destinations, except the rules that the configuration file declares
    Flush,
    /// Print the rules that the configuration file does not declare, for `sctpify rule restore`
    Save,
    /// Replace the rules that the configuration file does not declare by those of a file; if a line is wrong, none is replaced
    Restore {
        /// Output of `sctpify rule save`; `-` for standard input
        file: PathBuf,
    },
}

/// Connections that a rule matches.
#[derive(Args, Debug)]
pub struct Match {
    /// Services, separated by commas: names of /etc/services, ports, ranges such as 8000-8010, or `any`
    #[arg(value_name = "SERVICES")]
    services: String,
    /// `to` for connections of this host's programs to others, `at` for connections to this host's listeners
    #[arg(value_name = "to|at")]
    side: Side,
    /// Addresses, networks or names of hosts, separated by commas, or `any`; with `at`, addresses of this host
    #[arg(value_name = "HOSTS")]
    hosts: String,
}

/// Direction of the connections that a rule matches, as seen from this host.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Connections of this host's programs to other hosts
    To,
    /// Connections to this host's listeners
    At,
}

impl Side {
    const fn chain(self) -> Chain {
        match self {
            Side::To => Chain::Remote,
            Side::At => Chain::Local,
        }
    }
}

/// Treatment of connections that a rule matches.
#[derive(Args, Debug)]
pub struct Treatment {
    /// Keep the connections on plain TCP
    #[arg(long, conflicts_with_all = ["require", "own", "advertise", "framing", "secure"])]
    tcp: bool,
    /// Connections use SCTP or fail; they never fall back to TCP
    #[arg(long)]
    require: bool,
    /// With `to`: each connection has its own association
    #[arg(long)]
    own: bool,
    /// Encryption instead of the setting `encryption`: off, try, require, or require=PEER for one known peer
    #[arg(long, value_name = "MODE")]
    secure: Option<Secure>,
    /// Form of the send-buffer advertisement, instead of the setting `advertise`
    #[arg(long, value_name = "FORM")]
    advertise: Option<Advertise>,
    /// With --advertise timer: interval in milliseconds
    #[arg(long, value_name = "MS", requires = "advertise")]
    advertise_interval: Option<AdvertiseInterval>,
    /// Send each message of this protocol to a native peer as one SCTP message; only sip (RFC 4168)
    #[arg(long, value_name = "PROTOCOL")]
    framing: Option<Framing>,
    /// Short name, shown where the rule decides
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Comment, shown by `list --verbose`
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

/// Performs a command.
pub(crate) fn run(session: Session<'_>, command: &RuleCommand) -> Result<(), CliError> {
    match command {
        RuleCommand::List { verbose } => {
            let answer = session.ask(&ALL_RULES)?;
            let Response::Rules(report) = &answer else { return Err(unexpected(&answer)) };
            session.print(&answer, |out, _| show_rules(out, report, *verbose))
        }
        RuleCommand::Add { matches, treatment } => add(session, matches, treatment),
        RuleCommand::Delete { words, tcp } => delete(session, words, *tcp),
        RuleCommand::Default { side, policy } => {
            ask_and_show(session, &Request::DefaultSet { chain: side.chain(), policy: *policy })
        }
        RuleCommand::Flush => ask_and_show(session, &Request::RulesFlush),
        RuleCommand::Save => save(session),
        RuleCommand::Restore { file } => {
            ask_and_show(session, &Request::RulesRestore { text: text_of(file)? })
        }
    }
}

const ALL_RULES: Request = Request::RulesList { chain: None, policy: None };

/// Checks all rules, and then adds them one by one.
fn add(session: Session<'_>, matches: &Match, treatment: &Treatment) -> Result<(), CliError> {
    if treatment.own && matches.side == Side::At {
        return Err(usage("--own goes with `to`: the connecting host chooses the association"));
    }
    let rules = matches.rules()?.into_iter().map(|rule| treatment.apply_to(rule)).collect::<Vec<_>>();
    rules.iter().try_for_each(Rule::check).map_err(usage)?;
    let (chain, policy) = (matches.side.chain(), Policy::from_enabled(!treatment.tcp));
    rules.into_iter().try_for_each(|rule| ask_and_show(session, &Request::RulesAdd { chain, policy, rule }))
}

fn delete(session: Session<'_>, words: &[String], tcp: bool) -> Result<(), CliError> {
    if let [kind, number] = words {
        let (chain, policy) = kind.split_once('-').ok_or_else(|| {
            usage(format!(
                "`{kind}` is no chain with a policy, such as remote-enable: `sctpify rule list` shows them"
            ))
        })?;
        let (chain, policy) = (chain.parse().map_err(usage)?, policy.parse().map_err(usage)?);
        let number = number.parse().map_err(|_| usage(format!("`{number}` is no number of a rule")))?;
        return ask_and_show(
            session,
            &Request::RulesDelete { chain, policy, which: RuleSelector::Number(number) },
        );
    }
    let [services, side, hosts] = words else { return Err(usage("give services, `to` or `at`, and hosts")) };
    let side =
        Side::from_str(side, false).map_err(|_| usage(format!("`{side}` is neither `to` nor `at`")))?;
    let matches = Match { services: services.clone(), side, hosts: hosts.clone() };
    let (chain, policy) = (side.chain(), Policy::from_enabled(!tcp));
    // If one of the rules does not exist, the other rules are deleted nevertheless.
    let delete = |rule| {
        ask_and_show(session, &Request::RulesDelete { chain, policy, which: RuleSelector::Match(rule) })
    };
    let failed: Vec<CliError> = matches.rules()?.into_iter().filter_map(|rule| delete(rule).err()).collect();
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// Prints the rules in the syntax of the rules file.
fn save(session: Session<'_>) -> Result<(), CliError> {
    let answer = session.ask(&ALL_RULES)?;
    let Response::Rules(report) = &answer else { return Err(unexpected(&answer)) };
    let mut table = RulesTable::default();
    for row in report.rules.iter().filter(|row| !row.declared) {
        table
            .add(row.chain, row.policy, row.rule.clone())
            .map_err(|error| CliError::Failed(error.to_string()))?;
    }
    session.print(&answer, |out, _| out.write_all(rules::print_table(&table).as_bytes()))
}

/// Returns the text of a file, or of standard input if `file` is `-`.
fn text_of(file: &Path) -> Result<String, CliError> {
    let failed = |error: io::Error| CliError::Failed(format!("{}: {error}", file.display()));
    let mut text = String::new();
    let mut limited: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(io::stdin().take(FILE_BYTES_MAX)),
        false => Box::new(std::fs::File::open(file).map_err(failed)?.take(FILE_BYTES_MAX)),
    };
    limited.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 == FILE_BYTES_MAX {
        return Err(CliError::Failed(format!("{}: longer than {FILE_BYTES_MAX} bytes", file.display())));
    }
    Ok(text)
}

impl Match {
    /// Returns a rule for each service and each address, without a treatment.
    fn rules(&self) -> Result<Vec<Rule>, CliError> {
        let (services, addresses) = (services(&self.services)?, addresses(&self.hosts)?);
        let rules = services.iter().flat_map(|&ports| {
            addresses.iter().map(move |&address| Rule { address, ports, ..Rule::default() })
        });
        Ok(rules.collect())
    }
}

impl Treatment {
    fn apply_to(&self, rule: Rule) -> Rule {
        Rule {
            own: self.own,
            name: self.name.clone(),
            comment: self.comment.clone(),
            require: self.require,
            advertise: self.advertise,
            advertise_interval: self.advertise_interval,
            framing: self.framing,
            secure: self.secure.clone(),
            ..rule
        }
    }
}

/// Returns the ports of each service in a list. `None` stands for all ports.
fn services(list: &str) -> Result<Vec<Option<PortRange>>, CliError> {
    let of_word = |word: &str| match word {
        ANY => Ok(None),
        _ if word.starts_with(|c: char| c.is_ascii_digit()) => word.parse().map(Some).map_err(usage),
        name => port_of(name).map(Some),
    };
    parts(list, "services").and_then(|words| words.into_iter().map(of_word).collect())
}

/// Returns the addresses and networks in a list, and the addresses of the names in it. `None` stands for all addresses.
fn addresses(list: &str) -> Result<Vec<Option<IpNet>>, CliError> {
    let mut found = Vec::new();
    for word in parts(list, "hosts")? {
        match word {
            ANY => found.push(None),
            network if network.contains('/') => found.push(Some(network.parse().map_err(usage)?)),
            host => {
                let addresses: BTreeSet<_> = addresses_of(host)?.collect();
                found.extend(addresses.into_iter().map(|address| Some(IpNet::host(address))));
            }
        }
    }
    Ok(found)
}

/// Returns the different words of a list that commas separate. Fails if the list has `any` and another word.
fn parts<'a>(list: &'a str, what: &str) -> Result<Vec<&'a str>, CliError> {
    let mut words: Vec<&str> = Vec::new();
    for word in list.split(',').map(str::trim) {
        if word.is_empty() {
            return Err(usage(format!("`{list}` has an empty part: separate {what} by single commas")));
        }
        if !words.contains(&word) {
            words.push(word);
        }
    }
    if words.len() > 1 && words.contains(&ANY) {
        return Err(usage(format!("`{list}`: `{ANY}` includes all other {what}")));
    }
    Ok(words)
}

/// Returns the TCP port of a service.
fn port_of(name: &str) -> Result<PortRange, CliError> {
    let unknown = |why: String| usage(format!("unknown service `{name}` ({why}): give its port"));
    let text = std::fs::read_to_string(SERVICES_FILE);
    let found = text.as_deref().ok().and_then(|text| port_in(text, name));
    let port = found.or_else(|| port_in(FREQUENT_SERVICES, name));
    let port = port.ok_or_else(|| match &text {
        Ok(_) => unknown(format!("not in {SERVICES_FILE}")),
        Err(error) => unknown(format!("{SERVICES_FILE}: {error}")),
    })?;
    PortRange::new(port, port).map_err(usage)
}

/// Returns the TCP port of a service in the text of services(5): a line has the name, the port with the protocol, and aliases.
fn port_in(text: &str, name: &str) -> Option<u16> {
    text.lines().find_map(|line| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let (first, port) = (words.next()?, words.next()?.strip_suffix("/tcp")?);
        (first == name || words.any(|alias| alias == name)).then(|| port.parse().ok()).flatten()
    })
}

fn usage(problem: impl Display) -> CliError {
    CliError::Usage(problem.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;
    use crate::Sctpify;
    use clap::Parser;

    const SERVICES: &str = "# Network services\nssh\t22/tcp\t# SSH\nhttp 80/tcp www # WWW\ndomain 53/udp\ndomain 53/tcp\nquic 443/udp\n";

    fn rules_of(services: &str, hosts: &str) -> Result<Vec<String>, String> {
        let matches = Match { services: services.into(), side: Side::To, hosts: hosts.into() };
        let printed = |rules: Vec<Rule>| rules.iter().map(rules::print_rule).collect();
        matches.rules().map(printed).map_err(|error| error.to_string())
    }

    #[test]
    fn a_service_is_found_by_its_name_and_its_aliases_for_tcp() {
        let found = ["ssh", "www", "domain", "quic", "SSH"].map(|name| port_in(SERVICES, name));
        assert_eq!(found, [Some(22), Some(80), Some(53), None, None]);
        let frequent = ["ssh", "https", "postgres", "redis"].map(|name| port_in(FREQUENT_SERVICES, name));
        assert_eq!(frequent, [Some(22), Some(443), Some(5432), Some(6379)]);
    }

    #[test]
    fn each_service_and_each_host_become_a_rule() {
        let rules = rules_of("22,8000-8010", "192.0.2.0/24,2001:db8::7,192.0.2.9").unwrap();
        let expected = [
            "-d 192.0.2.0/24 -P 22",
            "-d 2001:db8::7 -P 22",
            "-d 192.0.2.9 -P 22",
            "-d 192.0.2.0/24 -P 8000:8010",
            "-d 2001:db8::7 -P 8000:8010",
            "-d 192.0.2.9 -P 8000:8010",
        ];
        assert_eq!(rules, expected);
        assert_eq!(rules_of("any", "any").unwrap(), [""]);
        assert_eq!(rules_of("22,22", "any").unwrap(), ["-P 22"]);
    }

    #[test]
    fn a_wrong_service_or_host_is_named() {
        for (services, hosts, expected) in [
            ("22,", "any", "empty part"),
            ("any,22", "any", "`any` includes all other services"),
            ("22", "any,192.0.2.1", "`any` includes all other hosts"),
            ("99999", "any", "`99999` is not a port"),
            ("no-such-service", "any", "unknown service `no-such-service`"),
            ("22", "192.0.2.0/33", "prefix length 33"),
            ("22", "192.0.2.1:22", "has a port"),
        ] {
            let error = rules_of(services, hosts).unwrap_err();
            assert!(error.contains(expected), "{services} {hosts}: {error}");
        }
    }

    #[test]
    fn rule_add_with_tcp_refuses_options_for_sctp() {
        let parse = |line: &str| {
            let words = ["sctpify", "rule", "add"].into_iter().chain(line.split_whitespace());
            Sctpify::try_parse_from(words).map_err(|error| error.to_string())
        };
        let Command::Rule { command: RuleCommand::Add { matches, treatment } } =
            parse("22 at any --name ssh --secure require").unwrap().command
        else {
            panic!("rules are added")
        };
        assert_eq!((matches.side.chain(), treatment.name.as_deref()), (Chain::Local, Some("ssh")));
        for excluded in ["--require", "--own", "--secure off"] {
            let refused = parse(&format!("22 to any --tcp {excluded}")).unwrap_err();
            assert!(refused.contains("cannot be used with"), "{refused}");
        }
        assert!(parse("22 from any").unwrap_err().contains("[possible values: to, at]"));
    }
}
