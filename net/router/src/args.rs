//! The command line of `sctpify-router`.

use bridge::LinkEnd;
use clap::{Args, Parser, Subcommand, ValueEnum};
use ops::Docs;

use crate::look::Look;
use crate::policy::PolicyName;

/// Schedule SCTP packets by the send-buffer occupancy that their senders advertise
///
/// Senders that advertise (`sctpify set advertise=percent`) report the occupancy of their send buffer in each packet. `tc`
/// configures the Linux kernel to sort packets into classes by occupancy. `run` forwards packets between two interfaces through
/// its own queues. `flows` shows the limit on each flow's rate. docs/sba.md compares these modes and their costs.
///
/// Exit status: 0 success, 1 refused, failed or different, 2 usage error.
#[derive(Parser, Debug)]
#[command(name = "sctpify-router", version = version::FULL, max_term_width = 100, disable_help_subcommand = true)]
pub struct Router {
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// Command to run
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `sctpify-router`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Manage the kernel's classes by occupancy: HTB, a classifier, and a fair queue in each class
    #[command(subcommand)]
    Tc(TcCommand),
    /// Forward packets between two interfaces, with a queue for each direction
    ///
    /// Joins the interfaces like a cable with a limited rate. A signal (SIGINT or SIGTERM) stops the router, which then prints
    /// packet counters. Requires root (CAP_NET_RAW; CAP_SYS_ADMIN for other namespaces). The interfaces need no addresses, and
    /// the kernel must not bridge or route between them.
    ///
    /// Example: sctpify-router run eth1 eth2 --rate 75mbit --policy finish
    Run(RunArgs),
    /// Show SCTP flows with their rate, their advertised occupancy, and the limit on their rate
    ///
    /// Captures incoming packets only. Name the interfaces on both sides of a flow, because its acknowledgements arrive on the
    /// other side. LIMITED BY is one of: application (no data waits in the send buffer), receiver (its window is closed), network
    /// (neither), network-or-receiver (the receiver's window is encrypted), unknown (no advertisement).
    ///
    /// Example: sctpify-router flows eth1 eth2 --metrics-port 9896
    Flows(FlowsArgs),
    /// Manual pages and completions
    #[command(flatten)]
    Docs(Docs),
}

/// Commands for the kernel's classes.
#[derive(Subcommand, Debug)]
pub enum TcCommand {
    /// Create the classes on an interface
    ///
    /// Class 5ba:1 holds packets without an advertisement. Classes 5ba:10 to 5ba:100 (hexadecimal) hold packets with occupancies
    /// of 0-9 %, 10-19 % and so on. Fuller classes have a larger guaranteed rate, and each class may borrow the whole rate.
    /// Packets of a flow that change classes are reordered. If a step fails, all steps are undone.
    ///
    /// Example: sctpify-router tc up eth1 --rate 75mbit
    Up {
        /// Parameters of the classes
        #[command(flatten)]
        shape: Shape,
        /// Print the commands without running them
        #[arg(long)]
        dry_run: bool,
    },
    /// Show the classes and their packet counters
    Show(ShowArgs),
    /// Check that an interface has exactly the classes and filters that `up` creates with the same options
    Check {
        /// Parameters of the classes
        #[command(flatten)]
        shape: Shape,
    },
    /// Delete the classes of an interface; other queueing disciplines are left alone
    Down {
        /// Interface
        #[arg(value_name = "INTERFACE")]
        interface: String,
        /// Print the command without running it
        #[arg(long)]
        dry_run: bool,
    },
}

/// Parameters of the classes.
#[derive(Args, Clone, Debug)]
pub struct Shape {
    /// Outgoing interface
    #[arg(value_name = "INTERFACE")]
    pub interface: String,
    /// Rate, such as 75mbit: slightly below the link's rate, so packets queue on this interface
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: u64,
    /// Limit on the rate of class 5ba:1, which has priority over the others [default: the whole rate]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub default_ceil: Option<u64>,
    /// Packet classifier
    #[arg(long = "match", value_enum, default_value_t = Matcher::Bpf)]
    pub matcher: Matcher,
    /// Queueing discipline in each class
    #[arg(long, value_enum, default_value_t = Leaves::Auto)]
    pub leaves: Leaves,
    /// Unit of the chunk's flags
    #[arg(long, value_enum, default_value_t = Flags::Percent)]
    pub flags: Flags,
    /// UDP port of SCTP in UDP
    #[arg(long, value_name = "PORT", default_value_t = 9899)]
    pub udp_port: u16,
    /// Chunk type of advertisements
    #[arg(long, value_name = "TYPE", default_value_t = 150)]
    pub chunk_type: u8,
}

/// Arguments of `sctpify-router tc show`.
#[derive(Args, Clone, Debug)]
pub struct ShowArgs {
    /// Interface
    #[arg(value_name = "INTERFACE")]
    pub interface: String,
    /// Interval between tables, in seconds; the tables then also show rates
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub every: Option<u32>,
    /// With --every: number of tables; unlimited by default
    #[arg(long, value_name = "COUNT", requires = "every", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    /// With --every: TCP port on 127.0.0.1 of the web page, and of Prometheus metrics at /metrics
    #[arg(long, value_name = "PORT", requires = "every")]
    pub metrics_port: Option<u16>,
}

/// Packet classifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Matcher {
    /// Classic BPF program
    Bpf,
    /// u32 filters with a hash table of 256 buckets
    U32,
}

/// Queueing disciplines in a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Leaves {
    /// SFQ if the kernel supports it, else hashed
    Auto,
    /// SFQ, perturbed every 10 s
    Sfq,
    /// 256 classes within each class, chosen by a hash of addresses and ports
    Hashed,
    /// One queue of 127 packets
    Pfifo,
}

/// Units of the chunk's flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Flags {
    /// Percent, 0 to 100
    Percent,
    /// Tenths, as in the patch of 2016: values 1 to 9 have a class each, and 5ba:1 holds all others
    Tenths,
}

/// Parses a rate in bit/s, above zero.
///
/// # Errors
/// When the text is not such a rate. The error states the accepted form.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    match netem::parse_rate(text)? {
        0 => Err("a link without a limit has no queue: give a rate such as 75mbit".to_owned()),
        rate => Ok(rate),
    }
}

/// Identification of advertisements in packets.
#[derive(Args, Clone, Copy, Debug)]
pub struct LookArgs {
    /// UDP port of SCTP in UDP
    #[arg(long, value_name = "PORT", default_value_t = 9899)]
    pub udp_port: u16,
    /// Chunk type of advertisements
    #[arg(long, value_name = "TYPE", default_value_t = 150)]
    pub chunk_type: u8,
}

impl LookArgs {
    fn look(self) -> Look {
        Look { udp_port: self.udp_port, chunk_type: self.chunk_type }
    }
}

/// Arguments of `sctpify-router run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// First interface: INTERFACE or NAMESPACE:INTERFACE
    #[arg(value_name = "A")]
    pub a: LinkEnd,
    /// Second interface
    #[arg(value_name = "B")]
    pub b: LinkEnd,
    /// Rate from A to B, such as 75mbit, or unlimited
    #[arg(long, value_name = "RATE", value_parser = netem::parse_rate)]
    pub rate: u64,
    /// Rate from B to A [default: the rate from A to B]
    #[arg(long, value_name = "RATE", value_parser = netem::parse_rate)]
    pub rate_back: Option<u64>,
    /// Queueing discipline: selects the next packet, and the packet to drop
    #[arg(long, value_enum, default_value_t = PolicyName::Ltf)]
    pub policy: PolicyName,
    /// Limit on queued packets in each direction, or in each class of a direction [default: set by the policy]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: Option<u32>,
    /// With fq-codel: mark ECN-capable packets instead of dropping them
    #[arg(long)]
    pub ecn: bool,
    /// Seed of the hashes [default: random]
    #[arg(long)]
    pub seed: Option<u64>,
    /// TCP port on 127.0.0.1 of the web page, and of Prometheus metrics at /metrics
    #[arg(long, value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// Identification of advertisements in packets
    #[command(flatten)]
    pub look: LookArgs,
}

impl RunArgs {
    pub(crate) fn policy(&self) -> sched::Policy {
        self.policy.with(self.limit.map(|packets| packets as usize), self.ecn)
    }

    pub(crate) fn look(&self) -> Look {
        self.look.look()
    }
}

/// Arguments of `sctpify-router flows`.
#[derive(Args, Clone, Debug)]
pub struct FlowsArgs {
    /// Interface: INTERFACE or NAMESPACE:INTERFACE
    #[arg(value_name = "INTERFACE")]
    pub first: LinkEnd,
    /// More interfaces
    #[arg(value_name = "INTERFACE")]
    pub others: Vec<LinkEnd>,
    /// Interval between tables, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub every: u32,
    /// Number of tables; unlimited by default
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    /// Limit on flows per table, fastest first
    #[arg(long, value_name = "FLOWS", default_value_t = 20)]
    pub top: usize,
    /// TCP port on 127.0.0.1 of the web page, and of Prometheus metrics at /metrics
    #[arg(long, value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// Identification of advertisements in packets
    #[command(flatten)]
    pub look: LookArgs,
}

impl FlowsArgs {
    pub(crate) fn look(&self) -> Look {
        self.look.look()
    }
}
