//! The supervisor's end. Everything it receives may have been written by an intruder.

use std::io::BufReader;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use control::DaemonArgs;
use rules::find_setting;

use super::ArchiveError;
use super::files::Files;
use super::words::{Answer, Ask, Outcome, QUESTION_MAX, Question};

/// Answers until the worker exits. After an invalid request it closes the connection, which stops the worker.
pub(crate) fn serve(stream: &UnixStream, args: &DaemonArgs) {
    let (files, mut from, mut to) = (Files::new(args), BufReader::new(stream), stream);
    loop {
        let question: Question = match ops::read_body(&mut from, QUESTION_MAX) {
            Ok(Some(question)) => question,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, "the worker sent an invalid request, and must stop");
                break;
            }
        };
        let outcome = answer(&files, question.ask).unwrap_or_else(|error| match error {
            ArchiveError::Refused(text) => Outcome::Refused(text),
            ArchiveError::Failed(text) => Outcome::Failed(text),
        });
        if ops::write_line(&mut to, &Answer { number: question.number, outcome }).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn answer(files: &Files, ask: Ask) -> Result<Outcome, ArchiveError> {
    let refused = ArchiveError::Refused;
    match ask {
        Ask::Set { name, value } => {
            let setting = find_setting(&name).map_err(|error| refused(error.to_string()))?;
            if setting.is_roots() {
                return Err(refused(format!(
                    "{} may be changed only by root, and the running daemon does not write it: use `sctpify set` of this \
                     version, which writes the configuration file itself, or edit that file and `sctpify reload`",
                    setting.name
                )));
            }
            files.set(setting.name, &value)?;
        }
        Ask::Rules { text } => {
            let table = rules::parse_table(&text);
            let table = table.map_err(|(line, error)| refused(format!("rules, line {line}: {error}")))?;
            files.save_rules(&table)?;
        }
        Ask::Learned { text } => {
            let (table, problem) = control::parse_learned(&text);
            if let Some(problem) = problem {
                return Err(refused(format!("learned table: {problem}")));
            }
            files.save_learned(table.iter())?;
        }
        Ask::Load => {
            let (settings, table, keys) = files.texts()?;
            let (config, rules) = (control::print_config(&settings), rules::print_table(&table));
            return Ok(Outcome::Loaded { config, rules, keys });
        }
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, Write};
    use std::path::Path;

    use clap::Parser;
    use rules::{Chain, Failure, LearnPolicy, LearnedTable, Policy, Rule, RulesTable, Settings};

    use super::*;
    use crate::archive::Archive;
    use crate::archive::line::Line;
    use crate::clock::today;

    /// A supervisor's end with its own directory of files, and the worker's end.
    struct Pair {
        dir: tempfile::TempDir,
        archive: Archive,
    }

    fn args_in(dir: &Path) -> DaemonArgs {
        let (config, state) = (dir.join("etc/sctpify.toml"), dir.join("state"));
        let mut args = DaemonArgs::parse_from(["sctpifyd"]);
        (args.config, args.state_dir) = (config, state);
        args
    }

    impl Pair {
        fn new() -> Pair {
            let dir = tempfile::tempdir().expect("a directory");
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let args = args_in(dir.path());
            std::thread::spawn(move || serve(&ours, &args));
            let (line, listener) = Line::new(theirs).expect("a line");
            std::thread::spawn(move || listener.run());
            Pair { dir, archive: Archive::Asked(line.into()) }
        }

        fn config(&self) -> Option<String> {
            fs::read_to_string(self.dir.path().join("etc/sctpify.toml")).ok()
        }

        fn set(&self, name: &str, value: &str) -> Result<(), ArchiveError> {
            self.archive.set(find_setting(name).expect("a setting"), value)
        }
    }

    #[test]
    fn a_setting_and_rules_are_written_and_read_again() {
        let pair = Pair::new();
        pair.set("default_remote_enable", "1").expect("set");
        let mut table = RulesTable::default();
        table.add(Chain::Remote, Policy::Enable, Rule::default()).expect("a rule");
        pair.archive.save_rules(&table).expect("saved");
        let loaded = pair.archive.load().expect("loaded");
        assert_eq!((loaded.settings.default_remote_enable, loaded.table), (true, table));
    }

    #[test]
    fn a_learned_table_is_written() {
        let (pair, mut table) = (Pair::new(), LearnedTable::default());
        let to = ([192, 0, 2, 1], 22).into();
        table.on_failure(today(), to, Failure::NoAnswer, &LearnPolicy::of(&Settings::default()));
        pair.archive.save_learned(table.iter()).expect("saved");
        assert_eq!(control::load_learned(&pair.dir.path().join("state/learned")).0.len(), 1);
    }

    #[test]
    fn the_worker_cannot_set_free_its_successor() {
        let pair = Pair::new();
        for (name, value) in [
            ("confine_files", "0"),
            ("confine_capabilities", "0"),
            ("confine_system_calls", "0"),
            ("worker_user", "root"),
            ("peer_keys", "/etc/shadow"),
            ("peer_key_required", "0"),
            ("learned_store", "redis+unix:///run/docker.sock"),
            ("learned_store_roots", "/etc/shadow"),
        ] {
            let refusal = pair.set(name, value).expect_err(name);
            assert!(
                matches!(&refusal, ArchiveError::Refused(text) if text.contains("changed only by root")),
                "{refusal}"
            );
        }
        // Uses the setting's sysctl name from the papers.
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let args = args_in(pair.dir.path());
        std::thread::spawn(move || serve(&ours, &args));
        let ask = Ask::Set { name: "net.inet.sctp.shim.confine_files".into(), value: "0".into() };
        ops::write_line(&mut theirs, &Question { number: 1, ask }).expect("asked");
        let mut told = String::new();
        BufReader::new(&theirs).read_line(&mut told).expect("told");
        assert!(told.contains("refused"), "{told}");
        assert_eq!(pair.config(), None, "nothing was written");
    }

    #[test]
    fn what_is_no_value_or_no_rule_is_not_written() {
        let pair = Pair::new();
        pair.set("udp_port", "0\nconfine_files = 0").expect_err("no port");
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let args = args_in(pair.dir.path());
        std::thread::spawn(move || serve(&ours, &args));
        let ask = Ask::Rules { text: "-A -c local -p enable\nnonsense\n".into() };
        ops::write_line(&mut theirs, &Question { number: 7, ask }).expect("asked");
        let mut told = String::new();
        BufReader::new(&theirs).read_line(&mut told).expect("told");
        assert!(told.contains("refused") && told.contains("\"number\":7"), "{told}");
        assert_eq!(pair.config(), None);
        assert!(!pair.dir.path().join("state/rules").exists());
    }

    #[test]
    fn who_speaks_other_words_is_not_heard_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let args = args_in(dir.path());
        let served = std::thread::spawn(move || serve(&ours, &args));
        theirs
            .write_all(b"{\"schema\":1,\"number\":1,\"ask\":{\"open\":\"/etc/shadow\"}}\n")
            .expect("written");
        served.join().expect("it ends");
        let mut rest = String::new();
        assert_eq!(BufReader::new(&theirs).read_line(&mut rest).expect("the end"), 0, "{rest}");
    }
}
