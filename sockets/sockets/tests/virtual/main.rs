//! Tests of sockets on two hosts in virtual time.

mod one_to_many;
mod one_to_one;
mod random;
mod world;
