//! Command line of the peer.

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use keying::PublicKey;
use sctp::{Multipath, PathScheduler, SendBufferCadence, SendBufferConfig, SendBufferForm};
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::time::Duration;

/// Default limit on the octets that an association holds in each direction.
const BUFFER: usize = 4 << 20;
/// Default UDP port of both ends (RFC 6951 section 5.1).
const UDP_PORT: u16 = 9899;
/// Default interval of the timer form of advertisement, in milliseconds.
const SBA_INTERVAL_MS: u32 = 5000;

/// SCTP peer for tests, on sctpify's own stack. --carrier ip and --carrier both require root and a kernel without SCTP.
#[derive(Debug, Parser)]
#[command(name = "peer")]
pub struct Options {
    /// Encapsulations of SCTP packets.
    #[arg(long, value_enum, default_value = "udp")]
    pub carrier: CarrierKind,
    /// Local UDP port (RFC 6951).
    #[arg(long, default_value_t = UDP_PORT)]
    pub udp_port: u16,
    /// UDP port of the peer.
    #[arg(long, default_value_t = UDP_PORT)]
    pub peer_udp_port: u16,
    /// Local address to offer to the peer; repeatable. A client connects from the first one.
    #[arg(long, required = true)]
    pub local: Vec<IpAddr>,
    /// Send all packets of IP protocol 132 through the kernel's IP layer, even if no filter or policy must see the
    /// packets.
    #[arg(long)]
    pub no_shortcuts: bool,
    /// Scheduler for the concurrent use of several paths.
    #[arg(long, value_enum, default_value = "off")]
    pub multipath: MultipathKind,
    /// Use an RTO of 50 ms to 2 s, and fail a path at its second timeout, for tests that cut a path.
    #[arg(long)]
    pub short_timers: bool,
    /// Authenticate DATA with HMAC 1 (SHA-1) or 3 (SHA-256) and the key of kernel_peer.py, and offer ASCONF.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub auth: Option<u8>,
    /// Offer RE-CONFIG, and accept every stream request of the peer.
    #[arg(long)]
    pub reconf: bool,
    /// Offer I-DATA.
    #[arg(long)]
    pub idata: bool,
    /// Accept packets with a zero checksum, and send such packets to a peer that accepts them (RFC 9653). Announce the
    /// method "SCTP over DTLS".
    #[arg(long)]
    pub zero_checksum: bool,
    /// Advertise the send buffer's occupancy to routers (chunk type 150), and read the peer's advertisements.
    #[arg(long, value_enum, value_name = "FORM")]
    pub sba: Option<SbaKind>,
    /// With --sba timer: interval in milliseconds. If no DATA leaves within the interval, the advertisement is sent in
    /// its own packet.
    #[arg(long, value_name = "MS", default_value_t = SBA_INTERVAL_MS, requires = "sba",
          value_parser = clap::value_parser!(u32).range(10..=3_600_000))]
    pub sba_interval: u32,
    /// Write a trace of the engine to this file, as JSON lines. Not available with shards.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Offer FORWARD TSN, so messages may be abandoned (RFC 3758).
    #[arg(long)]
    pub partial: bool,
    /// Seal all packets in DTLS chunks, refuse a peer without support for them, and print the public keys of both ends.
    #[arg(long)]
    pub protect: bool,
    /// With --protect: file of this end's private key (PKCS #8), created if it is missing. Without this option, each
    /// run has a new key.
    #[arg(long, value_name = "FILE", requires = "protect")]
    pub host_key: Option<PathBuf>,
    /// With --protect: public key that the peer must have.
    #[arg(long, value_name = "KEY", requires = "protect")]
    pub peer_key: Option<PublicKey>,
    /// Limit on the octets that an association holds in each direction, and on the length of a sent message.
    #[arg(long, default_value_t = BUFFER)]
    pub buffer: usize,
    /// Mode of operation.
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
            protect: false,
            host_key: None,
            peer_key: None,
            buffer: BUFFER,
            mode,
        }
    }
}

/// Distribution of data over the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MultipathKind {
    /// One path at a time.
    Off,
    /// All paths concurrently; the path with the lowest round trip first.
    LowestRtt,
    /// All paths concurrently, in equal parts.
    Weighted,
    /// Each path carries all data.
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

/// Form of the send buffer's advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SbaKind {
    /// Occupancy in percent, in every packet with DATA.
    Percent,
    /// Occupancy in steps of 10 percent, in every 8th packet with DATA, and at once when the step changes.
    Economical,
    /// Occupancy in percent, and the backlog in bytes, in every packet with DATA.
    Backlog,
    /// Occupancy in percent, and the backlog in bytes, once per --sba-interval.
    Timer,
    /// Share of the used buffer that cannot leave now, in tenths, in every packet with DATA, as in the Linux patch of
    /// 2016.
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
    /// UDP and IP. A server answers with the encapsulation of the INIT. A client sends an INIT with each encapsulation,
    /// and uses the encapsulation of the first answer.
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

/// Modes of operation.
#[derive(Clone, Debug, Subcommand)]
pub enum Mode {
    /// Accept one association, and return every message on its stream.
    Echo {
        /// SCTP port.
        port: u16,
    },
    /// Connect, send messages, and compare every returned octet.
    Client {
        /// Address of the peer.
        host: IpAddr,
        /// SCTP port of the peer.
        port: u16,
        /// Messages to send.
        #[command(flatten)]
        load: Load,
    },
    /// Accept one association, and print the numbers of the complete messages: "numbers N N ...", modulo 256.
    Sink {
        /// SCTP port.
        port: u16,
    },
    /// Connect, and send messages that may be abandoned; nothing is returned.
    Post {
        /// Address of the peer.
        host: IpAddr,
        /// SCTP port of the peer.
        port: u16,
        /// Number of messages.
        count: usize,
        /// Octets per message, 1 to 4 Mi.
        #[arg(value_parser = size_parser())]
        size: usize,
        /// Pause before each message, in seconds.
        #[arg(long, default_value_t = 0.0)]
        gap: f64,
        /// Condition for abandoning a message.
        #[command(flatten)]
        limit: Limit,
    },
    /// Accept one association, count the received bytes, and print "BYTES MICROSECONDS".
    Receive {
        /// SCTP port.
        port: u16,
        /// Exit this number of seconds after the first message.
        #[arg(long = "for", value_name = "SECONDS")]
        seconds: Option<f64>,
    },
    /// Connect, and send messages as fast as the association accepts them.
    Send {
        /// Address of the peer.
        host: IpAddr,
        /// SCTP port of the peer.
        port: u16,
        /// Duration in seconds.
        seconds: f64,
        /// Octets per message, 1 to 4 Mi.
        #[arg(value_parser = size_parser())]
        size: usize,
    },
    /// Accept any number of associations, and return every message, until stopped.
    Serve {
        /// SCTP port.
        port: u16,
        /// Number of threads that share the associations, each with its own socket. Requires --carrier udp.
        #[arg(long, default_value = "1")]
        shards: NonZeroU8,
    },
    /// Connect, send messages, each after the return of the previous one, and print each round trip in microseconds.
    Ping {
        /// Address of the peer.
        host: IpAddr,
        /// SCTP port of the peer.
        port: u16,
        /// Number of round trips.
        count: usize,
        /// Octets per message, 1 to 4 Mi.
        #[arg(value_parser = size_parser())]
        size: usize,
    },
    /// Connect, send one message, wait for its return, and print the time from the connect to the return, in
    /// microseconds.
    First {
        /// Address of the peer.
        host: IpAddr,
        /// SCTP port of the peer.
        port: u16,
        /// Octets of the message, 1 to 4 Mi.
        #[arg(value_parser = size_parser())]
        size: usize,
        /// Send the message with the COOKIE ECHO, instead of after the handshake.
        #[arg(long)]
        with_cookie_echo: bool,
    },
    /// Set up and shut down associations in sequence, and print "COUNT MICROSECONDS".
    Connects {
        /// Address of the peer.
        host: IpAddr,
        /// SCTP port of the peer.
        port: u16,
        /// Number of associations.
        count: usize,
    },
}

/// Condition for abandoning a message; exactly one must be given.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Limit {
    /// Time after which a message is abandoned, in seconds.
    #[arg(long)]
    pub lifetime: Option<f64>,
    /// Limit on the retransmissions of a message.
    #[arg(long)]
    pub retransmissions: Option<u32>,
    /// When the send buffer of 64 KiB is full, abandon less important messages for more important ones. Every second
    /// message is more important.
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
    /// Octets per message, 1 to 4 Mi.
    #[arg(value_parser = size_parser())]
    pub size: usize,
    /// Number of streams; successive messages use successive streams.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub streams: u16,
    /// Maximum number of messages that are sent and not yet returned.
    #[arg(long, default_value_t = 1)]
    pub window: usize,
    /// Pause before each message, in seconds.
    #[arg(long, default_value_t = 0.0)]
    pub gap: f64,
    /// Send unordered messages.
    #[arg(long)]
    pub unordered: bool,
    /// After half of the messages, reset streams 0 and 1 of both directions, add streams, and reset the association.
    /// Requires --reconf.
    #[arg(long)]
    pub reset: bool,
    /// Before the first message, add this local address, and ask the peer to make it primary. Remove it after the last
    /// message. Requires --auth.
    #[arg(long)]
    pub add: Option<IpAddr>,
}
