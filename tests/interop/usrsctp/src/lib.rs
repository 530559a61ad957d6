//! Nothing: the manifest beside it is what counts.

#![forbid(unsafe_code)]
