//! The daemon's command line, and the default paths of its files.

use std::path::PathBuf;

use clap::Parser;

/// Default path of the control socket.
pub const DEFAULT_CONTROL: &str = "/run/sctpify/control.sock";
/// Default path of the configuration file.
pub const DEFAULT_CONFIG: &str = "/etc/sctpify/sctpify.toml";
/// Default state directory of the daemon.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/sctpify";
/// Name of the rules file in the state directory.
pub const RULES_FILE_NAME: &str = "rules";
/// Name of the learned table's file in the state directory.
pub const LEARNED_FILE_NAME: &str = "learned";
/// Name of the file with the monthly traffic of links in the state directory.
const TRAFFIC_FILE_NAME: &str = "traffic";
/// Name of the file with the history of links in the state directory.
const HISTORY_FILE_NAME: &str = "history";
/// Name of the known peers' file in the state directory.
pub const PEERS_FILE_NAME: &str = "peers";
/// Name of the host key's file in the state directory.
pub const HOST_KEY_FILE_NAME: &str = "host.key";

/// Carry this host's TCP connections over SCTP, according to the rules.
///
/// `sctpify up` usually starts this program. It stops on SIGTERM or `sctpify down`, and then removes its nftables rules, namespaces and
/// interfaces. Open connections over SCTP get an error, and new connections use plain TCP.
#[derive(Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "sctpifyd", version = version::FULL, max_term_width = 100)]
pub struct DaemonArgs {
    /// Configuration file; if it does not exist, the defaults apply
    #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,

    /// Control socket to create
    #[arg(long, value_name = "PATH", env = "SCTPIFY_CONTROL", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,

    /// Directory for the rules file, the learned table, the host's key, the known peers, and the traffic and history of links
    #[arg(long, value_name = "DIR", env = "SCTPIFY_STATE_DIR", default_value = DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,

    /// Log filter: error, warn, info, debug or trace, or levels by target such as info,engine=trace (all events of
    /// the SCTP engine: very verbose)
    #[arg(long, value_name = "FILTER", env = "SCTPIFY_LOG", default_value = "info")]
    pub log: String,

    /// Run without the supervisor, which watches the worker and cleans up after it (for debuggers)
    #[arg(long)]
    pub no_supervisor: bool,

    /// Serve the command of `sctpify run` in this network namespace, without privileges; start at the first byte on standard input, and
    /// stop at the end of the input
    #[arg(long, value_name = "PATH", hide = true)]
    pub inside: Option<PathBuf>,

    /// Stop when the process with this ID, which must be the parent, ends
    #[arg(long, value_name = "PID", hide = true)]
    pub ends_with: Option<u32>,
}

impl DaemonArgs {
    /// Returns the path of the rules file.
    pub fn rules_file(&self) -> PathBuf {
        self.state_dir.join(RULES_FILE_NAME)
    }

    /// Returns the path of the learned table's file.
    pub fn learned_file(&self) -> PathBuf {
        self.state_dir.join(LEARNED_FILE_NAME)
    }

    /// Returns the path of the file with the monthly traffic of links.
    pub fn traffic_file(&self) -> PathBuf {
        self.state_dir.join(TRAFFIC_FILE_NAME)
    }

    /// Returns the path of the file with the history of links.
    pub fn history_file(&self) -> PathBuf {
        self.state_dir.join(HISTORY_FILE_NAME)
    }

    /// Returns the path of the known peers' file.
    pub fn peers_file(&self) -> PathBuf {
        self.state_dir.join(PEERS_FILE_NAME)
    }

    /// Returns the path of the host key's file.
    pub fn host_key_file(&self) -> PathBuf {
        self.state_dir.join(HOST_KEY_FILE_NAME)
    }
}
