//! Tests with the packets of all captures, which verify that reading and writing allocate no memory.

#[path = "common/pcap.rs"]
mod pcap;

use std::hint::black_box;
use std::path::Path;

use allocation_counter::measure;
use wire::*;

/// Returns the packets of all captures.
fn captured_packets() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = std::fs::read_dir(folder).expect("the folder with the captures");
    let captures = entries.map(|entry| entry.expect("a folder entry").path());
    let captures = captures.filter(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    let packets: Vec<_> =
        captures.flat_map(|path| pcap::sctp_packets(&path)).map(|(_, bytes)| bytes).collect();
    assert!(!packets.is_empty());
    packets
}

/// Reads the parameters, causes and list entries of a chunk, and returns their number. Skips ASCONF-ACK.
fn look_inside(chunk: &Chunk<'_>) -> usize {
    match chunk {
        Chunk::Init(init) | Chunk::InitAck(init) => init.parameters.iter().map(black_box).count(),
        Chunk::Asconf(asconf) => asconf.parameters.iter().map(black_box).count(),
        Chunk::ReConfig(re_config) => re_config.parameters.iter().map(black_box).count(),
        Chunk::Abort(abort) => abort.causes.iter().map(black_box).count(),
        Chunk::Error(error) => error.causes.iter().map(black_box).count(),
        Chunk::Sack(sack) => sack.gaps().map(black_box).count() + sack.duplicates().map(black_box).count(),
        Chunk::ForwardTsn(forward) => forward.streams.iter().map(black_box).count(),
        Chunk::IForwardTsn(forward) => forward.streams.iter().map(black_box).count(),
        _ => 0,
    }
}

#[test]
fn the_allocation_counter_counts_one_allocation() {
    assert_eq!(measure(|| drop(black_box(vec![1u8; 100]))).count_total, 1);
}

#[test]
fn reading_packets_allocates_nothing() {
    let packets = captured_packets();
    let mut seen = 0;
    let allocations = measure(|| {
        for bytes in &packets {
            let packet = Packet::parse(bytes, ChecksumMode::Verify).unwrap();
            seen += packet.chunks().map(|chunk| look_inside(&chunk.unwrap())).sum::<usize>();
        }
    });
    assert_eq!(allocations.count_total, 0);
    assert!(seen > 100, "the captures hold parameters, causes and lists: {seen}");
}

#[test]
fn writing_packets_allocates_nothing() {
    let packets = captured_packets();
    let mut buf = vec![0; 65_536];
    let mut written = 0;
    let allocations = measure(|| {
        for bytes in &packets {
            let packet = Packet::parse(bytes, ChecksumMode::Ignore).unwrap();
            let mut writer = PacketWriter::new(&mut buf, packet.header);
            packet.chunks().for_each(|chunk| writer.push(&chunk.unwrap()).unwrap());
            written += writer.finish();
        }
    });
    assert_eq!(allocations.count_total, 0);
    assert_eq!(written, packets.iter().map(Vec::len).sum::<usize>());
}
