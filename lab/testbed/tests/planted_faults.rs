//! Test of [`judge_file`]: `tshark` must find the faults planted in a capture.

use std::path::Path;
use testbed::capture::judge_file;

/// Computes the CRC32c of RFC 9260 appendix A, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// Builds an Ethernet frame with one SCTP packet. Its DATA chunk carries 4 bytes and has `chunk_length` in
/// its length field, where 20 is correct. The bits of `damage` are flipped in the checksum.
fn frame(chunk_length: u16, damage: u32) -> Vec<u8> {
    let mut sctp = vec![0x13, 0x88, 0, 80, 0, 0, 0, 7, 0, 0, 0, 0, 0, 3];
    sctp.extend(chunk_length.to_be_bytes());
    sctp.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c', b'd']);
    let checksum = crc32c(&sctp) ^ damage;
    sctp[8..12].copy_from_slice(&checksum.to_le_bytes());
    let mut frame = vec![0; 12];
    frame.extend([
        8,
        0,
        0x45,
        0,
        0,
        20 + sctp.len() as u8,
        0,
        1,
        0,
        0,
        64,
        132,
        0,
        0,
        10,
        0,
        0,
        1,
        10,
        0,
        0,
        2,
    ]);
    frame.extend(sctp);
    frame
}

fn write_capture(file: &Path, frames: &[Vec<u8>]) {
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    for frame in frames {
        let length = frame.len() as u32;
        bytes.extend([0, 0, length, length].iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(frame);
    }
    std::fs::write(file, bytes).unwrap();
}

#[test]
#[ignore = "needs tshark, which ./x setup installs"]
fn a_bad_checksum_and_a_bad_length_are_found_and_a_good_packet_is_not_blamed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("planted.pcap");
    write_capture(&file, &[frame(20, 0), frame(20, 1), frame(200, 0)]);
    let seen = judge_file(&file).unwrap();
    assert_eq!((seen.sctp, seen.tcp, seen.faulty), (3, 0, 2), "{seen:?}");
    assert_eq!(seen.faults[0], "frame 2: sctp.checksum_bad.expert");
    assert!(seen.faults[1].starts_with("frame 3: _ws.malformed"), "{seen:?}");
}
