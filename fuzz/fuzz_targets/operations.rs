//! Fuzz target `operations`: passes each input to `fuzzing::operations::run`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::operations::run(data));
