//! Tests in which the wall clock is set, or the machine sleeps. Neither may disturb connections, because the
//! daemon's timers use a clock that cannot be set.

use crate::roaming::Transfer;
use crate::world::{BULK, LIMIT, PORT, World};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use testbed::{Daemon, Host, Programs, c_programs};

const DAY_S: i64 = 86_400;
const YEAR_S: i64 = 365 * DAY_S;
const PAUSE: Duration = Duration::from_secs(1);
/// Duration for which the daemon's processes are stopped. It is longer than the silence after which the
/// supervisor kills a worker (2.5 s), and after which the kernel lets new connections pass (2 s).
const SLEEP: Duration = Duration::from_secs(8);

/// Wall clock of a host's daemon. The test can set it, and the machine's clock does not change.
struct WallClock {
    file: PathBuf,
}

impl WallClock {
    /// Starts the host's daemon again, with a settable clock. Returns the clock and the daemon.
    fn of(host: &Host) -> (WallClock, Daemon) {
        let dir = host.dir().unwrap();
        let (library, file) = (c_programs::build_preload("clock", &dir).unwrap(), dir.join("clock-offset"));
        let clock = WallClock { file };
        clock.set(0);
        let variables = [("LD_PRELOAD", library.as_path()), ("CLOCK_OFFSET_FILE", clock.file.as_path())];
        let daemon = Daemon::restart_with(host, &Programs::find().unwrap(), &variables).unwrap();
        (clock, daemon)
    }

    /// Sets this clock's offset from the machine's clock, in seconds.
    fn set(&self, offset_s: i64) {
        // The file is overwritten, not replaced, because the daemon has mapped it.
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(&self.file).unwrap();
        file.write_all_at(&offset_s.to_ne_bytes(), 0).unwrap();
    }
}

/// Creates a world whose daemons have settable clocks.
fn world() -> (World, [WallClock; 2]) {
    let mut world = World::new();
    let betas = world.betas.take().unwrap();
    betas.stop();
    let (alpha_clock, alphas) = {
        world.alphas.signal(Signal::SIGTERM).unwrap();
        assert!(testbed::process::wait_for(LIMIT, || !world.alphas.is_running()));
        WallClock::of(&world.alpha)
    };
    world.alphas = alphas;
    let (beta_clock, betas) = WallClock::of(&world.beta);
    world.betas = Some(betas);
    (world, [alpha_clock, beta_clock])
}

/// Returns the time that alpha's daemon recorded for its latest connection, minus the current time of the
/// machine's clock, in seconds.
fn age_of_latest_s(world: &World) -> i64 {
    let output = world.alphas.sctpify(&["explain", &world.target(), "--json"]).unwrap().good().unwrap();
    let output: Value = serde_json::from_str(&output.stdout).unwrap();
    let when_ms = output["past"][0]["when_unix_ms"].as_i64().unwrap();
    when_ms / 1000 - i64::try_from(today_s()).unwrap()
}

/// Returns the time of the machine's wall clock, in seconds since 1970.
#[allow(clippy::disallowed_methods, reason = "the test compares it with the daemon's")]
fn today_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

fn connects(world: &World) {
    let _server = world.serve(BULK, &["accept", &PORT.to_string()]);
    let connect = world.client(BULK, &["connect", &world.target(), "1"]);
    world.alpha.run("connect", connect, LIMIT).unwrap().good().unwrap();
    assert_eq!(world.connects_sctp(), 2, "{}", world.fallbacks());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_clock_that_is_set_forwards_and_backwards_by_years_is_not_felt() {
    let (world, clocks) = world();
    let transfer = Transfer::begin(&world);
    for years in [10, -10, 1] {
        clocks.iter().for_each(|clock| clock.set(years * YEAR_S));
        std::thread::sleep(PAUSE);
    }
    transfer.end(&world);
    connects(&world);
    assert!((age_of_latest_s(&world) - YEAR_S).abs() < DAY_S, "the daemon did not see its clock set");
}

/// Simulates a machine that sleeps. The daemon's processes stop. When they continue, the wall clock is eight
/// hours ahead.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_host_that_slept_for_hours_goes_on_where_it_was() {
    let (world, [clock, _]) = world();
    let transfer = Transfer::begin(&world);
    world.alphas.signal(Signal::SIGSTOP).unwrap();
    std::thread::sleep(SLEEP);
    clock.set(DAY_S / 3);
    world.alphas.signal(Signal::SIGCONT).unwrap();
    transfer.end(&world);
    connects(&world);
    assert!(age_of_latest_s(&world) > DAY_S / 4, "the daemon did not see its clock set");
}
