//! Gives the fuzzer's bytes to `fuzzing::trunk`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::trunk::run(data));
