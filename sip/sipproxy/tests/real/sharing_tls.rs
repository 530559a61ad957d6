//! Tests of a shared store over TLS, with a private CA, with an unknown CA, and with certificates for another host. Also tests users who
//! register over TLS and are called through the other proxy.

use testbed::Lab;
use testbed::process::wait_for;

use crate::secure::{agent, bob, make, make_root, tls};
use crate::store_server::{KEY, Kind, PASSWORD, PORT, Server};
use crate::world::{LIMIT, Site};

/// Returns lines of a proxy's configuration: the file of the trusted roots, and the common key.
fn roots(site: &Site, file: &str) -> String {
    format!("store_roots = \"{}\"\n{KEY}", site.dir.join(file).display())
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn proxies_share_users_by_tls_with_a_private_ca() {
    Kind::ALL.into_iter().for_each(share);
}

fn share(kind: Kind) {
    let lab = Lab::new().unwrap();
    let one = Site::alone(&lab);
    make_root(&one.dir);
    make(&one.dir, "store", "IP:127.0.0.1");
    let server = Server::with_tls(kind, &one, &one.dir.join("store.pem"));
    let process = server.start();
    let other = one.beside("127.0.0.2", one.domain);
    let start =
        |site: &Site| site.proxy_with_store(&kind.tls_url(), &[roots(site, "root.pem"), site.listen("udp")]);
    let proxies = [&one, &other].map(start);
    let _callee = one.callee("udp");
    one.register("bob", "udp");
    other.call("bob", "example.com", "udp", 20);
    // The proxies find the store again, over TLS.
    process.stop();
    let count = |words: &str| proxies.iter().filter(|proxy| proxy.stderr().contains(words)).count();
    assert!(wait_for(LIMIT, || count("the store does not answer") == 2), "{}", proxies[0].stderr());
    let _process = server.start();
    for words in ["the store answers again", "the store reports changes again"] {
        assert!(wait_for(LIMIT, || count(words) == 2), "{words}: {}", proxies[0].stderr());
    }
    one.register("carol", "udp");
    other.call("carol", "example.com", "udp", 20);
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_proxy_refuses_a_store_with_an_untrusted_or_mismatched_certificate() {
    for kind in Kind::ALL {
        for (names, file, why) in [
            ("IP:127.0.0.1", "stranger.pem", "its certificate is signed by none of the roots in "),
            ("IP:127.0.0.9,DNS:localhost", "root.pem", "its certificate does not match the host name"),
        ] {
            let told = refusal(kind, names, file);
            assert!(told.contains(why) && told.contains("127.0.0.1:7001"), "{kind:?}: {told}");
            assert!(!told.contains("geheim"), "{told}");
        }
    }
}

/// Returns the error of a proxy that does not start. The store's certificate has these names, and the proxy trusts the roots in this file.
fn refusal(kind: Kind, names: &str, file: &str) -> String {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    make_root(&site.dir);
    make(&site.dir, "store", names);
    make_root_beside(&site);
    let server = Server::with_tls(kind, &site, &site.dir.join("store.pem"));
    let _process = server.start();
    let command = site.proxy_command(&kind.tls_url(), &[roots(&site, file), site.listen("udp")]);
    let told = site.host.run("proxy", command, LIMIT).unwrap();
    assert!(!told.status.success(), "{told:?}");
    told.stderr
}

/// Creates the root certificate of another CA.
fn make_root_beside(site: &Site) {
    let dir = site.dir.join("stranger");
    std::fs::create_dir(&dir).unwrap();
    make_root(&dir);
    std::fs::rename(dir.join("root.pem"), site.dir.join("stranger.pem")).unwrap();
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_store_without_tls_is_not_taken_where_tls_is_asked_for() {
    for (kind, why) in [(Kind::Redis, "TLS on this port"), (Kind::Postgres, "server does not support TLS")] {
        let lab = Lab::new().unwrap();
        let site = Site::alone(&lab);
        make_root(&site.dir);
        let server = Server::new(kind, &site);
        let _process = server.start();
        let command = site.proxy_command(&kind.tls_url(), &[roots(&site, "root.pem"), site.listen("udp")]);
        let told = site.host.run("proxy", command, LIMIT).unwrap();
        assert!(!told.status.success() && told.stderr.contains(why), "{told:?}");
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn a_user_with_tls_at_one_proxy_is_called_by_sips_through_the_other() {
    let lab = Lab::new().unwrap();
    let one = Site::alone(&lab);
    make_root(&one.dir);
    make(&one.dir, "own", "URI:sip:example.com");
    let server = Server::new(Kind::Redis, &one);
    let _process = server.start();
    let other = one.beside("127.0.0.2", one.domain);
    let start = |site: &Site| {
        let more = [KEY.to_owned(), site.listen("udp"), tls(site, "own")];
        site.proxy_with_store(&server.kind.url(PASSWORD, PORT), &more)
    };
    let _proxies = [&one, &other].map(start);
    let _bob = bob(&one);
    for uri in ["sips:bob@example.com", "sip:bob@example.com"] {
        let call = ["--no-register", "--call", uri, "--calls", "20", "--rate", "20", "--duration", "0"];
        other.host.run("alice", agent(&other, "alice", 5080, &call), LIMIT).unwrap().good().unwrap();
    }
}
