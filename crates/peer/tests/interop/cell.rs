//! One cell of the matrix: who talks to whom, over what, and what makes it a success.

use crate::world::{Place, Rule, Running, World};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// The SCTP port of every server.
const PORT: &str = "5000";
/// How long a program may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// How long after the connection the first path is cut.
const BEFORE_CUT: Duration = Duration::from_millis(600);

/// A stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stack {
    /// This project's.
    Ours,
    /// The Linux kernel's.
    Kernel,
    /// Debian's libusrsctp.
    Usrsctp,
    /// A usrsctp some years newer.
    CurrentUsrsctp,
    /// pion/sctp, in Go, as WebRTC uses it.
    Pion,
    /// aiortc's, in Python, as WebRTC uses it.
    Aiortc,
}

/// What SCTP packets travel in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    /// UDP, port 9899 at both ends (RFC 6951).
    Udp,
    /// IP, protocol 132.
    Raw,
}

/// The paths between the two, and what is tried on them beside sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Paths {
    /// One.
    One,
    /// Two; the first falls silent in mid-transfer.
    FirstOfTwoCut,
    /// Two; ours, the client, sends by both at once.
    Shared(Sharing),
    /// One; the client resets and adds streams in mid-transfer; ours also resets the association.
    StreamsReset,
    /// One; messages travel in I-DATA.
    Interleaved,
    /// One; the client adds another of its addresses and removes it, with all DATA and ASCONFs under AUTH.
    SecondAdded,
    /// One, silent for a while; the client gives messages up, and the server goes on behind them.
    GivenUp(Limit),
    /// One; ours advertises its send buffer in every packet with DATA, which the other does not know.
    Advertised(Form),
    /// One, on which routers mark packets in both directions as having met congestion.
    Marked,
    /// One; packets have a checksum of zero, as if DTLS carried them (RFC 9653).
    ZeroChecksum,
}

/// How two paths share what is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// In equal parts.
    Weighted,
    /// Both carry everything.
    Redundant,
}

/// How the send buffer is advertised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// In percent: 4 octets.
    Percent,
    /// With the backlog: 8 octets.
    Backlog,
}

/// When messages are given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Their time is over.
    Lifetime,
    /// The same, with I-DATA.
    InterleavedLifetime,
    /// They would have to be sent again.
    Retransmissions,
    /// More important ones need their place.
    Priority,
}

/// One test.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Who connects, sends, and compares what comes back.
    pub(crate) client: Stack,
    /// Who sends everything back.
    pub(crate) server: Stack,
    /// What packets travel in.
    pub(crate) carrier: Carrier,
    /// Over which paths.
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
}

const ORDERED: Load = Load { count: 0, size: 0, streams: 1, window: 1, unordered: false, gap: "0" };
/// What travels over one path: tiny, one packet, many packets, very many; and without order.
const LOADS: &[Load] = &[
    Load { count: 300, size: 1, streams: 3, window: 20, ..ORDERED },
    Load { count: 300, size: 1400, streams: 4, window: 30, ..ORDERED },
    Load { count: 24, size: 65_536, streams: 2, window: 4, ..ORDERED },
    Load { count: 3, size: 1_048_576, ..ORDERED },
    Load { count: 100, size: 3000, streams: 2, window: 10, unordered: true, ..ORDERED },
];
/// The packets that travel without checksums.
const UNCHECKED: Load = Load { count: 200, size: 3000, streams: 3, window: 20, ..ORDERED };
/// What travels under AUTH.
const SIGNED: Load = Load { count: 60, size: 3000, streams: 2, window: 6, ..ORDERED };
/// What travels around a reset of streams.
const RESET: Load = Load { count: 60, size: 3000, streams: 3, window: 6, ..ORDERED };
/// What travels in I-DATA: in one piece, for Linux numbers fragments otherwise than RFC 8260 does; and in many.
const WHOLE: Load = Load { count: 200, size: 1000, streams: 4, window: 20, ..ORDERED };
const PIECES: Load = Load { count: 40, size: 100_000, streams: 4, window: 8, ..ORDERED };
/// What is posted while the path is silent: 2.4 s of it, so that a slow machine finds an end behind the silence, too.
const POSTED: Load = Load { count: 240, size: 1000, gap: "0.01", ..ORDERED };
/// The same, of which a short send buffer does not take all.
const POSTED_LONG: Load = Load { count: 240, size: 8000, gap: "0.01", ..ORDERED };
/// How long it is silent.
const SILENCE: Duration = Duration::from_millis(400);
/// What travels while packets are marked.
const MARKED: Load = Load { count: 60, size: 20_000, streams: 2, window: 6, ..ORDERED };
/// What travels while a path is cut: 2.4 s of it.
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
        }
    }

    pub(crate) fn place(self) -> Place {
        match self {
            Self::Ours => Place::Peer,
            Self::Kernel => Place::Guest,
            Self::Usrsctp | Self::CurrentUsrsctp | Self::Pion | Self::Aiortc => Place::Peer2,
        }
    }

    /// The longest message that it takes.
    fn message_max(self) -> usize {
        match self {
            Self::Ours | Self::Kernel | Self::Usrsctp | Self::CurrentUsrsctp | Self::Pion => usize::MAX,
            // Of a WebRTC stack nobody has the right to send more.
            Self::Aiortc => 65_536,
        }
    }
}

impl Cell {
    /// The test's name, a sentence.
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
            Paths::Marked => "hears_and_tells_of_congestion_marks_with",
        };
        format!("over_{carrier}_{}_{what}_{}", self.server.name(), self.client.name())
    }

    /// The two stacks.
    pub(crate) fn stacks(&self) -> [Stack; 2] {
        [self.client, self.server]
    }

    /// Runs the test; a remark for its line.
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

    /// Whether the chunks on the first path are those that the cell is about.
    fn judge_types(&self, types: &str) -> Result<()> {
        let (wanted, unwanted): (&[&str], &[&str]) = match self.paths {
            Paths::One | Paths::FirstOfTwoCut | Paths::Shared(_) | Paths::ZeroChecksum => (&["0"], &[]),
            Paths::StreamsReset => (&["130"], &[]),
            Paths::Interleaved => (&["64"], &["0"]),
            Paths::SecondAdded => (&["15", "128", "193"], &[]),
            Paths::GivenUp(Limit::InterleavedLifetime) => (&["64", "194"], &["0", "192"]),
            Paths::GivenUp(_) => (&["0", "192"], &["64", "194"]),
            // Type 9 is ERROR.
            Paths::Advertised(_) => (&["0", "150"], &["9"]),
            Paths::Marked => (&["12", "13"], &[]),
        };
        for kind in wanted {
            ensure!(has(types, kind), "no chunk of type {kind}, only {types}");
        }
        for kind in unwanted {
            ensure!(!has(types, kind), "a chunk of type {kind} among {types}");
        }
        Ok(())
    }

    /// Sets the guest up, if it takes part; the place whose ports are captured and cut, with the promise to mend it.
    fn prepare<'a>(&self, world: &'a World) -> Result<Mend<'a>> {
        if self.stacks().contains(&Stack::Kernel) {
            self.prepare_guest(world)?;
        }
        // Never at ours: what our cards did not compute or cut is done by then.
        let other = if self.client == Stack::Ours { self.server } else { self.client };
        Ok(Mend(other.place(), world))
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

    fn cut_in_transfer(&self, world: &World, place: Place) -> Result<String> {
        let (mut client, server) = self.start(world, &PACED)?;
        client.wait_for_line("connected", LIMIT)?;
        std::thread::sleep(BEFORE_CUT);
        world.set_first_path(place, false)?;
        ensure!(client.is_running(), "the transfer ended before the path was cut: {}", client.text());
        let text = verdict(&PACED, client, server)?;
        let silence = text.split("longest silence ").nth(1).and_then(|rest| rest.split(',').next());
        Ok(format!("longest silence {}", silence.context("the client did not print its longest silence")?))
    }

    /// Messages are posted while the path falls silent for a while: the ones of that time are given up, those before and
    /// after arrive in order.
    fn posted(&self, world: &World, limit: Limit, place: Place) -> Result<String> {
        let load = if limit == Limit::Priority { &POSTED_LONG } else { &POSTED };
        let (client, server) = self.start(world, load)?;
        client.wait_for_line("connected", LIMIT)?;
        std::thread::sleep(SILENCE);
        world.set_first_path(place, false)?;
        std::thread::sleep(SILENCE);
        world.set_first_path(place, true)?;
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
        let words = [mode, self.server.place().addresses()[0], PORT, &count, &size];
        let client = self.command(world, self.client, load, &words);
        Ok((Running::start(client, world.dir(), "client")?, server))
    }
}

/// Whether a chunk type is among those seen.
fn has(types: &str, kind: &str) -> bool {
    types.split(' ').any(|seen| seen == kind)
}

/// Both ended well, the client's hash is that of what it was to send, and the server sent back as much: the
/// client's output.
fn verdict(load: &Load, client: Running, server: Running) -> Result<String> {
    let text = client.finish(LIMIT).context("the client")?;
    let hash = peer::digest(load.count, load.size);
    ensure!(text.contains(&hash), "the hash is not {hash}: {text}");
    let echoed = server.finish(LIMIT).context("the server")?;
    let wanted = format!("echoed {} messages, {} octets", load.count, load.count * load.size);
    ensure!(echoed.contains(&wanted), "not {wanted:?}: {echoed}");
    Ok(text)
}

/// Mends the first path of a place when dropped.
struct Mend<'a>(Place, &'a World);

impl Drop for Mend<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.1.set_first_path(self.0, true) {
            println!("the first path cannot be mended: {error:#}");
        }
    }
}
