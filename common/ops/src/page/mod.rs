//! Listeners for browsers and Prometheus: the page of a program and its metrics on 127.0.0.1, and its metrics for other hosts.
//!
//! They are read-only: GET of a few fixed names. On 127.0.0.1, a request must name this host as a browser that was sent here on
//! purpose does, so no foreign page can reach it under its own name (DNS rebinding). On other addresses, it must have a token.
//! Nothing is loaded from anywhere else. Invariant: a listener serves no more than [`SERVED_MAX`] requests at once, each within
//! [`CLIENT_LIMIT`]. Begin with [`Page::run`]; [`MetricsText`] writes numbers in the format that Prometheus reads.
//!
//! The files that all programs' pages share are served in addition to each program's own: `page.css`, and `common.js` with
//! requests, periodic redrawing, tables, paths, and lists shown part by part. [`PageAnswer::html`] makes the page around a
//! program's own part, and refers to `page.js`, which that program provides.

mod metrics;
mod request;

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use metrics::MetricsText;
pub use request::PageRequest;
use request::{Access, HEAD_MAX, Refused};

/// Limit on concurrent requests.
const SERVED_MAX: usize = 16;
/// Limit on the time in which a client sends its request and reads the answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);
/// Pause after an error of the listener, such as too many open files, which would otherwise occur again at once.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Content security policy: the page may load its own files, and send requests to its own host.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The listener.
#[derive(Debug)]
pub struct Page {
    listener: TcpListener,
    access: Access,
}

impl Page {
    /// Listens on `port` of 127.0.0.1.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn bind(port: u16) -> io::Result<Page> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        Ok(Page { listener, access: Access::ThisHost(port) })
    }

    /// Listens on `address` for requests with this token (RFC 6750 section 2.1).
    ///
    /// # Errors
    /// When the port is taken, or this host does not have the address.
    pub fn bind_with_token(address: SocketAddr, token: &str) -> io::Result<Page> {
        Ok(Page { listener: TcpListener::bind(address)?, access: Access::Bearer(token.into()) })
    }

    /// Serves until the process ends. `answer` gets the request, and returns `None` if nothing has that name; `names` lists the
    /// names.
    pub fn run(
        self,
        names: &'static str,
        answer: impl Fn(&PageRequest<'_>) -> Option<PageAnswer> + Clone + Send + 'static,
    ) {
        let (served, access) = (Arc::new(AtomicUsize::new(0)), Arc::new(self.access));
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else {
                std::thread::sleep(ERROR_PAUSE);
                continue;
            };
            let slot = Slot(served.clone());
            if slot.0.fetch_add(1, Ordering::Relaxed) >= SERVED_MAX {
                continue;
            }
            let (answer, access) = (answer.clone(), access.clone());
            let serve = move || {
                let _slot = slot;
                // A client that sends no proper request, or does not read, gets no answer.
                let _ = serve(&answer, names, &access, Client::new(stream));
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
    access: &Access,
    mut stream: impl Read + Write,
) -> io::Result<()> {
    let head = read_head(&mut stream)?;
    let answer = match PageRequest::read(&head, access) {
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

/// A client's connection, which fails once its time is up: a client that sends or reads byte by byte cannot hold its slot.
struct Client {
    stream: TcpStream,
    deadline: Instant,
}

impl Client {
    fn new(stream: TcpStream) -> Client {
        Client { stream, deadline: now() + CLIENT_LIMIT }
    }

    /// Returns the time until the deadline.
    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.deadline.saturating_duration_since(now());
        if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(rest)) }
    }
}

impl Read for Client {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.rest()?)?;
        self.stream.read(piece)
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.rest()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[allow(clippy::disallowed_methods, reason = "limits the time of a client of the page")]
fn now() -> Instant {
    Instant::now()
}

/// Reads the head of a request, up to the empty line or to the limit.
fn read_head(stream: &mut impl Read) -> io::Result<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_sends_byte_by_byte_does_not_hold_its_slot() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let sender = std::thread::spawn(move || {
            while slow.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let mut client = Client { stream, deadline: now() + Duration::from_millis(200) };
        assert!(read_head(&mut client).is_err(), "the head never ends");
        drop(client);
        sender.join().unwrap();
    }
}
