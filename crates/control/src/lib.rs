//! The words of the control socket and the configuration file.

#![forbid(unsafe_code)]
