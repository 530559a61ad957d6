//! Tests of SIP through the shim, between programs that use TCP and peers that use SCTP. Each SIP message must become one SCTP message.

use std::collections::BTreeSet;

use testbed::{Capture, Daemon, Lab, Link, Offloads, Programs};

use crate::world::{LIMIT, Site};

/// A proxy with SCTP on host alpha, and a host whose programs reach the proxy through the shim.
pub(crate) struct World {
    pub(crate) proxys: Site,
    pub(crate) callers: Site,
    pub(crate) link: Link,
    shim: Daemon,
    // Last field: the lab owns the sites' hosts, and must be dropped after them.
    pub(crate) lab: Lab,
}

impl World {
    pub(crate) fn new() -> World {
        let lab = Lab::new().unwrap();
        let proxys = Site::new(&lab, "alpha", "10.77.1.1", "a.example");
        let callers = Site::new(&lab, "beta", "10.77.1.2", "b.example");
        let link = lab.join(&proxys.host, &callers.host, 1, Offloads::Off).unwrap();
        let shim = Daemon::start(&callers.host, &Programs::find().unwrap(), "").unwrap();
        let rule = ["-A", "-c", "remote", "-p", "enable", "-P", "5060", "--framing", "sip", "--require"];
        shim.shimrules(&rule).unwrap().good().unwrap();
        World { proxys, callers, link, shim, lab }
    }
}

/// Number of calls that SIPp makes on one TCP connection.
const CALLS: u32 = 50;

/// A DATA chunk that holds a SIP message, or a fragment of one.
#[derive(Debug)]
pub(crate) struct Message {
    /// Method in CSeq. tshark prints it only for the last fragment of a message.
    pub(crate) method: String,
    begins: bool,
    ends: bool,
    /// Stream identifier, as tshark prints it.
    pub(crate) stream: String,
    pub(crate) is_unordered: bool,
    /// Call-ID. tshark prints it only for the last fragment of a message.
    pub(crate) dialog: String,
}

impl Message {
    /// Reports whether this chunk is both the first and the last fragment.
    fn is_whole(&self) -> bool {
        self.begins && self.ends
    }
}

/// Reports whether each SIP message is one SCTP message, which may have several fragments.
pub(crate) fn are_each_one(seen: &[Message]) -> bool {
    let begins = seen.iter().filter(|message| message.begins).count();
    let ends = seen.iter().filter(|message| message.ends).count();
    begins == ends && seen.iter().all(|message| message.ends != message.method.is_empty())
}

/// Returns the messages of a capture, each TSN once. Panics if an SCTP message holds more than one SIP message.
pub(crate) fn messages(capture: Capture) -> Vec<Message> {
    let chunk = ["sctp.data_b_bit", "sctp.data_e_bit", "sip.CSeq.method", "sctp.data_tsn_raw"];
    let fields = [&chunk[..], &["sctp.data_sid", "sctp.data_u_bit", "sip.Call-ID", "ip.src"]].concat();
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let words =
        ["-Y", "sctp.chunk_type == 0", "-T", "fields", "-E", "separator=/t"].into_iter().chain(fields);
    let told = capture.dissect(&words.collect::<Vec<_>>()).unwrap();
    let mut seen = BTreeSet::new();
    told.lines().flat_map(|line| messages_of(line, &mut seen)).collect()
}

/// Returns a packet's messages, except messages whose TSN is already in `seen`. `line` is tshark's output for the packet.
fn messages_of(line: &str, seen: &mut BTreeSet<(String, String)>) -> Vec<Message> {
    let (chunks, source) = line.rsplit_once('\t').unwrap();
    let columns: Vec<Vec<&str>> = chunks.split('\t').map(|column| column.split(',').collect()).collect();
    assert!(columns.iter().all(|column| column.len() == columns[0].len()), "{line}");
    let new = (0..columns[0].len()).filter(|&i| seen.insert((source.to_owned(), columns[3][i].to_owned())));
    let one = |i: usize| Message {
        method: columns[2][i].to_owned(),
        begins: columns[0][i] == "1",
        ends: columns[1][i] == "1",
        stream: columns[4][i].to_owned(),
        is_unordered: columns[5][i] == "1",
        dialog: columns[6][i].to_owned(),
    };
    new.map(one).collect()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_shim_carries_each_sip_message_of_a_tcp_connection_in_its_own_data_chunk() {
    let world = World::new();
    let World { proxys, callers, link, shim, .. } = &world;
    let _proxy = proxys.proxy(&[proxys.listen("udp"), proxys.listen("tcp"), proxys.listen("sctp")]);
    let _callee = proxys.callee("udp");
    proxys.register("bob", "udp");
    let capture = Capture::start(&callers.host, "calls", &[&link.name()]).unwrap();
    let caller = callers.caller_by(&proxys.proxy_address(), "bob", proxys.domain, "tcp", CALLS, 100);
    callers.host.run("caller", caller, LIMIT).unwrap().good().unwrap();
    let told = shim.sctpify(&["explain", &proxys.proxy_address()]).unwrap().stdout;
    assert!(told.contains("--framing sip"), "{told}");
    let seen = messages(capture);
    assert!(seen.iter().all(Message::is_whole), "{seen:?}");
    let of = |method: &str| seen.iter().filter(|message| message.method == method).count();
    assert!(of("INVITE") >= 4 * CALLS as usize && of("ACK") == CALLS as usize, "{seen:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_sctp_agent_calls_through_the_shim_in_front_of_a_proxy_without_sctp() {
    let lab = Lab::new().unwrap();
    let site = Site::new(&lab, "alpha", "10.77.1.1", "a.example");
    let far = lab.host("beta").unwrap();
    let link = lab.join(&site.host, &far, 1, Offloads::Off).unwrap();
    let _proxy = site.proxy(&[site.listen("udp"), site.listen("tcp")]);
    let shim = Daemon::start(&site.host, &Programs::find().unwrap(), "").unwrap();
    let rule = ["-A", "-c", "local", "-p", "enable", "-P", "5060", "--framing", "sip"];
    shim.shimrules(&rule).unwrap().good().unwrap();
    let _callee = site.callee("udp");
    site.register("bob", "udp");
    let capture = Capture::start(&far, "calls", &[&link.name()]).unwrap();
    let mut agent = far.command(env!("CARGO_BIN_EXE_sctpify-ua"));
    agent.args(["--local", "10.77.1.2:5070", "--proxy", "10.77.1.1:5060", "--transport", "sctp"]);
    agent.args(["--user", "alice@a.example", "--call", "sip:bob@a.example"]);
    agent.args(["--calls", "20", "--rate", "20", "--duration", "0"]);
    far.run("agent", agent, LIMIT).unwrap().good().unwrap();
    let seen = messages(capture);
    assert!(seen.iter().all(Message::is_whole), "{seen:?}");
    let answers = seen.iter().filter(|message| message.method == "INVITE").count();
    assert!(answers >= 80, "{seen:?}");
}
