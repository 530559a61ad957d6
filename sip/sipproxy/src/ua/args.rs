//! The command line of `sctpify-ua`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use sip::Transport;

use stores::USUAL_ROOTS;

/// A SIP user agent without a face: registers, calls, answers, sends a tone
///
/// Registers its user, then calls somebody so often at a rate (--call), or answers calls until it is told to stop. At the end
/// it prints what happened as JSON: how long registrations, calls and their ends took, and what of the sound arrived.
///
/// Example: sctpify-ua --local 192.0.2.1:5070 --proxy 192.0.2.2:5060 --user alice@example.com --call sip:bob@example.com
///
/// Exit status: 0 all calls and registrations succeeded, 1 not all did, 2 wrong usage.
#[derive(Parser, Debug)]
#[command(name = "sctpify-ua", version = version::FULL, max_term_width = 100)]
pub struct UaArgs {
    /// Where it is: one of this host's addresses, and a port
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub local: SocketAddr,

    /// The proxy that all requests go to
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub proxy: SocketAddr,

    /// What carries messages: udp, tcp, tls or sctp
    #[arg(long, value_parser = transport, default_value = "udp")]
    pub transport: Transport,

    /// Who it is: USER@DOMAIN
    #[arg(long, value_name = "USER@DOMAIN")]
    pub user: String,

    /// The user's password
    #[arg(long, env = "SCTPIFY_UA_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,

    /// Do not register
    #[arg(long)]
    pub no_register: bool,

    /// Register so often, one after the other, before anything else; with --users all of them once, then all again
    #[arg(long, value_name = "NUMBER", default_value_t = 1, conflicts_with = "no_register")]
    pub registrations: u32,

    /// Register so many users, USER1 and on, instead of doing anything else
    #[arg(long, value_name = "NUMBER", group = "load", conflicts_with_all = ["no_register", "call", "tone"])]
    pub users: Option<u32>,

    /// Of --users: how many are asked for at once; 32, or any number with --rate
    #[arg(long, value_name = "NUMBER", requires = "users")]
    pub at_once: Option<usize>,

    /// Call this URI
    #[arg(long, value_name = "URI", group = "load")]
    pub call: Option<String>,

    /// Number of calls
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "call")]
    pub calls: u64,

    /// Calls a second, 1 where nothing is said; with --users registrations a second
    #[arg(long, value_name = "NUMBER", requires = "load", value_parser = rate)]
    pub rate: Option<f64>,

    /// Seconds until a call of ours is hung up
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub duration: Duration,

    /// Seconds until a call is answered
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    pub ring: Duration,

    /// Send a tone (PCMU) in calls, and take the other's; without it calls are silent, and no port is opened for sound
    #[arg(long)]
    pub tone: bool,

    /// UDP port for sound, with --tone
    #[arg(long, value_name = "PORT", default_value_t = 4000)]
    pub rtp_port: u16,

    /// Stop after so many seconds, whatever goes on
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub stop_after: Option<Duration>,

    /// Calls at once at most; while there are so many no other is begun
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub calls_max: usize,

    /// Carry SCTP in UDP, from and to this port, instead of IP protocol 132
    #[arg(long, value_name = "PORT")]
    pub sctp_udp_port: Option<u16>,

    /// File of the root certificates that the proxy's certificate must come from, with transport tls
    #[arg(long, value_name = "FILE", default_value = USUAL_ROOTS)]
    pub roots: PathBuf,

    /// What to log: a level, or targets with levels
    #[arg(long, value_name = "FILTER", env = "SCTPIFY_UA_LOG", default_value = "warn")]
    pub log: String,
}

fn transport(text: &str) -> Result<Transport, String> {
    Transport::from_bytes(text.as_bytes()).ok_or_else(|| "say udp, tcp, tls or sctp".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|n| (0.0..=1e6).contains(n));
    number.map(Duration::from_secs_f64).ok_or_else(|| "say 0 to 1000000 seconds".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| (0.001..=1e5).contains(n));
    number.ok_or_else(|| "say 0.001 to 100000 calls a second".to_owned())
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
    fn what_cannot_be_is_refused() {
        let parse = |words: &str| {
            let all = format!("sctpify-ua --local 127.0.0.1:1 --proxy 127.0.0.1:2 --user a@b {words}");
            UaArgs::try_parse_from(all.trim().split(' ')).is_ok()
        };
        assert!(parse("") && parse("--call sip:b@b --calls 5 --rate 0.5 --transport sctp"));
        assert!(parse("--users 5 --rate 100 --registrations 2"));
        for wrong in ["--transport tcpip", "--ring -1", "--call sip:b@b --rate 0", "--calls 5", "--rate 5"] {
            assert!(!parse(wrong), "{wrong}");
        }
    }
}
