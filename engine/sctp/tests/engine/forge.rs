//! Packets signed by hand with the keys of a recorded association. This second implementation of RFC 4895 section 6.1 uses only the
//! recorded packets.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use sim::World;
use wire::{
    AuthPlan, ChecksumMode, Chunk, ChunkSet, CommonHeader, Init, Packet, PacketWriter, Parameters,
    VerificationTag,
};

/// Signer for the association that `world` has recorded from its INIT on.
pub(crate) struct Forger {
    number: u16,
    key: Vec<u8>,
    /// Key vector of each source port, if each direction has its own key.
    by_port: BTreeMap<u16, Vec<u8>>,
    /// Hash of INIT and INIT ACK.
    handshake: Vec<u8>,
}

impl Forger {
    /// Creates a signer with the shared key 1, which both directions use.
    pub(crate) fn new(world: &World, shared: &[u8]) -> Forger {
        Forger { by_port: BTreeMap::new(), ..Forger::by_direction(world, shared) }
    }

    /// Creates a signer with the shared key 1, from which each direction has its own key.
    pub(crate) fn by_direction(world: &World, shared: &[u8]) -> Forger {
        let without = Forger::without_key(world);
        Forger { number: 1, key: [shared.to_vec(), without.key.clone()].concat(), ..without }
    }

    /// Creates a signer with the empty key. It needs only the recorded INIT and INIT ACK.
    pub(crate) fn without_key(world: &World) -> Forger {
        let (mut by_port, mut said) = (BTreeMap::new(), [[0; 32]; 2]);
        for record in &world.records {
            let packet = Packet::parse(&record.packet, ChecksumMode::Ignore).unwrap();
            let chunk = packet.chunks().next();
            let is_answer = matches!(chunk, Some(Ok(Chunk::InitAck(_))));
            if let Some(Ok(Chunk::Init(init) | Chunk::InitAck(init))) = chunk {
                said[usize::from(is_answer)] = said_in(&init);
                by_port.insert(packet.header.source_port, key_vector(&init.parameters));
            }
        }
        let mut vectors: Vec<Vec<u8>> = by_port.values().cloned().collect();
        vectors.sort_by_key(|v| (v.len(), v.clone()));
        assert_eq!(vectors.len(), 2, "one INIT and one INIT ACK");
        let handshake = Sha256::digest(said.concat())[..16].to_vec();
        Forger { number: 0, key: vectors.concat(), by_port, handshake }
    }

    /// Returns the key for packets from the first of these ports to the second.
    fn key_of(&self, (from, to): (u16, u16)) -> Vec<u8> {
        match self.by_port.get(&from).filter(|_| self.number != 0) {
            Some(vector) => {
                let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
                hmac(&self.key, &[b"sctpify key by direction", &ports[..], vector, &self.handshake].concat())
            }
            None => self.key.clone(),
        }
    }

    /// Returns a packet with an AUTH chunk before these chunks.
    pub(crate) fn packet(&self, ports: (u16, u16), tag: u32, chunks: &[Chunk<'_>]) -> Vec<u8> {
        let mut all = ChunkSet::EMPTY;
        (0..=255).for_each(|t| all.insert(wire::ChunkType(t)));
        let header =
            CommonHeader { source_port: ports.0, destination_port: ports.1, tag: VerificationTag(tag) };
        let mut buf = vec![0; 1480];
        let plan = AuthPlan { chunks: all, shared_key: self.number, hmac_id: 3, hmac_len: 32 };
        let mut writer = PacketWriter::new(&mut buf, header).with_auth(plan);
        chunks.iter().for_each(|c| writer.push(c).expect("the chunks fit"));
        writer.sign(|covered| hmac(&self.key_of(ports), covered));
        let length = writer.finish();
        buf.truncate(length);
        buf
    }
}

/// Returns the hash of all parts of an INIT or INIT ACK, except the cookie, error reports, the Cookie Preservative, and padding.
fn said_in(init: &Init<'_>) -> [u8; 32] {
    let fixed = [init.tag.0, init.a_rwnd, init.initial_tsn.0].map(u32::to_be_bytes).concat();
    let streams = [init.outbound_streams, init.inbound_streams].map(u16::to_be_bytes).concat();
    let kept = init.parameters.tlvs().map_while(Result::ok).filter(|t| ![7, 8, 9, 0x8005].contains(&t.kind));
    let parameters: Vec<u8> = kept.flat_map(|t| t.bytes.to_vec()).collect();
    Sha256::digest([fixed, streams, parameters].concat()).into()
}

fn hmac(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(bytes);
    mac.finalize().into_bytes().to_vec()
}

fn key_vector(parameters: &Parameters<'_>) -> Vec<u8> {
    let of = |kind: u16| parameters.tlvs().map_while(Result::ok).find(move |t| t.kind == kind);
    [0x8002, 0x8003, 0x8004].into_iter().filter_map(of).flat_map(|t| t.bytes.to_vec()).collect()
}
