//! A SIP proxy and registrar, and a user agent (`ua`). This crate adds sockets, a clock and a store to the core `sip`.
//!
//! One thread runs one event loop ([`run`], `server`). Each transport is a plug-in behind one interface (`transport::Plugin`), as in the
//! thesis that added SCTP to Partysip. docs/sip.md compares the functions of this proxy and of the thesis's proxy. The core `sip` makes all
//! SIP decisions.
//!
//! Invariants:
//!
//! - A binding is in the store before the response that confirms it is sent.
//! - The loop never waits for a name server or for the server of a store.

#![forbid(unsafe_code)]

mod args;
mod clock;
mod config;
mod control_socket;
mod error;
mod hep;
mod lists;
mod page;
mod performance;
mod questions;
mod report;
mod resolver;
mod server;
mod stage;
mod store;
mod trace;
mod transport;
mod ua;
mod whole;
mod words;

pub use args::{Ask, Command, SipArgs, Trace};
pub use config::Secure;
pub use error::SipError;
pub use store::Sqlite;
pub use ua::{UaArgs, run as run_ua};

use std::io::IsTerminal;

use clap::CommandFactory;
use ops::Part;

use words::{Question, Wanted};

/// Executes the command line. Without a command, the proxy runs until a signal stops it.
///
/// # Errors
/// If the configuration is invalid, an address or the store cannot be opened, or a command fails.
pub fn run(args: &SipArgs) -> Result<(), SipError> {
    match &args.command {
        None => {}
        Some(Command::Key) => {
            let config = config::Config::read(&args.config)?;
            return print(format!("{}\n", transport::public_key(&config.sctp)?).as_bytes());
        }
        Some(command) => return show(command),
    }
    let config = config::Config::read(&args.config)?;
    if args.check {
        println!("{} is valid", args.config.display());
        return Ok(());
    }
    begin_log(&args.log);
    server::Server::open(config, &args.config)?.run()
}

/// Sends the log to standard error, in colour on a terminal.
fn begin_log(filter: &str) {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

fn print(text: &[u8]) -> Result<(), SipError> {
    std::io::Write::write_all(&mut std::io::stdout(), text).map_err(SipError::system("print"))
}

/// Executes a command. Most commands query a running proxy and print its answer.
fn show(command: &Command) -> Result<(), SipError> {
    let (question, how) = match command {
        Command::Status(how) => (Question::Status, how),
        Command::Performance(how) => (Question::Performance, how),
        Command::Contacts(how) => (Question::Contacts(Part::default()), how),
        Command::Dialogs(how) => (Question::Dialogs(Part::default()), how),
        Command::Connections(how) => (Question::Connections(Part::default()), how),
        Command::Trace(how) => return follow(how),
        Command::Key => return Ok(()),
        Command::Docs(docs) => {
            let programs = vec![SipArgs::command(), UaArgs::command()];
            let pages = [("sip-metrics.md", page::metrics_reference().into_bytes())];
            return Ok(docs.run(programs, &pages, &mut std::io::stdout())?);
        }
    };
    let (answer, _) = control_socket::ask(&how.socket.control, &question)?;
    let text = if how.json {
        let line = serde_json::to_string(&answer).map_err(std::io::Error::other);
        line.map_err(SipError::system("write JSON"))? + "\n"
    } else {
        answer.to_text()
    };
    print(text.as_bytes())
}

/// Copies messages from a running proxy to the chosen output, until the proxy stops or this program is interrupted.
fn follow(how: &Trace) -> Result<(), SipError> {
    let Trace { socket, method, user, call_id, peer, pcapng } = how.clone();
    let wanted = Wanted { pcapng: pcapng.is_some(), method, user, call_id, peer };
    let (_, mut from) = control_socket::ask(&socket.control, &Question::Trace(wanted))?;
    // Reading has no time limit, because messages may be rare.
    from.get_ref().set_read_timeout(None).map_err(SipError::system("wait for messages"))?;
    let mut to: Box<dyn std::io::Write> = match pcapng.filter(|path| path.as_os_str() != "-") {
        Some(path) => {
            Box::new(std::fs::File::create(path).map_err(SipError::system("create the pcapng file"))?)
        }
        None => Box::new(std::io::stdout()),
    };
    std::io::copy(&mut from, &mut to).map(drop).map_err(SipError::system("write messages"))
}
