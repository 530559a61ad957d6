//! Gives the fuzzer's bytes to `fuzzing::endpoint`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::endpoint::run(data));
