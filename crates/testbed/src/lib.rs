//! Hosts as network namespaces, programs, captures and verdicts for tests, demo and benchmarks.
