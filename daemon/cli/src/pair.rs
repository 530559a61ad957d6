//! `sctpify pair`: people compare words at both ends of an encrypted association. Equal words show that no attacker is between the hosts.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;

use control::{Association, Encryption, HostKeyText, KnownPeer, Path, PathState, Request, Response};

use crate::commands::addresses_of;
use crate::session::{Session, unexpected};
use crate::{CliError, show};

/// Shows the words of the associations with a host. Pairs with the host if the words from the other end equal the words of one of these
/// associations.
pub(crate) fn run(
    session: Session<'_>,
    host: &str,
    words: Option<&str>,
    name: Option<String>,
) -> Result<(), CliError> {
    let found = look(session, host)?;
    found.check(host)?;
    let typed = match words {
        Some(words) => words.to_lowercase(),
        None => ask(host, &found)?.to_lowercase(),
    };
    let is_between = |c: char| c.is_whitespace() || c == ',';
    let typed: Vec<&str> = typed.split(is_between).filter(|word| !word.is_empty()).collect();
    if typed.is_empty() {
        return Ok(());
    }
    let same = found.encrypted.into_iter().find(|encryption| encryption.words == typed);
    let Some(same) = same else {
        return Err(CliError::Failed(format!(
            "no association with {host} has these words here: check them. If `sctpify pair` at {host} shows them for a connection that \
             still lives, somebody is between the hosts: do not trust the connection"
        )));
    };
    // Another key of the host may have been found while people compared the words.
    let mut now = look(session, host)?;
    now.keys.insert(same.peer.clone());
    now.check_keys(host)?;
    let answer = session.ask(&Request::PeersPair { key: same.peer, name })?;
    session.print(&answer, show::answer)
}

/// The keys and associations of a host.
struct Found {
    /// Keys that the host has proven in its associations, and known keys of the host's addresses.
    keys: BTreeSet<HostKeyText>,
    encrypted: Vec<Encryption>,
    /// Number of associations that are not encrypted.
    in_clear: usize,
}

/// Asks the daemon for the associations and the keys of a host. `host` is the name of a known peer, a host name or an address.
fn look(session: Session<'_>, host: &str) -> Result<Found, CliError> {
    let status = match session.ask(&Request::Status)? {
        Response::Status(status) => status,
        other => return Err(unexpected(&other)),
    };
    let peers = match session.ask(&Request::Peers)? {
        Response::Peers(report) => report.peers,
        other => return Err(unexpected(&other)),
    };
    let named = peers.iter().find(|peer| peer.name.as_deref() == Some(host));
    let addresses = match named {
        Some(peer) => peer.addresses.iter().copied().collect(),
        None => addresses_of(host)?.collect(),
    };
    Ok(Found::among(status.associations, &peers, named.map(|peer| &peer.key), addresses))
}

impl Found {
    /// Selects the associations with the named key, or with a confirmed path to one of the addresses.
    fn among(
        mut associations: Vec<Association>,
        peers: &[KnownPeer],
        named: Option<&HostKeyText>,
        mut addresses: BTreeSet<IpAddr>,
    ) -> Found {
        let is_there = |association: &Association| {
            let key = association.encryption.as_ref().map(|encryption| &encryption.peer);
            key.is_some() && key == named || confirmed(association).any(|remote| addresses.contains(&remote))
        };
        associations.retain(is_there);
        addresses.extend(associations.iter().flat_map(confirmed));
        let is_expected = |peer: &&KnownPeer| peer.addresses.iter().any(|at| addresses.contains(at));
        let mut keys: BTreeSet<HostKeyText> =
            peers.iter().filter(is_expected).map(|peer| peer.key.clone()).collect();
        keys.extend(named.cloned());
        let all = associations.len();
        let encrypted: Vec<Encryption> = associations.into_iter().filter_map(|a| a.encryption).collect();
        keys.extend(encrypted.iter().map(|encryption| encryption.peer.clone()));
        Found { keys, in_clear: all - encrypted.len(), encrypted }
    }

    /// Fails if the host has more than one key, or no encrypted association whose words can be compared.
    fn check(&self, host: &str) -> Result<(), CliError> {
        self.check_keys(host)?;
        if !self.encrypted.is_empty() {
            return Ok(());
        }
        let state = match self.in_clear {
            0 => "no connection to it lives",
            _ => "no association with it is encrypted",
        };
        Err(CliError::Failed(format!(
            "cannot pair with {host}: {state}. Connect to it over SCTP, keep the connection, and run this at both ends"
        )))
    }

    /// Fails if the host has more than one key.
    fn check_keys(&self, host: &str) -> Result<(), CliError> {
        if self.keys.len() < 2 {
            return Ok(());
        }
        let keys: Vec<&str> = self.keys.iter().map(HostKeyText::as_str).collect();
        Err(CliError::Failed(format!(
            "cannot pair with {host}: more than one key is found there ({}), so somebody may be between the hosts in one direction",
            keys.join(", ")
        )))
    }
}

/// Returns the peer's addresses that have answered. An unconfirmed address is only a claim in a packet.
fn confirmed(association: &Association) -> impl Iterator<Item = IpAddr> {
    let is_confirmed = |path: &&Path| path.state != PathState::Unconfirmed;
    association.paths.iter().filter(is_confirmed).map(|path| path.remote)
}

/// Shows the words. On a terminal, asks for the words of the other end; otherwise returns an empty text.
fn ask(host: &str, found: &Found) -> Result<String, CliError> {
    println!(
        "Run `sctpify pair` with this host's address on {host}. If nobody is in between, one line there is the same:\n"
    );
    for encryption in &found.encrypted {
        println!("    {}", encryption.words.join(" "));
    }
    if found.in_clear > 0 {
        println!("\n{} more associations with {host} are not encrypted: they prove nothing.", found.in_clear);
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

#[cfg(test)]
mod tests {
    use control::{AddressUse, KnownBy, ShimState, Via};
    use rules::UnixMs;

    use super::*;

    fn key(letter: char) -> HostKeyText {
        format!("sctpify1:{}", letter.to_string().repeat(43)).parse().unwrap()
    }

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn path(remote: IpAddr, state: PathState) -> Path {
        Path {
            local: None,
            remote,
            carrier: Via::SctpUdp,
            udp_port: None,
            state,
            primary: false,
            in_use: false,
            srtt_us: None,
            rto_ms: 0,
            cwnd_bytes: 0,
            flight_bytes: 0,
            data_sent_bytes: 0,
            mtu_bytes: 0,
            errors: 0,
            interface: None,
            name: None,
            local_use: AddressUse::default(),
            remote_use: AddressUse::default(),
            sent_bytes: 0,
            received_bytes: 0,
            last_switch_s: None,
        }
    }

    /// Returns an association, encrypted if the peer has a key.
    fn association(peer: Option<HostKeyText>, paths: Vec<Path>) -> Association {
        let words = vec!["badak".to_owned()];
        let encrypted = |peer| Encryption { peer, name: None, by: None, known_since: None, epoch: 3, words };
        Association {
            id: 1,
            state: "ESTABLISHED".into(),
            peer: IpAddr::from([10, 0, 0, 2]),
            shim: ShimState::Hidden,
            local_port: 1,
            peer_port: 2,
            peer_is_sctpify: true,
            age_s: 0,
            bytes_sent: 0,
            bytes_received: 0,
            retransmissions: 0,
            queued_bytes: 0,
            peer_window_bytes: 0,
            shared_by: None,
            encryption: peer.map(encrypted),
            paths,
        }
    }

    fn known(key: HostKeyText, addresses: &[IpAddr]) -> KnownPeer {
        let (first_seen, last_seen) = (UnixMs(1), UnixMs(1));
        KnownPeer {
            key,
            name: None,
            addresses: addresses.into(),
            by: KnownBy::FirstUse,
            first_seen,
            last_seen,
        }
    }

    #[test]
    fn pairing_fails_if_an_address_of_the_host_has_another_known_key() {
        let paths = || vec![path(ip(1), PathState::Active), path(ip(2), PathState::Inactive)];
        let one = || vec![association(Some(key('A')), paths())];
        let among = |peers: &[KnownPeer]| Found::among(one(), peers, None, BTreeSet::from([ip(1), ip(9)]));
        assert!(among(&[]).check("host").is_ok());
        assert!(among(&[known(key('A'), &[ip(1)]), known(key('B'), &[ip(3)])]).check("host").is_ok());
        // First, an address of the host has a second known key. Then, the address of another confirmed path has another known key.
        assert!(among(&[known(key('A'), &[ip(1)]), known(key('B'), &[ip(9)])]).check("host").is_err());
        assert!(among(&[known(key('B'), &[ip(2)])]).check("host").is_err());
    }

    #[test]
    fn an_unconfirmed_address_does_not_assign_an_association_to_a_host() {
        let claimed = || vec![path(ip(8), PathState::Active), path(ip(1), PathState::Unconfirmed)];
        let all = vec![
            association(Some(key('A')), vec![path(ip(1), PathState::Active)]),
            association(Some(key('B')), claimed()),
        ];
        let found = Found::among(all, &[], None, BTreeSet::from([ip(1)]));
        assert_eq!((found.keys, found.encrypted.len()), (BTreeSet::from([key('A')]), 1));
    }

    #[test]
    fn a_peers_name_selects_associations_by_its_key_and_its_addresses() {
        let all = || {
            vec![
                association(Some(key('A')), vec![path(ip(5), PathState::Active)]),
                association(None, vec![path(ip(1), PathState::Active)]),
            ]
        };
        let at = BTreeSet::from([ip(1)]);
        let found = Found::among(all(), &[known(key('A'), &[ip(1)])], Some(&key('A')), at.clone());
        assert_eq!((found.encrypted.len(), found.in_clear), (1, 1));
        assert!(found.check("host").is_ok());
        let other = association(Some(key('B')), vec![path(ip(1), PathState::Active)]);
        let found = Found::among([all(), vec![other]].concat(), &[], Some(&key('A')), at);
        assert!(found.check("host").is_err());
    }
}
