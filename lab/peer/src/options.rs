//! The command line.

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use sctp::{Multipath, PathScheduler, SendBufferCadence, SendBufferConfig, SendBufferForm};
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::time::Duration;

/// Octets that an association may hold in each direction, unless the command line says otherwise.
const BUFFER: usize = 4 << 20;
/// UDP port of both ends, unless the command line says otherwise (RFC 6951 section 5.1).
const UDP_PORT: u16 = 9899;
/// Milliseconds between two advertisements on a timer, unless the command line says otherwise.
const SBA_INTERVAL_MS: u32 = 5000;

/// An SCTP peer for tests, on sctpify's own stack. Needs root for --carrier ip and both, and a kernel without SCTP of its own.
#[derive(Debug, Parser)]
#[command(name = "peer")]
pub struct Options {
    /// Encapsulations of SCTP packets.
    #[arg(long, value_enum, default_value = "udp")]
    pub carrier: CarrierKind,
    /// Our UDP port (RFC 6951).
    #[arg(long, default_value_t = UDP_PORT)]
    pub udp_port: u16,
    /// The peer's UDP port.
    #[arg(long, default_value_t = UDP_PORT)]
    pub peer_udp_port: u16,
    /// An address of ours to offer; repeatable, the first is where a client connects from.
    #[arg(long, required = true)]
    pub local: Vec<IpAddr>,
    /// Send IP packets by the kernel's own way only, even where nobody filters them.
    #[arg(long)]
    pub no_shortcuts: bool,
    /// Use of several paths at once, and the choice of the path for the next packet.
    #[arg(long, value_enum, default_value = "off")]
    pub multipath: MultipathKind,
    /// RTO of 50 ms to 2 s, a path fails at the second timeout: for tests that cut one.
    #[arg(long)]
    pub short_timers: bool,
    /// Authenticate DATA by HMAC 1 (SHA-1) or 3 (SHA-256), under the key of the kernel's peer, and offer ASCONF.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub auth: Option<u8>,
    /// Offer RE-CONFIG, and fulfil every request of the peer about streams.
    #[arg(long)]
    pub reconf: bool,
    /// Offer I-DATA.
    #[arg(long)]
    pub idata: bool,
    /// Take packets with a checksum of zero, and send them to a peer that does (RFC 9653), as if DTLS were beneath.
    #[arg(long)]
    pub zero_checksum: bool,
    /// Tell routers how full our send buffer is (chunk type 150), and take notice of what the peer tells.
    #[arg(long, value_enum, value_name = "FORM")]
    pub sba: Option<SbaKind>,
    /// With --sba timer: how often, in milliseconds, in a packet of its own where no DATA leaves by then.
    #[arg(long, value_name = "MS", default_value_t = SBA_INTERVAL_MS, requires = "sba",
          value_parser = clap::value_parser!(u32).range(10..=3_600_000))]
    pub sba_interval: u32,
    /// Write what the engine does, and why, into this file, as JSON lines. Not with shards.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Offer FORWARD TSN: messages may be given up.
    #[arg(long)]
    pub partial: bool,
    /// Octets that an association may hold in each direction; the longest message.
    #[arg(long, default_value_t = BUFFER)]
    pub buffer: usize,
    /// What to do.
    #[command(subcommand)]
    pub mode: Mode,
}

impl Options {
    /// Returns the options for one mode, with the command line's defaults for everything else.
    pub fn new(carrier: CarrierKind, local: Vec<IpAddr>, mode: Mode) -> Options {
        Options {
            carrier,
            udp_port: UDP_PORT,
            peer_udp_port: UDP_PORT,
            local,
            no_shortcuts: false,
            multipath: MultipathKind::Off,
            short_timers: false,
            auth: None,
            reconf: false,
            idata: false,
            zero_checksum: false,
            sba: None,
            sba_interval: SBA_INTERVAL_MS,
            trace: None,
            partial: false,
            buffer: BUFFER,
            mode,
        }
    }
}

/// Distribution of data over the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MultipathKind {
    /// One at a time.
    Off,
    /// All at once, the quickest first.
    LowestRtt,
    /// All at once, in equal parts.
    Weighted,
    /// Every one of them carries everything.
    Redundant,
}

impl From<MultipathKind> for Multipath {
    fn from(kind: MultipathKind) -> Multipath {
        let concurrent = |scheduler| Multipath::Concurrent { scheduler };
        match kind {
            MultipathKind::Off => Multipath::Off,
            MultipathKind::LowestRtt => concurrent(PathScheduler::LowestRtt),
            MultipathKind::Weighted => concurrent(PathScheduler::Weighted),
            MultipathKind::Redundant => concurrent(PathScheduler::Redundant),
        }
    }
}

/// Advertisement of the send buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SbaKind {
    /// Percent, in every packet with DATA.
    Percent,
    /// Tens of percent, when they change and in every 8th packet.
    Economical,
    /// Percent and bytes, in every packet with DATA.
    Backlog,
    /// Percent and bytes, once in each --sba-interval.
    Timer,
    /// Tenths of what is used, in every packet with DATA: as the patch of 2016 has it.
    Seed,
}

impl Options {
    /// Returns the form of send-buffer advertisement.
    pub(crate) fn advertisement(&self) -> Option<SendBufferConfig> {
        let pause = Duration::from_millis(self.sba_interval.into());
        self.sba.map(|kind| kind.config(pause))
    }
}

impl SbaKind {
    fn config(self, pause: Duration) -> SendBufferConfig {
        let exact = SendBufferConfig { precision: 1, ..SendBufferConfig::default() };
        let cadence = SendBufferCadence::EveryPacket;
        match self {
            SbaKind::Percent => SendBufferConfig { cadence, ..exact },
            SbaKind::Economical => SendBufferConfig::default(),
            SbaKind::Backlog => SendBufferConfig { form: SendBufferForm::Backlog, cadence, ..exact },
            SbaKind::Timer => SendBufferConfig::backlog_every(pause),
            SbaKind::Seed => SendBufferConfig::seed(),
        }
    }
}

/// Encapsulations of SCTP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CarrierKind {
    /// UDP.
    Udp,
    /// IP, protocol 132.
    Ip,
    /// Both at once: a server answers each association by what its INIT came in, a client's INIT goes by both, and the
    /// first answer decides.
    Both,
}

impl CarrierKind {
    pub(crate) fn has_udp(self) -> bool {
        matches!(self, CarrierKind::Udp | CarrierKind::Both)
    }

    pub(crate) fn has_ip(self) -> bool {
        matches!(self, CarrierKind::Ip | CarrierKind::Both)
    }
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Mode {
    /// Accept one association and send every message back on the stream it came by.
    Echo {
        /// The SCTP port.
        port: u16,
    },
    /// Connect, send messages, and compare every octet that comes back.
    Client {
        /// The peer's address.
        host: IpAddr,
        /// Its SCTP port.
        port: u16,
        /// What to send.
        #[command(flatten)]
        load: Load,
    },
    /// Accept one association, print which messages came whole: "numbers N N ...", modulo 256.
    Sink {
        /// The SCTP port.
        port: u16,
    },
    /// Connect, and post messages that may be given up; nothing comes back.
    Post {
        /// The peer's address.
        host: IpAddr,
        /// Its SCTP port.
        port: u16,
        /// Number of messages.
        count: usize,
        /// Octets of each, 1 to 4 Mi.
        #[arg(value_parser = size_parser())]
        size: usize,
        /// Pause before each message, in seconds.
        #[arg(long, default_value_t = 0.0)]
        gap: f64,
        /// When a message is given up.
        #[command(flatten)]
        limit: Limit,
    },
    /// Accept one association, count what comes, print "BYTES MICROSECONDS".
    Receive {
        /// The SCTP port.
        port: u16,
        /// Count for so many seconds from the first message on, then leave.
        #[arg(long = "for", value_name = "SECONDS")]
        seconds: Option<f64>,
    },
    /// Connect, and send messages as fast as they are taken.
    Send {
        /// The peer's address.
        host: IpAddr,
        /// Its SCTP port.
        port: u16,
        /// For so many seconds.
        seconds: f64,
        /// Octets of each message, 1 to 4 Mi.
        #[arg(value_parser = size_parser())]
        size: usize,
    },
    /// Accept any number of associations and send every message back, until stopped.
    Serve {
        /// The SCTP port.
        port: u16,
        /// Divide the associations among so many threads, each with a socket of its own. Needs --carrier udp.
        #[arg(long, default_value = "1")]
        shards: NonZeroU8,
    },
    /// Connect, send a message and wait until it is back, again and again; print each round trip in microseconds.
    Ping {
        /// The peer's address.
        host: IpAddr,
        /// Its SCTP port.
        port: u16,
        /// Number of round trips.
        count: usize,
        /// Octets of each message, 1 to 4 Mi.
        #[arg(value_parser = size_parser())]
        size: usize,
    },
    /// Connect, send one message and wait until it is back; print how long that took from the start, in microseconds.
    First {
        /// The peer's address.
        host: IpAddr,
        /// Its SCTP port.
        port: u16,
        /// Octets of the message, 1 to 4 Mi.
        #[arg(value_parser = size_parser())]
        size: usize,
        /// Send it with the COOKIE ECHO, not when the association is up.
        #[arg(long)]
        with_cookie_echo: bool,
    },
    /// Set associations up and shut them, one after the other; print "COUNT MICROSECONDS".
    Connects {
        /// The peer's address.
        host: IpAddr,
        /// Its SCTP port.
        port: u16,
        /// Number of them.
        count: usize,
    },
}

/// When a message is given up: by one of these.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Limit {
    /// After so many seconds.
    #[arg(long)]
    pub lifetime: Option<f64>,
    /// Instead of being sent again more than so many times.
    #[arg(long)]
    pub retransmissions: Option<u32>,
    /// When the send buffer, 64 KiB, has no room: every other message for the others.
    #[arg(long)]
    pub priority: bool,
}

/// Returns the parser of message sizes.
fn size_parser() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u64).range(1..=4 << 20).map(|size| size as usize)
}

/// Load of a client.
#[derive(Clone, Copy, Debug, Args)]
pub struct Load {
    /// Number of messages.
    pub count: usize,
    /// Octets of each, 1 to 4 Mi.
    #[arg(value_parser = size_parser())]
    pub size: usize,
    /// Use so many streams in turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub streams: u16,
    /// So many messages at once under way.
    #[arg(long, default_value_t = 1)]
    pub window: usize,
    /// Pause before each message, in seconds.
    #[arg(long, default_value_t = 0.0)]
    pub gap: f64,
    /// Send without order.
    #[arg(long)]
    pub unordered: bool,
    /// After half of the messages: reset streams 0 and 1 of both directions, add streams, reset the association. Needs
    /// --reconf.
    #[arg(long)]
    pub reset: bool,
    /// Add this address of ours and ask the peer to prefer it before the first message; remove it behind the last one.
    /// Needs --auth.
    #[arg(long)]
    pub add: Option<IpAddr>,
}
