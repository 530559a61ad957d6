//! The command line of `sctpify`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use control::{DEFAULT_CONFIG, DEFAULT_CONTROL, DEFAULT_STATE_DIR, Transport};
use ops::Docs;

/// SCTP for programs that have never heard of it
///
/// Starts, stops and asks sctpifyd, the daemon that carries this host's TCP connections over SCTP where its rules
/// say so and the peer has it. Rules are made with shimrules(8).
///
/// Exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 no daemon.
#[derive(Parser, Debug)]
#[command(name = "sctpify", version = version::FULL, max_term_width = 100, disable_help_subcommand = true)]
pub struct Sctpify {
    /// Control socket of the daemon
    #[arg(long, global = true, value_name = "PATH", env = "SCTPIFY_CONTROL", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,

    /// Print JSON, one object a line
    #[arg(long, global = true)]
    pub json: bool,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What `sctpify` does.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start the daemon and wait until it works
    Up(UpArgs),
    /// Run a command whose connections are carried over SCTP, without root
    ///
    /// Needs neither root nor a daemon, only the right to make user namespaces. The command gets a network namespace of its
    /// own; its connections go to hosts that run sctpifyd over SCTP in UDP, and to all others over plain TCP, as ever.
    /// Refusals and unreachable hosts are told to it as they are. Its exit status is that of this command. Within it,
    /// `sctpify status` shows what carries its connections.
    ///
    /// What it cannot do: be connected to from outside, reach services on this host's loopback (this host's other addresses
    /// work), ping, receive UDP from whom it did not write to, gain privileges (sudo and other set-user-ID programs). Its
    /// sockets show 169.254.132.1 as their own address; on the wire, connections have this host's address, those over SCTP
    /// with the same port, and others with any port.
    Run(RunArgs),
    /// Become a command in the namespaces that `run` has made
    #[command(hide = true)]
    Enter {
        /// The caller's user id
        uid: u32,
        /// The caller's group id
        gid: u32,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Stop the daemon and wait until it is gone
    ///
    /// Connections over SCTP get an error; new ones are plain TCP. Without a daemon there is nothing to do,
    /// and that is no error.
    Down {
        /// First leave new connections to TCP, and wait for the live ones to end
        #[arg(long)]
        drain: bool,
        /// Maximum time to wait for them, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "drain")]
        wait: u64,
    },
    /// Show connections, associations, listeners and the latest fallbacks
    Status {
        /// Print Markdown, to be pasted into a report
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
    },
    /// Show paths, rates and events on the terminal, live; q or Ctrl-C ends
    Top(WatchArgs),
    /// Print the status as JSON again and again, one object a line
    Watch(WatchArgs),
    /// Show the paths of all associations
    Paths,
    /// Say what would happen to a connection to HOST:PORT, and why
    Explain {
        /// Destination
        #[arg(
            value_name = "HOST:PORT",
            help = "Destination, such as 10.1.2.3:22, [2001:db8::1]:22 or host.example:22"
        )]
        destination: String,
    },
    /// Say what this host lacks and how to get it; with HOST look at the way there too
    ///
    /// Exit status 1 if something is missing.
    Doctor {
        /// A peer to look at, with packets: does SCTP in UDP answer there, unharmed and at full size? Needs the daemon
        host: Option<String>,
    },
    /// Measure connects and throughput to a host, over SCTP and what there was before
    ///
    /// The host's operator starts `sctpify bench --serve` there, which listens on three ports in a row for as long as it is told.
    /// A rule of each host must enable the first (`shimrules -A -c remote -p enable -P 9890` here, `-c local` there); the
    /// second is for plain TCP, the third for MPTCP. The report shows which transport each connection actually used.
    Bench(BenchArgs),
    /// Write the packets of the daemon's carriers to a file for Wireshark; Ctrl-C ends
    ///
    /// The file has SCTP packets as the daemon sent and received them, each alone, with IP and UDP headers made up around them,
    /// and the payload of connections. The first packet by a path that data was switched to has a comment that says so
    /// (display filter: frame.comment). Needs to be asked for by root, or the daemon's own user.
    Capture {
        /// The file, pcapng; one that exists is overwritten
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Duration of the capture
        #[arg(long, value_name = "N", default_value_t = 3600, value_parser = clap::value_parser!(u32).range(1..=86_400))]
        seconds: u32,
    },
    /// Let SCTP clients reach a listener of your own that no rule names; Ctrl-C ends
    ///
    /// It holds for the sockets that listen there now, for as long as this runs. Users need the setting manual_listen, and access to
    /// the control socket (group sctpify); root may name any listener. Programs can ask by themselves: a line on the control
    /// socket, {"schema":1,"request":"expose","address":null,"port":8000}, and the connection kept open. A local-disable rule
    /// goes before it.
    Expose {
        /// The listener
        #[arg(
            value_name = "LISTENER",
            help = "Its port, or the address that it listens on and its port: 8000, 0.0.0.0:8000, [::]:8000"
        )]
        listener: String,
    },
    /// Change settings, now and in the configuration file
    ///
    /// Without a daemon they are written to the file alone, and are in force from its next start. A value that it could not use,
    /// such as a port that is taken, is refused.
    Set {
        /// Settings and their new values, such as default_remote_enable=1
        #[arg(value_name = "NAME=VALUE", required = true)]
        assignments: Vec<String>,
        /// The daemon's configuration file: for settings that only root changes, and for all if no daemon runs
        #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", default_value = DEFAULT_CONFIG)]
        config: PathBuf,
    },
    /// Show one setting, or all
    ///
    /// Changes that wait for a restart are shown beside the values in force. Without a daemon those of the configuration file are
    /// shown.
    Get {
        /// The setting
        name: Option<String>,
        /// The configuration file that is read if no daemon runs
        #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", default_value = DEFAULT_CONFIG)]
        config: PathBuf,
    },
    /// Forget what was learned about a host: its next connection tries SCTP again
    ///
    /// `shimrules -L` shows what was learned. Connections go on.
    Forget {
        /// Host
        #[arg(
            value_name = "HOST",
            help = "Host, such as 10.1.2.3, 2001:db8::1 or host.example: all its addresses"
        )]
        host: String,
    },
    /// Read the configuration and the rules again; connections go on
    ///
    /// Names the changes that wait for a restart.
    Reload,
    /// Show or check the configuration file
    #[command(disable_help_subcommand = true)]
    Config {
        /// What to do with it
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Manual pages and completions of sctpify, shimrules and sctpifyd
    #[command(flatten)]
    Docs(Docs),
}

/// Arguments of `sctpify up`.
#[derive(Args, Debug)]
pub struct UpArgs {
    /// Stay in the foreground, with the log on standard error
    #[arg(long)]
    pub foreground: bool,

    /// Configuration file
    #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,

    /// Directory for the rules file, the learned table and the log
    #[arg(long, value_name = "DIR", env = "SCTPIFY_STATE_DIR", default_value = DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,

    /// What to log: error, warn, info, debug, trace, or a filter such as info,engine=trace (all that the
    /// SCTP engine does, and why: very much)
    #[arg(long, value_name = "FILTER", env = "SCTPIFY_LOG", default_value = "info")]
    pub log: String,
}

/// What `sctpify bench` measures, or that it serves.
#[derive(Args, Debug)]
#[command(
    override_usage = "sctpify bench [OPTIONS] <HOST>\n       sctpify bench --serve [--port <PORT>] [--for <SECONDS>]"
)]
pub struct BenchArgs {
    /// The host to measure with; it serves
    #[arg(conflicts_with = "serve")]
    pub host: Option<String>,

    /// Serve measurements of others, on all addresses
    #[arg(long)]
    pub serve: bool,

    /// The first of the three ports
    #[arg(long, default_value_t = 9890, value_parser = clap::value_parser!(u16).range(1..=65_533))]
    pub port: u16,

    /// With --serve: for how many seconds
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 600, requires = "serve", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub duration: u32,

    /// What to compare with
    #[arg(long, value_delimiter = ',', conflicts_with = "serve")]
    pub against: Vec<Other>,

    /// Duration of each transfer
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with = "serve", value_parser = clap::value_parser!(u32).range(1..=30))]
    pub seconds: u32,

    /// Number of connects of each kind, after the first
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with = "serve", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub connects: u32,
}

/// What SCTP is compared with.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Other {
    /// Plain TCP.
    Tcp,
    /// The kernel's Multipath TCP.
    Mptcp,
}

impl From<Other> for Transport {
    fn from(other: Other) -> Transport {
        match other {
            Other::Tcp => Transport::Tcp,
            Other::Mptcp => Transport::Mptcp,
        }
    }
}

/// Arguments of `sctpify run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Configuration file [default: sctpify/sctpify.toml below $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG")]
    pub config: Option<PathBuf>,

    /// Directory for what is learned of destinations [default: sctpify below $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR", env = "SCTPIFY_STATE_DIR")]
    pub state_dir: Option<PathBuf>,

    /// Log to standard error: error, warn, info, debug, trace, or a filter
    #[arg(long, value_name = "FILTER", env = "SCTPIFY_LOG")]
    pub log: Option<String>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Interval and number of refreshes of `sctpify top` and `sctpify watch`.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// Between two looks, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=3_600_000))]
    pub interval: u64,

    /// Number of refreshes; without it, until stopped
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// What `sctpify config` does.
#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Print the configuration, each key with its documentation
    Show {
        /// Print the defaults, commented out: a file to begin with
        #[arg(long)]
        default: bool,
        /// Configuration file
        #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", help = named_config())]
        config: Option<PathBuf>,
    },
    /// Check the configuration file: say that it is sound, or which line is wrong
    Check {
        /// Configuration file
        #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", help = named_config())]
        config: Option<PathBuf>,
    },
}

/// The help of a file that must be there if it is named.
fn named_config() -> String {
    format!("Configuration file, which must exist if it is named [default: {DEFAULT_CONFIG}]")
}
