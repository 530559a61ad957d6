//! Gives the fuzzer's bytes to `fuzzing::sip`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::sip::run(data));
