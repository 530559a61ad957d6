//! Answers the requests about rules and settings, and keeps both on disk.

use std::path::PathBuf;

use rules::{Chain, Policy, Rule, Rulebook, SETTINGS, Settings, find_setting};

use crate::{DefaultPolicy, Done, ErrorCode, FileError, Request, Response, RuleSelector, RulesReport};
use crate::{SettingsReport, load_config, load_rules, save_rules, save_setting};

/// The files behind a [`Rulebook`], and the answers to the requests about it.
///
/// Invariant: what holds in the rulebook after an answer is on disk; when a file cannot be written the rulebook is
/// unchanged and the answer says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulesKeeper {
    /// The configuration file.
    pub config: PathBuf,
    /// The rules file.
    pub rules_file: PathBuf,
}

/// An order that was not carried out, as the answer to it.
type Refused = Box<Response>;

impl RulesKeeper {
    /// Reads both files.
    ///
    /// # Errors
    /// When one cannot be read or is wrong; the text names file and line.
    pub fn load(&self) -> Result<Rulebook, FileError> {
        Ok(Rulebook::new(load_config(&self.config)?, load_rules(&self.rules_file)?))
    }

    /// Answers a request about rules or settings; `None` if it is about something else.
    pub fn answer(&self, book: &mut Rulebook, request: &Request) -> Option<Response> {
        let answer = match request {
            Request::Settings => Ok(Response::Settings(SettingsReport::all(&book.settings))),
            Request::Get { name } => get(book, name),
            Request::Set { name, value } => self.set(book, name, value),
            Request::RulesAdd { chain, policy, rule } => self.add(book, *chain, *policy, rule),
            Request::RulesDelete { chain, policy, which } => self.delete(book, *chain, *policy, which),
            Request::RulesList { chain, policy } => {
                Ok(Response::Rules(RulesReport::new(book, *chain, *policy)))
            }
            Request::RulesFlush => self.flush(book),
            Request::DefaultGet { chain } => Ok(Response::DefaultPolicy(DefaultPolicy::of(book, *chain))),
            Request::DefaultSet { chain, policy } => self.set_default(book, *chain, *policy),
            Request::Reload => self.reload(book),
            Request::Status | Request::Paths | Request::Explain { .. } => return None,
            Request::Shutdown | Request::Doctor { .. } => return None,
        };
        Some(answer.unwrap_or_else(|refused| *refused))
    }

    fn set(&self, book: &mut Rulebook, name: &str, value: &str) -> Result<Response, Refused> {
        let mut settings = book.settings.clone();
        let setting = settings.set(name, value).map_err(refused)?;
        save_setting(&self.config, setting.name, value).map_err(failed)?;
        book.settings = settings;
        Ok(Response::Settings(SettingsReport::one(setting, &book.settings)))
    }

    fn set_default(&self, book: &mut Rulebook, chain: Chain, policy: Policy) -> Result<Response, Refused> {
        let value = if policy.is_enable() { "1" } else { "0" };
        self.set(book, Rulebook::default_setting(chain), value)?;
        Ok(Response::DefaultPolicy(DefaultPolicy::of(book, chain)))
    }

    fn add(
        &self,
        book: &mut Rulebook,
        chain: Chain,
        policy: Policy,
        rule: &Rule,
    ) -> Result<Response, Refused> {
        let mut table = book.table.clone();
        let added = table.add(chain, policy, rule.clone()).map_err(refused)?;
        save_rules(&self.rules_file, &table).map_err(failed)?;
        book.table = table;
        let message = match added {
            rules::Added::New(number) => format!("rule {number} of {chain}-{policy} added"),
            rules::Added::Same(number) => format!("it stands already: rule {number} of {chain}-{policy}"),
            rules::Added::Renamed(number) => {
                format!(
                    "rule {number} of {chain}-{policy} has the same match and took the new name and comment"
                )
            }
        };
        Ok(Response::Done(Done { added: Some(added.into()), ..Done::new(message) }))
    }

    fn delete(
        &self,
        book: &mut Rulebook,
        chain: Chain,
        policy: Policy,
        which: &RuleSelector,
    ) -> Result<Response, Refused> {
        let mut table = book.table.clone();
        let rule = match which {
            RuleSelector::Number(number) => table.delete_number(chain, policy, *number),
            RuleSelector::Match(rule) => table.delete(chain, policy, rule),
        };
        let text = rules::print_rule(&rule.map_err(refused)?);
        save_rules(&self.rules_file, &table).map_err(failed)?;
        book.table = table;
        let text = if text.is_empty() { "everything" } else { &text };
        let message = format!("deleted from {chain}-{policy}: {text}");
        Ok(Response::Done(Done { removed: Some(1), ..Done::new(message) }))
    }

    fn flush(&self, book: &mut Rulebook) -> Result<Response, Refused> {
        let mut table = book.table.clone();
        let removed = table.flush(None, None);
        save_rules(&self.rules_file, &table).map_err(failed)?;
        book.table = table;
        let message = format!("{removed} {} deleted", if removed == 1 { "rule" } else { "rules" });
        Ok(Response::Done(Done { removed: Some(removed), ..Done::new(message) }))
    }

    fn reload(&self, book: &mut Rulebook) -> Result<Response, Refused> {
        let mut new = self.load().map_err(failed)?;
        new.table.keep_hits_of(&book.table);
        let waiting = waiting_for_restart(&book.settings, &new.settings);
        book.settings = new.settings;
        book.table = new.table;
        let rules = book.table.len();
        let message =
            format!("read {} and {} ({rules} rules)", self.config.display(), self.rules_file.display());
        let later = if waiting.is_empty() { "" } else { "; at the next start changes: " };
        Ok(Response::Done(Done::new(format!("{message}{later}{}", waiting.join(", ")))))
    }
}

fn get(book: &Rulebook, name: &str) -> Result<Response, Refused> {
    let setting = find_setting(name).map_err(refused)?;
    Ok(Response::Settings(SettingsReport::one(setting, &book.settings)))
}

fn waiting_for_restart(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let changed = SETTINGS.iter().filter(|s| s.needs_restart && s.value(old) != s.value(new));
    changed.map(|s| s.name).collect()
}

fn refused(error: impl ToString) -> Refused {
    Box::new(Response::error(ErrorCode::Refused, error.to_string()))
}

fn failed(error: FileError) -> Refused {
    Box::new(Response::error(ErrorCode::Failed, format!("nothing was changed: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    fn keeper() -> (RulesKeeper, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let keeper = RulesKeeper {
            config: dir.path().join("etc/sctpify.toml"),
            rules_file: dir.path().join("lib/rules"),
        };
        (keeper, dir)
    }

    fn add(ports: &str) -> Request {
        let rule = Rule { ports: Some(ports.parse().unwrap()), ..Rule::default() };
        Request::RulesAdd { chain: Chain::Remote, policy: Policy::Enable, rule }
    }

    #[test]
    fn what_was_ordered_holds_now_and_after_a_restart() {
        let (keeper, _dir) = keeper();
        let mut book = keeper.load().unwrap();
        let default = Request::DefaultSet { chain: Chain::Local, policy: Policy::Enable };
        for order in
            [add("22"), add("80"), Request::Set { name: "udp_port".into(), value: "9900".into() }, default]
        {
            assert!(!matches!(keeper.answer(&mut book, &order), Some(Response::Error(_))), "{order:?}");
        }
        assert_eq!((book.settings.udp_port, book.settings.default_local_enable), (9900, true));
        assert_eq!(book.table.len(), 2);
        assert_eq!(keeper.load().unwrap(), book);
    }

    #[test]
    fn an_order_that_cannot_be_saved_changes_nothing() {
        let (keeper, dir) = keeper();
        fs::write(dir.path().join("lib"), "a file where the directory should be").unwrap();
        let mut book = Rulebook::default();
        let answer = keeper.answer(&mut book, &add("22")).unwrap();
        assert!(matches!(answer, Response::Error(ref e) if e.code == ErrorCode::Failed), "{answer:?}");
        assert_eq!(book, Rulebook::default());
    }

    #[test]
    fn a_reload_keeps_hits_and_names_what_waits_for_a_restart() {
        let (keeper, _dir) = keeper();
        let mut book = keeper.load().unwrap();
        keeper.answer(&mut book, &add("22"));
        book.decide(Chain::Remote, "10.0.0.1".parse().unwrap(), 22);
        save_setting(&keeper.config, "carriers", "udp").unwrap();
        let Some(Response::Done(done)) = keeper.answer(&mut book, &Request::Reload) else {
            panic!("not done")
        };
        assert!(done.message.ends_with("(1 rules); at the next start changes: carriers"), "{}", done.message);
        assert_eq!(book.table.list(None, None).next().unwrap().hits, 1);
    }

    #[test]
    fn a_reload_of_a_wrong_file_changes_nothing_and_names_the_line() {
        let (keeper, dir) = keeper();
        let mut book = keeper.load().unwrap();
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(&keeper.config, "enable = true\nudp_prt = 1\n").unwrap();
        let before = book.clone();
        let Some(Response::Error(e)) = keeper.answer(&mut book, &Request::Reload) else { panic!("no error") };
        assert!(
            e.message.contains("line 2: unknown key `udp_prt`; did you mean `udp_port`?"),
            "{}",
            e.message
        );
        assert_eq!(book, before);
    }

    #[test]
    fn requests_about_other_things_are_left_to_the_daemon() {
        let (keeper, _dir) = keeper();
        assert_eq!(keeper.answer(&mut Rulebook::default(), &Request::Status), None);
        assert_eq!(keeper.answer(&mut Rulebook::default(), &Request::Shutdown), None);
    }
}
