//! The shim rules table and its settings.

#![forbid(unsafe_code)]
