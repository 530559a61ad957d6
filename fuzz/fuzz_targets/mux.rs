//! Fuzz target `mux`: passes each input to `fuzzing::mux::run`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::mux::run(data));
