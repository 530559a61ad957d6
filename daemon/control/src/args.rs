//! The daemon's command line, and where its files are by default.

use std::path::PathBuf;

use clap::Parser;

/// Where the control socket is unless said otherwise.
pub const DEFAULT_CONTROL: &str = "/run/sctpify/control.sock";
/// Where the configuration file is unless said otherwise.
pub const DEFAULT_CONFIG: &str = "/etc/sctpify/sctpify.toml";
/// Where the daemon keeps what it must remember unless said otherwise.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/sctpify";
/// The rules file in the state directory.
pub const RULES_FILE_NAME: &str = "rules";
/// The file in the state directory with what was learned of destinations.
pub const LEARNED_FILE_NAME: &str = "learned";

/// Carries this host's TCP connections over SCTP, as the rules say.
///
/// Usually started by `sctpify up`. Stops on SIGTERM or `sctpify down`, and then leaves no rule, namespace or
/// interface behind; connections over SCTP get an error, new ones are plain TCP.
#[derive(Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "sctpifyd", version = version::FULL, max_term_width = 100)]
pub struct DaemonArgs {
    /// Configuration file; a missing file means the defaults
    #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,

    /// Control socket to make
    #[arg(long, value_name = "PATH", env = "SCTPIFY_CONTROL", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,

    /// Directory for the rules file and the learned table
    #[arg(long, value_name = "DIR", env = "SCTPIFY_STATE_DIR", default_value = DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,

    /// What to log: error, warn, info, debug, trace, or a filter such as info,engine=trace (all that the
    /// SCTP engine does, and why: very much)
    #[arg(long, value_name = "FILTER", env = "SCTPIFY_LOG", default_value = "info")]
    pub log: String,

    /// Run without the process that watches the daemon and cleans up after it (for debuggers)
    #[arg(long)]
    pub no_supervisor: bool,

    /// Serve the command that `sctpify run` starts in this network namespace, without privileges; begins when a byte comes
    /// on standard input, and ends with it
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
}
