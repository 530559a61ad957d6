//! Interoperability tests: independent stacks exchange messages, and every octet is checked.
//!
//! Each cell of the matrix is one test. It combines a client stack, a server stack, a carrier, and the paths
//! with the feature under test. The verdict comes from exit statuses, from hashes, and from tshark, which
//! examines the packets. If a stack is not available, its cells are ignored, and the output names the missing
//! part. In two control cells, Linux and libusrsctp exchange messages with each other. If a control fails,
//! the fault is in the test, not in our stack.
//!
//! The tests need root and Debian; elsewhere they count as ignored. Run them with `./x test`, or with `cargo
//! test -p peer --test interop -- --ignored [PART OF A NAME]`. Begin with [`matrix`].

#![forbid(unsafe_code)]

mod cell;
mod commands;
mod run;
mod stacks;
mod world;

use cell::{Carrier, Cell, Form, Limit, Paths, Sharing, Stack};

/// Returns all tests:
///
/// - our stack with the kernel and with libusrsctp, in both roles: over one path, and over two paths, the
///   first of which is cut
/// - our stack with the kernel and with libusrsctp, in both roles, with one feature: AUTH and ASCONF,
///   RE-CONFIG, I-DATA, abandoned messages, or an advertised send buffer
/// - our client with the kernel and with libusrsctp: over two paths at once, and with abandonment by priority
/// - our stack with the kernel, in both roles, with ECN
/// - our stack with the optional stacks, in both roles, over UDP: with messages of every size (pion, aiortc),
///   with zero checksums (pion, the newer usrsctp), and with I-DATA (pion)
/// - our stack with the judge of sealed packets, in both roles
/// - two controls without our stack
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
        // Linux does not announce support for I-FORWARD-TSN, so our client must not abandon I-DATA messages
        // towards it.
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
