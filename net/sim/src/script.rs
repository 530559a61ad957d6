//! Packets by hand: written for injection, and read for a verdict.

use wire::{ChecksumMode, Chunk, CommonHeader, Packet, PacketWriter, VerificationTag};

/// A packet with these ports, tag and chunks, and a right checksum.
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

/// The names of a packet's chunks, such as `SACK DATA DATA`; a T bit is shown as `ABORT(T)`.
pub fn chunk_names(packet: &[u8]) -> String {
    let Ok(packet) = Packet::parse(packet, ChecksumMode::Ignore) else { return "malformed".to_owned() };
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
