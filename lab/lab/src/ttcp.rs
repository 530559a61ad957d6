//! `sctpify-lab ttcp`: the paper's measuring program, with its flags and its output.
//!
//! The program measures TCP, UDP, MPTCP, and SCTP on our own stack. One end receives (`-r`), and the other
//! end transmits (`-t`). Each end finally reports bytes, time, calls and processor time. The transmitter
//! stops its clock when its network stack has accepted the last buffer, before the data arrive. The
//! receiver's time is therefore more accurate than the transmitter's time.
//!
//! With TCP and UDP, either end may be another implementation of ttcp. Over UDP, datagrams of
//! [`channel::MARKER_BYTES`] mark the start and the end of the data. Aligned buffers and SO_DEBUG are not
//! supported. Begin with [`run`].

mod channel;
mod report;

pub(crate) use channel::DATAGRAM_MAX;
pub(crate) use report::Report;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use report::Unit;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::Command;
use std::time::{Duration, Instant};
use testbed::process::now;
use testbed::{Host, Process};

/// Limit on the time until a receiver listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(10);

/// The flags: ttcp's letters, and our long options.
#[derive(Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("role").args(["transmit", "receive"]).required(true))]
pub(crate) struct Ttcp {
    /// Transmit to HOST
    #[arg(short, requires = "host")]
    transmit: bool,
    /// Receive from the first sender
    #[arg(short, conflicts_with = "host")]
    receive: bool,
    /// Host to transmit to
    host: Option<String>,
    /// Length of a buffer, or of a message over UDP and SCTP
    #[arg(short, value_name = "BYTES", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(5..=4 << 20))]
    length: u32,
    /// Number of buffers to transmit
    #[arg(short, value_name = "COUNT", default_value_t = 2048)]
    n: u64,
    /// Port to transmit to or to receive on
    #[arg(short, default_value_t = 5001)]
    port: u16,
    /// Transmit a pattern instead of standard input; discard received data instead of writing it to standard output
    #[arg(short)]
    sink: bool,
    /// Use UDP, same as --over udp
    #[arg(short, conflicts_with = "over")]
    udp: bool,
    /// Set TCP_NODELAY; always on with SCTP
    #[arg(short = 'D')]
    no_delay: bool,
    /// Size of socket buffers
    #[arg(short, value_name = "BYTES")]
    buffer: Option<u32>,
    /// Unit of rates: k, m, g for bits per second, or K, M, G for bytes per second
    #[arg(short, value_name = "UNIT", default_value = "K")]
    format: Unit,
    /// Print more figures
    #[arg(short)]
    verbose: bool,
    /// Read each received byte ("touch")
    #[arg(short = 'T')]
    touch: bool,
    /// Transport
    #[arg(long, value_enum, default_value = "tcp")]
    over: Over,
    /// Time to transmit, instead of -n buffers; with -r, time after which to exit
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<f64>,
    /// With -r: exclude data of the first seconds from the count
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, conflicts_with = "transmit")]
    after: f64,
    /// Local address for SCTP; repeatable [default: all; with -t, the source address towards HOST]
    #[arg(long, value_name = "ADDRESS")]
    bind: Vec<IpAddr>,
    /// UDP port of this end, for SCTP over UDP (RFC 6951)
    #[arg(long, value_name = "PORT", default_value_t = 9899)]
    udp_port: u16,
    /// UDP port of the other end
    #[arg(long, value_name = "PORT", default_value_t = 9899)]
    peer_udp_port: u16,
    /// Print figures as JSON
    #[arg(long)]
    json: bool,
}

/// A transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Over {
    /// The kernel's TCP.
    Tcp,
    /// The kernel's UDP, without retransmission.
    Udp,
    /// The kernel's Multipath TCP.
    Mptcp,
    /// This project's SCTP over IP, protocol 132 (requires root).
    Sctp,
    /// This project's SCTP over UDP.
    SctpUdp,
}

impl Ttcp {
    fn over(&self) -> Over {
        if self.udp { Over::Udp } else { self.over }
    }

    fn length(&self) -> usize {
        self.length as usize
    }

    /// Returns the prefix of the program's output lines.
    fn name(&self) -> &'static str {
        if self.transmit { "ttcp-t" } else { "ttcp-r" }
    }

    fn limit(&self) -> Result<Option<Duration>> {
        self.seconds.map(Duration::try_from_secs_f64).transpose().context("--for")
    }

    /// Prints a line about the program's progress.
    fn say(&self, what: &str) {
        eprintln!("{}: {what}", self.name());
    }
}

/// Transmits or receives, and prints the report.
///
/// # Errors
/// Fails if the network or the other end fails, or if the arguments do not fit together.
pub(crate) fn run(args: &Ttcp) -> Result<()> {
    ensure!(
        args.over() != Over::Udp || args.length <= DATAGRAM_MAX,
        "-l {}: a datagram holds up to {} bytes",
        args.length,
        DATAGRAM_MAX
    );
    let to = args.host.as_deref().map(|host| resolve(host, args.port)).transpose()?;
    args.say(&heading(args));
    let report = match to {
        Some(to) => transmit(args, to)?,
        None => receive(args)?,
    };
    let text = if args.json { report.json()? } else { report.text(args.name(), args.format, args.verbose) };
    // Standard output may contain the received data, so the report goes to standard error.
    if args.receive && !args.sink {
        eprint!("{text}")
    } else {
        print!("{text}")
    }
    Ok(())
}

/// Returns a command that runs this program as ttcp on a host, with these arguments.
///
/// # Errors
/// Fails if this program's path is unknown.
pub(crate) fn command(host: &Host, words: &[&str]) -> Result<Command> {
    let mut command = host.command(std::env::current_exe().context("cannot determine this program's path")?);
    command.arg("ttcp").args(words);
    Ok(command)
}

/// Starts a receiver, and waits until it listens. The receiver is ttcp, or another program that prints
/// "listening".
///
/// # Errors
/// Fails if the receiver ends first, or does not listen within [`LISTEN_LIMIT`].
pub(crate) fn listening(host: &Host, command: Command) -> Result<Process> {
    let mut server = host.spawn("receiver", command)?;
    let listens = |process: &Process| (process.stdout() + &process.stderr()).contains("listening");
    server.wait_until("listening", LISTEN_LIMIT, listens)?;
    Ok(server)
}

/// Formats the parameters in ttcp's format.
fn heading(args: &Ttcp) -> String {
    let over = args.over().to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let amount = args.seconds.map_or(format!("nbuf={}", args.n), |seconds| format!("time={seconds} s"));
    let to = args.host.as_ref().map(|host| format!("  -> {host}")).unwrap_or_default();
    format!("buflen={}, {amount}, port={}  {over}{to}", args.length, args.port)
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr> {
    let mut found = (host, port).to_socket_addrs().with_context(|| format!("unknown host {host}"))?;
    found.next().with_context(|| format!("host {host} has no address"))
}

fn transmit(args: &Ttcp, to: SocketAddr) -> Result<Report> {
    args.say("socket");
    let mut channel = channel::connect(args, to)?;
    args.say("connect");
    let limit = args.limit()?;
    let mut source = Source::new(args);
    let mut count = Count::start()?;
    while limit.is_none_or(|limit| count.start.elapsed() < limit) {
        let buffer = source.next()?;
        if buffer.is_empty() {
            break;
        }
        if !channel.send(&buffer)? {
            args.say("the receiver has closed the connection");
            return count.finish();
        }
        count.note(buffer.len());
    }
    let report = count.finish()?;
    channel.finish()?;
    Ok(report)
}

/// The source of the transmitted data.
struct Source {
    /// Content of each buffer, or `None` if standard input provides the data.
    pattern: Option<Bytes>,
    length: usize,
    /// Remaining buffers of the pattern.
    left: u64,
}

impl Source {
    fn new(args: &Ttcp) -> Self {
        let left = if args.seconds.is_some() { u64::MAX } else { args.n };
        Self { pattern: args.sink.then(|| pattern(args.length())), length: args.length(), left }
    }

    /// Returns the next buffer. An empty buffer marks the end.
    fn next(&mut self) -> Result<Bytes> {
        let Some(pattern) = &self.pattern else {
            let mut block = Vec::with_capacity(self.length);
            let read = std::io::stdin().take(self.length as u64).read_to_end(&mut block);
            read.context("cannot read standard input")?;
            return Ok(block.into());
        };
        let is_over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        Ok(if is_over { Bytes::new() } else { pattern.clone() })
    }
}

/// Returns ttcp's pattern, which repeats all printable ASCII characters.
fn pattern(length: usize) -> Bytes {
    (b' '..=b'~').cycle().take(length).collect()
}

fn receive(args: &Ttcp) -> Result<Report> {
    args.say("socket");
    let listening = channel::Listening::open(args)?;
    args.say("listening");
    let mut channel = listening.accept()?;
    args.say("accept");
    let mut meter = Meter::start(args)?;
    let mut sum = 0_u64;
    loop {
        let data = channel.receive()?;
        if data.is_empty() {
            break;
        }
        if args.touch {
            sum = data.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
        }
        if !args.sink {
            std::io::stdout().write_all(data).context("cannot write to standard output")?;
        }
        if meter.note(data.len())? {
            return meter.finish();
        }
    }
    let report = meter.finish()?;
    if args.touch {
        args.say(&format!("sum of all bytes {sum}"));
    }
    channel.finish()?;
    Ok(report)
}

/// A receiver's counters, with the time limits of counting.
struct Meter {
    count: Count,
    /// Time before counting starts, or `None` once counting has started.
    not_before: Option<Duration>,
    /// Limit on the duration of counting.
    limit: Option<Duration>,
}

impl Meter {
    fn start(args: &Ttcp) -> Result<Self> {
        let after = Duration::try_from_secs_f64(args.after)?;
        let limit = args.limit()?.map(|limit| limit.saturating_sub(after));
        Ok(Self { count: Count::start()?, not_before: (!after.is_zero()).then_some(after), limit })
    }

    /// Counts received bytes. Reports whether the limit is reached.
    fn note(&mut self, bytes: usize) -> Result<bool> {
        if let Some(not_before) = self.not_before {
            if self.count.start.elapsed() >= not_before {
                (self.not_before, self.count) = (None, Count::start()?);
            }
            return Ok(false);
        }
        self.count.note(bytes);
        Ok(self.limit.is_some_and(|limit| self.count.start.elapsed() >= limit))
    }

    fn finish(self) -> Result<Report> {
        ensure!(self.not_before.is_none(), "the transfer ended before --after");
        self.count.finish()
    }
}

/// Bytes, calls, and resource usage since the start.
struct Count {
    start: Instant,
    usage: Usage,
    bytes: u64,
    calls: u64,
}

impl Count {
    fn start() -> Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF).context("getrusage failed")?;
        Ok(Self { start: now(), usage, bytes: 0, calls: 0 })
    }

    fn note(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.calls += 1;
    }

    fn finish(self) -> Result<Report> {
        let real = self.start.elapsed();
        let usage = getrusage(UsageWho::RUSAGE_SELF).context("getrusage failed")?;
        Ok(Report::new(self.bytes, self.calls, real, &self.usage, &usage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ttcp: Ttcp,
    }

    fn parsed(words: &str) -> Result<Ttcp, clap::Error> {
        Line::try_parse_from(format!("ttcp {words}").split(' ')).map(|line| line.ttcp)
    }

    #[test]
    fn the_papers_command_lines_are_understood() {
        let sender = parsed("-t -s -n 20000 -fm 10.241.244.202 -l 512 -u").unwrap();
        assert_eq!(
            (sender.n, sender.length, sender.over(), sender.format),
            (20_000, 512, Over::Udp, Unit::Mbit)
        );
        assert_eq!(sender.host.as_deref(), Some("10.241.244.202"));
        let receiver = parsed("-r -s -l 1024").unwrap();
        assert!(receiver.receive && receiver.sink && receiver.over() == Over::Tcp);
        for wrong in ["-s -l 1024", "-t -s", "-r -t host", "-r host", "-t host -l 0", "-t host -u --over tcp"]
        {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_source_gives_as_many_buffers_as_it_is_told() {
        let mut source = Source::new(&parsed("-t -s -n 2 -l 100 host").unwrap());
        let lengths: Vec<usize> = (0..3).map(|_| source.next().unwrap().len()).collect();
        assert_eq!(lengths, [100, 100, 0]);
        assert_eq!(&pattern(100)[90..], b"z{|}~ !\"#$");
    }
}
