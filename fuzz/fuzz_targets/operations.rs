//! Gives the fuzzer's bytes to `fuzzing::operations`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::operations::run(data));
