//! Tests of the configuration file's values.

use sip::Transport;

use super::*;

const LEAST: &str = "domains = [\"Example.com\"]\n[[listen]]\naddress = \"127.0.0.1:5060\"\n";

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("sip.toml"), text).map_err(|error| error.to_string())
}

#[test]
fn a_domain_and_an_address_are_enough_and_the_transport_is_udp() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.proxy.domains, ["example.com"]);
    assert_eq!(config.proxy.listeners[0].transport, Transport::Udp);
    assert_eq!((config.store, config.proxy.dialog_secret), (None, None));
    assert_eq!(config.drain.as_secs(), 32);
}

#[test]
fn rate_and_memory_limits_have_defaults_and_can_be_configured() {
    let proxy = parse(LEAST).unwrap().proxy;
    assert_eq!((proxy.access.rate, proxy.access.burst), (200, 1000));
    // The systemd unit's MemoryMax is 2 GiB, and resident memory may reach one and a half times the counted bytes.
    assert!(proxy.limits.kept_bytes <= (2 << 30) / 3 * 2);
    let proxy = parse(&format!("access.requests_per_s = 0\nlimits.kept_mib = 32\n{LEAST}")).unwrap().proxy;
    assert_eq!((proxy.access.rate, proxy.limits.kept_bytes), (0, 32 << 20));
    assert!(
        parse(&format!("limits.kept_mib = 0\n{LEAST}"))
            .unwrap_err()
            .contains("limits.kept_mib: must be at least 1")
    );
}

#[test]
fn a_dialog_key_is_read_as_hexadecimal_digits() {
    let config = parse(&format!("dialog_key = \"{}\"\n{LEAST}", "0a".repeat(32))).unwrap();
    assert_eq!(config.proxy.dialog_secret, Some([10; 32]));
}

#[test]
fn encryption_needs_a_key_file_and_keys_need_encryption() {
    let sctp = |lines: &str| parse(&format!("{LEAST}[sctp]\n{lines}"));
    let peer = |key: &str| format!("[[sctp.peer]]\naddress = \"192.0.2.2\"\nkey = \"{key}\"\n");
    let key = keying::HostKey::generate().unwrap().public().to_string();
    let on = "secure = \"require\"\nhost_key = \"/k\"\n";
    assert_eq!(sctp(&format!("{on}{}", peer(&key))).unwrap().sctp.peers.len(), 1);
    for (lines, problem) in [
        ("secure = \"try\"".to_owned(), "sctp.host_key: is missing"),
        (peer(&key), "sctp.secure: is \"off\", so keys have no effect"),
        ("host_key = \"/k\"".to_owned(), "sctp.secure: is \"off\""),
        (
            "secure = \"try\"\nhost_key = \"/k\"\nknown_peers_only = true".to_owned(),
            "requires secure = \"require\"",
        ),
        (format!("{on}{0}{0}", peer(&key)), "sctp.peer: 192.0.2.2 occurs twice"),
        (format!("{on}known_peers_only = true"), "refuses everyone"),
        (format!("{on}{}", peer(&key).replace("192.0.2.2", "::ffff:192.0.2.2")), "no address of a host"),
        (format!("{on}{}", peer(&key).replace("192.0.2.2", "0.0.0.0")), "no address of a host"),
        (format!("{on}{}", peer("nonsense")), "sip.toml: line"),
        (format!("{on}{}", peer(&format!("sctpify1:{}", "A".repeat(43)))), "anyone can sign for it"),
        ("secure = \"always\"".to_owned(), "unknown variant"),
    ] {
        let error = sctp(&lines).unwrap_err();
        assert!(error.contains(problem), "{lines}: {error}");
    }
}

#[test]
fn an_error_names_file_key_and_remedy() {
    for (text, words) in [
        ("domains = []", "sip.toml: domains: is empty: name the domain"),
        ("domains = [\"a\"]", "sip.toml: listen: is missing: add [[listen]]"),
        (
            "domains = [\"a\"]\ndialog_key = \"sesame\"\n[[listen]]\naddress = \"127.0.0.1:1\"",
            "dialog_key: must be 64 hexadecimal digits",
        ),
        ("domains = [\"a b\"]", "sip.toml: domains: invalid domain `a b`"),
        (
            "[[listen]]\ntransport = \"ws\"\naddress = \"127.0.0.1:1\"",
            "invalid transport `ws`: expected udp, tcp, tls or sctp",
        ),
        ("[[listen]]\naddress = \"0.0.0.0:5060\"", "listen.address: 0.0.0.0:5060 cannot be announced"),
        (
            "[[listen]]\naddress = \"127.0.0.1:1\"\nrecord_route = \"a b\"",
            "listen.record_route: invalid domain `a b`",
        ),
        (
            "[[listen]]\naddress = \"127.0.0.1:1\"\nrecord_route = \"a.example:0\"",
            "listen.record_route: invalid port `0`",
        ),
        (
            "domains = [\"a\"]\nstore = \"/x.db\"\nstore_roots = \"/x.pem\"\n[[listen]]\naddress = \"127.0.0.1:1\"",
            "store_roots: requires a store with TLS: use rediss://",
        ),
        (
            "domains = [\"a\"]\nstore = \"rediss://r.example/\"\nstore_roots = \"/none.pem\"\n[[listen]]\naddress = \"127.0.0.1:1\"",
            "store: /none.pem: no certificates",
        ),
        ("[registration]\nmin_s = 9\ndefault_s = 8", "registration: must have 0 < min_s <= default_s"),
        ("[limits]\nbranches = 0", "limits.branches: must be at least 1"),
        (
            "domains = [\"a\"]\ndrain_s = 3601\n[[listen]]\naddress = \"127.0.0.1:1\"",
            "sip.toml: drain_s: must be 0 to 3600",
        ),
        ("[timers]\nt1_ms = 9", "timers.t1_ms: must be 10 to 5000"),
        (
            "[authentication]\nusers = {}\nalgorithms = [\"SHA-1\"]",
            "unknown hash `SHA-1`: expected SHA-256 or MD5",
        ),
        (
            "[[listen]]\ntransport = \"tls\"\naddress = \"127.0.0.1:1\"",
            "sip.toml: tls: is missing: a listener",
        ),
        (
            "[tls]\ncertificate = \"/none.pem\"\nkey = \"/none.key\"",
            "sip.toml: tls: /none.pem: no certificates",
        ),
        (
            "domains = [\"a\"]\nstore = \"mysql://x\"\n[[listen]]\naddress = \"127.0.0.1:1\"",
            "store: unknown store `mysql`: expected a file",
        ),
        (
            "domains = [\"a\"]\nstore = \"redis://127.0.0.1/\"\n[[listen]]\naddress = \"127.0.0.1:1\"",
            "dialog_key: is missing: proxies that share a store need the same key",
        ),
        (
            "[access]\ndeny = [\"x\"]",
            "access.deny: invalid network `x`: expected an address, or ADDRESS/BITS",
        ),
        ("[access]\nburst = 0", "access: must have burst of at least 1"),
        ("[sctp]\nstreams = 0", "sctp.streams: must be 1 to 65535"),
        ("[sctp]\nmultipath = \"all\"", "unknown variant `all`, expected one of `off`, `lowest-rtt`"),
        (
            "[sctp]\nmultipath = \"weighted\"\nmultipath_weights = \"10.1.0.0/16\"",
            "invalid weights `10.1.0.0/16`: expected 192.0.2.0/24=3",
        ),
        (
            "[sctp]\nmultipath_weights = \"10.1.0.0/16=3\"",
            "sctp.multipath_weights: requires multipath = \"weighted\"",
        ),
        ("[sctp]\naddresses = [\"0.0.0.0\"]", "sctp.addresses: 0.0.0.0 is not an address of this host"),
    ] {
        let text = if text.starts_with("domains") { text.to_owned() } else { format!("{LEAST}{text}\n") };
        let error = parse(&text).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_reload_names_a_changed_setting_that_requires_a_restart() {
    let old = parse(LEAST).unwrap();
    for (text, key) in [
        (format!("{LEAST}[limits]\nbranches = 3\n"), None),
        (format!("{LEAST}[[next_hop]]\ndomain = \"b\"\naddress = \"127.0.0.1:9\"\n"), None),
        (LEAST.replace("5060", "5070"), Some("listen")),
        (format!("{LEAST}record_route = \"Sip.Example.com\"\n"), Some("listen.record_route")),
        (format!("store = \"x\"\n{LEAST}"), Some("store")),
        (format!("{LEAST}[limits]\nconnections = 3\n"), Some("limits.connections")),
        (format!("{LEAST}[sctp]\nstreams = 3\n"), Some("sctp")),
    ] {
        assert_eq!(old.fixed_change(&parse(&text).unwrap()), key, "{text}");
    }
}

#[test]
fn an_unknown_key_is_an_error_with_its_line() {
    let error = parse(&format!("{LEAST}adress = 1\n")).unwrap_err();
    assert!(error.contains("line 4") && error.contains("adress"), "{error}");
}

#[test]
fn a_syntax_error_gives_the_line_number_but_not_the_text_of_the_line() {
    let error = parse(&format!("{LEAST}[authentication]\nusers = {{ alice = sesame }}\n")).unwrap_err();
    assert!(error.contains("line 5") && !error.contains("alice"), "{error}");
}

#[test]
fn the_mode_is_that_of_a_stateful_proxy_unless_said_otherwise() {
    use sip::proxy::Mode;
    let mode = |word: &str| parse(&format!("mode = \"{word}\"\n{LEAST}")).map(|config| config.proxy.mode);
    assert_eq!(parse(LEAST).unwrap().proxy.mode, Mode::Stateful);
    assert_eq!(mode("proxy"), Ok(Mode::Stateful));
    assert_eq!(mode("redirect"), Ok(Mode::Redirect));
    assert_eq!(mode("stateless"), Ok(Mode::Stateless));
    assert!(mode("forking").unwrap_err().contains("line 1: unknown variant `forking`"));
    let (before, after) = (parse(LEAST).unwrap(), parse(&format!("mode = \"redirect\"\n{LEAST}")).unwrap());
    assert_eq!(before.fixed_change(&after), Some("mode"));
}

#[test]
fn stateless_mode_disables_dns_and_refuses_passwords_and_a_shared_store() {
    let stateless = format!("mode = \"stateless\"\n{LEAST}");
    let config = parse(&format!("{stateless}[dns]\nservers = [\"192.0.2.53:53\"]\n")).unwrap();
    assert!(!config.proxy.names && config.name_servers.is_empty());
    let refused = parse(&format!("{stateless}[authentication]\nusers = {{ alice = \"x\" }}\n")).unwrap_err();
    assert!(refused.contains("authentication: does not go with mode = \"stateless\""), "{refused}");
    let key = "ab".repeat(32);
    let shared = format!("store = \"redis://192.0.2.50:6379/0\"\ndialog_key = \"{key}\"\n{stateless}");
    let refused = parse(&shared).unwrap_err();
    assert!(refused.contains("store: is shared, which conflicts with mode = \"stateless\""), "{refused}");
}
