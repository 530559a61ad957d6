//! The engine, driven through two hosts and links in virtual time.

mod support;

mod addresses;
mod advertising;
mod authentication;
mod basics;
mod data;
mod extensions;
mod forge;
mod goodput;
mod grid;
mod hostile;
mod many;
mod mtu;
mod multipath;
mod partial;
mod paths;
mod reconfig;
mod rebinding;
mod recovery;
mod seeds;
mod setup;
mod shutdown;
mod states;
mod streams;
mod tags;
