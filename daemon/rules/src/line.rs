//! Parses and prints rules as lines in the syntax of `shimrules`: `-A -c remote -p enable -d 10.1.2.0/24 -P 22 --name ssh`.
//!
//! The rules file consists of such lines. [`parse_table`] reads the output of [`print_table`] back as the same table. Hit
//! counts are not part of the rules, so they are neither printed nor parsed.

use std::fmt::Write;

use crate::rule::did_you_mean;
use crate::{
    Added, Advertise, AdvertiseError, AdvertiseInterval, AdvertiseIntervalError, Chain, Framing,
    FramingWordError, IpNet, NetError, Policy, PortRange, PortsError, Rule, RuleError, RulesTable, Secure,
    SecureError,
};
use crate::{TableError, WordError};

/// The command of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// `-A`: append the rule to its chain.
    Add,
    /// `-D`: remove the rule that has the same match.
    Delete,
}

/// One line: an action, a chain, a policy and a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleLine {
    /// The command: add or delete.
    pub action: Action,
    /// The rule's chain.
    pub chain: Chain,
    /// The rule's policy.
    pub policy: Policy,
    /// The rule.
    pub rule: Rule,
}

/// Fault of a rule line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LineError {
    /// A quote is not closed.
    #[error("the quote {0} is not closed")]
    OpenQuote(char),
    /// The line ends after an option that needs a value.
    #[error("`{0}` needs a value after it")]
    NoValue(&'static str),
    /// An unknown option.
    #[error("unknown option `{word}`{}", did_you_mean(.word, &OPTION_NAMES))]
    UnknownOption {
        /// The word as given.
        word: String,
    },
    /// An option is given twice.
    #[error("`{0}` is given twice")]
    Twice(&'static str),
    /// A mandatory part is missing.
    #[error("`{0}` is missing: a rule line looks like `-A -c remote -p enable -d 10.1.2.0/24 -P 22`")]
    Missing(&'static str),
    /// A word is neither a chain nor a policy.
    #[error(transparent)]
    Word(#[from] WordError),
    /// A word is not a framing that sctpify supports.
    #[error(transparent)]
    Framing(#[from] FramingWordError),
    /// A text is neither an address nor a network.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A text is neither a port nor a range of ports.
    #[error(transparent)]
    Ports(#[from] PortsError),
    /// A word is not a form of advertisement.
    #[error(transparent)]
    Advertise(#[from] AdvertiseError),
    /// A text is not an interval of advertisements.
    #[error(transparent)]
    Interval(#[from] AdvertiseIntervalError),
    /// A text is not an encryption of a rule.
    #[error(transparent)]
    Secure(#[from] SecureError),
    /// An invalid name or comment.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The table refuses the rule.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The chain already has a rule with the same match.
    #[error("rule {0} of this chain already has this address and ports: the new one would never match")]
    Doubled(usize),
    /// A line of a rules file is not an `-A` line.
    #[error("a rules file may contain only `-A` lines")]
    NotAdd,
}

const ADD: &str = "-A";
const DELETE: &str = "-D";
const CHAIN: &str = "-c";
const POLICY: &str = "-p";
const ADDRESS: &str = "-d";
const PORTS: &str = "-P";
const NAME: &str = "--name";
const COMMENT: &str = "--comment";
const REQUIRE: &str = "--require";
const OWN: &str = "--own";
const ADVERTISE: &str = "--advertise";
const INTERVAL: &str = "--advertise-interval";
const FRAMING: &str = "--framing";
const SECURE: &str = "--secure";
const OPTION_NAMES: [&str; 14] = [
    ADD, DELETE, CHAIN, POLICY, ADDRESS, PORTS, NAME, COMMENT, REQUIRE, OWN, ADVERTISE, INTERVAL, FRAMING,
    SECURE,
];
/// Options that take no value.
const SWITCHES: [&str; 4] = [ADD, DELETE, REQUIRE, OWN];

#[derive(Default)]
struct Fields {
    action: Option<Action>,
    chain: Option<Chain>,
    policy: Option<Policy>,
    rule: Rule,
}

impl RuleLine {
    /// Parses a line, including its quotes. Returns `None` if the line is empty or contains only a comment (`# ...`).
    ///
    /// # Errors
    /// Fails if the line is not a complete rule.
    pub fn parse(line: &str) -> Result<Option<RuleLine>, LineError> {
        let words = split(line)?;
        if words.is_empty() {
            return Ok(None);
        }
        let mut fields = Fields::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            fields.take(&word, &mut words)?;
        }
        fields.finish().map(Some)
    }

    /// Prints the line in a form that can be parsed back into the same line.
    pub fn print(&self) -> String {
        let action = match self.action {
            Action::Add => ADD,
            Action::Delete => DELETE,
        };
        let spec = print_rule(&self.rule);
        let space = if spec.is_empty() { "" } else { " " };
        format!("{action} {CHAIN} {} {POLICY} {}{space}{spec}", self.chain, self.policy)
    }
}

impl Fields {
    fn take(&mut self, word: &str, rest: &mut impl Iterator<Item = String>) -> Result<(), LineError> {
        let (option, glued) =
            split_option(word).ok_or_else(|| LineError::UnknownOption { word: word.into() })?;
        let mut value = || glued.map(String::from).or_else(|| rest.next()).ok_or(LineError::NoValue(option));
        match option {
            ADD => put(&mut self.action, option, Action::Add),
            DELETE => put(&mut self.action, option, Action::Delete),
            CHAIN => put(&mut self.chain, option, value()?.parse::<Chain>()?),
            POLICY => put(&mut self.policy, option, value()?.parse::<Policy>()?),
            ADDRESS => put(&mut self.rule.address, option, value()?.parse::<IpNet>()?),
            PORTS => put(&mut self.rule.ports, option, value()?.parse::<PortRange>()?),
            REQUIRE if self.rule.require => Err(LineError::Twice(option)),
            REQUIRE => {
                self.rule.require = true;
                Ok(())
            }
            OWN if self.rule.own => Err(LineError::Twice(option)),
            OWN => {
                self.rule.own = true;
                Ok(())
            }
            ADVERTISE => put(&mut self.rule.advertise, option, value()?.parse::<Advertise>()?),
            INTERVAL => {
                put(&mut self.rule.advertise_interval, option, value()?.parse::<AdvertiseInterval>()?)
            }
            FRAMING => put(&mut self.rule.framing, option, value()?.parse::<Framing>()?),
            SECURE => put(&mut self.rule.secure, option, value()?.parse::<Secure>()?),
            NAME => put(&mut self.rule.name, option, value()?),
            _ => put(&mut self.rule.comment, option, value()?),
        }
    }

    fn finish(self) -> Result<RuleLine, LineError> {
        self.rule.check()?;
        Ok(RuleLine {
            action: self.action.ok_or(LineError::Missing(ADD))?,
            chain: self.chain.ok_or(LineError::Missing(CHAIN))?,
            policy: self.policy.ok_or(LineError::Missing(POLICY))?,
            rule: self.rule,
        })
    }
}

fn put<T>(slot: &mut Option<T>, option: &'static str, value: T) -> Result<(), LineError> {
    match slot.replace(value) {
        Some(_) => Err(LineError::Twice(option)),
        None => Ok(()),
    }
}

/// Splits a word into an option and the value that is attached to it, if any (`-cremote`, `--name=ssh`).
fn split_option(word: &str) -> Option<(&'static str, Option<&str>)> {
    OPTION_NAMES.into_iter().find_map(|option| {
        let rest = word.strip_prefix(option)?;
        match rest {
            "" => Some((option, None)),
            _ if SWITCHES.contains(&option) => None,
            _ if option.starts_with("--") => rest.strip_prefix('=').map(|value| (option, Some(value))),
            _ => Some((option, Some(rest))),
        }
    })
}

/// Splits a line into words. Spaces outside quotes separate words. In double quotes, the character after `\` is taken
/// literally. `#` at the start of a word begins a comment.
fn split(line: &str) -> Result<Vec<String>, LineError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '#' if word.is_none() => break,
            '"' | '\'' => read_quoted(letter, &mut letters, word.get_or_insert_default())?,
            _ if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

fn read_quoted(
    quote: char,
    letters: &mut impl Iterator<Item = char>,
    word: &mut String,
) -> Result<(), LineError> {
    while let Some(letter) = letters.next() {
        match letter {
            _ if letter == quote => return Ok(()),
            '\\' if quote == '"' => word.push(letters.next().ok_or(LineError::OpenQuote(quote))?),
            _ => word.push(letter),
        }
    }
    Err(LineError::OpenQuote(quote))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/+@%=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Prints a rule without its chain and policy. The result is empty if the rule matches every connection and has no further
/// property.
pub fn print_rule(rule: &Rule) -> String {
    let mut parts = Vec::new();
    parts.extend(rule.address.map(|a| format!("{ADDRESS} {a}")));
    parts.extend(rule.ports.map(|p| format!("{PORTS} {p}")));
    parts.extend(rule.require.then(|| REQUIRE.to_owned()));
    parts.extend(rule.own.then(|| OWN.to_owned()));
    parts.extend(rule.advertise.map(|form| format!("{ADVERTISE} {form}")));
    parts.extend(rule.advertise_interval.map(|ms| format!("{INTERVAL} {ms}")));
    parts.extend(rule.framing.map(|framing| format!("{FRAMING} {framing}")));
    parts.extend(rule.secure.as_ref().map(|secure| format!("{SECURE} {}", quoted(&secure.to_string()))));
    parts.extend(rule.name.as_deref().map(|n| format!("{NAME} {}", quoted(n))));
    parts.extend(rule.comment.as_deref().map(|c| format!("{COMMENT} {}", quoted(c))));
    parts.join(" ")
}

/// Prints the table without the rules of the configuration file, one line per rule. Within each chain, the lines have the order in which
/// rules are searched.
pub fn print_table(table: &RulesTable) -> String {
    table.list(None, None).filter(|found| !found.is_declared).fold(String::new(), |mut text, r| {
        let line =
            RuleLine { action: Action::Add, chain: r.chain, policy: r.policy, rule: Rule::clone(r.rule) };
        let _ = writeln!(text, "{}", line.print());
        text
    })
}

/// Parses a table from the lines that [`print_table`] prints. Empty lines and comments may occur between the lines.
///
/// # Errors
/// Returns the number of the first faulty line (from 1), and its fault.
pub fn parse_table(text: &str) -> Result<RulesTable, (usize, LineError)> {
    let mut table = RulesTable::default();
    for (i, line) in text.lines().enumerate() {
        add_line(&mut table, line).map_err(|e| (i + 1, e))?;
    }
    Ok(table)
}

fn add_line(table: &mut RulesTable, line: &str) -> Result<(), LineError> {
    let Some(line) = RuleLine::parse(line)? else { return Ok(()) };
    if line.action != Action::Add {
        return Err(LineError::NotAdd);
    }
    match table.add(line.chain, line.policy, line.rule)? {
        Added::New(_) => Ok(()),
        Added::Same(number) | Added::Renamed(number) => Err(LineError::Doubled(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> RuleLine {
        RuleLine::parse(line).expect(line).expect("a rule")
    }

    #[test]
    fn the_papers_glued_form_and_the_spaced_form_mean_the_same() {
        let spaced = parse("-A -c remote -p enable -d 10.1.2.0/24 -P 22 --name x --comment \"two words\"");
        let glued = parse("-A -cremote -penable -d10.1.2.0/24 -P22 --name=x --comment='two words'");
        assert_eq!(spaced, glued);
        assert_eq!(spaced.rule.comment.as_deref(), Some("two words"));
    }

    #[test]
    fn a_line_prints_in_one_canonical_form() {
        let line = parse("-p disable   -P 1-1024 -c local -D -d ::ffff:10.1.2.9/120");
        assert_eq!(line.print(), "-D -c local -p disable -d 10.1.2.0/24 -P 1:1024");
    }

    #[test]
    fn the_peer_that_a_rule_requires_reads_back() {
        let line = parse("-A -c remote -p enable -P 22 --secure 'require=the other host'");
        assert_eq!(line.print(), "-A -c remote -p enable -P 22 --secure \"require=the other host\"");
        assert_eq!(parse(&line.print()), line);
        assert_eq!(
            parse("-A -c remote -p enable --secure=require=beta").rule.secure.unwrap().peer(),
            Some("beta")
        );
        let refused = |line: &str| parse_table(line).unwrap_err().1;
        assert_eq!(refused("-A -c remote -p disable --secure try"), TableError::SecureElsewhere.into());
        assert_eq!(refused("-A -c local -p enable --secure try"), TableError::SecureLocal.into());
        assert!(parse_table("-A -c local -p enable --secure require").is_ok());
    }

    #[test]
    fn a_wildcard_rule_needs_only_chain_and_policy() {
        assert_eq!(parse("-A -c local -p enable").rule, Rule::default());
        assert_eq!(parse("-A -c local -p enable").print(), "-A -c local -p enable");
    }

    #[test]
    fn comments_and_empty_lines_are_no_rules() {
        assert_eq!(RuleLine::parse("   # all of ssh"), Ok(None));
        assert_eq!(RuleLine::parse(""), Ok(None));
        assert_eq!(parse("-A -c local -p enable -P 22 # ssh").rule.comment, None);
    }

    #[test]
    fn errors_name_the_word_that_is_wrong() {
        let text = |line: &str| RuleLine::parse(line).unwrap_err().to_string();
        assert_eq!(text("-A -c remote"), LineError::Missing("-p").to_string());
        assert_eq!(text("-A -c remote -c local -p enable"), "`-c` is given twice");
        assert_eq!(text("-A -c remote -p enable -P"), "`-P` needs a value after it");
        assert_eq!(
            text("-A -c remote -p enable --coment x"),
            "unknown option `--coment`; did you mean `--comment`?"
        );
        assert_eq!(text("-A -c remote -p enable --name \"x"), "the quote \" is not closed");
    }

    #[test]
    fn a_table_error_names_its_line() {
        let text = "# rules\n-A -c local -p enable -P 22\n\n-A -c local -p maybe\n";
        assert!(matches!(parse_table(text), Err((4, LineError::Word(_)))));
        let doubled = "-A -c local -p enable -P 22\n-A -c local -p enable -P 22\n";
        assert_eq!(parse_table(doubled).unwrap_err(), (2, LineError::Doubled(1)));
        assert_eq!(parse_table("-D -c local -p enable").unwrap_err(), (1, LineError::NotAdd));
    }
}
