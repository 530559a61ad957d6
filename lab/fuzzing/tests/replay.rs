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
fn packets_kept_by_the_fuzzer_are_read_and_written_alike() {
    replay("packet");
}

#[test]
fn attacks_kept_by_the_fuzzer_do_no_harm() {
    replay("endpoint");
}

#[test]
fn stories_of_bad_networks_kept_by_the_fuzzer_deliver_everything() {
    replay("pair");
}

#[test]
fn stories_of_bad_networks_kept_by_the_fuzzer_deliver_everything_by_sealed_packets() {
    replay("sealed");
}

#[test]
fn calls_kept_by_the_fuzzer_leave_nothing_behind() {
    replay("operations");
}

#[test]
fn a_hostile_peer_of_a_shared_association_kept_by_the_fuzzer_does_no_harm() {
    replay("mux");
}

#[test]
fn the_kept_inputs_are_few_bytes() {
    let all = TARGETS.iter().flat_map(|(name, _)| inputs(name));
    let bytes: u64 = all.map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= CORPUS_MAX, "{bytes} bytes");
}

#[test]
fn sip_messages_of_rfc_4475_and_what_the_fuzzer_made_of_them_do_no_harm() {
    replay("sip");
}
