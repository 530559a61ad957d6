//! Tests that protections by client address also work for connections over SCTP. The tests use real programs. These
//! programs would admit the client if it seemed to come from 127.0.0.1, or if its connection bypassed the firewall.

use crate::world::{LIMIT, PORT, World};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use testbed::process::wait_for;
use testbed::programs::Sshd;
use testbed::{Host, Process};

/// Limit on the time for the start of a server.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Connects to argv[1]:argv[2], and sends argv[3] if it is not empty. Prints the first line of the answer, or
/// the type of the error.
const ASK: &str = "
import socket, sys
try:
    stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), 4)
    if sys.argv[3]: stream.sendall(sys.argv[3].encode() + b'\\r\\n')
    print(stream.makefile().readline().strip())
except OSError as error:
    print(type(error).__name__)
";

pub(crate) fn ask(host: &Host, server: &str, question: &str) -> String {
    let mut command = host.command("python3");
    command.args(["-c", ASK, server, &PORT.to_string(), question]);
    host.run("ask", command, LIMIT).unwrap().good().unwrap().stdout.trim().to_owned()
}

/// Sends a question to beta's server twice: from alpha over SCTP, and from beta over loopback. Returns both answers.
fn answers(world: &World, question: &str) -> (String, String) {
    let before = world.connects_sctp();
    let stranger = ask(&world.alpha, &world.link.right_v4().to_string(), question);
    assert_eq!(world.connects_sctp(), before + 1, "not by SCTP: {:?}", world.fallbacks());
    (stranger, ask(&world.beta, "127.0.0.1", question))
}

/// Starts a server on beta. Waits until a client on beta's loopback gets an answer that contains `answer`.
pub(crate) fn serve(world: &World, program: &str, args: &[&str], question: &str, answer: &str) -> Process {
    let mut command = world.beta.command(program);
    command.args(args);
    let process = world.beta.spawn("server", command).unwrap();
    let is_up = || ask(&world.beta, "127.0.0.1", question).contains(answer);
    assert!(wait_for(START_LIMIT, is_up), "{program}: {} {}", process.stdout(), process.stderr());
    process
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn redis_in_protected_mode_serves_nobody_but_its_own_host() {
    let world = World::new();
    let port = PORT.to_string();
    let args = ["--port", &port, "--protected-mode", "yes", "--bind", "*", "-::*", "--save", ""];
    let _redis = serve(&world, "redis-server", &args, "PING", "PONG");
    // The server reports the refusal without a request, so the question is empty.
    let stranger = ask(&world.alpha, &world.link.right_v4().to_string(), "");
    assert!(stranger.starts_with("-DENIED"), "{stranger}");
    assert_eq!(world.connects_sctp(), 1, "{:?}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn nginx_that_allows_127_0_0_1_alone_forbids_the_rest() {
    let world = World::new();
    let dir = world.beta.dir().unwrap();
    let configuration = format!(
        "user root; daemon off; pid {0}/nginx.pid; error_log stderr; events {{}}\n\
         http {{ access_log off; client_body_temp_path {0}; proxy_temp_path {0}; fastcgi_temp_path {0};\n\
         uwsgi_temp_path {0}; scgi_temp_path {0};\n\
         server {{ listen {PORT}; root {0}; allow 127.0.0.1; deny all; }} }}\n",
        dir.display()
    );
    fs::write(dir.join("index.html"), "secret").unwrap();
    let file = dir.join("nginx.conf");
    fs::write(&file, configuration).unwrap();
    let get = "GET / HTTP/1.0\r\n";
    let _nginx = serve(&world, "nginx", &["-c", file.to_str().unwrap()], get, "200");
    let (stranger, own) = answers(&world, get);
    assert!(stranger.contains("403") && own.contains("200"), "{stranger}, {own}");
}

#[test]
#[ignore = "needs root: makes network namespaces, and PostgreSQL"]
fn postgresql_trusts_127_0_0_1_and_not_who_comes_through_sctp() {
    let world = World::new();
    let dir = tempfile::Builder::new().prefix("sctpify-pg").tempdir().unwrap();
    let data = dir.path().join("data");
    let as_postgres = |host: &Host, words: &[&str]| {
        let mut command = host.command("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).args(words);
        command
    };
    std::os::unix::fs::chown(dir.path(), Some(uid_of("postgres")), None).unwrap();
    let data = data.to_str().unwrap();
    let bin = postgresql();
    let make = [&bin("initdb"), "-D", data, "--no-sync", "-A", "trust", "-U", "boss"];
    world.beta.run("initdb", as_postgres(&world.beta, &make), LIMIT).unwrap().good().unwrap();
    fs::write(
        format!("{data}/pg_hba.conf"),
        "host all all 127.0.0.1/32 trust\nhost all all 0.0.0.0/0 scram-sha-256\n",
    )
    .unwrap();
    let port = PORT.to_string();
    let words = [&bin("postgres"), "-D", data, "-p", &port, "-h", "*", "-k", data, "-F"];
    let mut postgres = world.beta.spawn("postgres", as_postgres(&world.beta, &words)).unwrap();
    postgres.wait_until("ready", START_LIMIT, |p| p.stderr().contains("ready to accept")).unwrap();
    let select = |host: &Host, server: &str| {
        let mut psql = host.command("psql");
        psql.args(["-w", "-h", server, "-p", &port, "-U", "boss", "-d", "postgres", "-Atc", "select 42"]);
        let output = host.run("psql", psql, LIMIT).unwrap();
        output.stdout + &output.stderr
    };
    assert_eq!(select(&world.beta, "127.0.0.1").trim(), "42");
    let stranger = select(&world.alpha, &world.link.right_v4().to_string());
    assert!(stranger.contains("no password supplied"), "{stranger}");
    assert!(world.connects_sctp() > 0, "{:?}", world.fallbacks());
    postgres.signal(nix::sys::signal::Signal::SIGINT).unwrap();
    postgres.finish(LIMIT).unwrap();
}

/// Returns a function that returns the path of a PostgreSQL program. Debian installs PostgreSQL's programs outside
/// PATH.
fn postgresql() -> impl Fn(&str) -> String {
    let versions =
        fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL: `./x doctor` tells which package has it");
    let newest = versions.map(|version| version.unwrap().path()).max().unwrap();
    move |program| newest.join("bin").join(program).display().to_string()
}

fn uid_of(user: &str) -> u32 {
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|line| line.split(':').next() == Some(user));
    line.and_then(|line| line.split(':').nth(2)).unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn sshd_matches_the_clients_own_address() {
    let world = World::new();
    let betas = world.betas.as_ref().unwrap();
    world.alphas.shimrules(&["-A", "-c", "remote", "-p", "enable", "-P", "22"]).unwrap().good().unwrap();
    betas.shimrules(&["-A", "-c", "local", "-p", "enable", "-P", "22"]).unwrap().good().unwrap();
    let sshd = Sshd::start(&world.beta).unwrap();
    let from = |host: &Host, to: IpAddr| {
        let ssh = sshd.ssh(host, to, "echo ${SCTPIFY_LAB_FROM:-elsewhere}");
        host.run("ssh", ssh, LIMIT).unwrap().good().unwrap().stdout.trim().to_owned()
    };
    assert_eq!(from(&world.beta, Ipv4Addr::LOCALHOST.into()), "loopback");
    assert_eq!(from(&world.alpha, world.link.right_v4().into()), "elsewhere");
    assert_eq!(world.connects_sctp(), 1, "{:?}", world.fallbacks());
}

/// Starts a server on beta, loads a firewall on beta, and connects from alpha. Returns the world, and the outcome of
/// the connect.
fn behind(firewall: &str) -> (World, String) {
    let world = World::new();
    let echo = "
import socket, sys
listener = socket.create_server(('', int(sys.argv[1])))
while True:
    stream, _ = listener.accept()
    stream.sendall(b'in\\n')
    stream.close()
";
    let _server = serve(&world, "python3", &["-c", echo, &PORT.to_string()], "", "in");
    let file = world.beta.dir().unwrap().join("firewall.nft");
    fs::write(&file, firewall).unwrap();
    world.beta.tool("nft", &["-f", file.to_str().unwrap()]).unwrap();
    let output = ask(&world.alpha, &world.link.right_v4().to_string(), "");
    assert_eq!(ask(&world.beta, "127.0.0.1", ""), "in", "the server is there");
    (world, output)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_banned_address_is_refused_as_fail2ban_would_have_it() {
    let (world, report) = behind(
        "table inet f2b-table {
          set addr-set { type ipv4_addr; elements = { 10.77.1.1 } }
          chain f2b-chain {
           type filter hook input priority filter - 1; policy accept;
           tcp dport 7000 ip saddr @addr-set reject with icmp port-unreachable
          }
         }",
    );
    assert_eq!((report.as_str(), world.connects_sctp()), ("ConnectionRefusedError", 0));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_port_that_a_default_drop_closes_to_tcp_is_closed_to_sctp() {
    let (world, report) = behind(
        "table inet firewall {
          chain input {
           type filter hook input priority filter; policy drop;
           ct state established,related accept
           iifname lo accept
           udp dport 9899 accept
           meta l4proto sctp accept
           meta l4proto { icmp, ipv6-icmp } accept
          }
         }",
    );
    assert_eq!((report.as_str(), world.connects_sctp()), ("TimeoutError", 0));
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_port_that_no_local_rule_names_is_not_reached_through_sctp() {
    let world = World::new();
    let port = PORT.to_string();
    let betas = world.betas.as_ref().unwrap();
    betas.shimrules(&["-D", "-c", "local", "-p", "enable", "-P", &port]).unwrap().good().unwrap();
    let args = ["--port", &port, "--protected-mode", "no", "--bind", "*", "--save", ""];
    let _redis = serve(&world, "redis-server", &args, "PING", "PONG");
    assert_eq!(ask(&world.alpha, &world.link.right_v4().to_string(), "PING"), "+PONG", "by TCP");
    assert_eq!(world.connects_sctp(), 0);
}
