//! A link emulator. It joins two interfaces in real time through the link model of the crate `netem`.
//!
//! The program `linkemu` handles a frame in these steps:
//!
//! 1. It takes the frame from one interface ([`netio::FrameSocket`]).
//! 2. It cuts a long segment into packets ([`bridge::finish`]), if the host left the segmentation to the interface.
//! 3. The link model decides which packets are lost, delayed or changed, and queues the others (`direction`, with [`netem::Line`]).
//! 4. When a packet is due, the program sends it on the other interface (`emulator`).
//!
//! `linkemu` refuses an interface that is down when the link starts. Each background link has a separate process with a control
//! socket (`control`). Begin with [`run`] and the command line, [`Linkemu`].

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
