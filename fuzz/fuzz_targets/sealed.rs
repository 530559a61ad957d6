//! Fuzz target `sealed`: passes each input to `fuzzing::pair::run_sealed`, whose packets are sealed.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::pair::run_sealed(data));
