//! The command line of `sctpify-sip`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use ops::Docs;

/// A SIP proxy and registrar over UDP, TCP, TLS and SCTP; with another mode a stateless proxy, or a redirect server
///
/// Registers users of its domains, and forwards requests to them and among proxies. Over SCTP (RFC 4168) it uses the
/// project's own stack; over IP protocol 132 that takes root (CAP_NET_RAW), in UDP it does not. Runs in the foreground.
///
/// SIGTERM has it drain: what would begin gets 503, and it ends when what is under way has ended, or drain_s (32) seconds
/// later. A second SIGTERM, or SIGINT, ends it at once: what is under way gets 503, and whoever rings is told to stop. SIGHUP has it
/// read the configuration again.
///
/// Exit status: 0 stopped, 1 refused or failed, 2 wrong usage.
#[derive(Parser, Debug)]
#[command(name = "sctpify-sip", version = version::FULL, max_term_width = 100)]
pub struct SipArgs {
    /// Configuration file; docs/sip.md has all keys
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "SCTPIFY_SIP_CONFIG",
        default_value = "/etc/sctpify/sip.toml"
    )]
    pub config: PathBuf,

    /// Only check the configuration file
    #[arg(long)]
    pub check: bool,

    /// What to log: a level, or targets with levels
    #[arg(long, value_name = "FILTER", env = "SCTPIFY_SIP_LOG", default_value = "info")]
    pub log: String,

    /// Ask a running proxy instead
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to ask a running proxy.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Show numbers: users, transactions, requests, calls
    Status(Ask),
    /// Show how registrations and calls do, by SIP's performance metrics (RFC 6076)
    Performance(Ask),
    /// Show who is registered where
    Contacts(Ask),
    /// Show calls and subscriptions
    Dialogs(Ask),
    /// Show connections, and associations with their paths
    Connections(Ask),
    /// Show messages as they pass, until interrupted
    ///
    /// Only root and the proxy's own user may. Text has no Authorization values; a pcapng file, for Wireshark, has
    /// all, and shows each message as a UDP datagram, whatever carried it.
    Trace(Trace),
    /// Manual pages and completions of sctpify-sip and sctpify-ua
    #[command(flatten)]
    Docs(Docs),
}

/// Where to ask.
#[derive(Args, Clone, Debug)]
pub struct ControlSocket {
    /// Control socket; `control` in the configuration says where the proxy makes it
    #[arg(
        long,
        value_name = "FILE",
        env = "SCTPIFY_SIP_CONTROL",
        default_value = "/run/sctpify-sip/control.sock"
    )]
    pub control: PathBuf,
}

/// Which messages to show, and how.
#[derive(Args, Clone, Debug)]
pub struct Trace {
    /// Where to ask
    #[command(flatten)]
    pub socket: ControlSocket,

    /// Only requests of this method, and their responses
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,

    /// Only what is from or to this user
    #[arg(long, value_name = "USER[@DOMAIN]")]
    pub user: Option<String>,

    /// Only what has this Call-ID
    #[arg(long, value_name = "ID")]
    pub call_id: Option<String>,

    /// Only what comes from or goes to this network
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    pub peer: Option<String>,

    /// Write a pcapng file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub pcapng: Option<PathBuf>,
}

/// Options of the request.
#[derive(Args, Clone, Debug)]
pub struct Ask {
    /// Where to ask
    #[command(flatten)]
    pub socket: ControlSocket,

    /// Show it as one line of JSON
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
