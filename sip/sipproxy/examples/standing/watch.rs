//! Runs a world, and samples its memory every minute.

use std::path::Path;

use allocation_counter::measure;
use base::Time;
use sipproxy::Sqlite;

use super::samples::Sample;
use super::world::{Size, World};

/// Number of minutes at the beginning without samples. In these minutes, phones register, calls begin, and the first transactions end.
const SETTLING: u32 = 15;

/// Runs a world for [`SETTLING`] minutes without samples, and then for `minutes` minutes with a sample at the end of each minute. Returns
/// the world and the samples. `each_minute` runs at the end of every minute, and its allocations are counted with the world's allocations.
pub(crate) fn watch(
    size: Size,
    seed: u64,
    file: &Path,
    minutes: u32,
    each_minute: impl Fn(),
) -> (World, Vec<Sample>) {
    let mut made = None;
    let mut live = measure(|| {
        let store = Sqlite::open(file).expect("a store");
        made = Some(World::new(size, store, seed));
    })
    .bytes_current;
    let mut world = made.expect("it was made");
    let mut samples = Vec::new();
    for minute in 1..=SETTLING + minutes {
        let end = Time::from_millis(u64::from(minute) * 60_000);
        live += measure(|| {
            world.run_until(end);
            each_minute();
        })
        .bytes_current;
        if minute > SETTLING {
            samples.push(look(&world, minute - SETTLING, live, file));
        }
    }
    (world, samples)
}

fn look(world: &World, minute: u32, live: i64, file: &Path) -> Sample {
    let length = |suffix: &str| {
        let path = file.with_extension(format!("db{suffix}"));
        std::fs::metadata(path).map_or(0, |about| about.len())
    };
    let (servers, clients) = world.proxy.transactions();
    Sample {
        minute,
        live: live as f64,
        resident: resident_bytes(),
        stored: (length("") + length("-wal")) as f64,
        users: world.proxy.location().users(),
        standing: world.up,
        dialogs: world.proxy.dialog_count(),
        transactions: servers + clients,
    }
}

/// Returns the resident memory of this process in bytes, as reported by the kernel.
fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) * 1024.0
}
