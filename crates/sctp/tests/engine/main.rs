//! The engine, driven through two hosts and links in virtual time.

mod support;

mod basics;
mod seeds;
