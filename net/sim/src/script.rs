//! Builds packets for injection, and describes packets for tests.

use std::borrow::Cow;

use wire::{ChecksumMode, Chunk, CommonHeader, Packet, PacketWriter, Record, VerificationTag};

/// Returns a packet with these ports, this tag, these chunks, and a correct checksum.
///
/// # Panics
/// If the chunks do not fit into 9,000 bytes.
pub fn packet(source_port: u16, destination_port: u16, tag: u32, chunks: &[Chunk<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; 9000];
    let header = CommonHeader { source_port, destination_port, tag: VerificationTag(tag) };
    let mut writer = PacketWriter::new(&mut bytes, header);
    for chunk in chunks {
        writer.push(chunk).expect("the chunks fit into one packet");
    }
    let length = writer.finish();
    bytes.truncate(length);
    bytes
}

/// Returns a sealed packet as it was before sealing. A world's keys hide nothing, so no key is necessary. The checksum of the
/// result is zero. Returns any other packet unchanged.
pub fn opened(packet: &[u8]) -> Cow<'_, [u8]> {
    let parsed = Packet::parse(packet, ChecksumMode::Ignore);
    let Ok(parsed) = parsed else { return Cow::Borrowed(packet) };
    // A chunk in the clear may come before the record.
    let mut front = 0;
    for raw in parsed.raw_chunks().map_while(Result::ok) {
        if let Some(chunks) = Record::parse(&raw).and_then(|record| Record::chunks(record.ciphertext)) {
            return Cow::Owned([&packet[..8], &[0; 4], &packet[12..12 + front], chunks].concat());
        }
        front += wire::padded(4 + raw.value.len());
    }
    Cow::Borrowed(packet)
}

/// Returns the names of a packet's chunks, such as `SACK DATA DATA`. A set T bit appears as `ABORT(T)`. For a sealed packet,
/// these are the names of the chunks inside.
pub fn chunk_names(packet: &[u8]) -> String {
    let packet = opened(packet);
    let Ok(packet) = Packet::parse(&packet, ChecksumMode::Ignore) else { return "malformed".to_owned() };
    let names = packet.raw_chunks().map(|raw| match raw {
        Ok(raw) => {
            let reflected = match raw.parse() {
                Ok(Chunk::Abort(abort)) => abort.tag_reflected,
                Ok(Chunk::ShutdownComplete(complete)) => complete.tag_reflected,
                _ => false,
            };
            format!("{:?}{}", raw.chunk_type, if reflected { "(T)" } else { "" })
        }
        Err(_) => "malformed".to_owned(),
    });
    names.collect::<Vec<_>>().join(" ")
}
