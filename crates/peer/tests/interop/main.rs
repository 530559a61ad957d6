//! Interop: stacks that were written by different people talk to each other, and every octet is judged.
//!
//! Each cell of the matrix (which stack is client, which is server, the carrier, one path or two of which the first
//! is cut in mid-transfer) is one test. The verdict comes from outside: exit statuses, equal hashes, and tshark
//! on the packets. Linux and libusrsctp also talk to each other: when such a control fails, the harness is wrong.
//!
//! Needs root and Debian; run by `./x test`, or by `cargo test -p peer --test interop -- --ignored [PART OF A NAME]`.
//! Without them the tests are counted as ignored. Begin with [`matrix`].

#![forbid(unsafe_code)]

mod cell;
mod run;
mod world;

use cell::{Carrier, Cell, Paths, Stack};

/// All tests.
fn matrix() -> Vec<Cell> {
    let pairs = [
        (Stack::Ours, Stack::Kernel),
        (Stack::Kernel, Stack::Ours),
        (Stack::Ours, Stack::Usrsctp),
        (Stack::Usrsctp, Stack::Ours),
        (Stack::Kernel, Stack::Usrsctp),
        (Stack::Usrsctp, Stack::Kernel),
    ];
    let mut cells = Vec::new();
    for carrier in [Carrier::Udp, Carrier::Raw] {
        for paths in [Paths::One, Paths::FirstOfTwoCut] {
            cells.extend(pairs.map(|(client, server)| Cell { client, server, carrier, paths }));
        }
    }
    cells
}

fn main() {
    std::process::exit(run::all(&matrix()));
}
