//! Fuzz target `sip`: passes each input to `fuzzing::sip::run`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::sip::run(data));
