//! The generated parts of documents: tables of figures between two marker lines, with the origin of the
//! figures.
//!
//! A person writes the prose of a page. A command replaces only the lines between its markers, so text
//! outside the markers never changes. [`Place`] rejects a page without the command's markers. [`Place`]
//! also rejects figures from sources with uncommitted changes. Begin with [`Block`].

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
