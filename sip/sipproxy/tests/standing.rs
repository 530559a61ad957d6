//! The small form of `examples/standing`: memory does not grow in an hour of registrations and calls, and no state is left when all phones
//! have gone. The hour passes in virtual time.

#[path = "../examples/standing/calls.rs"]
mod calls;
#[path = "../examples/standing/phone.rs"]
mod phone;
#[path = "../examples/standing/samples.rs"]
#[allow(dead_code, reason = "the example prints all of it")]
mod samples;
#[path = "../examples/standing/watch.rs"]
mod watch;
#[path = "../examples/standing/world.rs"]
mod world;

use std::time::Duration;

use base::Time;
use samples::growth;
use sipproxy::Sqlite;
use watch::watch;
use world::{Size, World};

const SIZE: Size = Size { users: 300, calls: 60, talk_s: 20.0 };
const MINUTE: Duration = Duration::from_secs(60);

/// Runs a world for an hour. Returns the world, and the ratio of its mean allocated memory in the last quarter of the hour to the mean in
/// the second quarter. `each_minute` runs every minute.
fn an_hour(each_minute: impl Fn()) -> (World, f64) {
    let dir = tempfile::tempdir().unwrap();
    let (world, samples) = watch(SIZE, 1, &dir.path().join("sip.db"), 60, each_minute);
    let growth = growth(&samples, |sample| sample.live);
    (world, growth)
}

#[test]
fn memory_stays_where_it_is_while_calls_come_and_go() {
    let (world, growth) = an_hour(|| {});
    assert!(world.answered > 5_000, "{} calls were answered", world.answered);
    assert!(world.up > SIZE.calls / 2, "{} calls stand", world.up);
    assert!(growth < 1.03, "the last quarter has {growth:.3} of the second");
}

#[test]
fn a_leak_of_a_hundred_bytes_in_a_call_would_be_seen() {
    let (world, growth) = an_hour(|| std::mem::forget(vec![1u8; 100 * 100]));
    assert!(world.answered > 100 * 75, "{} calls were answered", world.answered);
    assert!(growth > 1.1, "the last quarter has {growth:.3} of the second");
}

#[test]
fn no_state_is_left_25_hours_after_all_phones_stop_sending() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&dir.path().join("sip.db")).unwrap();
    let mut world = World::new(SIZE, store, 1);
    world.run_until(Time::ZERO + 30 * MINUTE);
    assert!(world.proxy.location().contacts() >= SIZE.users as usize / 2);
    assert!(world.proxy.dialog_count() > SIZE.calls as usize / 2);
    // From now on, no phone sends anything.
    world.phones.iter_mut().for_each(|phone| phone.is_on = false);
    world.events.clear();
    world.calls.clear();
    // Registrations last an hour, and dialogs without any message last a day.
    world.run_until(world.now + 25 * 60 * MINUTE);
    assert_eq!(world.proxy.transactions(), (0, 0));
    assert_eq!((world.proxy.location().users(), world.proxy.location().contacts()), (0, 0));
    assert_eq!(world.proxy.dialog_count(), 0);
    assert!(Sqlite::open(&dir.path().join("sip.db")).unwrap().load(Time::ZERO, 3).unwrap().is_empty());
}
