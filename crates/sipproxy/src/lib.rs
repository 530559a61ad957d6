//! A SIP proxy and registrar: the core of `sip` with sockets, a clock and a store around it. And a user agent (`ua`).
//!
//! One thread, one loop ([`run`], `server`). Each transport is a plug-in behind one interface (`transport::Plugin`), as in
//! the thesis that added SCTP to Partysip (docs/sip.md has its functions beside ours). Decides nothing of SIP.
//! Invariant: a binding is in the store before the answer that promises it is sent.

#![forbid(unsafe_code)]

mod args;
mod clock;
mod config;
mod control_socket;
mod error;
mod report;
mod server;
mod store;
mod transport;
mod ua;

pub use args::{Ask, Command, SipArgs};
pub use error::SipError;
pub use ua::{UaArgs, run as run_ua};

use clap::CommandFactory;

/// Does what the command line says; returns when the proxy was told to stop.
///
/// # Errors
/// When the configuration is wrong, or an address or the store cannot be opened.
pub fn run(args: &SipArgs) -> Result<(), SipError> {
    if args.man {
        let page = clap_mangen::Man::new(SipArgs::command()).section("8").manual("sctpify");
        return page.render(&mut std::io::stdout()).map_err(SipError::system("write the manual page"));
    }
    if let Some(command) = &args.command {
        return show(command);
    }
    let config = config::Config::read(&args.config)?;
    if args.check {
        println!("{}: good", args.config.display());
        return Ok(());
    }
    let filter = tracing_subscriber::EnvFilter::new(&args.log);
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    server::Server::open(config, &args.config)?.run()
}

/// Asks a running proxy and prints what it answers.
fn show(command: &Command) -> Result<(), SipError> {
    let (question, how) = match command {
        Command::Status(how) => (control_socket::Question::Status, how),
        Command::Contacts(how) => (control_socket::Question::Contacts, how),
    };
    let answer = control_socket::ask(&how.control, question)?;
    let text = if how.json {
        let line = serde_json::to_string(&answer).map_err(std::io::Error::other);
        line.map_err(SipError::system("write JSON"))? + "\n"
    } else {
        answer.to_text()
    };
    std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()).map_err(SipError::system("print"))
}
