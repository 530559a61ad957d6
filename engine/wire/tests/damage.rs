//! Damaged packets: cut, changed or random. No packet causes a panic or an endless iteration. A chunk that
//! can be read can also be written and read again.

mod common;

use proptest::collection::vec;
use proptest::prelude::*;
use wire::*;

const HEADER: CommonHeader =
    CommonHeader { source_port: 1, destination_port: 2, tag: VerificationTag(0x0102_0304) };

/// The chunk types that have a parser, and two that have none (63 and 255).
const TYPES: [u8; 25] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 64, 128, 130, 132, 192, 193, 194, 63, 255];
/// Parameter types and cause codes, and some numbers that are neither.
const KINDS: [u16; 42] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0x105,
    0x8000, 0x8001, 0x8002, 0x8003, 0x8004, 0x8005, 0x8006, 0x8008, 0xc000, 0xc001, 0xc002, 0xc003, 0xc004,
    0xc005, 0xc006, 0xc007, 0, 0xffff,
];

/// Generates a parameter or cause with a valid frame and padding.
fn tlv() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        vec(any::<u8>(), 0..24),
        // A value with an address inside, as in ASCONF's parameters.
        any::<[u8; 8]>().prop_map(|b| [&b[..4], &[0, 5, 0, 8], &b[4..]].concat()),
    ];
    (proptest::sample::select(&KINDS[..]), value).prop_map(|(kind, value)| {
        let length = (4 + value.len()) as u16;
        let mut bytes = [&kind.to_be_bytes()[..], &length.to_be_bytes(), &value].concat();
        bytes.resize(padded(bytes.len()), 0);
        bytes
    })
}

/// Generates a chunk of any type with a valid frame and padding. It has a fixed part, and then perhaps
/// parameters or causes.
fn chunk() -> impl Strategy<Value = Vec<u8>> {
    let fixed = prop_oneof![Just(0), Just(4), Just(8), Just(12), Just(16), 0..30usize];
    let fixed = fixed.prop_flat_map(|len| vec(any::<u8>(), len));
    (proptest::sample::select(&TYPES[..]), any::<u8>(), fixed, vec(tlv(), 0..5)).prop_map(
        |(kind, flags, fixed, tlvs)| {
            let value = [fixed, tlvs.concat()].concat();
            let length = ((4 + value.len()) as u16).to_be_bytes();
            let mut bytes = [&[kind, flags, length[0], length[1]][..], &value].concat();
            bytes.resize(padded(bytes.len()), 0);
            bytes
        },
    )
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    vec(chunk(), 1..6).prop_map(|chunks| [&[0; COMMON_HEADER_LEN][..], &chunks.concat()].concat())
}

/// Reads, prints, writes and rebuilds all chunks of a packet. Returns their number.
fn walk(bytes: &[u8]) -> usize {
    let Ok(packet) = Packet::parse(bytes, ChecksumMode::Ignore) else { return 0 };
    let chunks: Vec<_> = packet.chunks().collect();
    for chunk in &chunks {
        let _ = format!("{chunk:?}");
        let Ok(chunk) = chunk else { continue };
        let octets = common::octets(chunk);
        assert_eq!(octets[0], chunk.chunk_type().0);
        let _ = common::with_rebuilt(chunk, |rebuilt| assert_eq!(rebuilt, chunk));
    }
    assert!(chunks.len() <= bytes.len() / 4, "each step takes four octets or more");
    chunks.len()
}

proptest! {
    #[test]
    fn noise_ends_without_a_panic(bytes in vec(any::<u8>(), 0..200)) {
        walk(&bytes);
    }

    #[test]
    fn well_framed_noise_gives_one_item_for_each_chunk(chunks in vec(chunk(), 1..6)) {
        let bytes = [&[0; COMMON_HEADER_LEN][..], &chunks.concat()].concat();
        prop_assert_eq!(walk(&bytes), chunks.len());
    }

    #[test]
    fn a_changed_packet_ends_without_a_panic(
        mut bytes in packet(),
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
    ) {
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        walk(&bytes);
    }

    #[test]
    //= rfc9260#6.10-7
    fn a_packet_cut_inside_a_chunk_ends_with_an_error(bytes in packet(), cut in any::<proptest::sample::Index>()) {
        let cut = cut.index(bytes.len());
        walk(&bytes[..cut]);
        let Ok(whole) = Packet::parse(&bytes, ChecksumMode::Ignore) else { return Ok(()) };
        let Ok(part) = Packet::parse(&bytes[..cut], ChecksumMode::Ignore) else { return Ok(()) };
        // The ends of the chunks in the whole packet, without padding.
        let ends: Vec<_> = whole
            .raw_chunks()
            .map(|raw| raw.map(|raw| bytes.len() - raw.from_here.len() + raw.bytes.len()))
            .collect::<Result<_, _>>()
            .unwrap();
        let between = ends.iter().any(|end| (*end..=padded(*end)).contains(&cut));
        let last = part.raw_chunks().last().unwrap();
        prop_assert_eq!(last.is_ok(), between, "cut at {}, chunks end at {:?}", cut, ends);
    }

    #[test]
    fn a_chunk_is_unchanged_after_writing_and_reading_it_again(bytes in chunk()) {
        let bytes = [&[0; COMMON_HEADER_LEN][..], &bytes].concat();
        let packet = Packet::parse(&bytes, ChecksumMode::Ignore).unwrap();
        let Some(Ok(chunk)) = packet.chunks().next() else { return Ok(()) };
        let again = |chunk: &Chunk<'_>| {
            let mut buf = vec![0xa5; 4096];
            let mut writer = PacketWriter::new(&mut buf, HEADER);
            writer.push(chunk).unwrap();
            let len = writer.finish();
            let packet = Packet::parse(&buf[..len], ChecksumMode::Verify).unwrap();
            let mut chunks = packet.chunks();
            assert_eq!(chunks.next(), Some(Ok(*chunk)));
            assert_eq!(chunks.next(), None);
        };
        again(&chunk);
        let _ = common::with_rebuilt(&chunk, again);
    }

    #[test]
    //= rfc9260#6.8-3 6.8-4
    fn a_packet_with_one_changed_bit_is_refused(bytes in packet(), bit in any::<proptest::sample::Index>()) {
        let packet = Packet::parse(&bytes, ChecksumMode::Ignore).unwrap();
        let mut buf = vec![0; bytes.len()];
        let mut writer = PacketWriter::new(&mut buf, HEADER);
        for raw in packet.raw_chunks() {
            let raw = raw.unwrap();
            let chunk = UnknownChunk { chunk_type: raw.chunk_type, flags: raw.flags, value: raw.value };
            writer.push(&chunk).unwrap();
        }
        let len = writer.finish();
        prop_assert_eq!(len, bytes.len());
        prop_assert!(Packet::parse(&buf, ChecksumMode::Verify).is_ok());
        let bit = bit.index(len * 8);
        buf[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Packet::parse(&buf, ChecksumMode::Verify).is_err());
        prop_assert!(Packet::parse(&buf, ChecksumMode::AcceptZero).is_err());
    }
}
