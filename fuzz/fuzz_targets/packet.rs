//! Fuzz target `packet`: passes each input to `fuzzing::packet::run`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::packet::run(data));
