//! Tests of connections through the shim between programs that use TCP only and native SCTP programs on a
//! Linux kernel. In some tests the native program is the server, in others the client.
//!
//! The native programs run on the kernel of a guest ([`testbed::Guest`]). The daemon and the TCP program run
//! in a namespace with links to the guest. The tests need root, Debian and /dev/net/tun. They also need
//! `sctpifyd`, `sctpify` and `shimrules`, built next to the tests or in SCTPIFY_BIN_DIR. Begin with
//! [`World`].

use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use testbed::process::wait_for;
use testbed::programs::{Nginx, curl};
use testbed::{Browser, Daemon, Guest, Host, Lab, Process, Programs, files};

const LIMIT: Duration = Duration::from_secs(60);
/// The guest's address on the first path.
const GUEST: &str = "10.60.0.11";
/// The address of the daemon's host on the first path.
const OURS: &str = "10.60.0.1";
/// Port of native servers, which programs reach through the shim.
const PORT: u16 = 7000;
/// Port of nginx, which native clients reach.
const HTTP_PORT: u16 = 80;
const FILE_BYTES: u64 = 4 << 20;
/// Configuration with a long race timer. On a busy machine, a guest answers slowly. A fallback to plain TCP
/// would fail, because the guest's servers use SCTP only.
const CONFIGURATION: &str = "race_timer_ms = 3000\n";

/// A guest, a host with links to the guest, and a daemon on that host.
struct World {
    // The fields are dropped in this order: the daemon, the lab's content, the guest and its namespaces.
    daemon: Daemon,
    ours: Host,
    lab: Lab,
    guest: Guest,
}

impl World {
    /// Creates the world. If no guest can be booted, reports a skipped test and returns `None`.
    fn new() -> Option<Self> {
        if let Some(what) = Guest::missing() {
            testbed::skip(&format!("{what} is missing"));
            return None;
        }
        let programs = Programs::find().unwrap();
        let guest = Guest::up("native").unwrap();
        let lab = Lab::new().unwrap();
        let ours = lab.adopt("ours", guest.namespace("peer"));
        let daemon = Daemon::start(&ours, &programs, CONFIGURATION).unwrap();
        for (chain, port) in [("remote", PORT), ("local", HTTP_PORT)] {
            let words = ["-A", "-c", chain, "-p", "enable", "-P", &port.to_string()];
            daemon.shimrules(&words).unwrap().good().unwrap();
        }
        Some(Self { daemon, ours, lab, guest })
    }

    /// Creates a file of random bytes, and returns its paths on this machine and in the guest.
    fn file(&self, dir: PathBuf) -> (PathBuf, String) {
        let file = dir.join("file");
        files::make_random(&file, FILE_BYTES).unwrap();
        let inside = Guest::path_inside(&file).display().to_string();
        (file, inside)
    }

    /// Starts a Python program in the guest with these arguments.
    fn start_inside(&self, program: &str, words: &[&str]) -> Process {
        let mut command = self.guest.program(LIMIT.as_secs());
        command.args(["/usr/bin/python3", "-c", program]).args(words);
        self.ours.spawn("native", command).unwrap()
    }

    /// Starts a native server in the guest, and waits until it listens. Its first argument is [`PORT`], and
    /// `words` are the further arguments.
    fn serve_inside(&self, program: &str, words: &[&str]) -> Process {
        let mut server = self.start_inside(program, &[&[PORT.to_string().as_str()], words].concat());
        server.wait_until("listening", LIMIT, |server| server.stdout().contains("listening")).unwrap();
        server
    }

    /// Serves a directory with nginx in the guest on [`PORT`]. `withsctp` makes nginx listen on SCTP instead
    /// of TCP.
    fn serve_by_nginx(&self, directory: &str) {
        self.guest.run(&NGINX.replace("DIRECTORY", directory)).unwrap();
        assert!(!self.guest.run("ss -Hltn").unwrap().contains("7000"), "it listens by TCP, too");
    }

    /// Requests a file from nginx with a native client in the guest, and returns the client's report.
    fn ask_nginx(&self, how: &str) -> String {
        let client = self.start_inside(WEB_CLIENT, &[OURS, &HTTP_PORT.to_string(), how]);
        client.finish(LIMIT).unwrap().good().unwrap().stdout.trim().to_owned()
    }

    /// Runs a Python program, which uses TCP only, on the daemon's host. Returns its output.
    fn python(&self, program: &str, words: &[&str]) -> String {
        let mut command = self.ours.command("python3");
        command.args(["-c", program]).args(words);
        self.ours.run("python", command, LIMIT).unwrap().good().unwrap().stdout.trim().to_owned()
    }

    fn count(&self, counter: &str) -> u64 {
        let output = self.daemon.sctpify(&["status", "--json"]).unwrap().good().unwrap();
        let status: Value = serde_json::from_str(&output.stdout).unwrap();
        status["counters"][counter].as_u64().unwrap()
    }
}

/// Python's web server on a native SCTP socket. It serves directory argv[2] on port argv[1].
const WEB_SERVER: &str = "
import functools, http.server, socket, sys
class Server(http.server.ThreadingHTTPServer):
    def __init__(self, address, handler):
        super().__init__(address, handler, bind_and_activate=False)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
        self.server_bind()
        self.server_activate()
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[2])
server = Server(('', int(sys.argv[1])), handler)
print('listening', flush=True)
server.serve_forever()
";

/// Requests `/file` from argv[1]:argv[2] on a native SCTP socket. If argv[3] is 'half', shuts down its
/// sending side at once. Prints the outcome of reading, and the SHA-256 of the body.
const WEB_CLIENT: &str = "
import errno, hashlib, socket, sys
connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
connection.connect((sys.argv[1], int(sys.argv[2])))
connection.sendall(b'GET /file HTTP/1.0\\r\\n\\r\\n')
if sys.argv[3] == 'half': connection.shutdown(socket.SHUT_WR)
received = bytearray()
try:
    while piece := connection.recv(65536): received += piece
    end = 'end'
except OSError as error: end = errno.errorcode[error.errno]
print(end, hashlib.sha256(received.partition(b'\\r\\n\\r\\n')[2]).hexdigest())
";

#[test]
#[ignore = "needs root: boots a guest with the kernel's SCTP"]
fn curl_fetches_from_a_native_web_server() {
    let Some(world) = World::new() else { return };
    let (file, inside) = world.file(world.lab.dir().to_owned());
    let dir = inside.trim_end_matches("/file");
    let _server = world.serve_inside(WEB_SERVER, &[dir]);
    let got = world.lab.dir().join("got");
    for count in 1..=3 {
        let fetch = curl(&world.ours, &format!("http://{GUEST}:{PORT}/file"), Some(&got));
        world.ours.run("curl", fetch, LIMIT).unwrap().good().unwrap();
        assert_eq!(files::sha256(&file).unwrap(), files::sha256(&got).unwrap());
        assert_eq!(world.count("connects_sctp"), count);
    }
}

/// Script that runs nginx without a master process on port 7000. It serves the directory DIRECTORY.
const NGINX: &str = "
mkdir /tmp/nginx; cd /tmp/nginx
printf '%s' 'daemon off; master_process off; user root; pid nginx.pid; error_log error.log; events {}
http { include /etc/nginx/mime.types; access_log off; sendfile on; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u;
scgi_temp_path s; server { listen 7000; root DIRECTORY; } }' >nginx.conf
withsctp nginx -p /tmp/nginx -e error.log -c nginx.conf >out 2>&1 &
for n in $(seq 100); do grep -q 7000 /proc/net/sctp/eps && exit; sleep 0.1; done
cat out error.log >&2; exit 1
";

#[test]
#[ignore = "needs root: boots a guest with the kernel's SCTP"]
fn curl_fetches_from_an_unmodified_server_that_withsctp_has_made_native() {
    let Some(world) = World::new() else { return };
    let (file, inside) = world.file(world.lab.dir().to_owned());
    world.serve_by_nginx(inside.trim_end_matches("/file"));
    let got = world.lab.dir().join("got");
    let fetch = curl(&world.ours, &format!("http://{GUEST}:{PORT}/file"), Some(&got));
    world.ours.run("curl", fetch, LIMIT).unwrap().good().unwrap();
    assert_eq!(files::sha256(&file).unwrap(), files::sha256(&got).unwrap());
    assert_eq!(world.count("connects_sctp"), 1);
}

#[test]
#[ignore = "needs root, Chromium, and boots a guest with the kernel's SCTP"]
fn a_browser_draws_a_page_of_a_native_web_server_as_it_draws_it_from_files() {
    let Some(world) = World::new() else { return };
    let Some(browser) = Browser::find(&world.ours).unwrap() else { return };
    let site = world.ours.dir().unwrap().join("site");
    std::fs::create_dir(&site).unwrap();
    let mut make = world.ours.command("python3");
    make.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/transparency/web_page.py")).arg(&site);
    world.ours.run("page", make, LIMIT).unwrap().good().unwrap();
    world.serve_by_nginx(&Guest::path_inside(&site).display().to_string());
    let url = format!("http://{GUEST}:{PORT}/page.html");
    let drawn = browser.drawn(&url).unwrap();
    assert!(drawn.contains("12 images, 1 script"), "{drawn}");
    let from_files = browser.picture(&format!("file://{}/page.html", site.display())).unwrap();
    let served = browser.picture(&url).unwrap();
    assert!(served == from_files, "the pictures differ: {} and {} bytes", served.len(), from_files.len());
    // The page's images use parallel connections.
    assert!(world.count("connects_sctp") > 2, "{} connections", world.count("connects_sctp"));
    assert_eq!(world.count("connects_fallback"), 0);
}

#[test]
#[ignore = "needs root: boots a guest with the kernel's SCTP"]
fn native_clients_fetch_from_nginx_which_knows_tcp_alone() {
    let Some(world) = World::new() else { return };
    let nginx = Nginx::start(&world.ours).unwrap();
    let (file, _) = world.file(nginx.root().to_owned());
    let sum = files::sha256(&file).unwrap();
    assert_eq!(world.ask_nginx("whole"), format!("end {sum}"));
    let output = world.guest.run(&format!("withsctp curl -sS http://{OURS}/file | sha256sum")).unwrap();
    assert_eq!(output.split(' ').next().unwrap(), sum);
    assert_eq!(world.count("accepts"), 2);
    let seen = || nginx.access_log().matches(GUEST).count() == 2;
    assert!(wait_for(LIMIT, seen), "nginx saw other clients: {}", nginx.access_log());
}

/// Accepts a connection on a native SCTP socket on port argv[1]. Reads to the end of file, sends an answer,
/// and prints whether the send succeeded.
const ANSWERS_AT_THE_END: &str = "
import errno, socket, sys
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
listener.bind(('', int(sys.argv[1])))
listener.listen()
print('listening', flush=True)
connection, _ = listener.accept()
count = 0
while piece := connection.recv(65536): count += len(piece)
try:
    connection.sendall(b'answer')
    print('answered', count)
except OSError as error: print(errno.errorcode[error.errno], count)
";

/// Sends 100,000 bytes to argv[1]:argv[2], shuts down its sending side, and prints the next received data.
const ENDS_ITS_SENDING: &str = "
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
connection.sendall(bytes(100000))
connection.shutdown(socket.SHUT_WR)
print(connection.recv(100))
";

/// SCTP has no half-closed state. The native program gets an error when it answers, because its association
/// has ended.
#[test]
#[ignore = "needs root: boots a guest with the kernel's SCTP"]
fn after_a_clients_half_close_a_native_server_reads_all_data_but_cannot_answer() {
    let Some(world) = World::new() else { return };
    let server = world.serve_inside(ANSWERS_AT_THE_END, &[]);
    assert_eq!(world.python(ENDS_ITS_SENDING, &[GUEST, &PORT.to_string()]), "b''");
    let output = server.finish(LIMIT).unwrap().good().unwrap().stdout;
    // The native program gets one of two errors. The error depends on whether SHUTDOWN COMPLETE has arrived
    // at its kernel.
    assert!(
        ["EPIPE 100000", "ESHUTDOWN 100000"].contains(&output.trim_start_matches("listening").trim()),
        "{output}"
    );
    assert_eq!(world.count("connects_sctp"), 1);
}

#[test]
#[ignore = "needs root: boots a guest with the kernel's SCTP"]
fn after_a_native_clients_half_close_the_client_gets_an_error_and_no_full_answer() {
    let Some(world) = World::new() else { return };
    let nginx = Nginx::start(&world.ours).unwrap();
    world.file(nginx.root().to_owned());
    let report = world.ask_nginx("half");
    assert!(report.starts_with("ENOTCONN") || report.starts_with("ECONNRESET"), "{report}");
    let seen = || nginx.access_log().contains("GET /file");
    assert!(wait_for(LIMIT, seen), "nginx was not asked: {}", nginx.access_log());
    let all = format!(" 200 {FILE_BYTES}");
    assert!(
        !nginx.access_log().contains(&all),
        "nginx believes that it has answered: {}",
        nginx.access_log()
    );
}
