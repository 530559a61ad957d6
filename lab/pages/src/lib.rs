//! The generated parts of documents: tables of figures between two marker lines, with the origin of the figures.
//!
//! The prose of a page is written by hand. A command replaces only the lines between its markers. [`Place`] refuses
//! a page without the command's markers, and figures of a tree with uncommitted changes. Invariant: text outside
//! the markers never changes. Begin with [`Block`].

#![forbid(unsafe_code)]

mod block;
mod digits;
mod goals;
mod markers;
pub mod origin;
pub mod stats;
mod table;

pub use block::{Block, Place};
pub use digits::{digits, grouped};
pub use goals::{Goals, Limit};
pub use markers::{Markers, results};
pub use origin::Origin;
pub use table::Table;
