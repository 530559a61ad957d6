//! Packet diagrams of a registration, of a call's set-up, and of the call's end (Figures 5.5 to 5.7 of the
//! thesis). The packets come from a capture at the proxy.

use super::world::{LIMIT, Star, bob, stop};
use crate::experiment::{Drawing, Environment};
use anyhow::{Context, Result, ensure};
use maud::{Markup, html};
use testbed::Capture;

/// Fields that `tshark` prints for each packet, in this order.
const FIELDS: [&str; 8] = [
    "frame.time_epoch",
    "frame.interface_name",
    "ip.src",
    "sctp.chunk_type",
    "tcp.flags.str",
    "sip.Method",
    "sip.Status-Code",
    "sip.CSeq.method",
];
/// Positions of the lifelines of caller, proxy and callee, in pixels.
const LIFELINES: [u32; 3] = [130, 420, 710];
const WIDTH: u32 = 840;
const ROW: u32 = 20;
/// Height of the part above the first packet, in pixels.
const HEAD: u32 = 60;

/// A packet in a diagram.
#[derive(Clone, PartialEq, Debug)]
struct Packet {
    /// Time of the packet, in seconds.
    time: f64,
    /// Index of the sender's lifeline.
    from: usize,
    /// Index of the receiver's lifeline.
    to: usize,
    label: String,
}

/// Captures an agent's registration on a new connection, and a call. Draws three diagrams: the registration,
/// the call's set-up, and the call's end.
///
/// # Errors
/// Fails if the capture or a program fails, or if a message is missing.
pub(super) fn drawn(environment: &Environment, star: &Star, series: &str) -> Result<Vec<Drawing>> {
    let callee = star.callee(0).registered(environment, &[], 1)?;
    let capture = Capture::start(&star.proxy, "messages", &["path1", "path2"])?;
    star.caller(0).run(environment, &["--call", &bob(0), "--duration", "0.3"], LIMIT)?;
    let mut words: Vec<&str> = vec!["-T", "fields", "-E", "occurrence=a"];
    FIELDS.iter().for_each(|field| words.extend(["-e", field]));
    let output = capture.dissect(&words)?;
    stop(callee)?;
    let caller = star.links[0].link.left_v4().to_string();
    let callee = star.links[1].link.right_v4().to_string();
    let mut packets: Vec<Packet> = output.lines().filter_map(|line| packet(line, &caller, &callee)).collect();
    // The capture is ordered only within each interface.
    packets.sort_by(|a, b| a.time.total_cmp(&b.time));
    let titles = [
        ("5.5", "registration on a new connection", "REGISTER"),
        ("5.6", "set-up of a call", "INVITE"),
        ("5.7", "end of a call", "BYE"),
    ];
    let parts = parts(&packets)?.into_iter().zip(titles);
    Ok(parts
        .map(|(part, (figure, what, _))| {
            let title = format!("Figure {figure}, {series}: {what}");
            let name = format!("figure-{}-{}", figure.replace('.', "-"), series.to_lowercase());
            Drawing { name, svg: draw(&title, part).into_string() }
        })
        .collect())
}

/// Splits the packets into three parts. The first part ends before the INVITE, the second before the BYE,
/// and the third before the next REGISTER.
fn parts(packets: &[Packet]) -> Result<[&[Packet]; 3]> {
    let first = |word: &str, start: usize| {
        let found = packets[start..].iter().position(|packet| packet.label.contains(word));
        found.map(|offset| offset + start).with_context(|| format!("no {word} was captured"))
    };
    let register = first("REGISTER", 0)?;
    let invite = first("INVITE", register)?;
    let bye = first("BYE", invite)?;
    let end = first("REGISTER", bye).unwrap_or(packets.len());
    ensure!(invite > 0 && bye > invite && end > bye, "messages arrived out of order: {packets:?}");
    Ok([&packets[..invite], &packets[invite..bye], &packets[bye..end]])
}

/// Parses a line of fields. Returns `None` for a packet without a label, such as a heartbeat.
fn packet(line: &str, caller: &str, callee: &str) -> Option<Packet> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [time, interface, source, chunks, flags, methods, statuses, of] = fields[..] else { return None };
    let (from, to) = match (interface, source) {
        ("path1", source) if source == caller => (0, 1),
        ("path1", _) => (1, 0),
        (_, source) if source == callee => (2, 1),
        _ => (1, 2),
    };
    let label = label(chunks, flags, &messages(methods, statuses, of));
    let time = time.parse().ok()?;
    (!label.is_empty()).then_some(Packet { time, from, to, label })
}

/// Returns labels of a packet's SIP messages: the method of a request, and the status and method of a
/// response.
fn messages(methods: &str, statuses: &str, of: &str) -> Vec<String> {
    let words = |text: &str| -> Vec<String> {
        text.split(',').filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
    let (requests, of) = (words(methods), words(of));
    // `of` has the CSeq method of every message of the packet, in order. After the requests' methods are
    // removed, the responses' methods remain.
    let mut of_responses = of;
    for request in &requests {
        if let Some(environment) = of_responses.iter().position(|method| method == request) {
            of_responses.remove(environment);
        }
    }
    let responses =
        words(statuses).into_iter().zip(of_responses).map(|(status, of)| format!("{status} ({of})"));
    requests.into_iter().chain(responses).collect()
}

fn label(chunks: &str, flags: &str, messages: &[String]) -> String {
    let mut parts: Vec<String> = chunks.split(',').filter(|it| !it.is_empty()).map(chunk_name).collect();
    if parts.is_empty() && messages.is_empty() {
        parts.extend(tcp_name(flags));
    }
    let heartbeats = parts.iter().all(|part| part.starts_with("HEARTBEAT"));
    if heartbeats && !chunks.is_empty() {
        return String::new();
    }
    // The label contains the names of the SIP messages instead of "DATA".
    parts.retain(|part| part != "DATA");
    parts.extend(messages.iter().cloned());
    parts.join(", ")
}

/// Returns the name of a chunk type (RFC 9260 section 3.2).
fn chunk_name(number: &str) -> String {
    let name = match number {
        "0" => "DATA",
        "1" => "INIT",
        "2" => "INIT ACK",
        "3" => "SACK",
        "4" => "HEARTBEAT",
        "5" => "HEARTBEAT ACK",
        "6" => "ABORT",
        "7" => "SHUTDOWN",
        "8" => "SHUTDOWN ACK",
        "10" => "COOKIE ECHO",
        "11" => "COOKIE ACK",
        "14" => "SHUTDOWN COMPLETE",
        other => return format!("chunk {other}"),
    };
    name.to_owned()
}

/// Returns the names of TCP flags such as `·······A··S·`.
fn tcp_name(flags: &str) -> Option<String> {
    let names = [('S', "SYN"), ('F', "FIN"), ('R', "RST"), ('A', "ACK")];
    let set: Vec<&str> =
        names.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| *name).collect();
    (!set.is_empty()).then(|| set.join(" "))
}

fn draw(title: &str, packets: &[Packet]) -> Markup {
    let start = packets.first().map_or(0.0, |packet| packet.time);
    let height = HEAD + ROW * (packets.len() as u32 + 1);
    html! {
        svg width=(WIDTH) height=(height) viewBox=(format!("0 0 {WIDTH} {height}")) xmlns="http://www.w3.org/2000/svg"
            font-family="sans-serif" font-size="12" {
            defs { marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto" {
                path d="M0 0L8 4L0 8z" {}
            } }
            text x="10" y="18" font-size="15" { (title) }
            @for (x, name) in LIFELINES.iter().zip(["caller", "proxy", "called"]) {
                text x=(x) y="42" text-anchor="middle" { (name) }
                line x1=(x) x2=(x) y1="48" y2=(height - 4) stroke="#999" {}
            }
            @for (row, packet) in packets.iter().enumerate() { (arrow(row as u32, packet, start)) }
        }
    }
}

fn arrow(row: u32, packet: &Packet, start: f64) -> Markup {
    let (y, from, to) = (HEAD + ROW * (row + 1) - 4, LIFELINES[packet.from], LIFELINES[packet.to]);
    html! {
        text x="10" y=(y) { (format!("{:.1} ms", (packet.time - start) * 1e3)) }
        line x1=(from) x2=(to) y1=(y) y2=(y) stroke="#000" marker-end="url(#tip)" {}
        text x=(from.midpoint(to)) y=(y - 4) text-anchor="middle" { (packet.label) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: &str = "10.77.1.1";
    const CALLEE: &str = "10.77.2.2";

    fn seen(line: &str) -> Option<(usize, usize, String)> {
        packet(line, CALLER, CALLEE).map(|packet| (packet.from, packet.to, packet.label))
    }

    #[test]
    fn packets_are_named_by_their_chunks_flags_and_messages() {
        let cases = [
            ("1.5\tpath1\t10.77.1.1\t1\t\t\t\t", (0, 1, "INIT")),
            ("1.5\tpath1\t10.77.1.2\t3,0\t\t\t200\tREGISTER", (1, 0, "SACK, 200 (REGISTER)")),
            ("1.5\tpath1\t10.77.1.2\t\t·······A··S·\t\t\t", (1, 0, "SYN ACK")),
            ("1.5\tpath2\t10.77.1.2\t\t\tINVITE\t\tINVITE", (1, 2, "INVITE")),
            ("1.5\tpath2\t10.77.2.2\t0,0\t\t\t180,200\tINVITE,INVITE", (2, 1, "180 (INVITE), 200 (INVITE)")),
        ];
        for (line, (from, to, label)) in cases {
            assert_eq!(seen(line), Some((from, to, label.to_owned())), "{line}");
        }
    }

    #[test]
    fn heartbeats_are_left_out() {
        assert_eq!(seen("1.5\tpath1\t10.77.1.1\t4\t\t\t\t"), None);
    }

    #[test]
    fn a_capture_is_split_before_invite_before_bye_and_before_the_last_register() {
        let of = |label: &str| Packet { time: 0.0, from: 0, to: 1, label: label.to_owned() };
        let labels = [
            "INIT",
            "REGISTER",
            "200 (REGISTER)",
            "INVITE",
            "200 (INVITE)",
            "ACK",
            "BYE",
            "200 (BYE)",
            "REGISTER",
        ];
        let packets: Vec<Packet> = labels.into_iter().map(of).collect();
        let lengths = parts(&packets).unwrap().map(<[Packet]>::len);
        assert_eq!(lengths, [3, 3, 2]);
        assert!(parts(&packets[..3]).is_err());
    }
}
