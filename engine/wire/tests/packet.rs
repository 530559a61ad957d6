//! Whole packets, which the tests write, read back and damage.

use wire::*;

const HEADER: CommonHeader =
    CommonHeader { source_port: 5001, destination_port: 22, tag: VerificationTag(0xdead_beef) };

fn data(payload: &[u8]) -> Data<'_> {
    Data {
        immediate: true,
        unordered: false,
        begin: true,
        end: true,
        tsn: Tsn(u32::MAX),
        stream: StreamId(3),
        ssn: Ssn(4),
        ppid: Ppid(5),
        payload,
    }
}

#[test]
//= rfc9260#3.2-1 3.2-3 3.2-4
fn a_written_packet_reads_back_with_all_its_chunks() {
    let gaps = [GapBlock { start: 2, end: 4 }];
    let duplicates = [Tsn(7), Tsn(8)];
    let sack = Sack {
        cumulative_tsn: Tsn(10),
        a_rwnd: 65_536,
        gaps: List::from(&gaps[..]),
        duplicates: List::from(&duplicates[..]),
    };
    let parameters = [Parameter::EcnCapable, Parameter::StateCookie(b"abc"), Parameter::ForwardTsnSupported];
    let init_ack = Init {
        tag: VerificationTag(1),
        a_rwnd: 2,
        outbound_streams: 3,
        inbound_streams: 4,
        initial_tsn: Tsn(5),
        parameters: Parameters::from(&parameters[..]),
    };
    let chunks = [Chunk::InitAck(init_ack), Chunk::Sack(sack), Chunk::Data(data(b"hello")), Chunk::CookieAck];

    let mut buf = [0xff; 200];
    let mut writer = PacketWriter::new(&mut buf, HEADER);
    for chunk in &chunks {
        writer.push(chunk).unwrap();
    }
    let len = writer.finish();

    let packet = Packet::parse(&buf[..len], ChecksumMode::Verify).unwrap();
    assert_eq!(packet.header, HEADER);
    assert_eq!(packet.chunks().collect::<Result<Vec<_>, _>>().unwrap(), chunks);
}

#[test]
//= rfc9260#6.10-5
fn a_chunk_that_does_not_fit_leaves_the_packet_as_it_was() {
    let mut buf = [0; 12 + 16 + 5 + 3 + 4];
    let mut writer = PacketWriter::new(&mut buf, HEADER);
    writer.push_data(&data(b"hello")).unwrap();
    assert_eq!(writer.remaining(), 4);
    let before = writer.written().to_vec();
    assert_eq!(writer.push(&data(b"")), Err(NoRoom));
    assert_eq!(writer.push_data(&data(b"")), Err(NoRoom));
    assert_eq!(writer.push(&CookieEcho { cookie: b"x" }), Err(NoRoom));
    assert_eq!(writer.written(), before);
    writer.push(&Chunk::CookieAck).unwrap();
    assert_eq!(writer.finish(), 40);
}

#[test]
fn each_checksum_mode_accepts_only_the_checksums_that_it_permits() {
    let mut buf = [0; 64];
    let mut writer = PacketWriter::new(&mut buf, HEADER);
    writer.push(&Chunk::CookieAck).unwrap();
    let len = writer.finish_zero_checksum();
    let parse = |buf: &[u8], mode| Packet::parse(&buf[..len], mode).map(|packet| packet.header);
    assert!(matches!(parse(&buf, ChecksumMode::Verify), Err(PacketError::Checksum { found: 0, .. })));
    assert_eq!(parse(&buf, ChecksumMode::AcceptZero), Ok(HEADER));
    buf[8] = 1;
    assert!(matches!(parse(&buf, ChecksumMode::AcceptZero), Err(PacketError::Checksum { found: 1, .. })));
    assert_eq!(parse(&buf, ChecksumMode::Ignore), Ok(HEADER));
}

#[test]
fn a_buffer_without_room_for_a_header_gives_an_empty_packet() {
    for len in 0..12 {
        let mut buf = vec![0; len];
        let mut writer = PacketWriter::new(&mut buf, HEADER);
        assert_eq!(writer.push(&Chunk::CookieAck), Err(NoRoom));
        assert_eq!((writer.len(), writer.remaining(), writer.finish()), (0, 0, 0));
    }
}
