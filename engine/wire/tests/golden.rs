//! Captured packets of other stacks (see `golden/README.md`). The tests read each packet, convert each chunk to values and write it again.
//! The written octets must be the same.

mod common;
#[path = "common/pcap.rs"]
mod pcap;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use wire::*;

fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut captures: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder with the captures")
        .map(|entry| entry.expect("a folder entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    captures.sort();
    assert!(!captures.is_empty(), "no capture in {}", folder.display());
    captures
}

/// Calls `check` with each SCTP packet of each capture and its name.
fn for_each_packet(mut check: impl FnMut(&str, &[u8])) {
    for path in captures() {
        let packets = pcap::sctp_packets(&path);
        assert!(!packets.is_empty(), "no SCTP in {}", path.display());
        let file = path.file_name().unwrap().to_string_lossy();
        for (frame, bytes) in packets {
            check(&format!("{file} frame {frame}"), &bytes);
        }
    }
}

#[test]
//= rfc9260#6.8-2 6.8-3
fn every_captured_packet_has_a_checksum_we_agree_with() {
    for_each_packet(|name, bytes| {
        Packet::parse(bytes, ChecksumMode::Verify).unwrap_or_else(|error| panic!("{name}: {error}"));
    });
}

#[test]
fn every_captured_chunk_comes_out_the_same_when_written_again() {
    let mut seen = BTreeMap::new();
    for_each_packet(|name, bytes| {
        for raw in Packet::parse(bytes, ChecksumMode::Verify).unwrap().raw_chunks() {
            let raw = raw.unwrap_or_else(|error| panic!("{name}: {error}"));
            let chunk = raw.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            let written = common::with_rebuilt(&chunk, |rebuilt| {
                assert_eq!(*rebuilt, chunk, "{name}");
                common::octets(rebuilt)
            });
            let written = written.unwrap_or_else(|| panic!("{name}: malformed inside: {chunk:?}"));
            assert_eq!(written, raw.bytes, "{name}: {chunk:?}");
            *seen.entry(raw.chunk_type.0).or_insert(0) += 1;
        }
    });
    let registered = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 64, 128, 130, 192, 193, 194];
    let missing: Vec<_> = registered.iter().filter(|kind| !seen.contains_key(*kind)).collect();
    assert!(missing.is_empty(), "no capture holds a chunk of type {missing:?}; seen {seen:?}");
}

#[test]
//= rfc9260#3.2-1 3.2-2 3.2-3 3.2.1-1 3.2.1-2
fn every_captured_packet_comes_out_the_same_when_written_again() {
    for_each_packet(|name, bytes| {
        let packet = Packet::parse(bytes, ChecksumMode::Verify).unwrap();
        let mut buf = vec![0xa5; bytes.len()];
        let mut writer = PacketWriter::new(&mut buf, packet.header);
        for chunk in packet.chunks() {
            writer.push(&chunk.unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let len = writer.finish();
        assert_eq!(buf[..len], *bytes, "{name}");
    });
}
