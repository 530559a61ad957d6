//! Gives the fuzzer's bytes to `fuzzing::pair`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::pair::run(data));
