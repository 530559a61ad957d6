//! A listener for browsers and Prometheus on 127.0.0.1 only: the page of a program, and its metrics.
//!
//! It is read-only: GET of a few fixed names. A request must name this host as a browser that was sent here on purpose does, so
//! no foreign page can reach it under its own name (DNS rebinding). Nothing is loaded from anywhere else. Invariant: no more than
//! [`SERVED_MAX`] requests are served at once, each within [`CLIENT_LIMIT`]. Begin with [`Page::run`]; [`MetricsText`] writes
//! numbers in the format that Prometheus reads.
//!
//! The files that all programs' pages share are served in addition to each program's own: `page.css`, and `common.js` with
//! requests, periodic redrawing, tables, paths, and lists shown part by part. [`PageAnswer::html`] makes the page around a
//! program's own part, and refers to `page.js`, which that program provides.

mod metrics;
mod request;

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use metrics::MetricsText;
pub use request::PageRequest;
use request::{HEAD_MAX, Refused};

/// Limit on concurrent requests.
const SERVED_MAX: usize = 16;
/// Limit on the time that a browser takes to send a request, or to read the answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);
/// Content security policy: the page may load its own files, and send requests to its own host.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The listener.
#[derive(Debug)]
pub struct Page {
    listener: TcpListener,
    port: u16,
}

impl Page {
    /// Listens on `port` of 127.0.0.1.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn bind(port: u16) -> io::Result<Page> {
        Ok(Page { listener: TcpListener::bind((Ipv4Addr::LOCALHOST, port))?, port })
    }

    /// Serves until the process ends. `answer` gets the request, and returns `None` if nothing has that name; `names` lists the
    /// names.
    pub fn run(
        self,
        names: &'static str,
        answer: impl Fn(&PageRequest<'_>) -> Option<PageAnswer> + Clone + Send + 'static,
    ) {
        let served = Arc::new(AtomicUsize::new(0));
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else { continue };
            let slot = Slot(served.clone());
            if slot.0.fetch_add(1, Ordering::Relaxed) >= SERVED_MAX {
                continue;
            }
            let (answer, port) = (answer.clone(), self.port);
            let serve = move || {
                let _slot = slot;
                // A client that sends no proper request, or does not read, gets no answer.
                let _ = serve(&answer, names, port, stream);
            };
            // Without a thread the request is dropped, and its slot with it.
            let _ = std::thread::Builder::new().name("page client".to_owned()).spawn(serve);
        }
    }
}

/// A place among the concurrent requests.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageAnswer {
    /// HTTP's status code and reason.
    pub status: &'static str,
    /// The Content-Type.
    pub kind: &'static str,
    /// The contents.
    pub body: Vec<u8>,
}

impl PageAnswer {
    /// 200 with a body of this type.
    pub fn file(kind: &'static str, body: impl Into<Vec<u8>>) -> PageAnswer {
        PageAnswer { status: "200 OK", kind, body: body.into() }
    }

    /// Creates the page of a program: `page.js` fills `main` with what it requests from `whom`.
    pub fn html(program: &str, whom: &str, main: &str) -> PageAnswer {
        let text = include_str!("page.html").replace("{program}", program).replace("{whom}", whom);
        PageAnswer::file("text/html; charset=utf-8", text.replace("{main}", main))
    }

    /// Creates the answer with a script.
    pub fn script(text: &'static str) -> PageAnswer {
        PageAnswer::file("text/javascript; charset=utf-8", text)
    }

    /// Creates the answer with a style sheet.
    fn css(text: &'static str) -> PageAnswer {
        PageAnswer::file("text/css; charset=utf-8", text)
    }

    /// Creates the answer with metrics.
    pub fn metrics(text: MetricsText) -> PageAnswer {
        PageAnswer::file("text/plain; version=0.0.4", text.0)
    }

    /// Creates the answer with a status and a sentence.
    pub fn text(status: &'static str, message: impl Display) -> PageAnswer {
        let body = format!("{message}\n").into_bytes();
        PageAnswer { status, kind: "text/plain; charset=utf-8", body }
    }
}

fn serve(
    answer: &impl Fn(&PageRequest<'_>) -> Option<PageAnswer>,
    names: &str,
    port: u16,
    mut stream: TcpStream,
) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_LIMIT))?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let head = read_head(&mut stream)?;
    let answer = match PageRequest::read(&head, port) {
        Ok(request) => common(request.path())
            .or_else(|| answer(&request))
            .unwrap_or_else(|| PageAnswer::text("404 Not Found", format_args!("available: {names}"))),
        Err(refused) => PageAnswer::text(Refused::status(refused), refused),
    };
    let PageAnswer { status, kind, body } = answer;
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nContent-Security-Policy: {POLICY}\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n\
         Connection: close\r\n\r\n"
    )?;
    stream.write_all(&body)
}

/// Returns a file that all pages load.
fn common(path: &str) -> Option<PageAnswer> {
    Some(match path {
        "/page.css" => PageAnswer::css(include_str!("page.css")),
        "/common.js" => PageAnswer::script(include_str!("common.js")),
        _ => return None,
    })
}

/// Reads the head of a request, up to the empty line or to the limit.
fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while head.len() < HEAD_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece)? {
            0 => break,
            length => head.extend_from_slice(&piece[..length]),
        }
    }
    Ok(head)
}
