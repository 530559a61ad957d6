//! Interfaces for operators, which all programs share: a web page, metrics, a control socket and documentation.
//!
//! - [`Page`] serves a page and metrics ([`MetricsText`]) on 127.0.0.1.
//! - [`Part`] selects one part of a long list. The length of a part is limited, so an answer takes limited time.
//! - [`write_line`] and [`read_body`] carry requests and responses over a control socket, one JSON object per line.
//! - [`Docs`] holds the commands that write a program's manual pages, reference pages and completions.
//! - [`LimitedBy`] names the cause that limits a flow's sending rate.
//! - [`name_servers`] returns the name servers in the resolver's configuration.
//!
//! The crate does not depend on any program: each program supplies its own requests, pages and command line. Invariant: an answer takes
//! bounded time and memory, whatever a client sends.

#![forbid(unsafe_code)]

mod docs;
mod json_lines;
mod limit;
mod page;
mod pagination;
mod resolver;

pub use docs::{Docs, DocsError};
pub use json_lines::{LineError, MAX_ORDER_BYTES, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, SCHEMA};
pub use json_lines::{has_hung_up, read_body, write_line};
pub use limit::LimitedBy;
pub use page::{MetricsText, Page, PageAnswer, PageRequest};
pub use pagination::{LISTED_MAX, LOOKED_AT_MAX, ListPage, Part};
pub use resolver::{RESOLV_CONF, loopback_name_server, name_servers, with_name_server};
