//! Tests of the page that shows registrations, calls and associations. A browser must not interpret the text of unknown hosts as HTML.

use serde_json::Value;
use testbed::process::wait_for;
use testbed::{Browser, Lab, Offloads, Process};

use crate::world::{LIMIT, Site};

const PAGE: &str = "http://127.0.0.1:9898/";
/// Number of users. It exceeds the number of rows in one part of a list.
const USERS: usize = 60;
/// Number of users. The proxy assembles a whole list of this length from several pieces.
const MANY_USERS: usize = 600;
/// A caller's display name that contains HTML and a script.
const HOSTILE: &str = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>";

/// Python program that registers users, and calls from one of them with a display name. It prints the responses.
const STRANGER: &str = r#"
import socket, sys
name, users = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.77.1.1", 5071))
def ask(method, uri, n, frm, to, more):
    text = (f"{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP 10.77.1.1:5071;branch=z9hG4bK{method}{n}\r\nMax-Forwards: 70\r\n"
        f"From: {frm};tag=f{n}\r\nTo: {to}\r\nCall-ID: {method}{n}\r\nCSeq: 1 {method}\r\n{more}Content-Length: 0\r\n\r\n")
    s.sendto(text.encode(), ("10.77.1.1", 5060))
for n in range(users):
    user = f"<sip:user{n:02}@a.example>"
    ask("REGISTER", "sip:a.example", n, user, user, f"Contact: <sip:user{n:02}@10.77.1.1:5071>\r\nExpires: 600\r\n")
    assert b" 200 " in s.recv(65536)
ask("INVITE", "sip:bob@b.example", 0, f'"{name}" <sip:user07@a.example>', "<sip:bob@b.example>", "Contact: <sip:user07@10.77.1.1:5071>\r\n")
while True:
    print(s.recv(65536).split(b"\r\n")[0].decode(), flush=True)
"#;

/// Two proxies joined by an association over two links, and an established call through both proxies.
struct World {
    a: Site,
    _running: [Process; 4],
    _lab: Lab,
}

impl World {
    fn with(users: usize) -> World {
        let lab = Lab::new().unwrap();
        let [a, b] = [("alpha", "10.77.1.1", "a.example"), ("beta", "10.77.1.2", "b.example")]
            .map(|(name, address, domain)| Site::new(&lab, name, address, domain));
        for number in [1, 2] {
            lab.join(&a.host, &b.host, number, Offloads::Off).unwrap();
        }
        let listeners = |site: &Site| site.listen("udp") + &site.listen("sctp");
        let sctp = |address: &str| format!("[sctp]\naddresses = [\"{address}\"]\n");
        let next_hop =
            "[[next_hop]]\ndomain = \"b.example\"\ntransport = \"sctp\"\naddress = \"10.77.1.2:5060\"\n";
        let proxy_b = b.proxy(&[listeners(&b), sctp("10.77.2.2")]);
        let callee = b.callee("udp");
        b.register("bob", "udp");
        let head = "page_port = 9898\n".to_owned();
        let proxy_a = a.proxy(&[head, listeners(&a), next_hop.to_owned(), sctp("10.77.2.1")]);
        let mut stranger = a.host.command("python3");
        stranger.args(["-c", STRANGER, HOSTILE, &users.to_string()]);
        let stranger = a.host.spawn("stranger", stranger).unwrap();
        let answered = || stranger.stdout().contains("SIP/2.0 200");
        assert!(wait_for(LIMIT, answered), "{} {}", stranger.stdout(), stranger.stderr());
        World { a, _running: [stranger, proxy_a, callee, proxy_b], _lab: lab }
    }

    fn get(&self, path: &str) -> Value {
        let url = format!("{PAGE}{path}");
        let told = self.a.host.tool("curl", &["-s", "--max-time", "10", &url]).unwrap();
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{path}: {error}: {told}"))
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_page_shows_calls_registrations_and_paths_and_escapes_untrusted_text() {
    let world = World::with(USERS);
    let Some(browser) = Browser::find(&world.a.host).unwrap() else { return };
    let drawn = browser.drawn(PAGE).unwrap();
    assert!(drawn.contains("&lt;img src=x onerror=document.title='owned'&gt;&lt;script&gt;"), "{drawn}");
    assert!(drawn.contains(": sctpify-sip</title>") && !drawn.contains("<img"), "{drawn}");
    assert!(drawn.contains("<td>call</td><td>confirmed</td>"), "{drawn}");
    assert!(drawn.contains("udp 10.77.1.1:5071") && drawn.contains("sctp 10.77.1.2:5060"), "{drawn}");
    assert!(
        drawn.contains("class=\"path active in_use\"") && drawn.contains("active, primary, in use"),
        "{drawn}"
    );
    assert!(drawn.contains("10.77.2.1 → 10.77.2.2 (sctp)"), "{drawn}");
    assert!(drawn.contains("<td>user49@a.example</td>") && !drawn.contains("user50@a.example"), "{drawn}");
    assert!(drawn.contains("<button type=\"button\">more →</button>"), "{drawn}");
    let found = browser.drawn(&format!("{PAGE}#search=USER5")).unwrap();
    assert_eq!(found.matches("<td>user5").count(), 10, "{found}");
    assert!(!found.contains("user49@") && !found.contains("<td>confirmed</td>"), "{found}");
    browser.picture(PAGE).unwrap();
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn lists_are_served_in_parts_and_an_invalid_part_gets_400() {
    let world = World::with(MANY_USERS);
    let (mut users, mut after) = (Vec::new(), String::new());
    loop {
        let told = world.get(&format!("contacts.json?count=25&after={after}"));
        users.extend(told["contacts"].as_array().unwrap().iter().map(|row| row["user"].clone()));
        let Some(next) = told["next"].as_str() else { break };
        after = next.replace('@', "%40");
    }
    let mut all: Vec<String> = (0..MANY_USERS).map(|n| format!("user{n:02}@a.example")).collect();
    all.sort();
    assert_eq!(users, all);
    let told = world.get("contacts.json");
    let whole = told["contacts"].as_array().unwrap().iter().map(|row| row["user"].clone());
    assert_eq!((whole.collect::<Vec<_>>(), &told["left_out"]), (users, &0.into()));
    // All clients that ask at once get their answers, although each answer waits for the previous ones.
    let urls = vec![format!("{PAGE}contacts.json"); 8];
    let words = ["-Z", "-s", "--max-time", "4", "-w", "%{http_code} "];
    let urls = urls.iter().flat_map(|url| ["-o", "/dev/null", url]);
    let told = world.a.host.tool("curl", &words.into_iter().chain(urls).collect::<Vec<_>>()).unwrap();
    assert_eq!(told.trim(), ["200"; 8].join(" "));
    let told = world.get("connections.json?search=10.77.2.2&count=5");
    let paths = told["connections"][0]["paths"].as_array().unwrap();
    assert_eq!((paths.len(), &told["connections"][0]["state"]), (4, &"ESTABLISHED".into()), "{told}");
    assert_eq!(world.get("connections.json?search=elsewhere")["connections"], Value::Array(Vec::new()));
    assert_eq!(world.get("dialogs.json?search=onerror&count=5")["dialogs"].as_array().unwrap().len(), 1);
    for query in ["dialogs.json?after=here", "contacts.json?count=many"] {
        let words = ["-s", "-o", "/dev/null", "-w", "%{http_code}", &format!("{PAGE}{query}")];
        assert_eq!(world.a.host.tool("curl", &words).unwrap(), "400", "{query}");
    }
}
