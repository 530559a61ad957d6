//! Shared parts of the programs for their operators.
//!
//! - [`Page`] serves a page and metrics ([`MetricsText`]) on 127.0.0.1.
//! - [`Part`] selects a page of a long list, so that no answer takes long.
//! - [`write_line`] and [`read_body`] carry requests and responses over a control socket, one JSON object per line.
//! - [`Docs`] are the commands that write a program's manual pages and completions.
//! - [`LimitedBy`] has the words for the limit on a flow's sending, and [`name_servers`] reads the resolver's configuration.
//!
//! Knows no program: each brings its own requests, pages and command line. Invariant: whatever strangers send, an answer takes
//! bounded time and memory.

#![forbid(unsafe_code)]

mod docs;
mod json_lines;
mod limit;
mod page;
mod pagination;
mod resolver;

pub use docs::{Docs, DocsError};
pub use json_lines::{LineError, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, SCHEMA};
pub use json_lines::{has_hung_up, read_body, write_line};
pub use limit::LimitedBy;
pub use page::{MetricsText, Page, PageAnswer, PageRequest};
pub use pagination::{LISTED_MAX, LOOKED_AT_MAX, ListPage, Part};
pub use resolver::{RESOLV_CONF, loopback_name_server, name_servers, with_name_server};
