//! Gives the fuzzer's bytes to `fuzzing::mux`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::mux::run(data));
