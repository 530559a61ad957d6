//! Executes the commands of `sctpify`.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use control::Request;
use rules::normalise;

use crate::bench;
use crate::session::Session;
use crate::{
    CliError, Command, PeersCommand, Sctpify, WatchArgs, capture, daemon, demo, doctor, expose, live, man,
    pair, ping, rule, run, sctp, settings, show,
};

/// Runs one command and returns its exit status.
pub(crate) fn run(args: &Sctpify) -> Result<ExitCode, CliError> {
    let session = Session { control: &args.control, json: args.json };
    let outcome = match &args.command {
        Command::Up(up) => daemon::up(session, up),
        Command::Run(run) if run.sctp => return sctp::run(run),
        Command::Run(run) => return run::run(run),
        Command::ServeSockets(options) => sctp::serve(options),
        Command::Sctp => sctp::show(args.json),
        Command::Enter { uid, gid, command } => match run::enter(*uid, *gid, command)? {},
        Command::Down { drain, wait } => daemon::down(session, drain.then(|| Duration::from_secs(*wait))),
        Command::Status { markdown: true } => {
            let answer = session.ask(&Request::Status)?;
            session.print(&answer, show::markdown)
        }
        Command::Status { markdown: false } => ask_and_show(session, &Request::Status),
        Command::Top(watch) => live::top(session, rhythm(watch)),
        Command::Watch { events: true, rhythm: args } => live::events(session, rhythm(args)),
        Command::Watch { events: false, rhythm: args } => live::watch(session, rhythm(args)),
        Command::Paths { wide: false } => ask_and_show(session, &Request::Paths),
        Command::Paths { wide: true } => {
            let answer = session.ask(&Request::Paths)?;
            session.print(&answer, show::wide)
        }
        Command::History => ask_and_show(session, &Request::History),
        Command::Explain { destination } => explain(session, destination),
        Command::Demo => demo::run(),
        Command::Doctor { host } => doctor::run(session, host.as_deref()),
        Command::Ping { host, rhythm: args } => ping::run(session, host, rhythm(args)),
        Command::Bench(args) => match &args.host {
            Some(host) => bench::run(session, host, args),
            None if args.serve => bench::serve(session, args.port, args.duration),
            None => Err(CliError::Usage("give a HOST to measure with, or --serve".to_owned())),
        },
        Command::Capture { output, seconds } => capture::run(session, output, *seconds),
        Command::Expose { listener } => expose::run(session, listener),
        Command::Set { assignments, config } => settings::set(session, assignments, config),
        Command::Get { name, config } => settings::get(session, name.as_deref(), config),
        Command::Forget { host } => forget(session, host),
        Command::Rule { command } => rule::run(session, command),
        Command::Key => ask_and_show(session, &Request::HostKey),
        Command::Pair { host, words, name } => pair::run(session, host, words.as_deref(), name.clone()),
        Command::Peers { command: None } => ask_and_show(session, &Request::Peers),
        Command::Peers { command: Some(PeersCommand::Add { key, addresses, name }) } => {
            let (key, name, addresses) = (key.clone(), name.clone(), addresses.clone());
            ask_and_show(session, &Request::PeersAdd { key, name, addresses })
        }
        Command::Peers { command: Some(PeersCommand::Forget { which }) } => {
            ask_and_show(session, &Request::PeersForget { which: which.clone() })
        }
        Command::Reload => ask_and_show(session, &Request::Reload),
        Command::Config { command } => settings::config(session, command),
        Command::Docs(docs) => man::write(docs, &mut io::stdout().lock()),
    };
    outcome.map(|()| ExitCode::SUCCESS)
}

fn rhythm(args: &WatchArgs) -> live::Rhythm {
    live::Rhythm { interval_ms: args.interval, count: args.count }
}

/// Sends a request, and prints the answer.
pub(crate) fn ask_and_show(session: Session<'_>, request: &Request) -> Result<(), CliError> {
    let answer = session.ask(request)?;
    session.print(&answer, show::answer)
}

fn explain(session: Session<'_>, destination: &str) -> Result<(), CliError> {
    for address in resolve(destination)? {
        let answer =
            session.ask(&Request::Explain { address: normalise(address.ip()), port: address.port() });
        let answer = answer.map_err(|e| match e {
            CliError::NoDaemon(text) => {
                CliError::NoDaemon(format!("a connection to {address} is plain TCP: {text}"))
            }
            other => other,
        })?;
        session.print(&answer, show::answer)?;
    }
    Ok(())
}

/// Returns the addresses of HOST:PORT without duplicates.
pub(crate) fn resolve(destination: &str) -> Result<BTreeSet<SocketAddr>, CliError> {
    let form = || {
        let text = "give HOST:PORT, such as 10.1.2.3:22, [2001:db8::1]:22 or host.example:22";
        CliError::Usage(format!("invalid destination `{destination}`: {text}"))
    };
    let (host, port) = destination.rsplit_once(':').ok_or_else(form)?;
    port.parse::<u16>().map_err(|_| form())?;
    if host.contains(':') && !host.starts_with('[') {
        return Err(form());
    }
    let found = destination.to_socket_addrs();
    found
        .map(Iterator::collect)
        .map_err(|e| CliError::Failed(format!("cannot find the address of {host}: {e}")))
}

/// Returns the first address of a host.
pub(crate) fn resolve_host(host: &str) -> Result<IpAddr, CliError> {
    let first = addresses_of(host)?.next();
    first.ok_or_else(|| CliError::Failed(format!("{host} has no address")))
}

pub(crate) fn addresses_of(host: &str) -> Result<impl Iterator<Item = IpAddr>, CliError> {
    let has_port = |(name, port): (&str, &str)| {
        port.parse::<u16>().is_ok() && (!name.contains(':') || name.ends_with(']'))
    };
    if host.rsplit_once(':').is_some_and(has_port) {
        return Err(CliError::Usage(format!("`{host}` has a port: give the host alone")));
    }
    let found = (host.trim_matches(['[', ']']), 0).to_socket_addrs();
    let found = found.map_err(|e| CliError::Failed(format!("cannot find the address of {host}: {e}")))?;
    Ok(found.map(|address| normalise(address.ip())))
}

/// Asks the daemon to forget a host, with one request for each different address of the host.
fn forget(session: Session<'_>, host: &str) -> Result<(), CliError> {
    let addresses: BTreeSet<IpAddr> = addresses_of(host)?.collect();
    addresses.into_iter().try_for_each(|address| ask_and_show(session, &Request::Forget { address }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_needs_a_port_and_brackets_around_ipv6() {
        assert!(resolve("10.1.2.3:22").is_ok());
        assert!(resolve("[2001:db8::1]:22").is_ok());
        for wrong in ["10.1.2.3", "2001:db8::1", "10.1.2.3:ssh", "10.1.2.3:65536"] {
            assert!(matches!(resolve(wrong), Err(CliError::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn a_host_has_no_port_and_may_have_brackets() {
        for right in ["10.1.2.3", "2001:db8::1", "[2001:db8::1]", "::1"] {
            assert!(resolve_host(right).is_ok(), "{right}");
        }
        for wrong in ["10.1.2.3:22", "[2001:db8::1]:22", "localhost:22"] {
            assert!(matches!(resolve_host(wrong), Err(CliError::Usage(_))), "{wrong}");
        }
    }
}
