//! Hosts as network namespaces, programs, captures and verdicts for tests, demo and benchmarks.

#![forbid(unsafe_code)]

/// True when this process may make network namespaces (its effective user is root).
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
