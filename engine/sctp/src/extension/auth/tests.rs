//! Tests against signatures of the Linux kernel (captures of `engine/wire/tests/golden`) and of Python's `hmac`.

use wire::{ChecksumMode, Packet};

use super::*;

const KEY: &[u8] = b"sctpify golden key";
const PORTS: Ports = Ports { local: 7, peer: 40_000 };

/// Part of a capture `kernel-auth-*.pcap`: an AUTH chunk, the DATA chunk that it covers, and the key vectors of its
/// association.
struct Golden {
    vectors: [&'static str; 2],
    packet: &'static str,
    algorithm: HmacAlgorithm,
}

const DATA: &str = "000000000000000000070e151c232a31383f464d545b626970777e858c939aa1a8afb6bdc4cbd2d9e0e7eef5fc030a\
    11181f262d343b424950575e656c737a81888f969da4abb2b9c0c7ced5dce3eaf1f8ff060d141b222930373e454c535a61686f767d848b92\
    99a0a7aeb5bcc3cad1d8dfe6edf4fb020910171e252c333a41484f565d646b727980878e959ca3aab1b8bfc6cdd4dbe2e9f0f7fe050c131a\
    21282f363d444b525960676e757c838a91989fa6adb4bbc2c9d0d7dee5ecf3fa01080f161d242b323940474e555c636a71";

const SHA1: Golden = Golden {
    vectors: [
        "80020024af52b4094926c72e31427b8dad5e35093c0275d2e8c92715af90712ccf550f0c8003000500800400060001",
        "80020024209a851d70b95d8bfda1ed765e7d22fce58f56e1519bff2d441728e7cb104e2c8003000500800400060001",
    ],
    packet: "9c171388da4cfdb11eada2e00f00001c000100014193e45dd23b8b3d1ac00fe96e3130de131d4949000300d8870ced5c",
    algorithm: HmacAlgorithm::Sha1,
};

const SHA256: Golden = Golden {
    vectors: [
        "8002002438aa47a47bfefc7f8d97af75f3c1a2d1de6edefd0cbecad74f5647f6fb6d4b8580030005008004000800030001",
        "80020024b777743a503299b563f0d75fd2d58cdaf2d8bb47e7b04d944a35dda8a1d87c9a80030005008004000800030001",
    ],
    packet: "b921138818485c658db8f2420f00002800010003d2e2771807a7a4ff2aefcaacbbdde3bafccb0226e8744bce28c8777af136fe\
        02000300d8fad8cf65",
    algorithm: HmacAlgorithm::Sha256,
};

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

impl Golden {
    fn packet(&self) -> Vec<u8> {
        hex(&[self.packet, DATA].concat())
    }

    fn auth(&self, keys: &[(u16, &[u8])]) -> Auth {
        let [local, peer] = self.vectors.map(hex);
        let keys = keys.iter().map(|&(id, key)| (id, Bytes::copy_from_slice(key))).collect();
        Auth::new(
            KeyVectors { local, peer, handshake: None },
            PORTS,
            &AuthConfig { keys, active_key: 1, ..AuthConfig::default() },
        )
    }
}

fn verdict(auth: &Auth, packet: &[u8]) -> Result<(), Unverified> {
    let packet = Packet::parse(packet, ChecksumMode::Ignore).unwrap();
    auth.verify(&packet.raw_chunks().next().unwrap().unwrap())
}

#[test]
//= rfc4895#6.2-6 6.2-7 6.1-9 6.3-2 5.1-1 6.1-6
fn kernel_signatures_are_verified_and_reproduced() {
    for golden in [SHA1, SHA256] {
        let auth = golden.auth(&[(1, KEY)]);
        let packet = golden.packet();
        assert_eq!(verdict(&auth, &packet), Ok(()));
        let length = golden.algorithm.len();
        let mut covered = packet[12..].to_vec();
        covered[8..8 + length].fill(0);
        assert_eq!(auth.sign(&covered)[..], packet[20..20 + length]);
        assert_eq!(auth.plan().hmac_id, golden.algorithm.id());
    }
}

#[test]
fn every_altered_bit_is_found() {
    let auth = SHA256.auth(&[(1, KEY)]);
    // The altered bits range from the flags of the AUTH chunk to the end of the DATA chunk. The length of the AUTH
    // chunk and the number of its key are left unchanged.
    for bit in (13 * 8..14 * 8).chain(20 * 8..268 * 8) {
        let mut packet = SHA256.packet();
        packet[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(verdict(&auth, &packet), Err(Unverified::Discard), "bit {bit}");
    }
}

#[test]
//= rfc4895#6.3-6 6.2-5
fn absent_empty_and_wrong_keys_and_unknown_algorithms_verify_nothing() {
    let packet = SHA256.packet();
    for keys in [&[][..], &[(0, KEY)], &[(1, b"")], &[(1, b"wrong")]] {
        assert_eq!(verdict(&SHA256.auth(keys), &packet), Err(Unverified::Discard), "{keys:?}");
    }
    for id in [0, 2, 4, 0xffff_u16] {
        let mut packet = packet.clone();
        packet[18..20].copy_from_slice(&id.to_be_bytes());
        assert_eq!(verdict(&SHA256.auth(&[(1, KEY)]), &packet), Err(Unverified::UnknownHmac(id)));
    }
}

#[test]
fn an_hmac_of_another_length_verifies_nothing() {
    let auth = SHA256.auth(&[(1, KEY)]);
    for length in [8_u8, 12, 28, 36, 44] {
        let mut packet = SHA256.packet();
        packet[15] = length;
        assert_eq!(verdict(&auth, &packet), Err(Unverified::Discard), "{length}");
    }
}

#[test]
fn the_smaller_key_vector_comes_first_and_shorter_is_smaller() {
    let vectors = |local: &[u8], peer: &[u8]| KeyVectors {
        local: local.to_vec(),
        peer: peer.to_vec(),
        handshake: None,
    };
    assert_eq!(vectors(&[0x80, 1], &[0x80, 2]).association_key(b"k"), [b'k', 0x80, 1, 0x80, 2]);
    assert_eq!(vectors(&[0x80, 2], &[0x80, 1]).association_key(b"k"), [b'k', 0x80, 1, 0x80, 2]);
    assert_eq!(vectors(&[0x80, 0, 0], &[0x80, 9]).association_key(b""), [0x80, 9, 0x80, 0, 0]);
}

#[test]
//= rfc4895#6.1-9 6.1-1 6.1-2 3.2-4
fn a_key_vector_holds_the_three_parameters_without_padding() {
    let config = AuthConfig { chunks: [ChunkType::DATA].into_iter().collect(), ..AuthConfig::default() };
    let vector = Offer::new(&config, false, [0xab; 32]).key_vector();
    let expected = [&hex("80020024")[..], &[0xab; 32], &hex("8003000500"), &hex("8004000800030001")].concat();
    assert_eq!(vector, expected);
}

#[test]
//= rfc4895#3.2-5 3.2-6
fn chunks_that_cannot_be_authenticated_are_neither_asked_for_nor_heeded() {
    let never = [ChunkType::INIT, ChunkType::INIT_ACK, ChunkType::SHUTDOWN_COMPLETE, ChunkType::AUTH];
    let config = AuthConfig { chunks: never.into_iter().collect(), ..AuthConfig::default() };
    assert!(value_in(&Offer::new(&config, false, [0; 32]).key_vector(), CHUNKS).is_none());
    let set = chunks_in(&hex("80030009000102060e0f"));
    assert!(never.into_iter().all(|t| !set.contains(t)));
    assert!(set.contains(ChunkType::DATA));
}

#[test]
fn keys_can_be_deactivated_and_deleted_except_the_active_key() {
    let mut auth = SHA256.auth(&[(1, KEY)]);
    assert_eq!(auth.activate_key(2), Err(AuthKeyError::NoSuchKey(2)));
    assert_eq!(auth.set_key(2, b"two"), Ok(()));
    assert_eq!(auth.delete_key(1), Err(AuthKeyError::Active(1)));
    assert_eq!(auth.deactivate_key(1), Err(AuthKeyError::Active(1)));
    assert_eq!(auth.activate_key(2), Ok(()));
    assert_eq!(auth.deactivate_key(1), Ok(()));
    assert_eq!(auth.activate_key(1), Err(AuthKeyError::NoSuchKey(1)));
    assert_eq!(verdict(&auth, &SHA256.packet()), Ok(()), "a deactivated key still verifies");
    assert_eq!(auth.delete_key(1), Ok(()));
    assert_eq!(verdict(&auth, &SHA256.packet()), Err(Unverified::Discard));
    assert_eq!(auth.delete_key(1), Err(AuthKeyError::NoSuchKey(1)));
}

#[test]
fn a_restart_would_undo_the_deactivation_of_a_key_so_it_counts_as_a_change() {
    let mut auth = SHA256.auth(&[(1, KEY), (2, b"two")]);
    assert!(!auth.has_other_keys());
    assert_eq!(auth.deactivate_key(2), Ok(()));
    assert!(auth.has_other_keys());
}

#[test]
fn the_number_and_the_length_of_keys_are_limited() {
    let mut auth = SHA256.auth(&[]);
    let refused = auth.set_key(1, &[0; MAX_KEY_LEN + 1]);
    assert_eq!(refused, Err(AuthKeyError::TooLong { length: MAX_KEY_LEN + 1, max: MAX_KEY_LEN }));
    // Key 0 exists from the beginning.
    for id in 1..MAX_KEYS as u16 {
        assert_eq!(auth.set_key(id, &[0; MAX_KEY_LEN]), Ok(()));
    }
    assert_eq!(auth.set_key(99, b""), Err(AuthKeyError::TooMany(MAX_KEYS)));
    assert_eq!(auth.set_key(1, b"replaced"), Ok(()));
}
