//! Replays the committed inputs of all fuzz targets. The fuzzers found these inputs.

use std::fs;
use std::path::{Path, PathBuf};

use fuzzing::TARGETS;

/// Maximum total size of the committed inputs, in bytes.
const CORPUS_MAX: u64 = 1 << 20;

fn inputs(target: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn replay(target: &str) {
    let (_, play) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target of this name");
    let inputs = inputs(target);
    assert!(inputs.len() >= 20, "only {} inputs for {target}", inputs.len());
    for path in inputs {
        let bytes = fs::read(&path).unwrap();
        let played = std::panic::catch_unwind(|| play(&bytes));
        assert!(played.is_ok(), "{} fails: the panic is above", path.display());
    }
}

#[test]
fn corpus_packets_are_unchanged_after_writing_and_parsing() {
    replay("packet");
}

#[test]
fn corpus_chunks_of_a_hostile_peer_neither_panic_nor_stall_the_engine() {
    replay("endpoint");
}

#[test]
fn corpus_runs_over_a_bad_network_deliver_every_message() {
    replay("pair");
}

#[test]
fn corpus_runs_over_a_bad_network_deliver_every_message_in_sealed_packets() {
    replay("sealed");
}

#[test]
fn corpus_api_calls_in_any_order_leave_no_association_or_timer() {
    replay("operations");
}

#[test]
fn corpus_messages_of_a_hostile_peer_do_not_harm_a_shared_association() {
    replay("mux");
}

#[test]
fn the_corpus_stays_within_its_size_limit() {
    let all = TARGETS.iter().flat_map(|(name, _)| inputs(name));
    let bytes: u64 = all.map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= CORPUS_MAX, "{bytes} bytes");
}

#[test]
fn sip_corpus_messages_from_rfc_4475_and_the_fuzzer_do_no_harm() {
    replay("sip");
}
