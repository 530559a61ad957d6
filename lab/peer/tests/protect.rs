//! Tests of two peers on loopback with sealed packets. Each peer prints its own key, and accepts only a peer
//! with the expected key.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};

const COUNT: &str = "100";

/// Returns a currently free UDP port.
fn free_port() -> u16 {
    std::net::UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}

/// Both ends' UDP ports.
struct Ports {
    server: u16,
    client: u16,
}

fn peer(local: &str, udp_port: u16, peer_udp_port: u16) -> Command {
    let mut peer = Command::new(env!("CARGO_BIN_EXE_peer"));
    let ports = [udp_port, peer_udp_port].map(|port| port.to_string());
    peer.args(["--local", local, "--udp-port", &ports[0], "--peer-udp-port", &ports[1]]);
    peer.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    peer
}

/// An echo server, killed when dropped.
struct Server(Child);

impl Server {
    /// Starts a server with these flags, and waits until it listens.
    fn start(ports: &Ports, flags: &[&str]) -> Server {
        let mut server = peer("127.0.0.1", ports.server, ports.client);
        let mut child = server.args(flags).args(["echo", "7"]).spawn().unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let is_ready = lines.map(Result::unwrap).any(|line| line == "listening");
        assert!(is_ready);
        Server(child)
    }
}

impl Server {
    /// Waits for the end of the server, and returns its standard error.
    fn error(mut self) -> String {
        let mut told = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        told
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn client(ports: &Ports, flags: &[&str]) -> Output {
    let mut client = peer("127.0.0.2", ports.client, ports.server);
    client.args(flags).args(["client", "127.0.0.1", "7", COUNT, "2000"]).output().unwrap()
}

/// Finds the first line of the output that begins with `begin`, and returns the rest of this line.
fn line(output: &Output, begin: &str) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix(begin).map(str::to_owned))
}

#[test]
fn a_peer_is_identified_by_its_key_and_refused_if_another_key_is_expected() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (of_server, of_client) = (file("server.key"), file("client.key"));
    let ports = Ports { server: free_port(), client: free_port() };
    let known = {
        let _server = Server::start(&ports, &["--protect", "--host-key", &of_server]);
        let output = client(&ports, &["--protect", "--host-key", &of_client]);
        assert!(output.status.success(), "{output:?}");
        assert!(line(&output, &format!("{COUNT} messages of 2000 octets and back")).is_some());
        line(&output, "peer key ").unwrap()
    };
    let mode = std::fs::metadata(&of_server).unwrap().permissions().mode();
    assert_eq!((known.starts_with("sctpify1:"), mode & 0o777), (true, 0o600));
    // The server has the same key after a restart.
    {
        let _server = Server::start(&ports, &["--protect", "--host-key", &of_server]);
        let output = client(&ports, &["--protect", "--host-key", &of_client, "--peer-key", &known]);
        assert!(output.status.success(), "{output:?}");
    }
    // A peer with an unexpected key is refused, and gets the reason.
    let server = Server::start(&ports, &["--protect"]);
    let refused = client(&ports, &["--protect", "--peer-key", &known]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stdout).contains("not the one of --peer-key"));
    let told = server.error();
    assert!(told.contains("another key was expected"), "{told}");
}

#[test]
fn a_client_without_dtls_chunks_is_refused_by_a_server_that_requires_them() {
    let ports = Ports { server: free_port(), client: free_port() };
    let _server = Server::start(&ports, &["--protect"]);
    let refused = client(&ports, &[]);
    assert!(!refused.status.success());
    // Cause code 100 is Missing DTLS Chunk Support.
    assert!(String::from_utf8_lossy(&refused.stderr).contains("code: 100"), "{refused:?}");
}
