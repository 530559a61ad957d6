//! Tests of the selection of held SYNs (all, named, all others), and of the counts of SYNs that pass.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use intercept::{Config, Destinations, Interceptor, Named, Passed, Verdict};

use crate::Test;
use crate::world::*;

pub(crate) const TESTS: &[Test] = &[
    ("only SYNs to named destinations are held, in both families", only_named_are_held),
    ("all SYNs but those to named destinations are held, and names count", all_but_named_are_held),
    ("what carries the mark that asks for it is held, named or not", marked_is_held),
    ("numbers that are diverted are held again though nothing names them", diverted_is_held),
    ("all SYNs are held before anything is named and while names change", all_are_held_meanwhile),
    ("everything can be named by one name of each family", everything_is_a_name),
    ("as many names as there may be find the right destinations", many_names),
    ("names that have a destination in common are refused and all SYNs are held", common_destinations),
    ("without a sign of life no named SYN is held", lapsed_holds_nothing),
    ("an enclosed namespace lets nothing pass by name", enclosed_holds_all),
];

const PORT: u16 = 8080;
/// Time within which a SYN arrives in the queue.
const MOMENT: Duration = Duration::from_millis(100);

fn named(first: &str, last: &str, ports: (u16, u16)) -> Destinations {
    let parse = |text: &str| -> IpAddr { text.parse().expect("an address") };
    Destinations { addresses: (parse(first), parse(last)), ports }
}

/// Returns a range of beta's network in each family, with ports around [`PORT`].
fn around_beta() -> [Destinations; 2] {
    let ports = (PORT - 1, PORT + 1);
    [named(BETA4, "10.71.0.9", ports), named(BETA6, "2001:db8:71::9", ports)]
}

/// Sets up an interceptor in alpha, and selects the held SYNs by `names`.
fn holding(world: &World, names: &[Destinations], kind: Named, mark: Option<u32>) -> Interceptor {
    let mut interceptor = world.intercept_alpha();
    interceptor.name(names, kind).expect("names");
    interceptor.hold_by_name(kind, mark).expect("rules");
    interceptor
}

/// Sends a SYN to `server`, and reports whether the kernel holds the SYN. Drops the SYN if it is held.
fn is_held(world: &World, interceptor: &mut Interceptor, server: SocketAddr) -> bool {
    let _client = begin(&world.alpha, server);
    let held = held_within(interceptor, MOMENT);
    if let Some(syn) = held {
        assert_eq!(syn.flow.remote(), server);
        interceptor.queue().verdict(syn.id, Verdict::Drop).expect("a verdict");
    }
    held.is_some()
}

/// Returns destinations in and around the ranges of [`around_beta`]. The flag is true if a range contains the destination.
fn destinations() -> Vec<(SocketAddr, bool)> {
    let mut all = Vec::new();
    for (inside, outside) in [(BETA4, "10.71.0.1"), (BETA6, "2001:db8:71::a")] {
        for (port, is_inside) in
            [(PORT - 2, false), (PORT - 1, true), (PORT, true), (PORT + 1, true), (PORT + 2, false)]
        {
            all.push((at(inside, port), is_inside));
        }
        all.push((at(outside, PORT), false));
    }
    for last in ["10.71.0.9", "2001:db8:71::9"] {
        all.push((at(last, PORT), true));
    }
    all.push((at("10.71.0.10", PORT), false));
    // Alpha reaches its own addresses over `lo`.
    all.retain(|(server, _)| server.ip() != at(ALPHA4, 0).ip());
    all
}

/// Adds default routes to alpha. Without a route, the kernel would send no SYN to a destination outside the link.
fn lead_all(world: &World) {
    for (family, by) in [("-4", BETA4), ("-6", BETA6)] {
        run_ip(&world.alpha, &[family, "route", "add", "default", "via", by]);
    }
}

fn only_named_are_held() {
    let world = World::new();
    let mut interceptor = holding(&world, &around_beta(), Named::Held, None);
    let mut passed = 0;
    for (server, is_named) in destinations() {
        assert_eq!(is_held(&world, &mut interceptor, server), is_named, "{server}");
        passed += u64::from(!is_named);
    }
    assert_eq!(interceptor.passed().expect("counts"), Passed { unnamed: passed, named: Vec::new() });
    assert_eq!(interceptor.passed().expect("counts"), Passed::default(), "counted once");
}

fn all_but_named_are_held() {
    let world = World::new();
    let mut interceptor = holding(&world, &around_beta(), Named::Passed, None);
    for (server, is_named) in destinations() {
        assert_eq!(is_held(&world, &mut interceptor, server), !is_named, "{server}");
    }
    let named = vec![(at(BETA4, PORT - 1), 4), (at(BETA6, PORT - 1), 4)];
    assert_eq!(interceptor.passed().expect("counts"), Passed { unnamed: 0, named });
    interceptor.forget_names().expect("forgotten");
    interceptor.name(&around_beta(), Named::Passed).expect("names");
    interceptor.hold_by_name(Named::Passed, None).expect("rules");
    assert!(!is_held(&world, &mut interceptor, at(BETA4, PORT)));
    let named = vec![(at(BETA4, PORT - 1), 1)];
    assert_eq!(interceptor.passed().expect("counts"), Passed { unnamed: 0, named }, "names count anew");
}

fn marked_is_held() {
    const MARK: u32 = 7;
    for (kind, names) in [(Named::Held, &[][..]), (Named::Passed, &around_beta()[..])] {
        let world = World::new();
        let mut interceptor = holding(&world, names, kind, Some(MARK));
        for (mark, expected) in [(MARK, true), (MARK | 0x1_0000, false), (0, false)] {
            let client = client_socket(&world.alpha, at(BETA4, PORT));
            client.set_mark(mark).expect("a mark");
            begin_with(&client, at(BETA4, PORT));
            assert_eq!(held_within(&mut interceptor, MOMENT).is_some(), expected, "{kind:?} {mark}");
        }
    }
}

fn diverted_is_held() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    for server in [at(BETA4, PORT), at(BETA6, PORT)] {
        let client = connect(&world.alpha, server);
        let syn = held(&mut interceptor);
        let arrival = divert(&mut interceptor, &syn);
        interceptor.hold_by_name(Named::Held, None).expect("rules");
        // The connection closes without an orderly shutdown. The kernel thus resets the connection, and its ports are free.
        drop((connected(client), arrival));
        let again = client_socket(&world.alpha, server);
        again.set_reuse_address(true).expect("an option");
        again.bind(&syn.flow.local().into()).expect("the same numbers");
        begin_with(&again, server);
        assert_eq!(held(&mut interceptor).flow, syn.flow, "the listener would reset it");
        interceptor.undivert(&[syn.flow]).expect("undiverted");
        assert!(!is_held(&world, &mut interceptor, server));
        interceptor.hold_all().expect("a rule");
    }
}

fn all_are_held_meanwhile() {
    let world = World::new();
    let mut interceptor = world.intercept_alpha();
    let (there, elsewhere) = (at(BETA4, PORT), at(BETA4, PORT + 10));
    let look = |interceptor: &mut Interceptor, expected: [bool; 2], when: &str| {
        assert_eq!([there, elsewhere].map(|server| is_held(&world, interceptor, server)), expected, "{when}");
    };
    look(&mut interceptor, [true, true], "at first");
    for _ in 0..2 {
        interceptor.name(&around_beta(), Named::Held).expect("names");
        look(&mut interceptor, [true, true], "named");
        interceptor.hold_by_name(Named::Held, None).expect("rules");
        look(&mut interceptor, [true, false], "by name");
        interceptor.hold_all().expect("a rule");
        look(&mut interceptor, [true, true], "all");
        interceptor.hold_by_name(Named::Held, None).expect("rules");
        interceptor.forget_names().expect("forgotten");
        look(&mut interceptor, [true, true], "forgotten");
        interceptor.hold_by_name(Named::Held, None).expect("rules");
        look(&mut interceptor, [false, false], "nothing is named");
    }
}

fn everything_is_a_name() {
    let world = World::new();
    let all = [
        named("0.0.0.0", "255.255.255.255", (0, u16::MAX)),
        named("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", (0, u16::MAX)),
    ];
    let mut interceptor = holding(&world, &all, Named::Held, None);
    for server in [at(BETA4, 1), at(BETA4, u16::MAX), at(BETA6, 1), at(BETA6, u16::MAX)] {
        assert!(is_held(&world, &mut interceptor, server), "{server}");
    }
}

fn many_names() {
    let world = World::new();
    lead_all(&world);
    let net = |n: u16| format!("10.{}.{}", n >> 8, n & 255);
    let names: Vec<Destinations> =
        (0..1024).map(|n| named(&format!("{}.16", net(n)), &format!("{}.31", net(n)), (n, 2 * n))).collect();
    for kind in [Named::Held, Named::Passed] {
        let mut interceptor = holding(&world, &names, kind, None);
        let mut counted = Vec::new();
        for n in [1, 2, 255, 256, 257, 511, 512, 700, 1023] {
            for (host, port, is_named) in
                [(15, n, false), (16, n, true), (31, 2 * n, true), (32, n, false), (20, 2 * n + 1, false)]
            {
                let server = at(&format!("{}.{host}", net(n)), port);
                let expected = is_named == (kind == Named::Held);
                assert_eq!(is_held(&world, &mut interceptor, server), expected, "{server}");
            }
            counted.push((at(&format!("{}.16", net(n)), n), 2));
        }
        let mut passed = interceptor.passed().expect("counts");
        passed.named.sort();
        let none = kind == Named::Held;
        assert_eq!(passed.named, if none { Vec::new() } else { counted });
        interceptor.tear_down().expect("taken down");
    }
}

fn common_destinations() {
    let world = World::new();
    let mut interceptor = holding(&world, &around_beta(), Named::Held, None);
    let error = interceptor.name(&[named(BETA4, BETA4, (PORT, PORT))], Named::Held).expect_err("refused");
    assert!(matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST)), "{error}");
    assert!(is_held(&world, &mut interceptor, at(BETA4, PORT + 10)));
}

fn lapsed_holds_nothing() {
    let world = World::new();
    let mut interceptor = holding(&world, &around_beta(), Named::Held, None);
    interceptor.show_life().expect("a sign of life");
    assert!(is_held(&world, &mut interceptor, at(BETA4, PORT)));
    std::thread::sleep(Duration::from_millis(2_300));
    assert!(!is_held(&world, &mut interceptor, at(BETA4, PORT)));
}

fn enclosed_holds_all() {
    let world = World::new();
    let mut interceptor = intercept(&world.alpha, Config { encloses: true, ..Config::default() });
    let error = interceptor.hold_by_name(Named::Held, None).expect_err("refused");
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    assert!(is_held(&world, &mut interceptor, at(BETA4, PORT)));
}
