//! The command line of `sctpify-sip`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A stateful SIP proxy and registrar over UDP, TCP and SCTP
///
/// Registers users of its domains, and forwards requests to them and among proxies. Over SCTP (RFC 4168) it uses the
/// project's own stack; over IP protocol 132 that takes root (CAP_NET_RAW), in UDP it does not. Runs in the foreground until
/// SIGTERM or SIGINT.
///
/// Exit status: 0 stopped, 1 refused or failed, 2 wrong usage.
#[derive(Parser, Debug)]
#[command(name = "sctpify-sip", version, max_term_width = 100)]
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

    /// Print the manual page
    #[arg(long, hide = true)]
    pub man: bool,

    /// Ask a running proxy instead
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to ask a running proxy.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Show numbers: users, transactions, requests, calls
    Status(Ask),
    /// Show who is registered where
    Contacts(Ask),
}

/// How to ask.
#[derive(Args, Clone, Debug)]
pub struct Ask {
    /// Control socket; `control` in the configuration says where the proxy makes it
    #[arg(
        long,
        value_name = "FILE",
        env = "SCTPIFY_SIP_CONTROL",
        default_value = "/run/sctpify-sip/control.sock"
    )]
    pub control: PathBuf,

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
