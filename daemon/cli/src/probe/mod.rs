//! Probes the route to a host with real packets: INITs in UDP, which need no privilege, and INITs directly over IP, which need CAP_NET_RAW.
//!
//! An SCTP answer with a correct checksum proves three facts: UDP passes in both directions, an SCTP endpoint answers, and no middlebox
//! rewrites the packets. The answer is an INIT ACK, or an ABORT if the peer accepts no association for the port. Further, large INITs test
//! whether full-size packets pass. The peer keeps no state for an INIT (RFC 9260 section 5.1.3). [`links`] tests each link of this host.

mod links;

pub(crate) use links::Links;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use control::{Check, Level};
use nix::errno::Errno;
use relay::SHARED_ADAPTATION;
use relay::mux::SHARED_STREAMS;
use socket2::{Domain, Protocol, Socket, Type};
use wire::{
    ChecksumMode, Chunk, CommonHeader, Init, Packet, PacketError, PacketWriter, Parameter, Parameters, Tsn,
    VerificationTag,
};

/// Limit on the wait for an answer.
const PATIENCE: Duration = Duration::from_millis(700);
/// Limit on the INITs that are sent until one is answered.
const TRIES: usize = 3;
/// Size of a packet buffer, in bytes. It holds the largest packet.
const ROOM: usize = 1500;
/// Length in bytes of an INIT with an empty padding parameter: common header, chunk, and the header of the parameter.
const INIT_LENGTH: usize = 36;
/// Padding, in bytes, that makes an INIT 1,400 bytes long. With UDP and IP headers, the packet nearly fills the 1,500 bytes of most links.
const PADDING: usize = 1400 - INIT_LENGTH;
/// Padding, in bytes, of an INIT that requests addresses. A peer limits its answer to three times the length of the INIT. The padding
/// therefore makes room for addresses in the answer.
const FOR_ADDRESSES: usize = 500;
const A_RWND: u32 = 65_536;
/// Number of streams that a daemon requests. A peer that shares associations would refuse an INIT with fewer streams.
const STREAMS: u16 = SHARED_STREAMS;
/// SCTP port of shared associations (docs/shared-association.md).
const SHARED_PORT: u16 = 9899;
const SCTP: i32 = 132;
/// SCTP port to probe if the user names none: the port of ssh, which most hosts serve. An ABORT also counts as an answer.
pub(crate) const ANY_SCTP_PORT: u16 = 22;
/// Limit on the packets that are read while waiting for one answer. The limit is needed because a raw socket also receives the packets of
/// all associations with the peer.
const STRANGERS_MAX: usize = 64;

/// Encapsulation of the INIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    Udp,
    Ip,
}

/// Answer to an INIT, or the reason why no answer arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    /// An INIT ACK, with the additional addresses that it offers, or an ABORT.
    Sctp {
        is_accepted: bool,
        addresses: Vec<IpAddr>,
    },
    /// An SCTP packet with a wrong checksum: a middlebox changed the packet.
    BadChecksum,
    /// An ICMP error: no program listens on the UDP port, or the host does not support SCTP over IP.
    Closed,
    /// This user is not permitted to send the packet.
    NotAllowed,
    /// This host cannot send packets to the peer, for the given reason.
    NoRoute(String),
    Silence,
}

impl Answer {
    fn of_error(error: &io::Error) -> Answer {
        match error.kind() {
            ErrorKind::ConnectionRefused => Answer::Closed,
            ErrorKind::PermissionDenied => Answer::NotAllowed,
            _ if error.raw_os_error() == Some(Errno::ENOPROTOOPT as i32) => Answer::Closed,
            _ if matches!(
                error.raw_os_error().map(Errno::from_raw),
                Some(Errno::ENODEV | Errno::EADDRNOTAVAIL)
            ) =>
            {
                Answer::NoRoute("this network namespace does not have the link or its address".to_owned())
            }
            _ => Answer::NoRoute(error.to_string()),
        }
    }
}

/// Checks the route to `peer`: the UDP port, the SCTP port `port` if it is given, and IP protocol 132.
pub(crate) fn checks(peer: IpAddr, udp_port: u16, port: Option<u16>) -> Vec<Check> {
    let to = SocketAddr::new(peer, udp_port);
    let question = Question { sctp_port: port.unwrap_or(ANY_SCTP_PORT), padding: 0, adaptation: None };
    let small = ask(Over::Udp, to, question);
    let mut checks = vec![reachability(to, &small)];
    if let Answer::Sctp { is_accepted, .. } = &small {
        checks.extend(port.map(|port| served(peer, port, *is_accepted)));
        checks.push(Check::ok("checksums", "arrive as they were sent"));
        checks.push(size(&ask(Over::Udp, to, Question { padding: PADDING, ..question })));
    }
    // A raw socket has no ports, so the port is 0.
    checks.push(bare(peer, &ask(Over::Ip, SocketAddr::new(peer, 0), question)));
    checks
}

/// Checks whether the peer accepts associations for a port.
fn served(peer: IpAddr, port: u16, is_accepted: bool) -> Check {
    let name = "port";
    if is_accepted {
        return Check::ok(name, format!("{peer} accepts SCTP for port {port}"));
    }
    let found = format!("{peer} refuses SCTP for port {port}: connections to it are plain TCP");
    let remedy =
        format!("start the server there, and enable the port: `sctpify rule add {port} at any` at the peer");
    Check::bad(name, Level::Warning, found, remedy)
}

/// Describes the reason why a probe has no SCTP answer.
fn fault_of(answer: &Answer) -> String {
    match answer {
        Answer::Sctp { .. } => "SCTP answers".to_owned(),
        Answer::BadChecksum => "the answer has a wrong checksum: a middlebox rewrites packets".to_owned(),
        Answer::Closed => "no program listens on the UDP port".to_owned(),
        Answer::NotAllowed => "sending is not permitted: see the firewall of this host".to_owned(),
        Answer::NoRoute(why) => why.clone(),
        Answer::Silence => "no answer".to_owned(),
    }
}

/// Checks SCTP directly over IP.
fn bare(peer: IpAddr, answer: &Answer) -> Check {
    let less = |found: String, remedy: &str| Check::bad("IP protocol 132", Level::Warning, found, remedy);
    match answer {
        Answer::Sctp { .. } => Check::ok("IP protocol 132", format!("{peer} answers")),
        Answer::NotAllowed => less("not tried: requires CAP_NET_RAW".to_owned(), "retry as root"),
        Answer::Closed => less(
            format!("{peer} does not support SCTP over IP"),
            "nothing if SCTP in UDP works; otherwise see its setting carriers",
        ),
        Answer::BadChecksum => less(
            format!("{peer} answers, but with a wrong checksum"),
            "a NAT rewrites SCTP packets: `sctpify set carriers=udp`",
        ),
        Answer::NoRoute(why) => less(format!("cannot be sent: {why}"), "check the firewall of this host"),
        Answer::Silence => less(
            format!("no answer from {peer}: a NAT or a firewall on the path may pass only UDP"),
            "nothing if SCTP in UDP works",
        ),
    }
}

fn reachability(to: SocketAddr, answer: &Answer) -> Check {
    let bad = |found: String, remedy: &str| Check::bad("SCTP in UDP there", Level::Missing, found, remedy);
    match answer {
        Answer::Sctp { .. } => Check::ok("SCTP in UDP there", format!("{to} answers")),
        Answer::BadChecksum => bad(
            format!("{to} answers, but with a wrong checksum"),
            "a firewall or NAT on the path rewrites packets: exempt this UDP port there",
        ),
        Answer::Closed => bad(
            format!("no program listens on UDP port {} of {}", to.port(), to.ip()),
            "start sctpifyd there with `sctpify up`, or see its setting udp_port",
        ),
        Answer::NoRoute(why) => bad(format!("no route to {}: {why}", to.ip()), "check `ip route get` for it"),
        Answer::Silence => bad(
            format!("no answer from {to}"),
            "allow UDP to that port in firewalls on the path, in both directions; or start sctpifyd there",
        ),
        Answer::NotAllowed => {
            bad(format!("sending to {to} is not permitted"), "check the firewall of this host")
        }
    }
}

fn size(answer: &Answer) -> Check {
    match answer {
        Answer::Sctp { .. } => Check::ok("packet size", "1,400 bytes pass"),
        _ => Check::bad(
            "packet size",
            Level::Warning,
            "small packets are answered, packets of 1,400 bytes are not",
            "the path MTU is smaller and no ICMP reports it; sctpify discovers it, other programs may hang",
        ),
    }
}

/// Contents of a probing INIT.
#[derive(Clone, Copy)]
struct Question {
    sctp_port: u16,
    /// Number of padding bytes; 0 means no padding parameter.
    padding: usize,
    /// Value of the Adaptation Layer Indication parameter, if any.
    adaptation: Option<u32>,
}

impl Question {
    /// INIT of a daemon that requests a shared association. A peer that shares associations answers with all its addresses.
    const SHARED: Question =
        Question { sctp_port: SHARED_PORT, padding: FOR_ADDRESSES, adaptation: Some(SHARED_ADAPTATION) };
}

fn ask(over: Over, to: SocketAddr, question: Question) -> Answer {
    let outcome = socket(over, to).and_then(|socket| {
        for _ in 0..TRIES {
            if let Some(answer) = exchange(over, &socket, question)? {
                return Ok(answer);
            }
        }
        Ok(Answer::Silence)
    });
    outcome.unwrap_or_else(|error| Answer::of_error(&error))
}

fn socket(over: Over, to: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(to);
    let socket = match over {
        Over::Udp => Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?,
        Over::Ip => Socket::new(domain, Type::RAW, Some(Protocol::from(SCTP)))?,
    };
    socket.connect(&to.into())?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Sends one INIT and returns its answer; `None` if no answer arrives in time.
fn exchange(over: Over, mut socket: &Socket, question: Question) -> io::Result<Option<Answer>> {
    let tag = random().max(1);
    let mut buffer = [0; ROOM];
    let length = write_init(&mut buffer, tag, question);
    socket.send(&buffer[..length])?;
    for _ in 0..STRANGERS_MAX {
        let length = match socket.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let start = if over == Over::Ip { header_length(&buffer[..length]) } else { 0 };
        let answer = buffer[..length].get(start..).and_then(|packet| read(packet, tag));
        if answer.is_some() {
            return Ok(answer);
        }
    }
    Ok(None)
}

/// Returns the length of the IP header in a packet from a raw socket: such a packet includes an IPv4 header, but no IPv6 header.
fn header_length(packet: &[u8]) -> usize {
    match packet.first() {
        Some(first) if first >> 4 == 4 => usize::from(first & 0xf) * 4,
        _ => 0,
    }
}

fn write_init(buffer: &mut [u8], tag: u32, question: Question) -> usize {
    // The source port may be any port of the dynamic range, because the answer arrives at our UDP port.
    let source_port = 49_152 | (random() as u16);
    // An INIT has no tag to verify yet (RFC 9260 section 8.5.1).
    let header = CommonHeader { source_port, destination_port: question.sctp_port, tag: VerificationTag(0) };
    let padding = (question.padding > 0).then_some(Parameter::Padding { len: question.padding });
    let adaptation = question.adaptation.map(Parameter::AdaptationLayerIndication);
    let parameters: Vec<Parameter<'_>> = padding.into_iter().chain(adaptation).collect();
    let init = Init {
        tag: VerificationTag(tag),
        a_rwnd: A_RWND,
        outbound_streams: STREAMS,
        inbound_streams: STREAMS,
        initial_tsn: Tsn(random()),
        parameters: Parameters::from(&parameters[..]),
    };
    let mut writer = PacketWriter::new(buffer, header);
    // The chunk always fits, because the buffer is larger.
    let _ = writer.push(&Chunk::Init(init));
    writer.finish()
}

/// Parses a packet. Returns `None` if the packet is not an answer to the INIT with this tag.
fn read(bytes: &[u8], tag: u32) -> Option<Answer> {
    let header = CommonHeader::peek(bytes)?;
    if header.tag != VerificationTag(tag) && header.tag != VerificationTag(0) {
        return None;
    }
    let packet = match Packet::parse(bytes, ChecksumMode::Verify) {
        Ok(packet) => packet,
        Err(PacketError::Checksum { .. }) => return Some(Answer::BadChecksum),
        Err(_) => return None,
    };
    packet.chunks().flatten().find_map(|chunk| match chunk {
        Chunk::Abort(_) => Some(Answer::Sctp { is_accepted: false, addresses: Vec::new() }),
        Chunk::InitAck(ack) => {
            let addresses = ack.parameters.iter().filter_map(|parameter| match parameter {
                Ok(Parameter::Ipv4Address(ip)) => Some(ip.into()),
                Ok(Parameter::Ipv6Address(ip)) => Some(ip.into()),
                _ => None,
            });
            Some(Answer::Sctp { is_accepted: true, addresses: addresses.collect() })
        }
        _ => None,
    })
}

/// Returns a random number. It is unpredictable enough for a probe that creates no association.
fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::thread;
    use wire::Abort;

    /// Starts a host that answers INITs of up to `largest` bytes with an ABORT. `damage` changes bits in the checksum of the answer.
    fn host(largest: usize, damage: u8) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 2000];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let packet = Packet::parse(&buffer[..length], ChecksumMode::Verify).unwrap();
                let Some(Ok(Chunk::Init(init))) = packet.chunks().next() else { panic!("no INIT") };
                let ports = (packet.header.destination_port, packet.header.source_port);
                let header = CommonHeader { source_port: ports.0, destination_port: ports.1, tag: init.tag };
                if length > largest {
                    continue;
                }
                let mut answer = [0; 100];
                let mut writer = PacketWriter::new(&mut answer, header);
                let abort = Abort { tag_reflected: false, causes: Default::default() };
                writer.push(&Chunk::Abort(abort)).unwrap();
                let length = writer.finish();
                answer[8] ^= damage;
                socket.send_to(&answer[..length], from).unwrap();
            }
        });
        address
    }

    fn levels(to: SocketAddr) -> Vec<(String, Level)> {
        let all = checks(to.ip(), to.port(), None).into_iter().map(|check| (check.name, check.level));
        all.filter(|(name, _)| name != "IP protocol 132").collect()
    }

    #[test]
    fn a_peer_that_answers_small_and_large_inits_passes_all_checks() {
        let found = levels(host(2000, 0));
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["SCTP in UDP there", "checksums", "packet size"]);
        assert!(found.iter().all(|(_, level)| *level == Level::Ok), "{found:?}");
    }

    #[test]
    fn large_packets_that_vanish_are_a_warning() {
        let found = levels(host(1000, 0));
        assert_eq!(found.last().unwrap(), &("packet size".to_owned(), Level::Warning));
    }

    #[test]
    fn a_rewritten_checksum_is_told_apart_from_silence() {
        let to = host(2000, 1);
        let check = &checks(to.ip(), to.port(), None)[0];
        assert!(check.found.contains("wrong checksum"), "{check:?}");
    }

    #[test]
    fn a_closed_port_is_reported_as_no_listening_program() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let check = &checks(free.ip(), free.port(), None)[0];
        assert!(check.found.starts_with("no program listens"), "{check:?}");
    }
}
