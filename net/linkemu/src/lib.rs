//! A link emulator that joins two interfaces through a link of `netem`, in real time.
//!
//! The program `linkemu` handles a frame in these steps:
//!
//! 1. It takes the frame from one interface ([`netio::FrameSocket`]).
//! 2. It cuts long segments, whose segmentation the host left to the interface, into packets ([`bridge::finish`]).
//! 3. The link decides the packets' fate and holds them (`direction`, with [`netem::Line`]).
//! 4. It sends each packet on the other interface when the packet is due (`emulator`).
//!
//! The crate `netem` contains the model of the link. `linkemu` refuses interfaces that are down. Each background link has a separate
//! process with a control socket (`control`). Begin with [`run`] and the command line, [`Linkemu`].

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
