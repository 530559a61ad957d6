//! The engine, driven through two hosts and links in virtual time.

mod support;

mod basics;
mod data;
mod goodput;
mod grid;
mod hostile;
mod many;
mod paths;
mod recovery;
mod seeds;
mod setup;
mod shutdown;
mod states;
mod tags;
