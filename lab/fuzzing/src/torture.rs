//! The messages of RFC 4475, and mutations of them: changed, inserted, deleted, repeated and spliced bytes.

use std::path::Path;

/// Bytes that have a meaning in SIP, or that are unusual.
const MEANINGFUL: &[u8] = b"\r\n \t\",;:<>@=?%/[]\\\0\xff09azZ*";

/// Returns each message twice: in its original form, and with the domain example.com in place of the RFC's
/// example.net. The fuzzed proxy serves example.com, so it processes messages of the second form further.
///
/// # Panics
/// Panics if the messages in the repository cannot be read, or if their number is not 49.
pub fn corpus() -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sip/sip/tests/rfc4475");
    let entries = std::fs::read_dir(&dir).expect("the messages of RFC 4475");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert_eq!(paths.len(), 49, "messages in {}", dir.display());
    let ours =
        |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("example.net", "example.com").into_bytes();
    let both = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).expect("a message");
        [bytes.clone(), ours(&bytes)]
    };
    paths.iter().flat_map(both).collect()
}

/// Returns a message from `corpus` with up to three mutations.
pub fn changed(rng: &mut fastrand::Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let pick = |rng: &mut fastrand::Rng| corpus[rng.usize(..corpus.len())].clone();
    let mut bytes = pick(rng);
    for _ in 0..rng.usize(0..4) {
        let at = rng.usize(..bytes.len());
        let to = (at + rng.usize(0..40)).min(bytes.len());
        match rng.u8(0..6) {
            0 => bytes[at] = MEANINGFUL[rng.usize(..MEANINGFUL.len())],
            1 => bytes.insert(at, MEANINGFUL[rng.usize(..MEANINGFUL.len())]),
            2 => drop(bytes.drain(at..to)),
            3 => {
                let again = bytes[at..to].repeat(rng.usize(1..40));
                bytes.splice(at..at, again);
            }
            4 => bytes[at] = rng.u8(..),
            _ => {
                let other = pick(rng);
                bytes.splice(at.., other[other.len() / 2..].iter().copied());
            }
        }
        if bytes.is_empty() {
            bytes.push(b'x');
        }
    }
    bytes
}
