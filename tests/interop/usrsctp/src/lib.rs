//! Empty crate. Only its manifest matters: through it, cargo downloads the source of usrsctp.

#![forbid(unsafe_code)]
