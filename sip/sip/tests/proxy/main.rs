//! The proxy core in virtual time: what comes out for what goes in.

mod world;

mod attempts;
mod calls;
mod credentials;
mod dialogs;
mod draining;
mod judging;
mod modes;
mod performance;
mod registering;
mod secure;
mod sharing;
