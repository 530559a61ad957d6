//! One cell of the interoperability matrix: the two stacks, their carrier and paths, and the conditions of success.

use crate::world::{Rule, Running, TestHost, World};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// The SCTP port of every server.
const PORT: &str = "5000";
/// Limit on the run time of a program.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// Time from the connection to the cut of the first path.
const BEFORE_CUT: Duration = Duration::from_millis(600);

/// SCTP implementation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stack {
    /// This project's stack.
    Ours,
    /// Stack of the Linux kernel.
    Kernel,
    /// libusrsctp in Debian's version.
    Usrsctp,
    /// usrsctp in a version that is some years newer than Debian's.
    CurrentUsrsctp,
    /// pion/sctp, in Go, as WebRTC uses it.
    Pion,
    /// SCTP of aiortc, in Python, as WebRTC uses it.
    Aiortc,
    /// SCTP in Python, with TLS from OpenSSL. The tests call this stack "the judge of sealed packets", because it
    /// checks them.
    Openssl,
}

/// The encapsulation of SCTP packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    /// UDP, port 9899 at both ends (RFC 6951).
    Udp,
    /// IP, protocol 132.
    Raw,
}

/// Paths between the two stacks, and the feature under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Paths {
    /// One path.
    One,
    /// Two paths; the first one stops delivering packets during the transfer.
    FirstOfTwoCut,
    /// Two paths; our client sends on both paths concurrently.
    Shared(Sharing),
    /// One path; the client resets and adds streams during the transfer. Our client also resets the association.
    StreamsReset,
    /// One path; I-DATA chunks carry the messages.
    Interleaved,
    /// One path; the client adds its second address and later removes it. AUTH protects all DATA and ASCONF chunks.
    SecondAdded,
    /// One path, which delivers no packets for a while. The client abandons messages. The server must receive later
    /// messages.
    GivenUp(Limit),
    /// One path; our end advertises its send buffer in every packet with DATA. The other end does not know the
    /// advertisement chunk.
    Advertised(Form),
    /// One path; packets are sealed in DTLS chunks. Used only with [`Stack::Openssl`].
    Sealed,
    /// One path; firewall rules set the CE mark on packets in both directions.
    Marked,
    /// One path; packets have a zero checksum, as if DTLS carried them (RFC 9653).
    ZeroChecksum,
}

/// Distribution of data over two paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// In equal parts.
    Weighted,
    /// Each path carries all data.
    Redundant,
}

/// Form of the send-buffer advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Occupancy in percent: 4 octets.
    Percent,
    /// Occupancy and backlog: 8 octets.
    Backlog,
}

/// Condition for abandoning a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// The lifetime of the message has expired.
    Lifetime,
    /// The lifetime of the message has expired. I-DATA chunks carry the messages, so I-FORWARD-TSN reports the
    /// abandoned ones.
    InterleavedLifetime,
    /// The message would need a retransmission.
    Retransmissions,
    /// More important messages need the message's space in the send buffer.
    Priority,
}

/// One test of the matrix.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The stack that connects, sends, and compares the returned messages.
    pub(crate) client: Stack,
    /// The stack that returns all messages.
    pub(crate) server: Stack,
    /// The encapsulation of packets.
    pub(crate) carrier: Carrier,
    /// The paths.
    pub(crate) paths: Paths,
}

/// Messages of one association.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) count: usize,
    pub(crate) size: usize,
    pub(crate) streams: usize,
    pub(crate) window: usize,
    pub(crate) unordered: bool,
    pub(crate) gap: &'static str,
    /// Options of the judge of sealed packets.
    pub(crate) judge: &'static [&'static str],
}

const ORDERED: Load =
    Load { count: 0, size: 0, streams: 1, window: 1, unordered: false, gap: "0", judge: &[] };
/// Loads over one path: messages of one octet, of one packet, of several packets, and of very many packets. The last
/// load is unordered.
const LOADS: &[Load] = &[
    Load { count: 300, size: 1, streams: 3, window: 20, ..ORDERED },
    Load { count: 300, size: 1400, streams: 4, window: 30, ..ORDERED },
    Load { count: 24, size: 65_536, streams: 2, window: 4, ..ORDERED },
    Load { count: 3, size: 1_048_576, ..ORDERED },
    Load { count: 100, size: 3000, streams: 2, window: 10, unordered: true, ..ORDERED },
];
/// Load with zero checksums.
const UNCHECKED: Load = Load { count: 200, size: 3000, streams: 3, window: 20, ..ORDERED };
/// Load under AUTH.
const SIGNED: Load = Load { count: 60, size: 3000, streams: 2, window: 6, ..ORDERED };
/// Loads in sealed packets: one load with all checks of the judge, and two loads with other cipher suites and key
/// exchanges. With the last load, the server requests another key share (HelloRetryRequest).
const SEALED: &[Load] = &[
    Load { judge: &["--replay", "--renew"], ..SIGNED },
    Load { judge: &["--suite", "TLS_AES_256_GCM_SHA384", "--groups", "X25519"], ..SIGNED },
    Load { judge: &["--suite", "TLS_CHACHA20_POLY1305_SHA256", "--groups", "P-256"], ..SIGNED },
];
/// Load that must not arrive, because the judge alters a bit of the INIT.
const ALTERED: Load = Load { count: 1, size: 100, judge: &["--alter-init"], ..ORDERED };
/// Load in which the client resets streams after half of the messages.
const RESET: Load = Load { count: 60, size: 3000, streams: 3, window: 6, ..ORDERED };
/// Load for I-DATA between our stack and the kernel. No message is fragmented, because Linux numbers fragments
/// differently from RFC 8260.
const WHOLE: Load = Load { count: 200, size: 1000, streams: 4, window: 20, ..ORDERED };
/// Load for I-DATA between our stack and a stack other than the kernel. Each message is fragmented.
const PIECES: Load = Load { count: 40, size: 100_000, streams: 4, window: 8, ..ORDERED };
/// Load of 2.4 s. The path falls silent for [`SILENCE`] in this time. Even on a slow machine, some messages follow the
/// silence.
const POSTED: Load = Load { count: 240, size: 1000, gap: "0.01", ..ORDERED };
/// Like [`POSTED`], but with more data than the short send buffer holds. The client then abandons messages by priority.
const POSTED_LONG: Load = Load { count: 240, size: 8000, gap: "0.01", ..ORDERED };
/// Duration of the path's silence, and time from the connection to the silence.
const SILENCE: Duration = Duration::from_millis(400);
/// Load for marked packets, and for two concurrent paths.
const MARKED: Load = Load { count: 60, size: 20_000, streams: 2, window: 6, ..ORDERED };
/// Load of 2.4 s, during which a path is cut.
const PACED: Load = Load { count: 60, size: 20_000, streams: 2, window: 4, gap: "0.04", ..ORDERED };

impl Stack {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "sctpify",
            Self::Kernel => "linux",
            Self::Usrsctp => "usrsctp",
            Self::CurrentUsrsctp => "current_usrsctp",
            Self::Pion => "pion",
            Self::Aiortc => "aiortc",
            Self::Openssl => "openssl",
        }
    }

    pub(crate) fn host(self) -> TestHost {
        match self {
            Self::Ours => TestHost::Peer,
            Self::Kernel => TestHost::Guest,
            Self::Usrsctp | Self::CurrentUsrsctp | Self::Pion | Self::Aiortc | Self::Openssl => {
                TestHost::Peer2
            }
        }
    }

    /// Returns the length of the longest message that the stack accepts, in octets.
    fn message_max(self) -> usize {
        match self {
            Self::Ours | Self::Kernel | Self::Usrsctp | Self::CurrentUsrsctp | Self::Pion | Self::Openssl => {
                usize::MAX
            }
            // By default, WebRTC does not allow messages of more than 65,536 octets.
            Self::Aiortc => 65_536,
        }
    }
}

impl Cell {
    /// Returns the test's name, a sentence.
    pub(crate) fn name(&self) -> String {
        let carrier = match self.carrier {
            Carrier::Udp => "udp",
            Carrier::Raw => "ip_132",
        };
        let what = match self.paths {
            Paths::One => "echoes_every_size_of_message_to",
            Paths::StreamsReset => "resets_and_adds_streams_with",
            Paths::Interleaved => "interleaves_messages_with",
            Paths::SecondAdded => "authenticates_and_learns_an_address_of",
            Paths::FirstOfTwoCut => "keeps_a_transfer_alive_on_the_second_path_with",
            Paths::GivenUp(Limit::Lifetime) => "goes_on_behind_messages_whose_time_is_over_of",
            Paths::GivenUp(Limit::InterleavedLifetime) => "goes_on_behind_interleaved_messages_given_up_by",
            Paths::GivenUp(Limit::Retransmissions) => "goes_on_behind_messages_not_sent_again_by",
            Paths::GivenUp(Limit::Priority) => "goes_on_behind_messages_of_less_priority_of",
            Paths::Shared(Sharing::Weighted) => "takes_data_by_two_paths_at_once_from",
            Paths::Shared(Sharing::Redundant) => "takes_all_data_twice_from",
            Paths::Advertised(Form::Percent) if self.server == Stack::Ours => {
                "advertises_a_percentage_that_is_skipped_by"
            }
            Paths::Advertised(Form::Backlog) if self.server == Stack::Ours => {
                "advertises_a_backlog_that_is_skipped_by"
            }
            Paths::Advertised(Form::Percent) => "skips_the_percentage_advertised_by",
            Paths::Advertised(Form::Backlog) => "skips_the_backlog_advertised_by",
            Paths::ZeroChecksum => "does_without_checksums_with",
            Paths::Sealed => "seals_packets_with",
            Paths::Marked => "hears_and_tells_of_congestion_marks_with",
        };
        format!("over_{carrier}_{}_{what}_{}", self.server.name(), self.client.name())
    }

    /// Returns the two stacks.
    pub(crate) fn stacks(&self) -> [Stack; 2] {
        [self.client, self.server]
    }

    /// Runs the test, and returns a remark for its line of output.
    pub(crate) fn run(&self, world: &World) -> Result<String> {
        let mended = self.prepare(world)?;
        let port = mended.0.ports();
        let first = world.capture(port[0])?;
        let second = world.capture(port[1])?;
        let remark = match self.paths {
            Paths::One | Paths::Advertised(_) => self.every_load(world)?,
            Paths::FirstOfTwoCut => self.cut_in_transfer(world, mended.0)?,
            Paths::StreamsReset => self.transfer(world, &RESET, "with RE-CONFIG")?,
            Paths::Interleaved => {
                let has_kernel = self.stacks().contains(&Stack::Kernel);
                self.transfer(world, if has_kernel { &WHOLE } else { &PIECES }, "in I-DATA")?
            }
            Paths::SecondAdded => self.transfer(world, &SIGNED, "under AUTH")?,
            Paths::Shared(_) => self.transfer(world, &MARKED, "by both paths")?,
            Paths::ZeroChecksum => self.transfer(world, &UNCHECKED, "without checksums")?,
            Paths::Sealed => self.sealed(world)?,
            Paths::GivenUp(limit) => self.posted(world, limit, mended.0)?,
            Paths::Marked => {
                let _marks = world.mark_packets_of_ours()?;
                self.transfer(world, &MARKED, "with ECN")?
            }
        };
        let rule = match self.paths {
            Paths::ZeroChecksum => Rule::ZeroChecksum,
            _ => Rule::Checksum,
        };
        let types = world.judge(first, port[0], rule).context("packets of the first path")?;
        self.judge_types(&types)?;
        if matches!(self.paths, Paths::FirstOfTwoCut | Paths::SecondAdded | Paths::Shared(_)) {
            let types = world.judge(second, port[1], Rule::Checksum).context("packets of the second path")?;
            let wanted = if self.paths == Paths::SecondAdded { "5" } else { "0" };
            ensure!(has(&types, wanted), "no chunk of type {wanted} on the second path, only {types}");
        }
        Ok(remark)
    }

    /// Checks that the first path carried the chunk types under test, and no unwanted types.
    fn judge_types(&self, types: &str) -> Result<()> {
        let (wanted, unwanted): (&[&str], &[&str]) = match self.paths {
            Paths::One | Paths::FirstOfTwoCut | Paths::Shared(_) | Paths::ZeroChecksum => (&["0"], &[]),
            Paths::StreamsReset => (&["130"], &[]),
            Paths::Interleaved => (&["64"], &["0"]),
            Paths::SecondAdded => (&["15", "128", "193"], &[]),
            Paths::GivenUp(Limit::InterleavedLifetime) => (&["64", "194"], &["0", "192"]),
            Paths::GivenUp(_) => (&["0", "192"], &["64", "194"]),
            // Type 150 is the advertisement. Type 9 is ERROR, which would report the unknown chunk.
            Paths::Advertised(_) => (&["0", "150"], &["9"]),
            Paths::Marked => (&["12", "13"], &[]),
            Paths::Sealed => (&["65"], &[]),
        };
        for kind in wanted {
            ensure!(has(types, kind), "no chunk of type {kind}, only {types}");
        }
        for kind in unwanted {
            ensure!(!has(types, kind), "a chunk of type {kind} among {types}");
        }
        Ok(())
    }

    /// Configures the guest if its kernel is one of the two stacks. Returns a guard for the host that does not run our
    /// stack, or for the client's host if no stack is ours. The test captures packets at this host's bridge ports, and
    /// cuts this host's first path. The guard restores the path.
    fn prepare<'a>(&self, world: &'a World) -> Result<Mend<'a>> {
        if self.stacks().contains(&Stack::Kernel) {
            self.prepare_guest(world)?;
        }
        // The capture is at the bridge port of the host without our stack. When packets of our stack arrive at this
        // port, large segments have been split, and deferred checksums have been computed.
        let other = if self.client == Stack::Ours { self.server } else { self.client };
        Ok(Mend(other.host(), world))
    }

    fn prepare_guest(&self, world: &World) -> Result<()> {
        world.kernel_over_udp(self.carrier == Carrier::Udp)?;
        let timers = match self.paths {
            Paths::One
            | Paths::StreamsReset
            | Paths::Interleaved
            | Paths::SecondAdded
            | Paths::Shared(_)
            | Paths::Advertised(_)
            | Paths::ZeroChecksum
            | Paths::Sealed
            | Paths::Marked => "rto_min=1000 rto_initial=3000 path_max_retrans=5 hb_interval=30000",
            Paths::FirstOfTwoCut | Paths::GivenUp(_) => {
                "rto_min=50 rto_initial=200 path_max_retrans=1 hb_interval=500"
            }
        };
        world.in_guest(&format!("sysctl -qw net.sctp.{}", timers.replace(' ', " net.sctp.")))?;
        let on = u8::from(self.paths == Paths::SecondAdded);
        world.in_guest(&format!("sysctl -qw net.sctp.auth_enable={on} net.sctp.addip_enable={on}"))?;
        let (reconf, intl) = (u8::from(self.paths == Paths::StreamsReset), u8::from(self.is_interleaved()));
        world.in_guest(&format!("sysctl -qw net.sctp.reconf_enable={reconf} net.sctp.intl_enable={intl}"))?;
        Ok(())
    }

    pub(crate) fn is_interleaved(&self) -> bool {
        matches!(self.paths, Paths::Interleaved | Paths::GivenUp(Limit::InterleavedLifetime))
    }

    pub(crate) fn has_short_timers(&self) -> bool {
        self.paths == Paths::FirstOfTwoCut || self.gives_up()
    }

    pub(crate) fn gives_up(&self) -> bool {
        matches!(self.paths, Paths::GivenUp(_))
    }

    fn every_load(&self, world: &World) -> Result<String> {
        let longest = self.client.message_max().min(self.server.message_max());
        let loads: Vec<&Load> = LOADS.iter().filter(|load| load.size <= longest).collect();
        for load in &loads {
            let (client, server) = self.start(world, load)?;
            verdict(load, client, server)
                .with_context(|| format!("{} of {} octets", load.count, load.size))?;
        }
        Ok(format!("{} associations", loads.len()))
    }

    fn transfer(&self, world: &World, load: &Load, remark: &str) -> Result<String> {
        let (client, server) = self.start(world, load)?;
        verdict(load, client, server)?;
        Ok(remark.to_owned())
    }

    /// Transfers each load in sealed packets. Then checks that no message arrives if the judge alters the INIT.
    fn sealed(&self, world: &World) -> Result<String> {
        for load in SEALED {
            let (client, server) = self.start(world, load)?;
            let (client, server) = verdict(load, client, server).with_context(|| load.judge.join(" "))?;
            ensure!(said_key(&client, "own") == said_key(&server, "peer"), "the server takes another key");
            ensure!(said_key(&server, "own") == said_key(&client, "peer"), "the client takes another key");
            let judged = if self.client == Stack::Openssl { client } else { server };
            ensure!(judged.contains("exporter equal"), "the judge compared no keys: {judged}");
        }
        let (client, server) = self.start(world, &ALTERED)?;
        let (judge, ours) = if self.client == Stack::Openssl { (client, server) } else { (server, client) };
        let text = judge.finish(LIMIT).context("the judge, after a change of INIT")?;
        ensure!(text.contains("nothing was delivered"), "the judge did not change INIT: {text}");
        ensure!(!ours.text().contains("100 octets"), "delivered after a change of INIT: {}", ours.text());
        Ok(format!("{} associations", SEALED.len() + 1))
    }

    fn cut_in_transfer(&self, world: &World, host: TestHost) -> Result<String> {
        let (mut client, server) = self.start(world, &PACED)?;
        client.wait_for_line("connected", LIMIT)?;
        std::thread::sleep(BEFORE_CUT);
        world.set_first_path(host, false)?;
        ensure!(client.is_running(), "the transfer ended before the path was cut: {}", client.text());
        let (text, _) = verdict(&PACED, client, server)?;
        let silence = text.split("longest silence ").nth(1).and_then(|rest| rest.split(',').next());
        Ok(format!("longest silence {}", silence.context("the client did not print its longest silence")?))
    }

    /// Sends messages while the path falls silent for a while. Checks that some messages are missing, that the first
    /// and the last message arrive, and that messages arrive in order. With abandonment by priority, also checks that
    /// all important messages arrive.
    fn posted(&self, world: &World, limit: Limit, host: TestHost) -> Result<String> {
        let load = if limit == Limit::Priority { &POSTED_LONG } else { &POSTED };
        let (client, server) = self.start(world, load)?;
        client.wait_for_line("connected", LIMIT)?;
        std::thread::sleep(SILENCE);
        world.set_first_path(host, false)?;
        std::thread::sleep(SILENCE);
        world.set_first_path(host, true)?;
        client.finish(LIMIT).context("the client")?;
        let text = server.finish(LIMIT).context("the server")?;
        let line = text.lines().find_map(|line| line.strip_prefix("numbers ")).context("no numbers")?;
        let numbers: Vec<usize> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let missing = load.count - numbers.len();
        ensure!(numbers.is_sorted_by(|a, b| a < b), "twice, or out of order: {line}");
        ensure!(missing > 0 && missing < load.count * 5 / 6, "{missing} are missing: {line}");
        ensure!(numbers.first() == Some(&0) && numbers.last() == Some(&(load.count - 1)), "{line}");
        if limit == Limit::Priority {
            ensure!(
                (1..load.count).step_by(2).all(|n| numbers.contains(&n)),
                "important ones are missing: {line}"
            );
        }
        Ok(format!("{missing} of {} given up", load.count))
    }

    /// Starts the server, waits until it listens, and starts the client.
    fn start(&self, world: &World, load: &Load) -> Result<(Running, Running)> {
        let mode = if self.gives_up() { "sink" } else { "echo" };
        let server = self.command(world, self.server, load, &[mode, PORT]);
        let server = Running::start(server, world.dir(), "server")?;
        server.wait_for_line("listening", LIMIT).context("the server")?;
        let (count, size) = (load.count.to_string(), load.size.to_string());
        let mode = match (self.gives_up(), self.client) {
            (false, _) => "client",
            (true, Stack::Ours) => "post",
            (true, _) => "send",
        };
        let words = [mode, self.server.host().addresses()[0], PORT, &count, &size];
        let client = self.command(world, self.client, load, &words);
        Ok((Running::start(client, world.dir(), "client")?, server))
    }
}

/// Reports whether chunk type `kind` is in `types`.
fn has(types: &str, kind: &str) -> bool {
    types.split(' ').any(|seen| seen == kind)
}

/// Checks that both programs ended successfully, that the client's hash matches the sent messages, and that the server
/// returned all of them. Returns the outputs of the client and the server.
fn verdict(load: &Load, client: Running, server: Running) -> Result<(String, String)> {
    let text = client.finish(LIMIT).context("the client")?;
    let hash = peer::digest(load.count, load.size);
    ensure!(text.contains(&hash), "the hash is not {hash}: {text}");
    let echoed = server.finish(LIMIT).context("the server")?;
    let wanted = format!("echoed {} messages, {} octets", load.count, load.count * load.size);
    ensure!(echoed.contains(&wanted), "not {wanted:?}: {echoed}");
    Ok((text, echoed))
}

/// Returns a public key that a program printed: its own key if `whose` is "own", the other end's key if `whose` is
/// "peer".
fn said_key<'a>(text: &'a str, whose: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(whose)?.strip_prefix(" key "))
}

/// Guard that restores the first path of a host when dropped.
struct Mend<'a>(TestHost, &'a World);

impl Drop for Mend<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.1.set_first_path(self.0, true) {
            println!("the first path cannot be mended: {error:#}");
        }
    }
}
