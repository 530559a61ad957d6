//! `shimrules`: lists and changes the rules, with the command syntax of the two papers (docs/papers.md).

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{ArgAction, ArgGroup, Parser};
use control::{DEFAULT_CONTROL, Request, Response, RuleRow, RuleSelector, RulesReport};
use rules::{Advertise, AdvertiseInterval, Chain, Framing, IpNet, Policy, PortRange, Rule, Secure, Usage};

use crate::session::{Session, unexpected};
use crate::table::{Align, Table, millis};
use crate::{CliError, show};

/// List and change the rules that select connections for SCTP
///
/// Chain `local` is for programs that listen on this host; its rules match the listener's address and port. Chain `remote` is for programs
/// that connect to other hosts; its rules match the peer's address and port. Each chain has a default policy, and the rules are exceptions
/// to it. The first matching rule decides, so put specific rules first. A rule without an address matches all addresses; a rule without
/// ports matches all ports.
///
/// Changes apply to new connections at once, and persist across restarts.
///
/// With automatic configuration (-C, the default), the daemon learns which destinations do not support SCTP. Connections to these
/// destinations use plain TCP at once, until a background probe is answered. The time between probes grows. -L lists learned destinations
/// separately from the rules. A rule for a single host overrides the learned entry of the host; a rule for a network or for all addresses
/// does not.
///
/// Exit status: 0 success, 1 refused or failed, 2 usage error, 3 no daemon.
#[derive(Parser, Debug)]
#[command(
    name = "shimrules",
    version = version::FULL,
    max_term_width = 100,
    disable_help_flag = true,
    override_usage = USAGE,
    after_help = EXAMPLES,
    group = ArgGroup::new("action").required(true)
)]
pub struct Shimrules {
    /// Append a rule to its chain
    #[arg(short = 'A', group = "action")]
    pub add: bool,

    /// Delete a rule, by its specification or its number
    #[arg(short = 'D', group = "action")]
    pub delete: bool,

    /// List rules with their hits, and learned destinations
    #[arg(short = 'L', group = "action")]
    pub list: bool,

    /// Flush: delete all rules and all learned destinations, except the rules that the configuration file declares
    #[arg(short = 'F', group = "action")]
    pub flush: bool,

    /// Get the default policy of a chain
    #[arg(short = 'G', group = "action")]
    pub get_default: bool,

    /// Set the default policy of a chain
    #[arg(short = 'S', group = "action")]
    pub set_default: bool,

    /// Automatic configuration on: learn which destinations do not support SCTP
    #[arg(short = 'C', group = "action")]
    pub auto_enable: bool,

    /// Automatic configuration off: stop learning, and ignore learned destinations
    #[arg(short = 'B', group = "action")]
    pub auto_disable: bool,

    /// Show usage information
    #[arg(short = 'H', short_alias = 'h', long = "help", action = ArgAction::Help)]
    pub help: Option<bool>,

    /// local or remote
    #[arg(short = 'c', value_name = "CHAIN")]
    pub chain: Option<Chain>,

    /// enable or disable
    #[arg(short = 'p', value_name = "POLICY")]
    pub policy: Option<Policy>,

    /// Address or network, IPv4 or IPv6: 10.1.2.3, 10.1.2.0/24, 2001:db8::/32
    #[arg(short = 'd', value_name = "ADDRESS")]
    pub address: Option<IpNet>,

    /// Port or range: 22, 1:1024
    #[arg(short = 'P', value_name = "PORTS")]
    pub ports: Option<PortRange>,

    /// Short name, shown when the rule decides
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Comment, shown by -L -v
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,

    /// With -A -c remote -p enable: connections use SCTP or fail; they never fall back to TCP
    #[arg(long)]
    pub require: bool,

    /// With -A -c remote -p enable: each connection has its own association
    #[arg(long)]
    pub own: bool,

    /// With -A -p enable: form of the send-buffer advertisement, instead of the setting `advertise`; each connection then has its own
    /// association
    #[arg(long, value_name = "FORM")]
    pub advertise: Option<Advertise>,

    /// With --advertise timer: interval in milliseconds, instead of the setting `advertise_interval_ms`
    #[arg(long, value_name = "MS")]
    pub advertise_interval: Option<AdvertiseInterval>,

    /// With -A -p enable: send each message of this protocol to a native peer as one SCTP message. The only protocol is sip (RFC 4168)
    #[arg(long, value_name = "PROTOCOL")]
    pub framing: Option<Framing>,

    /// With -A -p enable: encryption mode, instead of the setting `encryption`: off, try, require or require=PEER. `require` refuses
    /// connections without encryption. `require=PEER` also refuses connections with any host except this known peer
    #[arg(long, value_name = "MODE")]
    pub secure: Option<Secure>,

    /// Number of the rule to delete, as -L shows it
    #[arg(value_name = "NUMBER")]
    pub number: Option<usize>,

    /// With -L: also list comments and the usage of each rule
    #[arg(short = 'v')]
    pub verbose: bool,

    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,

    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", env = "SCTPIFY_CONTROL", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,
}

const USAGE: &str = "shimrules -[AD] -c<chain> -p<policy> <rule specification>\n       \
                     shimrules -D -c<chain> -p<policy> <number>\n       \
                     shimrules -L [-c<chain>] [-p<policy>] [-v]\n       \
                     shimrules -[FCBH]\n       \
                     shimrules -G -c<chain>\n       \
                     shimrules -S -c<chain> -p<policy>";

const EXAMPLES: &str = "Examples:\n  \
    shimrules -A -c remote -p enable -d 10.1.2.0/24 -P 22    ssh to that network may use SCTP\n  \
    shimrules -A -c local -p enable -P 22 --name ssh         this host's sshd accepts SCTP\n  \
    shimrules -S -c remote -p enable                         every destination, except those of remote-disable rules\n  \
    shimrules -D -c remote -p enable 1                       delete the first remote-enable rule";

/// Performs the requested action.
pub(crate) fn run(args: &Shimrules) -> Result<(), CliError> {
    let session = Session { control: &args.control, json: args.json };
    let request = request(args)?;
    let answer = session.ask(&request)?;
    match (&request, &answer) {
        (Request::RulesList { .. }, Response::Rules(report)) => {
            session.print(&answer, |out, _| show_rules(out, report, args.verbose))
        }
        (Request::DefaultGet { .. } | Request::DefaultSet { .. }, Response::DefaultPolicy(_)) => {
            session.print(&answer, show::answer)
        }
        (_, Response::Done(_)) => session.print(&answer, show::answer),
        _ => Err(unexpected(&answer)),
    }
}

fn request(args: &Shimrules) -> Result<Request, CliError> {
    let has_spec =
        args.address.is_some() || args.ports.is_some() || args.name.is_some() || args.comment.is_some();
    if args.require && !args.add {
        return Err(usage("--require goes with -A"));
    }
    if has_spec && !(args.add || args.delete) {
        return Err(usage("-d, -P, --name and --comment go with -A or -D"));
    }
    if args.number.is_some() && !args.delete {
        return Err(usage("a number goes with -D"));
    }
    if args.add {
        let (chain, policy) = (need(args.chain, "-A", "-c")?, need(args.policy, "-A", "-p")?);
        return Ok(Request::RulesAdd { chain, policy, rule: rule(args)? });
    }
    if args.delete {
        let (chain, policy) = (need(args.chain, "-D", "-c")?, need(args.policy, "-D", "-p")?);
        return Ok(Request::RulesDelete { chain, policy, which: selector(args, has_spec)? });
    }
    if args.list {
        return Ok(Request::RulesList { chain: args.chain, policy: args.policy });
    }
    if args.get_default {
        if args.policy.is_some() {
            return Err(usage("-G takes no -p: -S sets the default policy"));
        }
        return Ok(Request::DefaultGet { chain: need(args.chain, "-G", "-c")? });
    }
    if args.set_default {
        let (chain, policy) = (need(args.chain, "-S", "-c")?, need(args.policy, "-S", "-p")?);
        return Ok(Request::DefaultSet { chain, policy });
    }
    if (args.chain.is_some() || args.policy.is_some()) && !args.flush {
        return Err(usage("-C and -B are for all rules and take no -c or -p"));
    }
    if args.auto_enable {
        return Ok(Request::RuleAutoEn);
    }
    if args.auto_disable {
        return Ok(Request::RuleAutoDis);
    }
    if args.chain.is_some() || args.policy.is_some() {
        return Err(usage("-F deletes all rules and takes no -c or -p: delete single rules with -D"));
    }
    Ok(Request::RulesFlush)
}

fn selector(args: &Shimrules, has_spec: bool) -> Result<RuleSelector, CliError> {
    match args.number {
        Some(_) if has_spec => Err(usage("-D takes a number or a rule specification, not both")),
        Some(number) => Ok(RuleSelector::Number(number)),
        None => Ok(RuleSelector::Match(rule(args)?)),
    }
}

fn rule(args: &Shimrules) -> Result<Rule, CliError> {
    let Shimrules { address, ports, own, name, comment, require, framing, .. } = args;
    let is_for_own = args.chain == Some(Chain::Remote) && args.policy == Some(Policy::Enable);
    if *own && !(args.add && is_for_own) {
        return Err(usage("--own goes with -A -c remote -p enable"));
    }
    if args.advertise.is_some() && !(args.add && args.policy == Some(Policy::Enable)) {
        return Err(usage("--advertise goes with -A -p enable"));
    }
    if args.advertise_interval.is_some() && args.advertise != Some(Advertise::Timer) {
        return Err(usage("--advertise-interval goes with --advertise timer"));
    }
    if framing.is_some() && !args.add {
        return Err(usage("--framing goes with -A"));
    }
    if args.secure.is_some() && !args.add {
        return Err(usage("--secure goes with -A"));
    }
    let rule = Rule {
        address: *address,
        ports: *ports,
        own: *own,
        name: name.clone(),
        comment: comment.clone(),
        require: *require,
        advertise: args.advertise,
        advertise_interval: args.advertise_interval,
        framing: *framing,
        secure: args.secure.clone(),
    };
    rule.check().map_err(|e| usage(&e.to_string()))?;
    Ok(rule)
}

fn need<T>(value: Option<T>, action: &str, option: &str) -> Result<T, CliError> {
    value.ok_or_else(|| usage(&format!("{action} needs {option}")))
}

fn usage(problem: &str) -> CliError {
    CliError::Usage(format!("{problem}\nUsage: {USAGE}\n`shimrules -H` has details"))
}

/// Prints the default policies, the rules and the learned destinations.
pub(crate) fn show_rules(out: &mut dyn Write, report: &RulesReport, verbose: bool) -> io::Result<()> {
    for d in &report.defaults {
        let whose = match d.chain {
            Chain::Local => "incoming",
            Chain::Remote => "outgoing",
        };
        let (usual, exception) = match d.policy.is_enable() {
            false => ("TCP", "allows SCTP"),
            true => ("SCTP", "keeps it on TCP"),
        };
        let rules = format!("a rule of {}-{} {exception}", d.chain, d.policy.opposite());
        let hits = if d.hits == 1 { "hit" } else { "hits" };
        writeln!(
            out,
            "default {:<6} {:<7}  {} {hits}; {whose}: {usual} unless {rules}",
            d.chain, d.policy, d.hits
        )?;
    }
    if report.rules.is_empty() {
        writeln!(out, "no rules")?;
    } else {
        writeln!(out)?;
        rules_table(&report.rules, verbose).print(out, "")?;
    }
    show_learned(out, report)
}

/// Formats the policy of a rule and its options.
fn policy_cell(row: &RuleRow) -> String {
    let policy = if row.rule.require { "require".to_owned() } else { row.policy.to_string() };
    let own = if row.rule.own { ", own" } else { "" };
    let advertise = row.rule.advertise.map(|form| format!(", advertise {form}")).unwrap_or_default();
    let interval = row.rule.advertise_interval.map(|ms| format!(" {ms} ms")).unwrap_or_default();
    let framing = row.rule.framing.map(|framing| format!(", {framing}")).unwrap_or_default();
    let secure = row.rule.secure.as_ref().map(|secure| format!(", secure {secure}")).unwrap_or_default();
    let declared = if row.declared { ", declared" } else { "" };
    format!("{policy}{own}{advertise}{interval}{framing}{secure}{declared}")
}

fn rules_table(rules: &[RuleRow], verbose: bool) -> Table {
    let mut columns = vec![
        ("CHAIN", Align::Left),
        ("POLICY", Align::Left),
        ("NUMBER", Align::Right),
        ("ADDRESS", Align::Left),
        ("PORTS", Align::Left),
        ("HITS", Align::Right),
        ("NAME", Align::Left),
    ];
    if verbose {
        columns.extend([
            ("DATE", Align::Left),
            ("CALLS TODAY", Align::Right),
            ("FAILED TODAY", Align::Right),
            ("LAST CALL", Align::Right),
            ("RTT", Align::Right),
            ("LAST FAILURE", Align::Left),
            ("COMMENT", Align::Left),
        ]);
    }
    let mut table = Table::new(&columns);
    for row in rules {
        let rule = &row.rule;
        let mut cells = vec![
            row.chain.to_string(),
            policy_cell(row),
            row.number.to_string(),
            rule.address.map_or_else(|| "any".into(), |a| a.to_string()),
            rule.ports.map_or_else(|| "any".into(), |p| p.to_string()),
            row.hits.to_string(),
            rule.name.clone().unwrap_or_default(),
        ];
        if verbose {
            cells.push(show::date(row.usage.day));
            cells.extend(usage_cells(&row.usage));
            cells.push(rule.comment.clone().unwrap_or_default());
        }
        table.row(cells);
    }
    table
}

/// Formats calls today, failures today, last call, round trip and last failure.
fn usage_cells(usage: &Usage) -> [String; 5] {
    let dash = || "-".to_owned();
    [
        usage.calls_today.to_string(),
        usage.failures_today.to_string(),
        usage.last_call.map_or_else(dash, |at| show::ago_unix(at.0)),
        usage.rtt_us.map_or_else(dash, millis),
        usage.last_failure.map_or_else(dash, |failure| failure.to_string()),
    ]
}

/// Prints learned destinations. Destinations that are kept on TCP have a reason, an age and an expiry.
fn show_learned(out: &mut dyn Write, report: &RulesReport) -> io::Result<()> {
    let chains_remote = report.defaults.iter().any(|d| d.chain == Chain::Remote);
    if !chains_remote {
        return Ok(());
    }
    let switch = if report.learning { "-C" } else { "-B: ignored" };
    if report.learned.is_empty() {
        return writeln!(out, "nothing learned ({switch})");
    }
    writeln!(out, "\nlearned ({switch}):")?;
    let mut table = Table::new(&[
        ("DESTINATION", Align::Left),
        ("POLICY", Align::Left),
        ("REASON", Align::Left),
        ("AGE", Align::Right),
        ("EXPIRES", Align::Left),
        ("CALLS TODAY", Align::Right),
        ("FAILED TODAY", Align::Right),
        ("LAST CALL", Align::Right),
        ("RTT", Align::Right),
        ("LAST FAILURE", Align::Left),
    ]);
    for row in &report.learned {
        let disabled = row.entry.disabled;
        let mut cells = vec![
            show::destination(&row.entry),
            Policy::from_enabled(disabled.is_none()).to_string(),
            disabled.map_or_else(|| "-".into(), |d| d.failure.to_string()),
            disabled.map_or_else(|| "-".into(), |d| show::age(d.since.0)),
            show::expiry(row),
        ];
        cells.extend(usage_cells(&row.entry.usage));
        table.row(cells);
    }
    table.print(out, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, CliError> {
        let words = std::iter::once("shimrules").chain(line.split_whitespace());
        request(&Shimrules::try_parse_from(words).map_err(|e| CliError::Usage(e.to_string()))?)
    }

    #[test]
    fn glued_and_spaced_forms_mean_the_same() {
        let glued = parse("-A -cremote -penable -d10.1.2.0/24 -P22").unwrap();
        assert_eq!(glued, parse("-A -c remote -p enable -d 10.1.2.0/24 -P 22").unwrap());
        assert_eq!(glued, parse("-Acremote -penable -d 10.1.2.0/24 -P 22-22").unwrap());
    }

    #[test]
    fn every_command_of_the_papers_tables_is_understood() {
        let chain = Chain::Local;
        let policy = Policy::Enable;
        assert_eq!(parse("-L").unwrap(), Request::RulesList { chain: None, policy: None });
        let listed = parse("-L -clocal -penable").unwrap();
        assert_eq!(listed, Request::RulesList { chain: Some(chain), policy: Some(policy) });
        assert_eq!(parse("-F").unwrap(), Request::RulesFlush);
        assert_eq!(parse("-C").unwrap(), Request::RuleAutoEn);
        assert_eq!(parse("-B").unwrap(), Request::RuleAutoDis);
        assert_eq!(parse("-G -clocal").unwrap(), Request::DefaultGet { chain });
        assert_eq!(parse("-S -clocal -penable").unwrap(), Request::DefaultSet { chain, policy });
        let which = RuleSelector::Number(3);
        assert_eq!(parse("-D -clocal -penable 3").unwrap(), Request::RulesDelete { chain, policy, which });
        let which = RuleSelector::Match(Rule::default());
        assert_eq!(parse("-D -clocal -penable").unwrap(), Request::RulesDelete { chain, policy, which });
    }

    #[test]
    fn advertise_interval_requires_advertise_timer() {
        let add = "-A -c local -p enable";
        let Request::RulesAdd { rule, .. } =
            parse(&format!("{add} --advertise timer --advertise-interval 250")).unwrap()
        else {
            panic!("a rule is added")
        };
        assert_eq!(rule.advertise_interval.map(AdvertiseInterval::ms), Some(250));
        for form in ["", "--advertise percent"] {
            let refused = parse(&format!("{add} {form} --advertise-interval 250")).unwrap_err().to_string();
            assert!(refused.starts_with("--advertise-interval goes with --advertise timer"), "{refused}");
        }
        let refused = parse(&format!("{add} --advertise timer --advertise-interval 99")).unwrap_err();
        assert!(refused.to_string().contains("it takes 100 to 3600000 ms"), "{refused}");
    }

    #[test]
    fn missing_and_excess_options_are_named() {
        let problem = |line: &str| parse(line).unwrap_err().to_string();
        assert!(problem("-A -clocal").starts_with("-A needs -p"));
        assert!(problem("-G").starts_with("-G needs -c"));
        assert!(problem("-L -P 22").starts_with("-d, -P, --name and --comment go with"));
        assert!(problem("-C -c remote").starts_with("-C and -B are for all rules"));
        assert!(problem("-F -c local").starts_with("-F deletes all rules"));
        assert!(problem("-D -clocal -penable -P 22 1").starts_with("-D takes a number or"));
        assert!(problem("-A -L").contains("cannot be used with"));
        assert!(problem("-A -c remot -p enable").contains("did you mean `remote`?"));
        assert!(problem("-c local").contains("required"));
    }
}
