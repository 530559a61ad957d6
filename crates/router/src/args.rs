//! The command line of `sctpify-router`.

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Queues of a router that go by what senders advertise of their send buffers
///
/// Senders that advertise (`sctpify set advertise=percent`) say in each packet how much waits to be sent. This program has the
/// Linux kernel sort packets into classes by that (tc). What each way is good for, and what it costs, is in docs/sba.md.
///
/// Exit status: 0 done, 1 refused, failed or different, 2 wrong usage.
#[derive(Parser, Debug)]
#[command(name = "sctpify-router", version, max_term_width = 100, disable_help_subcommand = true)]
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
    /// How packets are looked at
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
    /// How often to show it with --every; for ever unless set
    #[arg(long, value_name = "COUNT", requires = "every", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
}

/// How packets are looked at.
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
