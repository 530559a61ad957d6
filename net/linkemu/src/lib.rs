//! A link emulator: two interfaces joined by a link of `netem`, in real time.
//!
//! The program `linkemu` takes frames off one interface ([`netio::FrameSocket`]), cuts what a host left whole into packets
//! ([`bridge::finish`]), has the link decide their fate and hold them (`direction`, with [`netem::Line`]), and gives them to the other
//! interface when they are due (`emulator`). Decides nothing of the link's model; refuses interfaces that are down. One process a link in
//! the background, each with a control socket (`control`). Begin with [`run`] and [`Linkemu`], the command line.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod control;
mod direction;
mod emulator;
mod error;
mod lateness;
mod plan;
mod recent;
mod report;
mod show;
mod too_long;

pub use args::{Command, DEFAULT_DIR, Ends, Linkemu, RunArgs, Settings, Wishes};
pub use bridge::LinkEnd;
pub use commands::run;
pub use error::LinkemuError;
pub use lateness::{LATE, LatenessReport};
pub use plan::Plan;
pub use recent::RecentReport;
pub use report::{Answer, DirectionReport, FrameCounters, Report, Request};
