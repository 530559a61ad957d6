//! The command line of `sctpify-router`.

use bridge::LinkEnd;
use clap::{Args, Parser, Subcommand, ValueEnum};
use ops::Docs;

use crate::look::Look;
use crate::policy::PolicyName;

/// Queues of a router that go by what senders advertise of their send buffers
///
/// Senders that advertise (`sctpify set advertise=percent`) say in each packet how much waits to be sent. This program has the
/// Linux kernel sort packets into classes by that (tc), passes packets itself between two interfaces with queues of its own (run), and
/// tells which flows could send more (flows). What each way is good for, and what it costs, is in docs/sba.md.
///
/// Exit status: 0 done, 1 refused, failed or different, 2 wrong usage.
#[derive(Parser, Debug)]
#[command(name = "sctpify-router", version = version::FULL, max_term_width = 100, disable_help_subcommand = true)]
pub struct Router {
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What `sctpify-router` does.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Classes by occupancy in the kernel: HTB, a classifier, and a fair queue in each class
    #[command(subcommand)]
    Tc(TcCommand),
    /// Pass packets between two interfaces, each direction through a queue of our own
    ///
    /// Joins the interfaces as a cable would, at a rate, until stopped; then tells what became of packets. Takes root (CAP_NET_RAW; CAP_SYS_ADMIN
    /// for other namespaces). The interfaces need no addresses, and the kernel must not bridge or route between them.
    ///
    /// Example: sctpify-router run eth1 eth2 --rate 75mbit --policy finish
    Run(RunArgs),
    /// Show SCTP flows with their rate, what their senders advertise, and what keeps them from sending more
    ///
    /// Only listens to what comes by the interfaces: name both that a flow goes between, so that acknowledgements are seen, too. LIMITED BY is
    /// application (nothing waits at the sender), receiver (it takes no more), network (neither), or unknown (the sender says nothing).
    ///
    /// Example: sctpify-router flows eth1 eth2 --metrics-port 9896
    Flows(FlowsArgs),
    /// Manual pages and completions
    #[command(flatten)]
    Docs(Docs),
}

/// What is done with the kernel's classes.
#[derive(Subcommand, Debug)]
pub enum TcCommand {
    /// Make the classes at an interface
    ///
    /// Class 5ba:1 has what says nothing, 5ba:10 to 5ba:100 (numbers in hexadecimal) what is 0-9 % full, 10-19 % and so on; the fuller, the larger
    /// the guaranteed part of the rate, and each may borrow the whole. A flow whose packets change classes is reordered.
    /// What cannot be made whole is taken away again.
    ///
    /// Example: sctpify-router tc up eth1 --rate 75mbit
    Up {
        /// The classes
        #[command(flatten)]
        shape: Shape,
        /// Only print the commands
        #[arg(long)]
        dry_run: bool,
    },
    /// Show the classes and what passed through each
    Show(ShowArgs),
    /// Tell whether an interface has exactly the classes and filters that `up` with the same options makes
    Check {
        /// The classes
        #[command(flatten)]
        shape: Shape,
    },
    /// Take the classes of an interface away; another queueing discipline than ours is left alone
    Down {
        /// The interface
        #[arg(value_name = "INTERFACE")]
        interface: String,
        /// Only print the command
        #[arg(long)]
        dry_run: bool,
    },
}

/// The classes as they are asked for.
#[derive(Args, Clone, Debug)]
pub struct Shape {
    /// The interface that packets leave by
    #[arg(value_name = "INTERFACE")]
    pub interface: String,
    /// What the link carries, such as 75mbit; a little less than it does, so that packets wait here
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: u64,
    /// The most that class 5ba:1 may have, which goes before the others; the whole rate unless set
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub default_ceil: Option<u64>,
    /// Packet classifier
    #[arg(long = "match", value_enum, default_value_t = Matcher::Bpf)]
    pub matcher: Matcher,
    /// The queue in each class
    #[arg(long, value_enum, default_value_t = Leaves::Auto)]
    pub leaves: Leaves,
    /// What the chunk's flags count
    #[arg(long, value_enum, default_value_t = Flags::Percent)]
    pub flags: Flags,
    /// The UDP port of SCTP in UDP
    #[arg(long, value_name = "PORT", default_value_t = 9899)]
    pub udp_port: u16,
    /// The chunk's type
    #[arg(long, value_name = "TYPE", default_value_t = 150)]
    pub chunk_type: u8,
}

/// What is shown, and how often.
#[derive(Args, Clone, Debug)]
pub struct ShowArgs {
    /// The interface
    #[arg(value_name = "INTERFACE")]
    pub interface: String,
    /// Show it again after so many seconds, with the rates since
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub every: Option<u32>,
    /// Number of tables with --every; without it, until stopped
    #[arg(long, value_name = "COUNT", requires = "every", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    /// With --every: a page with them, and numbers for Prometheus at /metrics, at this port of 127.0.0.1
    #[arg(long, value_name = "PORT", requires = "every")]
    pub metrics_port: Option<u16>,
}

/// Packet classifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Matcher {
    /// A program of classic BPF
    Bpf,
    /// Filters of u32 with a table of 256 places
    U32,
}

/// The queue in each class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Leaves {
    /// SFQ where the kernel has it, else hashed
    Auto,
    /// SFQ, perturbed every 10 s
    Sfq,
    /// 256 classes below each, by a hash of addresses and ports
    Hashed,
    /// One queue of 127 packets
    Pfifo,
}

/// What the chunk's flags count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Flags {
    /// Percent, 0 to 100
    Percent,
    /// Tenths as the patch of 2016 sends them: 1 to 9 have a class each, all else is in 5ba:1
    Tenths,
}

/// A rate in bit/s, more than none.
///
/// # Errors
/// When it is no rate, with what would be right.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    match netem::parse_rate(text)? {
        0 => Err("a link without a limit has no queue: say a rate such as 75mbit".to_owned()),
        rate => Ok(rate),
    }
}

/// What is to be found in packets.
#[derive(Args, Clone, Copy, Debug)]
pub struct LookArgs {
    /// The UDP port of SCTP in UDP
    #[arg(long, value_name = "PORT", default_value_t = 9899)]
    pub udp_port: u16,
    /// The chunk's type
    #[arg(long, value_name = "TYPE", default_value_t = 150)]
    pub chunk_type: u8,
}

impl LookArgs {
    fn look(self) -> Look {
        Look { udp_port: self.udp_port, chunk_type: self.chunk_type }
    }
}

/// Our own router.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// One interface, as INTERFACE or NAMESPACE:INTERFACE
    #[arg(value_name = "A")]
    pub a: LinkEnd,
    /// The other one
    #[arg(value_name = "B")]
    pub b: LinkEnd,
    /// What the link carries from A to B, such as 75mbit, or unlimited
    #[arg(long, value_name = "RATE", value_parser = netem::parse_rate)]
    pub rate: u64,
    /// What it carries from B to A; the same unless set
    #[arg(long, value_name = "RATE", value_parser = netem::parse_rate)]
    pub rate_back: Option<u64>,
    /// Which packet goes next, and which is dropped
    #[arg(long, value_enum, default_value_t = PolicyName::Ltf)]
    pub policy: PolicyName,
    /// Packets that may wait in each direction; the policy's own number unless set
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: Option<u32>,
    /// With fq-codel: mark ECN-capable packets instead of dropping them
    #[arg(long)]
    pub ecn: bool,
    /// Where the hashes begin; a random number unless set
    #[arg(long)]
    pub seed: Option<u64>,
    /// A page, and numbers for Prometheus at /metrics, at this port of 127.0.0.1
    #[arg(long, value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// What is to be found in packets
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

/// Which flows are shown.
#[derive(Args, Clone, Debug)]
pub struct FlowsArgs {
    /// An interface, as INTERFACE or NAMESPACE:INTERFACE
    #[arg(value_name = "INTERFACE")]
    pub first: LinkEnd,
    /// More of them
    #[arg(value_name = "INTERFACE")]
    pub others: Vec<LinkEnd>,
    /// Show a table each so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub every: u32,
    /// Number of tables; without it, until stopped
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    /// Flows in a table at most, the fastest first
    #[arg(long, value_name = "FLOWS", default_value_t = 20)]
    pub top: usize,
    /// A page, and numbers for Prometheus at /metrics, at this port of 127.0.0.1
    #[arg(long, value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// What is to be found in packets
    #[command(flatten)]
    pub look: LookArgs,
}

impl FlowsArgs {
    pub(crate) fn look(&self) -> Look {
        self.look.look()
    }
}
