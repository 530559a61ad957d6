//! Fuzz target `pair`: passes each input to `fuzzing::pair::run`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::pair::run(data));
