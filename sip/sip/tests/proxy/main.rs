//! Tests of the proxy core in virtual time. Each test passes messages to the proxy, and checks the messages that the proxy sends.

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
