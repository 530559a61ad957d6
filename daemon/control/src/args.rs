//! The daemon's command line, and the default places of its files.

use std::path::PathBuf;

use clap::Parser;

/// Default path of the control socket.
pub const DEFAULT_CONTROL: &str = "/run/sctpify/control.sock";
/// Default path of the configuration file.
pub const DEFAULT_CONFIG: &str = "/etc/sctpify/sctpify.toml";
/// Default state directory of the daemon.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/sctpify";
/// The rules file in the state directory.
pub const RULES_FILE_NAME: &str = "rules";
/// The learned table's file in the state directory.
pub const LEARNED_FILE_NAME: &str = "learned";

/// The known peers' file in the state directory.
pub const PEERS_FILE_NAME: &str = "peers";
/// The file with the host's key in the state directory.
pub const HOST_KEY_FILE_NAME: &str = "host.key";

/// Carry this host's TCP connections over SCTP, according to the rules.
///
/// Usually started by `sctpify up`. Stops on SIGTERM or `sctpify down`, and then removes its nftables rules, namespaces and
/// interfaces. Connections over SCTP get an error, and new ones use plain TCP.
#[derive(Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "sctpifyd", version = version::FULL, max_term_width = 100)]
pub struct DaemonArgs {
    /// Configuration file; if it does not exist, the defaults apply
    #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,

    /// Control socket to create
    #[arg(long, value_name = "PATH", env = "SCTPIFY_CONTROL", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,

    /// Directory for the rules file, the learned table, the host's key and the known peers
    #[arg(long, value_name = "DIR", env = "SCTPIFY_STATE_DIR", default_value = DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,

    /// Log filter: error, warn, info, debug or trace, or levels by target such as info,engine=trace (all events of
    /// the SCTP engine: very verbose)
    #[arg(long, value_name = "FILTER", env = "SCTPIFY_LOG", default_value = "info")]
    pub log: String,

    /// Run without the supervisor, which watches the worker and cleans up after it (for debuggers)
    #[arg(long)]
    pub no_supervisor: bool,

    /// Serve the command of `sctpify run` in this network namespace, without privileges; starts at the first byte on
    /// standard input, and stops at its end
    #[arg(long, value_name = "PATH", hide = true)]
    pub inside: Option<PathBuf>,
}

impl DaemonArgs {
    /// The rules file.
    pub fn rules_file(&self) -> PathBuf {
        self.state_dir.join(RULES_FILE_NAME)
    }

    /// The file with what was learned.
    pub fn learned_file(&self) -> PathBuf {
        self.state_dir.join(LEARNED_FILE_NAME)
    }

    /// The file with the known peers.
    pub fn peers_file(&self) -> PathBuf {
        self.state_dir.join(PEERS_FILE_NAME)
    }

    /// The file with the host's key.
    pub fn host_key_file(&self) -> PathBuf {
        self.state_dir.join(HOST_KEY_FILE_NAME)
    }
}
