//! The command line of `sctpify`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use control::{DEFAULT_CONFIG, DEFAULT_CONTROL, DEFAULT_STATE_DIR, HostKeyText, Transport};
use ops::Docs;

use crate::rule::RuleCommand;

/// Carry TCP connections over SCTP
///
/// Starts, stops and queries sctpifyd. The daemon carries this host's TCP connections over SCTP if a rule selects them and
/// the peer supports SCTP. `sctpify rule` changes the rules.
///
/// Exit status: 0 success, 1 refused or failed, 2 usage error, 3 no daemon.
#[derive(Parser, Debug)]
#[command(name = "sctpify", version = version::FULL, max_term_width = 100, disable_help_subcommand = true)]
pub struct Sctpify {
    /// Control socket of the daemon
    #[arg(long, global = true, value_name = "PATH", env = "SCTPIFY_CONTROL", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,

    /// Print JSON, one object per line
    #[arg(long, global = true)]
    pub json: bool,

    /// Command to run
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `sctpify`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start the daemon and wait until it is ready
    Up(UpArgs),
    /// Run a command with its connections over SCTP, without root
    ///
    /// Requires neither root nor a daemon, only the permission to create user namespaces. The command gets its own network namespace. Its
    /// connections to hosts that run sctpifyd use SCTP in UDP; all other connections use plain TCP. The command sees refused connections
    /// and unreachable hosts as usual. `run` exits with the command's status. Within the command, `sctpify status` shows the transport of
    /// each connection.
    ///
    /// The command cannot accept connections from outside, and cannot ping. It cannot reach services on this host's loopback; the host's
    /// other addresses work. It receives UDP only from hosts to which it has sent. It cannot gain privileges, for example with sudo and
    /// other set-user-ID programs. Its sockets show 169.254.132.1 as their local address. On the wire, connections have this host's
    /// address. Connections over SCTP keep their source port; other connections may get another port.
    Run(RunArgs),
    /// Serve SCTP sockets to programs (`run --sctp` starts this command)
    #[command(hide = true)]
    ServeSockets(SocketArgs),
    /// Show the SCTP sockets of programs that `run --sctp` has started
    Sctp,
    /// Execute a command in the namespaces that `run` created
    #[command(hide = true)]
    Enter {
        /// User ID of the caller
        uid: u32,
        /// Group ID of the caller
        gid: u32,
        /// Command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Stop the daemon and wait until it has ended
    ///
    /// Open connections over SCTP get an error, and new connections use plain TCP. Also succeeds if no daemon runs.
    Down {
        /// Carry new connections over TCP, and wait for open connections to end before the stop
        #[arg(long)]
        drain: bool,
        /// Limit on the wait for open connections, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "drain")]
        wait: u64,
    },
    /// Show connections, associations, listeners and recent fallbacks
    Status {
        /// Print Markdown, for a report
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
    },
    /// Show live paths, rates and events on the terminal; q or Ctrl-C quits
    Top(WatchArgs),
    /// Print the status as JSON at an interval, one object per line; with --events, print path changes when they occur
    ///
    /// With --events, prints an object when data takes another path, when a link to a peer fails, and when such a link works again. Each
    /// object has the reason and the number of working links. Earlier changes are not printed. If the daemon ends, the command waits for
    /// the next daemon.
    Watch {
        /// Print changes of paths instead of the status
        #[arg(long)]
        events: bool,

        /// Interval and number of the lines
        #[command(flatten)]
        rhythm: WatchArgs,
    },
    /// Show the paths of all associations
    Paths {
        /// Also print carrier, windows, timers, MTU and errors
        #[arg(long)]
        wide: bool,
    },
    /// Show the traffic and round-trip times of links over the last day, and their total traffic
    ///
    /// The daemon reads the counts of its links each minute, and keeps them over restarts. With `--json`, the output has a sample per
    /// minute for an hour, and one per ten minutes for a day.
    History,
    /// Explain how a new connection to HOST:PORT would be carried
    Explain {
        /// Destination
        #[arg(
            value_name = "HOST:PORT",
            help = "Destination, such as 10.1.2.3:22, [2001:db8::1]:22 or host.example:22"
        )]
        destination: String,
    },
    /// Show a connection that survives a pulled cable, between two hosts that exist only on this machine
    ///
    /// Requires root and `ip`, and changes nothing outside of its own network namespaces. Two namespaces act as hosts, joined by two links,
    /// with a daemon each. A TCP program sends numbers to the other host, which returns them. In the middle, the cable of one link is
    /// pulled. The demo takes about 15 s. The exit status is 0 if all numbers came back over SCTP, or if the reader of the output has gone.
    Demo,
    /// Report missing requirements of this host and their remedies; with HOST, also test the paths to it
    ///
    /// The exit status is 1 if a requirement is missing.
    Doctor {
        /// Peer to probe on each link of this host: SCTP in UDP must pass unaltered and at full packet size. With a port, such as
        /// 10.1.2.3:22, also test whether the peer accepts SCTP for that port. Requires the daemon
        #[arg(value_name = "HOST[:PORT]")]
        host: Option<String>,
    },
    /// Test each link of this host to a peer repeatedly; q or Ctrl-C quits
    ///
    /// Each round sends one INIT from each uplink address of this host to each of the peer's addresses. It also tests uplinks that
    /// connections to the peer do not use. The peer keeps no state. The exit status is 1 if no INIT was answered. Requires the daemon.
    Ping {
        /// Peer; with a port, the INITs are for that port
        #[arg(value_name = "HOST[:PORT]")]
        host: String,

        /// Interval and number of the rounds
        #[command(flatten)]
        rhythm: WatchArgs,
    },
    /// Measure connection setup and throughput to a host, over SCTP and other transports
    ///
    /// First, the host's operator starts `sctpify bench --serve` there. It listens on three consecutive ports for a limited time. A rule on
    /// each host must enable the first port: `sctpify rule add 9890 to any` here, and `sctpify rule add 9890 at any` there. The second
    /// port is for plain TCP, the third for MPTCP. The report shows the transport that the connections used.
    Bench(BenchArgs),
    /// Capture the daemon's SCTP packets to a file for Wireshark; Ctrl-C stops
    ///
    /// Each record is one SCTP packet as the daemon sent or received it, with its payload and with synthesized IP and UDP headers. After a
    /// path switch, the first packet on the new path has a comment (display filter: frame.comment). Requires root or the daemon's user.
    Capture {
        /// Output file, pcapng; an existing file is overwritten
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Duration of the capture, in seconds
        #[arg(long, value_name = "N", default_value_t = 3600, value_parser = clap::value_parser!(u32).range(1..=86_400))]
        seconds: u32,
    },
    /// Let SCTP clients reach one of your listeners without a rule; Ctrl-C ends the access
    ///
    /// Applies to the sockets that listen there when the command starts, until the command ends. Users other than root need the setting
    /// manual_listen and access to the control socket (group sctpify). Root may expose any listener. A program can send the request itself:
    /// it writes {"schema":1,"request":"expose","address":null,"port":8000} as a line to the control socket, and keeps the connection open.
    /// A local-disable rule takes precedence.
    Expose {
        /// Listener
        #[arg(
            value_name = "LISTENER",
            help = "Port of the listener, or its bound address and port: 8000, 0.0.0.0:8000, [::]:8000"
        )]
        listener: String,
    },
    /// Change settings, now and in the configuration file
    ///
    /// Without a daemon, only the file changes, and the daemon reads it at its next start. A value that the daemon cannot use is refused,
    /// such as a page_port in use. A udp_port in use causes a warning.
    Set {
        /// Settings and their new values, such as default_remote_enable=1
        #[arg(value_name = "NAME=VALUE", required = true)]
        assignments: Vec<String>,
        /// Configuration file of the daemon, written for settings that only root may change, and for all settings if no daemon runs
        #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", default_value = DEFAULT_CONFIG)]
        config: PathBuf,
    },
    /// Show one setting, or all
    ///
    /// Changes that wait for a restart are shown next to the values in force. Without a daemon, the values come from the
    /// configuration file.
    Get {
        /// Name of the setting
        name: Option<String>,
        /// Configuration file to read if no daemon runs
        #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", default_value = DEFAULT_CONFIG)]
        config: PathBuf,
    },
    /// Delete a host's learned entries; the next connection to the host tries SCTP again
    ///
    /// `sctpify rule list` lists learned entries. Open connections continue.
    Forget {
        /// Host
        #[arg(
            value_name = "HOST",
            help = "Host, such as 10.1.2.3, 2001:db8::1 or host.example: all its addresses"
        )]
        host: String,
    },
    /// List and change the rules that select connections for SCTP
    ///
    /// The first matching rule decides, so add specific rules first. Changes apply to new connections at once, and persist across
    /// restarts. shimrules(8) offers the same functions with the command syntax of the papers.
    #[command(disable_help_subcommand = true)]
    Rule {
        /// Command to run
        #[command(subcommand)]
        command: RuleCommand,
    },
    /// Show this host's public key, and six words that represent it
    ///
    /// Other hosts recognise this host by its key (setting encryption). The daemon creates the key at its first start.
    Key,
    /// Compare words with a host, to verify its key
    ///
    /// First connect to the host over SCTP. While the connection is open, run this command at both ends. Both ends show six words for the
    /// association. If you type the words that the other end shows, and the words match, this host records the key as verified.
    Pair {
        /// Host, such as 10.1.2.3 or host.example, or its name in `sctpify peers`
        #[arg(value_name = "HOST")]
        host: String,
        /// Words that the other end shows; without this option, the command asks for them on the terminal
        #[arg(long, value_name = "WORDS")]
        words: Option<String>,
        /// Name of the host, for `sctpify status` and `sctpify peers`
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// List the hosts whose keys are known, add the key of a host, or forget a host
    ///
    /// The daemon records the key that it finds at the first encrypted connection to an address (setting encryption).
    #[command(disable_help_subcommand = true)]
    Peers {
        /// Command to run
        #[command(subcommand)]
        command: Option<PeersCommand>,
    },
    /// Read the configuration and the rules again; connections continue
    ///
    /// Lists the changes that wait for a restart.
    Reload,
    /// Show or check the configuration file
    #[command(disable_help_subcommand = true)]
    Config {
        /// Command to run
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

    /// Directory for the rules file, the learned table, the host's key, the known peers and the log
    #[arg(long, value_name = "DIR", env = "SCTPIFY_STATE_DIR", default_value = DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,

    /// Log filter: error, warn, info, debug or trace, or levels by target such as info,engine=trace (all events of
    /// the SCTP engine: very verbose)
    #[arg(long, value_name = "FILTER", env = "SCTPIFY_LOG", default_value = "info")]
    pub log: String,
}

/// Arguments of `sctpify bench`.
#[derive(Args, Debug)]
#[command(
    override_usage = "sctpify bench [OPTIONS] <HOST>\n       sctpify bench --serve [--port <PORT>] [--for <SECONDS>]"
)]
pub struct BenchArgs {
    /// Host to measure with; it must run `sctpify bench --serve`
    #[arg(conflicts_with = "serve")]
    pub host: Option<String>,

    /// Serve measurements by other hosts, on all addresses
    #[arg(long)]
    pub serve: bool,

    /// First of the three ports
    #[arg(long, default_value_t = 9890, value_parser = clap::value_parser!(u16).range(1..=65_533))]
    pub port: u16,

    /// With --serve: duration in seconds
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 600, requires = "serve", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub duration: u32,

    /// Transports to compare with SCTP
    #[arg(long, value_delimiter = ',', conflicts_with = "serve")]
    pub against: Vec<Other>,

    /// Duration of each transfer, in seconds
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with = "serve", value_parser = clap::value_parser!(u32).range(1..=30))]
    pub seconds: u32,

    /// Number of connections per transport, after the first
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with = "serve", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub connects: u32,
}

/// A transport to compare with SCTP.
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
    /// Configuration file [default: sctpify/sctpify.toml in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG")]
    pub config: Option<PathBuf>,

    /// Directory for the learned table, your key and the known peers [default: sctpify in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR", env = "SCTPIFY_STATE_DIR")]
    pub state_dir: Option<PathBuf>,

    /// Log to standard error with this filter: error, warn, info, debug or trace, or levels by target
    #[arg(long, value_name = "FILTER", env = "SCTPIFY_LOG")]
    pub log: Option<String>,

    /// Provide SCTP sockets to an SCTP program on a kernel without SCTP, instead of carrying TCP connections
    ///
    /// A dynamically linked program gets the sockets from a preloaded library, and any other program through --seccomp. All programs of a
    /// user in one network namespace share one socket server. The options of the first program apply to the server.
    #[arg(long, conflicts_with_all = ["config", "state_dir"])]
    pub sctp: bool,

    /// Provide sockets through seccomp user notification, without a library [default: for static programs and musl programs]
    ///
    /// Works for static programs, for programs that make system calls directly, such as programs in Go, and for all their child processes.
    /// Each call on an SCTP socket takes about 40 microseconds longer. Requires Linux 5.19.
    #[arg(long, requires = "sctp")]
    pub seccomp: bool,

    /// Carriers and ports of the sockets with --sctp
    #[command(flatten)]
    pub sockets: SocketArgs,

    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Carriers and ports of the sockets of `sctpify run --sctp`.
#[derive(Args, Debug, Clone)]
pub struct SocketArgs {
    /// Carry packets over UDP, over IP protocol 132 (requires root), or over both: the first answer decides [default: udp]
    #[arg(long, value_enum, value_name = "CARRIERS")]
    pub carriers: Option<SocketCarriers>,

    /// UDP port of this host for SCTP in UDP [default: 9899]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub udp_port: Option<u16>,

    /// UDP port of peers, if the program does not set SCTP_REMOTE_UDP_ENCAPS_PORT [default: 9899]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub peer_udp_port: Option<u16>,
}

impl SocketArgs {
    /// Reports whether no option is given.
    pub fn is_default(&self) -> bool {
        self.carriers.is_none() && self.udp_port.is_none() && self.peer_udp_port.is_none()
    }
}

/// Carriers of SCTP packets.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketCarriers {
    /// SCTP in UDP (RFC 6951)
    Udp,
    /// SCTP over IP
    Ip,
    /// Both
    Both,
}

/// Interval and number of refreshes of `sctpify top`, `sctpify watch` and `sctpify ping`.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// Interval between refreshes, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=3_600_000))]
    pub interval: u64,

    /// Number of refreshes; unlimited by default
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// Commands of `sctpify peers`.
#[derive(Subcommand, Debug)]
pub enum PeersCommand {
    /// Add the key of a host, as `sctpify key` prints it there; connections to its addresses accept no other key
    ///
    /// The first connection is then already authenticated. The key replaces any key that was only found at one of the addresses. If one of
    /// the addresses belongs to a host whose key was added or verified, forget that host first.
    Add {
        /// Key of the host, as `sctpify key` prints it there
        #[arg(value_name = "KEY")]
        key: HostKeyText,
        /// Addresses of the host
        #[arg(value_name = "ADDRESS", required = true)]
        addresses: Vec<IpAddr>,
        /// Name of the host, for `sctpify status` and `sctpify peers`
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Forget the key of a host; the next connection to the host records the key that it finds
    Forget {
        /// Name, address or key of the host
        #[arg(value_name = "NAME|ADDRESS")]
        which: String,
    },
}

/// Commands of `sctpify config`.
#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Print the configuration with the documentation of each key
    Show {
        /// Print the defaults, commented out, as a template
        #[arg(long)]
        default: bool,
        /// Configuration file
        #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", help = named_config())]
        config: Option<PathBuf>,
    },
    /// Check the configuration file and report the first faulty line
    Check {
        /// Configuration file
        #[arg(long, value_name = "FILE", env = "SCTPIFY_CONFIG", help = named_config())]
        config: Option<PathBuf>,
    },
}

/// Returns the help text of an option for a file that must exist if the user names it.
fn named_config() -> String {
    format!("Configuration file; must exist if named [default: {DEFAULT_CONFIG}]")
}
