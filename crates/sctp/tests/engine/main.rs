//! The engine, driven through two hosts and links in virtual time.

mod support;

mod addresses;
mod advertising;
mod attacks;
mod authentication;
mod basics;
mod data;
mod ecn;
mod extensions;
mod floods;
mod forge;
mod goodput;
mod grid;
mod handshake_faults;
mod hostile;
mod many;
mod memory;
mod mtu;
mod multipath;
mod obeyed;
mod options;
mod others_bugs;
mod partial;
mod paths;
mod rebinding;
mod reconfig;
mod recovery;
mod seeds;
mod setup;
mod shutdown;
mod states;
mod stranger;
mod streams;
mod tags;
mod tracing;
