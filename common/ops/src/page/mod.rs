//! HTTP servers for browsers and Prometheus. One server offers the page and the metrics of a program on 127.0.0.1. Another server offers
//! the metrics to other hosts.
//!
//! The servers are read-only: they answer GET requests for a few fixed names. On 127.0.0.1, the `Host` header of a request must name this
//! host. A web page of another site therefore gets no answer, even if the site's host name resolves to 127.0.0.1 (DNS rebinding). On other
//! addresses, a request must have a token. The page loads no resources from other hosts. Invariant: a server handles a limited number of
//! requests at once, in total and from one client ([`slots`]). A client has the time [`CLIENT_LIMIT`] to send its request, and the same
//! time to read the answer. [`MetricsText`] writes metrics in the Prometheus format. Begin with [`Page::run`].
//!
//! The server on 127.0.0.1 also offers files that the pages of all programs share: `page.css`, `common.js`, and the chart library uPlot
//! (`uplot.js`, `uplot.css`). `common.js` has functions for requests, periodic redrawing, tables, paths and partial lists.
//! [`PageAnswer::html`] inserts a program's own HTML into the common page. The page loads `page.js`, which the program provides.

mod metrics;
mod request;
mod slots;

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use metrics::MetricsText;
pub use request::PageRequest;
use request::{Access, HEAD_MAX, Refused};
use rustix::system::uname;
use slots::Slots;
use socket2::{Domain, Protocol, Socket, Type};

/// Limit on the connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 128;
/// Time that a client has to send its request. The client then has the same time to read the answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);
/// Pause after an error of the listener, such as too many open files. Without a pause, the error would occur again at once.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Content security policy: the page may load style sheets and scripts only from its own server, and may send requests only to this server.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// A server, which listens on one address.
#[derive(Debug)]
pub struct Page {
    listener: TcpListener,
    access: Access,
}

impl Page {
    /// Listens on `port` of 127.0.0.1.
    ///
    /// # Errors
    /// If the port cannot be opened, for example because it is in use.
    pub fn bind(port: u16) -> io::Result<Page> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        Ok(Page { listener, access: Access::ThisHost(port) })
    }

    /// Listens on `address` for requests that have this token (RFC 6750 section 2.1). The address need not exist yet: the address of a VPN,
    /// for example, may come up later.
    ///
    /// # Errors
    /// If the port cannot be opened, for example because it is in use.
    pub fn bind_with_token(address: SocketAddr, token: &str) -> io::Result<Page> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        match address {
            SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
            SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Page { listener: socket.into(), access: Access::Bearer(token.into()) })
    }

    /// Serves requests until the process ends. `answer` handles a request, and returns `None` if the requested name does not exist. `names`
    /// lists the available names, for the answer to a request for an unknown name.
    pub fn run(
        self,
        names: &'static str,
        answer: impl Fn(&PageRequest<'_>) -> Option<PageAnswer> + Clone + Send + 'static,
    ) {
        let (slots, access) = (Slots::default(), Arc::new(self.access));
        loop {
            let Ok((stream, from)) = self.listener.accept() else {
                std::thread::sleep(ERROR_PAUSE);
                continue;
            };
            let Some(slot) = slots.take(from.ip()) else { continue };
            let (answer, access) = (answer.clone(), access.clone());
            let serve = move || {
                let _slot = slot;
                // An I/O error ends only this request. A client that sends no complete request in time causes such an error.
                let _ = serve(&answer, names, &access, Client::new(stream));
            };
            // If the thread cannot be started, the request is dropped and its slot is freed.
            let _ = std::thread::Builder::new().name("page client".to_owned()).spawn(serve);
        }
    }
}

/// A response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageAnswer {
    /// HTTP status code and reason phrase.
    pub status: &'static str,
    /// Value of the `Content-Type` header.
    pub kind: &'static str,
    /// Contents of the body.
    pub body: Vec<u8>,
}

impl PageAnswer {
    /// Creates an answer with status 200 and a body of this type.
    pub fn file(kind: &'static str, body: impl Into<Vec<u8>>) -> PageAnswer {
        PageAnswer { status: "200 OK", kind, body: body.into() }
    }

    /// Creates the page of a program. `whom` names the program that the page queries; the page shows this name until the first answer
    /// arrives. `main` is the HTML of the program's own part. `page.js` fills the elements of `main` with the answers.
    pub fn html(program: &str, whom: &str, main: &str) -> PageAnswer {
        let text = include_str!("page.html").replace("{program}", program).replace("{whom}", whom);
        let text = text.replace("{host}", &escaped(&uname().nodename().to_string_lossy()));
        PageAnswer::file("text/html; charset=utf-8", text.replace("{main}", main))
    }

    /// Creates an answer with a script.
    pub fn script(text: &'static str) -> PageAnswer {
        PageAnswer::file("text/javascript; charset=utf-8", text)
    }

    /// Creates an answer with a style sheet.
    fn css(text: &'static str) -> PageAnswer {
        PageAnswer::file("text/css; charset=utf-8", text)
    }

    /// Creates an answer with metrics.
    pub fn metrics(text: MetricsText) -> PageAnswer {
        PageAnswer::file("text/plain; version=0.0.4", text.0)
    }

    /// Creates a plain-text answer with this status and message.
    pub fn text(status: &'static str, message: impl Display) -> PageAnswer {
        let body = format!("{message}\n").into_bytes();
        PageAnswer { status, kind: "text/plain; charset=utf-8", body }
    }
}

fn serve(
    answer: &impl Fn(&PageRequest<'_>) -> Option<PageAnswer>,
    names: &str,
    access: &Access,
    mut client: Client,
) -> io::Result<()> {
    let head = read_head(&mut client)?;
    let answer = match PageRequest::read(&head, access) {
        Ok(request) => common(request.path())
            .filter(|_| access.is_page())
            .or_else(|| answer(&request))
            .unwrap_or_else(|| PageAnswer::text("404 Not Found", format_args!("available: {names}"))),
        Err(refused) => PageAnswer::text(Refused::status(refused), refused),
    };
    let PageAnswer { status, kind, body } = answer;
    let length = body.len();
    client.restart_limit();
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nContent-Security-Policy: {POLICY}\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n\
         Connection: close\r\n\r\n"
    )?;
    client.write_all(&body)
}

/// Returns a text in which HTML's characters are escaped.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns one of the files that all pages share; `None` for any other path.
fn common(path: &str) -> Option<PageAnswer> {
    Some(match path {
        "/page.css" => PageAnswer::css(include_str!("page.css")),
        "/common.js" => PageAnswer::script(include_str!("common.js")),
        "/uplot.js" => PageAnswer::script(include_str!("uplot/uPlot.iife.min.js")),
        "/uplot.css" => PageAnswer::css(include_str!("uplot/uPlot.min.css")),
        _ => return None,
    })
}

/// The connection of a client. Reads and writes fail after the deadline, so a client that sends or reads slowly loses its slot.
struct Client {
    stream: TcpStream,
    deadline: Instant,
}

impl Client {
    fn new(stream: TcpStream) -> Client {
        Client { stream, deadline: now() + CLIENT_LIMIT }
    }

    /// Starts the client's time limit again, for the answer.
    fn restart_limit(&mut self) {
        self.deadline = now() + CLIENT_LIMIT;
    }

    /// Returns the time until the deadline. Fails with `TimedOut` after the deadline.
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

/// Reads the head of a request until the empty line, or until [`HEAD_MAX`] bytes have arrived.
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
