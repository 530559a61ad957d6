//! Interop: independent stacks talk to each other, and every octet is checked.
//!
//! Each cell of the matrix (client stack, server stack, carrier, and one path or two of which the first is cut
//! in mid-transfer) is one test. The verdict comes from outside: exit statuses, equal hashes, and tshark on the
//! packets. A cell with an unavailable stack is ignored, with the missing part. Linux and libusrsctp also talk
//! to each other: when such a control fails, the harness is wrong.
//!
//! Needs root and Debian; otherwise the tests count as ignored. Run by `./x test`, or by `cargo test -p peer
//! --test interop -- --ignored [PART OF A NAME]`. Begin with [`matrix`].

#![forbid(unsafe_code)]

mod cell;
mod commands;
mod run;
mod stacks;
mod world;

use cell::{Carrier, Cell, Form, Limit, Paths, Sharing, Stack};

/// Returns all tests: our stack with each of the others in every role, also under AUTH with ASCONF, with
/// RE-CONFIG, with I-DATA, over two paths at once, with abandoned messages, with advertised send buffers, and
/// (the kernel) with ECN; the optional stacks over UDP, with zero checksums if they support them; sealed
/// packets, with a judge; and two controls without our stack.
fn matrix() -> Vec<Cell> {
    use Stack::{Aiortc, CurrentUsrsctp, Kernel, Openssl, Ours, Pion, Usrsctp};
    let mut cells = Vec::new();
    for carrier in [Carrier::Udp, Carrier::Raw] {
        for paths in [Paths::One, Paths::FirstOfTwoCut] {
            for other in [Kernel, Usrsctp] {
                cells.push(Cell { client: Ours, server: other, carrier, paths });
                cells.push(Cell { client: other, server: Ours, carrier, paths });
            }
        }
    }
    for other in [Kernel, Usrsctp] {
        let given_up =
            [Limit::Lifetime, Limit::InterleavedLifetime, Limit::Retransmissions].map(Paths::GivenUp);
        for paths in [Paths::SecondAdded, Paths::StreamsReset, Paths::Interleaved].into_iter().chain(given_up)
        {
            cells.push(Cell { client: Ours, server: other, carrier: Carrier::Raw, paths });
            cells.push(Cell { client: other, server: Ours, carrier: Carrier::Raw, paths });
        }
        for sharing in [Sharing::Weighted, Sharing::Redundant] {
            let paths = Paths::Shared(sharing);
            cells.push(Cell { client: Ours, server: other, carrier: Carrier::Raw, paths });
        }
        // Linux does not announce support for I-FORWARD-TSN: we abandon no I-DATA message towards it.
        cells
            .retain(|cell| cell.server != Kernel || cell.paths != Paths::GivenUp(Limit::InterleavedLifetime));
        for form in [Form::Percent, Form::Backlog] {
            let paths = Paths::Advertised(form);
            cells.push(Cell { client: Ours, server: other, carrier: Carrier::Udp, paths });
            cells.push(Cell { client: other, server: Ours, carrier: Carrier::Raw, paths });
        }
        let paths = Paths::GivenUp(Limit::Priority);
        cells.push(Cell { client: Ours, server: other, carrier: Carrier::Raw, paths });
    }
    for (client, server) in [(Ours, Kernel), (Kernel, Ours)] {
        cells.push(Cell { client, server, carrier: Carrier::Raw, paths: Paths::Marked });
    }
    let brought: [(Stack, &[Paths]); 4] = [
        (Pion, &[Paths::One, Paths::ZeroChecksum, Paths::Interleaved]),
        (CurrentUsrsctp, &[Paths::ZeroChecksum]),
        (Aiortc, &[Paths::One]),
        (Openssl, &[Paths::Sealed]),
    ];
    for (other, paths) in brought {
        for &paths in paths {
            cells.push(Cell { client: Ours, server: other, carrier: Carrier::Udp, paths });
            cells.push(Cell { client: other, server: Ours, carrier: Carrier::Udp, paths });
        }
    }
    cells.push(Cell { client: Kernel, server: Usrsctp, carrier: Carrier::Udp, paths: Paths::One });
    cells.push(Cell { client: Usrsctp, server: Kernel, carrier: Carrier::Raw, paths: Paths::FirstOfTwoCut });
    cells
}

fn main() {
    std::process::exit(run::all(&matrix()));
}
