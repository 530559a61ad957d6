//! Tests of the proxy's redirect and stateless modes with SIPp.

use testbed::Lab;

use crate::world::{LIMIT, Site};

/// Tests a caller that follows the response of a redirect server: SIPp takes the user's contact from the 302.
#[test]
#[ignore = "needs root: makes a network namespace"]
fn callers_of_a_redirect_server_are_told_the_contact_and_call_there() {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    let _proxy = site.proxy(&["mode = \"redirect\"\n".to_owned(), site.listen("udp")]);
    let _callee = site.callee("udp");
    site.register("bob", "udp");
    for (scenario, user, calls) in [("redirected.xml", "bob", "20"), ("unknown.xml", "nobody", "1")] {
        let words = ["-p", "6668", "-s", user, "-m", calls, "-r", "20"];
        site.spawn_scenario(scenario, &words).finish(LIMIT).unwrap().good().unwrap();
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn calls_go_through_a_stateless_proxy_which_keeps_nothing() {
    let lab = Lab::new().unwrap();
    let site = Site::alone(&lab);
    let mode = "mode = \"stateless\"\n".to_owned();
    let _proxy = site.proxy(&[mode, site.with_control(), site.listen("udp"), site.listen("tcp")]);
    let _callees = [site.callee("udp"), site.callee("tcp")];
    for (caller, callee) in [("udp", "udp"), ("tcp", "tcp"), ("udp", "tcp"), ("tcp", "udp")] {
        let user = format!("{caller}-{callee}");
        site.register(&user, callee);
        site.call(&user, site.domain, caller, 200);
    }
    let status: serde_json::Value = serde_json::from_str(&site.told(&["status", "--json"])).unwrap();
    assert_eq!(status["client_transactions"], 0, "{status}");
}
