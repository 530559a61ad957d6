//! `sctpify pair`: people compare words at both ends of an encrypted association, which shows that nobody is between its hosts.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;

use control::{Association, Encryption, HostKeyText, Request, Response};

use crate::commands::addresses_of;
use crate::session::{Session, unexpected};
use crate::{CliError, show};

/// Shows the words of the associations with the host, and pairs with it if those of the other end are among them.
pub(crate) fn run(
    session: Session<'_>,
    host: &str,
    words: Option<&str>,
    name: Option<String>,
) -> Result<(), CliError> {
    let found = associations(session, host)?;
    let typed = match words {
        Some(words) => words.to_lowercase(),
        None => ask(host, &found)?.to_lowercase(),
    };
    let is_between = |c: char| c.is_whitespace() || c == ',';
    let typed: Vec<&str> = typed.split(is_between).filter(|word| !word.is_empty()).collect();
    if typed.is_empty() {
        return Ok(());
    }
    let same = found.into_iter().find(|encryption| encryption.words == typed);
    let Some(same) = same else {
        return Err(CliError::Failed(format!(
            "no association with {host} has these words here: check them. If `sctpify pair` at {host} shows them for a connection that \
             still lives, somebody is between the hosts: do not trust the connection"
        )));
    };
    let answer = session.ask(&Request::PeersPair { key: same.peer, name })?;
    session.print(&answer, show::answer)
}

/// Returns the encryption of the live associations with a host; fails if there are none.
fn associations(session: Session<'_>, host: &str) -> Result<Vec<Encryption>, CliError> {
    let status = match session.ask(&Request::Status)? {
        Response::Status(status) => status,
        other => return Err(unexpected(&other)),
    };
    let is_named = |a: &Association| a.encryption.as_ref().is_some_and(|e| e.name.as_deref() == Some(host));
    let mut found: Vec<Association> = status.associations;
    if found.iter().any(is_named) {
        found.retain(is_named);
    } else {
        let addresses: BTreeSet<IpAddr> = addresses_of(host)?.collect();
        found.retain(|a| a.paths.iter().any(|path| addresses.contains(&path.remote)));
    }
    let keys: BTreeSet<&HostKeyText> =
        found.iter().filter_map(|a| Some(&a.encryption.as_ref()?.peer)).collect();
    let known = known_key(session, host)?;
    if keys.len() > 1 || known.as_ref().is_some_and(|known| keys.iter().any(|key| *key != known)) {
        let all: BTreeSet<String> = keys.into_iter().chain(&known).map(ToString::to_string).collect();
        return Err(CliError::Failed(format!(
            "cannot pair with {host}: more than one key is found there ({}), so somebody may be between the hosts in one direction",
            all.into_iter().collect::<Vec<_>>().join(", ")
        )));
    }
    let has_any = !found.is_empty();
    let mut encrypted: Vec<Encryption> = found.into_iter().filter_map(|a| a.encryption).collect();
    encrypted.retain(|encryption| !encryption.words.is_empty());
    if encrypted.is_empty() {
        let state = if has_any { "no association with it is encrypted" } else { "no connection to it lives" };
        return Err(CliError::Failed(format!(
            "cannot pair with {host}: {state}. Connect to it over SCTP, keep the connection, and run this at both ends"
        )));
    }
    Ok(encrypted)
}

/// Returns the key that connections to a host must find, if one is known.
fn known_key(session: Session<'_>, host: &str) -> Result<Option<HostKeyText>, CliError> {
    let peers = match session.ask(&Request::Peers)? {
        Response::Peers(report) => report.peers,
        other => return Err(unexpected(&other)),
    };
    if let Some(named) = peers.iter().find(|peer| peer.name.as_deref() == Some(host)) {
        return Ok(Some(named.key.clone()));
    }
    let addresses: Vec<IpAddr> = addresses_of(host)?.collect();
    let is_there = |address: &IpAddr| addresses.contains(address);
    Ok(peers.into_iter().find(|peer| peer.addresses.iter().any(is_there)).map(|peer| peer.key))
}

/// Shows the words, and asks for those of the other end, on a terminal.
fn ask(host: &str, found: &[Encryption]) -> Result<String, CliError> {
    println!(
        "Run `sctpify pair` with this host's address on {host}. If nobody is in between, one line there is the same:\n"
    );
    for encryption in found {
        println!("    {}", encryption.words.join(" "));
    }
    if !io::stdin().is_terminal() {
        println!("\nThen: sctpify pair {host} --words 'WORDS THAT ARE SHOWN THERE'");
        return Ok(String::new());
    }
    print!("\nType the words that are shown there (Enter alone does not pair): ");
    io::stdout().flush().map_err(CliError::Output)?;
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(|e| CliError::Failed(format!("cannot read the words: {e}")))?;
    Ok(line)
}
