//! The command line of `sctpify-sip`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use ops::Docs;

/// SIP proxy and registrar over UDP, TCP, TLS and SCTP; also a stateless proxy or a redirect server
///
/// Registers the users of its domains, and forwards requests to them and to other proxies. SCTP (RFC 4168) uses the project's own stack.
/// SCTP over IP protocol 132 requires root (CAP_NET_RAW), but SCTP over UDP does not. Runs in the foreground.
///
/// On SIGTERM it drains: new requests get 503. It exits when the pending transactions have ended, or after drain_s seconds (default: 32).
/// On a second SIGTERM, or on SIGINT, it exits at once: pending requests get 503, and ringing phones get CANCEL. On SIGHUP it reads the
/// configuration again.
///
/// Exit status: 0 stopped, 1 refused or failed, 2 usage error.
#[derive(Parser, Debug)]
#[command(name = "sctpify-sip", version = version::FULL, max_term_width = 100)]
pub struct SipArgs {
    /// Configuration file; docs/sip.md lists all keys
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "SCTPIFY_SIP_CONFIG",
        default_value = "/etc/sctpify/sip.toml"
    )]
    pub config: PathBuf,

    /// Check the configuration file, and exit
    #[arg(long)]
    pub check: bool,

    /// Log filter: a level, or levels by target
    #[arg(long, value_name = "FILTER", env = "SCTPIFY_SIP_LOG", default_value = "info")]
    pub log: String,

    /// Query a running proxy, or print a key or manual pages, instead of starting a proxy
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Queries to a running proxy, and other commands.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Show counts of users, transactions, requests and calls
    Status(Ask),
    /// Show the performance metrics of registrations and calls (RFC 6076)
    Performance(Ask),
    /// Show registered users and their contacts
    Contacts(Ask),
    /// Show calls and subscriptions
    Dialogs(Ask),
    /// Show connections, and associations with their paths
    Connections(Ask),
    /// Print this proxy's public key, for the configuration of its peers
    ///
    /// Reads the configuration file (--config). Creates the key of `host_key` in [sctp] if it is missing.
    Key,
    /// Show messages live, until interrupted
    ///
    /// Requires root or the proxy's user. Text output omits Authorization values. A pcapng file, for Wireshark, contains them. It shows
    /// each message as a UDP datagram, regardless of the transport.
    Trace(Trace),
    /// Manual pages and completions of sctpify-sip and sctpify-ua
    #[command(flatten)]
    Docs(Docs),
}

/// Address of the running proxy.
#[derive(Args, Clone, Debug)]
pub struct ControlSocket {
    /// Control socket of the running proxy, at the path that the key `control` of its configuration sets
    #[arg(
        long,
        value_name = "FILE",
        env = "SCTPIFY_SIP_CONTROL",
        default_value = "/run/sctpify-sip/control.sock"
    )]
    pub control: PathBuf,
}

/// Selection and output of traced messages.
#[derive(Args, Clone, Debug)]
pub struct Trace {
    /// Address of the running proxy
    #[command(flatten)]
    pub socket: ControlSocket,

    /// Show only requests of this method, and their responses
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,

    /// Show only messages from or to this user
    #[arg(long, value_name = "USER[@DOMAIN]")]
    pub user: Option<String>,

    /// Show only messages with this Call-ID
    #[arg(long, value_name = "ID")]
    pub call_id: Option<String>,

    /// Show only messages from or to this network
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    pub peer: Option<String>,

    /// Write a pcapng file; - means standard output
    #[arg(long, value_name = "FILE")]
    pub pcapng: Option<PathBuf>,
}

/// Options of a query.
#[derive(Args, Clone, Debug)]
pub struct Ask {
    /// Address of the running proxy
    #[command(flatten)]
    pub socket: ControlSocket,

    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        SipArgs::command().debug_assert();
    }
}
