//! SCTP peer for tests and measurements on the project's own stack: echo server, client, bulk transfer, pings.
//!
//! Except in measurements, function [`content`] defines each octet of this peer's messages. The other end can therefore
//! check every octet, and a script can check the digests. The peers on other stacks (`tests/kernel-sctp/kernel_peer.py`
//! and `usrsctp_peer.c`) send the same messages as this peer, and print the same digest. By default, this peer cannot
//! send messages of more than 4 MiB. Begin with [`modes::run`]. Another program may use a [`talk::Talk`].

#![forbid(unsafe_code)]

mod awake;
pub mod client;
pub mod host;
mod keys;
mod measure;
pub mod modes;
pub mod options;
mod pr_sctp;
mod shards;
pub mod talk;
mod trace_file;

use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Returns message `number` of `size` octets. The octet at each position is (`number` · 31 + position · 7) mod 256.
pub fn content(number: usize, size: usize) -> Vec<u8> {
    let octet =
        |position: usize| (number.wrapping_mul(31).wrapping_add(position.wrapping_mul(7)) & 0xff) as u8;
    (0..size).map(octet).collect()
}

/// Returns the SHA-256, in hexadecimal, of the first `count` messages of `size` octets, concatenated.
pub fn digest(count: usize, size: usize) -> String {
    let mut hash = Sha256::new();
    (0..count).for_each(|number| hash.update(content(number, size)));
    hash.finalize().iter().fold(String::new(), |mut text, octet| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{octet:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::{content, digest};

    #[test]
    fn content_differs_by_number_and_position() {
        assert_eq!(content(0, 3), [0, 7, 14]);
        assert_eq!(content(9, 2), [23, 30]);
    }

    #[test]
    fn the_digest_is_the_one_that_the_kernels_peer_prints() {
        assert_eq!(digest(6, 100), "06658317909921bbe35c192334d4f6dd323a14b033889d00ced8168216d4b623");
    }
}
