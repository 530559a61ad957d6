//! Fuzz target: parsing and writing of packets.
//!
//! No input may cause a panic or an endless iteration. A parsed chunk that is written and parsed again must
//! equal the original chunk.

use wire::{COMMON_HEADER_LEN, ChecksumMode, Chunk, CommonHeader, Packet, PacketWriter, VerificationTag};

const HEADER: CommonHeader =
    CommonHeader { source_port: 7, destination_port: 9, tag: VerificationTag(0xfeed_f00d) };

/// Parses the input as a packet, then as the chunks after a common header.
pub fn run(data: &[u8]) {
    let bytes = [&[0; COMMON_HEADER_LEN][..], data].concat();
    _ = Packet::parse(data, ChecksumMode::Verify);
    let Ok(packet) = Packet::parse(&bytes, ChecksumMode::Ignore) else { return };
    let chunks: Vec<_> = packet.chunks().collect();
    assert!(chunks.len() <= data.len() / 4 + 1, "each chunk takes four octets or more");
    for chunk in chunks {
        // The formatting of the chunk visits all its inner lists, such as parameters.
        let shown = format!("{chunk:?}");
        assert!(!shown.is_empty());
        if let Ok(chunk) = chunk {
            write_and_read(&chunk);
        }
    }
}

fn write_and_read(chunk: &Chunk<'_>) {
    let mut buf = vec![0xa5; 70_000];
    let mut writer = PacketWriter::new(&mut buf, HEADER);
    writer.push(chunk).expect("what was read from less fits");
    let length = writer.finish();
    let packet = Packet::parse(&buf[..length], ChecksumMode::Verify).expect("a packet of ours");
    assert_eq!(packet.header, HEADER);
    let mut chunks = packet.chunks();
    assert_eq!(chunks.next(), Some(Ok(*chunk)), "written and read again");
    assert_eq!(chunks.next(), None);
}
