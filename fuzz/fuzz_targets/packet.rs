//! Gives the fuzzer's bytes to `fuzzing::packet`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::packet::run(data));
