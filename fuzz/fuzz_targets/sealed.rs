//! Gives the fuzzer's bytes to `fuzzing::pair`, whose packets are sealed.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::pair::run_sealed(data));
