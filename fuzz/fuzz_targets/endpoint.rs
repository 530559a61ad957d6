//! Fuzz target `endpoint`: passes each input to `fuzzing::endpoint::run`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::endpoint::run(data));
