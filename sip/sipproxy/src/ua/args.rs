//! The command line of `sctpify-ua`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use keying::PublicKey;
use sip::Transport;
use stores::USUAL_ROOTS;

use crate::config::Secure;

/// SIP user agent for tests and load: registers, calls, answers, sends a tone
///
/// Registers a user, then makes calls at a rate (--call), or answers calls until it is stopped. At the end it prints JSON: the durations of
/// registrations, call setups and hang-ups, and counts of RTP packets.
///
/// Example: sctpify-ua --local 192.0.2.1:5070 --proxy 192.0.2.2:5060 --user alice@example.com --call sip:bob@example.com
///
/// Exit status: 0 all calls and registrations succeeded, 1 some failed, 2 usage error.
#[derive(Parser, Debug)]
#[command(name = "sctpify-ua", version = version::FULL, max_term_width = 100)]
pub struct UaArgs {
    /// Local address and port
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub local: SocketAddr,

    /// Outbound proxy for all requests
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub proxy: SocketAddr,

    /// Transport of messages: udp, tcp, tls or sctp
    #[arg(long, value_parser = transport, default_value = "udp")]
    pub transport: Transport,

    /// User of this agent
    #[arg(long, value_name = "USER@DOMAIN")]
    pub user: String,

    /// Password of the user
    #[arg(long, env = "SCTPIFY_UA_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,

    /// Do not register
    #[arg(long)]
    pub no_register: bool,

    /// Number of registrations in sequence before calls; with --users, number of rounds
    #[arg(long, value_name = "NUMBER", default_value_t = 1, conflicts_with = "no_register")]
    pub registrations: u32,

    /// Only register this number of users: USER1@DOMAIN, USER2@DOMAIN and so on
    #[arg(long, value_name = "NUMBER", group = "load", conflicts_with_all = ["no_register", "call", "tone"])]
    pub users: Option<u32>,

    /// With --users: limit on concurrent registrations [default: 32; with --rate, unlimited]
    #[arg(long, value_name = "NUMBER", requires = "users")]
    pub at_once: Option<usize>,

    /// Call this URI
    #[arg(long, value_name = "URI", group = "load")]
    pub call: Option<String>,

    /// Number of calls
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "call")]
    pub calls: u64,

    /// Calls per second [default: 1]; with --users, registrations per second
    #[arg(long, value_name = "NUMBER", requires = "load", value_parser = rate)]
    pub rate: Option<f64>,

    /// Time until an outgoing call is hung up, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub duration: Duration,

    /// Time until an incoming call is answered, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    pub ring: Duration,

    /// Send a tone (PCMU) in calls, and receive the peer's; without it, calls are silent and no RTP port is open
    #[arg(long)]
    pub tone: bool,

    /// With --tone: UDP port of RTP
    #[arg(long, value_name = "PORT", default_value_t = 4000)]
    pub rtp_port: u16,

    /// Stop after this time, in seconds, even during calls
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub stop_after: Option<Duration>,

    /// Limit on concurrent calls; while it is reached, no new call starts
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub calls_max: usize,

    /// Use SCTP over UDP, from and to this port, instead of IP protocol 132
    #[arg(long, value_name = "PORT")]
    pub sctp_udp_port: Option<u16>,

    /// With --transport sctp: encrypt the association never, if the proxy offers it, or always [default: off; with --peer-key, require]
    #[arg(long, value_name = "WHEN", value_enum, hide_possible_values = true)]
    pub secure: Option<Secure>,

    /// With --transport sctp: public key of the proxy (`sctpify-sip key`), which it must prove
    #[arg(long, value_name = "KEY", value_parser = peer_key)]
    pub peer_key: Option<PublicKey>,

    /// With --secure or --peer-key: file with this agent's key, created if it is missing [default: a new key for this run]
    #[arg(long, value_name = "FILE")]
    pub host_key: Option<PathBuf>,

    /// With --transport tls: file of the trusted root certificates
    #[arg(long, value_name = "FILE", default_value = USUAL_ROOTS)]
    pub roots: PathBuf,

    /// Log filter: a level, or levels by target
    #[arg(long, value_name = "FILTER", env = "SCTPIFY_UA_LOG", default_value = "warn")]
    pub log: String,
}

fn transport(text: &str) -> Result<Transport, String> {
    Transport::from_bytes(text.as_bytes()).ok_or_else(|| "expected udp, tcp, tls or sctp".to_owned())
}

fn peer_key(text: &str) -> Result<PublicKey, String> {
    text.parse().map_err(|error: keying::IdentityError| error.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|n| (0.0..=1e6).contains(n));
    number.map(Duration::from_secs_f64).ok_or_else(|| "expected 0 to 1000000 seconds".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| (0.001..=1e5).contains(n));
    number.ok_or_else(|| "expected 0.001 to 100000 per second".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        UaArgs::command().debug_assert();
    }

    #[test]
    fn invalid_arguments_are_refused() {
        let parse = |words: &str| {
            let all = format!("sctpify-ua --local 127.0.0.1:1 --proxy 127.0.0.1:2 --user a@b {words}");
            UaArgs::try_parse_from(all.trim().split(' ')).is_ok()
        };
        assert!(parse("") && parse("--call sip:b@b --calls 5 --rate 0.5 --transport sctp"));
        assert!(parse("--users 5 --rate 100 --registrations 2"));
        assert!(parse("--secure try") && !parse("--secure maybe") && !parse("--peer-key nonsense"));
        for wrong in ["--transport tcpip", "--ring -1", "--call sip:b@b --rate 0", "--calls 5", "--rate 5"] {
            assert!(!parse(wrong), "{wrong}");
        }
    }
}
