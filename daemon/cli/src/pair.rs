//! `sctpify pair`: people compare words at both ends of an encrypted association, which shows that nobody is between its hosts.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;

use control::{Association, Encryption, Request, Response};

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
        Some(words) => words.to_owned(),
        None => ask(host, &found)?,
    };
    let is_between = |c: char| c.is_whitespace() || c == ',';
    let typed: Vec<&str> = typed.split(is_between).filter(|word| !word.is_empty()).collect();
    if typed.is_empty() {
        println!("not paired");
        return Ok(());
    }
    let same = found.into_iter().find(|encryption| encryption.words == typed);
    let Some(same) = same else {
        return Err(CliError::Failed(format!(
            "no association with {host} has these words here. If they come from `sctpify pair` at {host}, and its connection to this \
             host still lives, somebody is between the hosts: do not trust the connection"
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
