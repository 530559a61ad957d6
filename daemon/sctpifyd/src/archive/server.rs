//! The supervisor's end of the connection to the worker. All received data may come from an intruder.
//!
//! A separate thread reads and writes files. Handshakes therefore do not wait for a disk, unless more than [`WAITING_MAX`] questions about
//! files wait.

use std::io::BufReader;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};

use control::DaemonArgs;
use keying::{HANDSHAKE_CONTENT_MAX, HostKey, KeyFileError, sign_handshake};
use rules::find_setting;

use super::ArchiveError;
use super::files::Files;
use super::words::{Answer, Ask, Outcome, QUESTION_MAX, Question};

/// Limit on waiting questions about files. Each thread of the worker asks one such question at a time.
const WAITING_MAX: usize = 4;

/// Answers requests until the worker exits. An invalid request closes the connection, which stops the worker.
pub(crate) fn serve(stream: &UnixStream, args: &DaemonArgs, key: &Result<HostKey, KeyFileError>) {
    let to = Mutex::new(stream);
    let (about_files, questions) = sync_channel(WAITING_MAX);
    std::thread::scope(|scope| {
        let started = std::thread::Builder::new().name("disk".to_owned()).spawn_scoped(scope, || {
            answer_about_files(&Files::new(args), questions, &to);
        });
        if let Err(error) = started {
            return tracing::error!(%error, "cannot start a thread; the worker must stop");
        }
        let mut from = BufReader::new(stream);
        loop {
            let question: Question = match ops::read_body(&mut from, QUESTION_MAX) {
                Ok(Some(question)) => question,
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "the worker sent an invalid request, and must stop");
                    break;
                }
            };
            let goes_on = match question.ask {
                Ask::HostKey | Ask::Sign { .. } => {
                    send(&to, question.number, answer_about_key(key, question.ask))
                }
                _ => about_files.send(question).is_ok(),
            };
            if !goes_on {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
        drop(about_files);
    });
}

/// Answers questions about files until the sender closes.
fn answer_about_files(files: &Files, questions: Receiver<Question>, to: &Mutex<&UnixStream>) {
    for question in questions {
        if !send(to, question.number, answer(files, question.ask)) {
            return;
        }
    }
}

/// Sends an answer; reports whether the connection still works.
fn send(to: &Mutex<&UnixStream>, number: u64, outcome: Result<Outcome, ArchiveError>) -> bool {
    let outcome = outcome.unwrap_or_else(|error| match error {
        ArchiveError::Refused(text) => Outcome::Refused(text),
        ArchiveError::Failed(text) => Outcome::Failed(text),
    });
    let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
    ops::write_line(&mut *to, &Answer { number, outcome }).is_ok()
}

fn answer_about_key(key: &Result<HostKey, KeyFileError>, ask: Ask) -> Result<Outcome, ArchiveError> {
    let key = key.as_ref().map_err(|error| ArchiveError::Failed(error.to_string()))?;
    match ask {
        Ask::Sign { content } if content.len() <= HANDSHAKE_CONTENT_MAX => sign_handshake(key, &content)
            .map(Outcome::Signed)
            .ok_or_else(|| ArchiveError::Refused("only handshakes of TLS 1.3 are signed".to_owned())),
        Ask::HostKey => {
            let text = key.public().to_string().parse();
            text.map(Outcome::HostKey).map_err(|error| ArchiveError::Failed(format!("{error}")))
        }
        _ => Err(ArchiveError::Refused("no question about the host's key".to_owned())),
    }
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
        Ask::Traffic { text } => {
            let (table, problem) = control::parse_traffic(&text);
            if let Some(problem) = problem {
                return Err(refused(format!("traffic of links: {problem}")));
            }
            files.save_traffic(&table)?;
        }
        Ask::History { text } => {
            let (links, problem) = control::parse_history(&text);
            if let Some(problem) = problem {
                return Err(refused(format!("history of links: {problem}")));
            }
            files.save_history(&links)?;
        }
        Ask::Peers { text } => {
            let peers =
                control::parse_peers(&text).map_err(|error| refused(format!("known peers: {error}")))?;
            files.save_peers(peers.iter())?;
        }
        Ask::HostKey | Ask::Sign { .. } => return Err(refused("no question about files".to_owned())),
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
    use control::{KnownPeers, LinkHistories, LinkReading};
    use keying::IdentityError;
    use rules::{Chain, Failure, LearnPolicy, LearnedTable, Policy, Rule, RulesTable, Settings};

    use super::*;
    use crate::archive::Archive;
    use crate::archive::line::Line;
    use crate::clock::today;

    /// The supervisor's directory of files, and the worker's archive.
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

    fn no_key(error: IdentityError) -> KeyFileError {
        KeyFileError::Key { path: "host.key".into(), error }
    }

    impl Pair {
        fn new() -> Pair {
            let dir = tempfile::tempdir().expect("a directory");
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let args = args_in(dir.path());
            fs::create_dir(&args.state_dir).expect("made");
            let key = HostKey::load_or_create(&args.host_key_file());
            std::thread::spawn(move || serve(&ours, &args, &key));
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
    fn the_worker_cannot_change_settings_of_confinement_keys_and_stores() {
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
            ("encryption", "off"),
            ("metrics_listen", "0.0.0.0:9100"),
            ("metrics_token", "/etc/shadow"),
        ] {
            let refusal = pair.set(name, value).expect_err(name);
            assert!(
                matches!(&refusal, ArchiveError::Refused(text) if text.contains("changed only by root")),
                "{refusal}"
            );
        }
        // The setting's name as a sysctl, which the papers about the shim use, is refused, too.
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let args = args_in(pair.dir.path());
        std::thread::spawn(move || serve(&ours, &args, &HostKey::generate().map_err(no_key)));
        let ask = Ask::Set { name: "net.inet.sctp.shim.confine_files".into(), value: "0".into() };
        ops::write_line(&mut theirs, &Question { number: 1, ask }).expect("asked");
        let mut told = String::new();
        BufReader::new(&theirs).read_line(&mut told).expect("told");
        assert!(told.contains("refused"), "{told}");
        assert_eq!(pair.config(), None, "nothing was written");
    }

    #[test]
    fn invalid_values_and_rules_are_not_written() {
        let pair = Pair::new();
        pair.set("udp_port", "0\nconfine_files = 0").expect_err("no port");
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let args = args_in(pair.dir.path());
        std::thread::spawn(move || serve(&ours, &args, &HostKey::generate().map_err(no_key)));
        let ask = Ask::Rules { text: "-A -c local -p enable\nnonsense\n".into() };
        ops::write_line(&mut theirs, &Question { number: 7, ask }).expect("asked");
        let mut told = String::new();
        BufReader::new(&theirs).read_line(&mut told).expect("told");
        assert!(told.contains("refused") && told.contains("\"number\":7"), "{told}");
        assert_eq!(pair.config(), None);
        assert!(!pair.dir.path().join("state/rules").exists());
    }

    #[test]
    fn an_unknown_request_ends_the_session() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let args = args_in(dir.path());
        let served = std::thread::spawn(move || serve(&ours, &args, &HostKey::generate().map_err(no_key)));
        theirs
            .write_all(b"{\"schema\":1,\"number\":1,\"ask\":{\"open\":\"/etc/shadow\"}}\n")
            .expect("written");
        served.join().expect("it ends");
        let mut rest = String::new();
        assert_eq!(BufReader::new(&theirs).read_line(&mut rest).expect("the end"), 0, "{rest}");
    }

    /// Returns the content that a handshake signs.
    fn handshake() -> Vec<u8> {
        [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[7; 32]].concat()
    }

    #[test]
    fn the_supervisor_signs_handshakes_and_nothing_else() {
        let pair = Pair::new();
        let signer = pair.archive.signer(&args_in(pair.dir.path()));
        let key = HostKey::load_or_create(&pair.dir.path().join("state/host.key")).expect("its key");
        assert_eq!(signer.public(), Ok(key.public()));
        assert_eq!(signer.sign(&handshake()), Ok(key.sign(&handshake())));
        for wrong in [&b"ssh-connection"[..], &handshake()[1..], &[b' '; 4096]] {
            assert!(matches!(signer.sign(wrong), Err(ArchiveError::Refused(_))), "{wrong:?}");
        }
        assert_eq!(signer.public(), Ok(key.public()), "it goes on");
    }

    #[test]
    fn several_threads_may_ask_at_once() {
        let pair = Pair::new();
        let signer = pair.archive.signer(&args_in(pair.dir.path()));
        let signature = signer.sign(&handshake()).expect("signed");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (signer, expected) = (signer.clone(), signature.clone());
                scope.spawn(move || {
                    (0..50).for_each(|_| assert_eq!(signer.sign(&handshake()).as_ref(), Ok(&expected)));
                });
            }
            (0..20).for_each(|_| pair.set("race_timer_ms", "200").expect("set"));
        });
    }

    #[test]
    fn the_history_of_links_is_written_and_a_damaged_one_is_not() {
        let pair = Pair::new();
        let path = pair.dir.path().join("state/history");
        let mut links = LinkHistories::default();
        let reading = LinkReading {
            peer: [192, 0, 2, 1].into(),
            interface: Some("eth1".into()),
            name: None,
            is_live: true,
            srtt_us: None,
            sent_bytes: 7,
            received_bytes: 9,
        };
        links.note(today(), &[reading]);
        pair.archive.save_history(&links).expect("saved");
        assert_eq!(control::load_history(&path).0.iter().count(), 1);
        let text = control::print_history(&links).expect("a text").replace("eth1", &"e".repeat(1000));
        let Archive::Asked(line) = &pair.archive else { unreachable!("a supervisor writes") };
        line.tell(Ask::History { text }).expect_err("an overlong name");
        assert_eq!(control::load_history(&path).0.iter().count(), 1);
    }

    #[test]
    fn known_peers_are_written_and_wrong_ones_are_not() {
        let pair = Pair::new();
        let path = pair.dir.path().join("state/peers");
        let key = HostKey::generate().expect("a key").public().to_string().parse().expect("its text");
        let mut peers = KnownPeers::default();
        peers.meet(today(), [192, 0, 2, 1].into(), &key);
        pair.archive.merge_peers(&peers, &KnownPeers::default()).expect("saved");
        assert_eq!(control::load_peers(&path).expect("loaded").iter().len(), 1);
        let text = control::print_peers(peers.iter().chain(peers.iter())).expect("a text");
        let Archive::Asked(line) = &pair.archive else { unreachable!("a supervisor writes") };
        line.tell(Ask::Peers { text }).expect_err("two peers with one key");
        assert_eq!(control::load_peers(&path).expect("loaded").iter().len(), 1);
    }
}
