//! Test of a program that uses TCP only, and that connects through the shim to a server with SCTP sockets.

use testbed::Daemon;
use testbed::programs::curl;

use crate::world::{LIMIT, PORT, World};

/// Web server on SCTP sockets. It answers each request with a page whose length is the number in the path.
const WEB: &str = "
l = listen(sys.argv[1])
while True:
    s, _ = l.accept()
    request = b''
    while b'\\r\\n\\r\\n' not in request: request += s.recv(65536)
    length = int(request.split()[1][1:])
    s.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % length)
    for at in range(0, length, 30000): s.sendall(b'x' * min(30000, length - at))
    s.close()
";

#[test]
#[ignore = "needs root: makes network namespaces"]
fn curl_fetches_through_the_shim_from_a_server_with_sctp_sockets() {
    let world = World::new(2);
    let daemon = Daemon::start(&world.alpha, &world.programs, "").unwrap();
    daemon.shimrules(&["-A", "-c", "remote", "-p", "enable", "-P", PORT]).unwrap().good().unwrap();
    let _server = world.serve(WEB);
    let got = world.lab.dir().join("page");
    for length in [1, 100_000, 5_000_000] {
        let command = curl(&world.alpha, &format!("http://{}:{PORT}/{length}", world.to()), Some(&got));
        world.alpha.run("curl", command, LIMIT).unwrap().good().unwrap();
        assert!(std::fs::read(&got).unwrap() == vec![b'x'; length]);
    }
    let status = daemon.sctpify(&["--json", "status"]).unwrap().good().unwrap().stdout;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["counters"]["connects_sctp"], 3, "{}", status["recent_fallbacks"]);
}
