//! Tests of the whole shim under load and faults: two hosts, a daemon on each, unmodified programs.
//!
//! The tests need root. They also need `sctpifyd`, `sctpify` and `shimrules`, built next to the tests (`./x
//! test` does this) or in SCTPIFY_BIN_DIR. Begin with [`world::World`].

mod advertise;
mod audio;
mod benched;
mod calls;
mod captured;
mod cases;
mod clock;
mod confined;
mod control;
mod deaths;
mod declared;
mod demo;
mod disk;
mod encryption;
mod events;
mod faults;
mod figure4;
mod firewall;
mod forgery;
mod framed;
mod keys;
mod learned;
mod limits;
mod links;
mod load;
mod local_queue;
mod loopback;
mod memory;
mod mtu;
mod multipath;
mod named;
mod options;
mod pleasant;
mod port;
mod prometheus;
mod promises;
mod racing;
mod require;
mod roaming;
mod shared;
mod states;
mod strangers;
mod streams;
mod supervision;
mod takeover;
mod tap;
mod tiny_pieces;
mod truth;
mod unacknowledged;
mod world;
