//! A listener for browsers and Prometheus on 127.0.0.1 alone: the page of a program, and its metrics.
//!
//! It can be looked at and nothing else: GET of a few fixed names. A request must name this host as a browser that was
//! sent here on purpose does, so that no page from elsewhere can have its own name lead here (DNS rebinding). Nothing is
//! loaded from anywhere else. Invariant: no more than [`SERVED_MAX`] requests are served at once, each within [`CLIENT_LIMIT`].
//! Begin with [`Page::run`]; [`MetricsText`] writes numbers as Prometheus reads them.

use std::fmt::{Display, Write as _};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::page_request::{self as request, HEAD_MAX, Refused};

/// Requests served at once at most.
const SERVED_MAX: usize = 16;
/// How long a browser may take to ask, or to take the answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);
/// What the page may load and do: its own files, and ask its own host.
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

    /// Serves until the process ends. `answer` is told the path that was asked for, and says `None` where there is nothing of that
    /// name; `names` says what there is.
    pub fn run(
        self,
        names: &'static str,
        answer: impl Fn(&str) -> Option<PageAnswer> + Clone + Send + 'static,
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
                // Who does not ask or listen properly gets no answer.
                let _ = serve(&answer, names, port, stream);
            };
            // Without a thread the request is dropped, and its slot with it.
            let _ = std::thread::Builder::new().name("page client".to_owned()).spawn(serve);
        }
    }
}

/// A request's place among those served at once.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is sent back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageAnswer {
    /// HTTP's status code and reason.
    pub status: &'static str,
    /// The Content-Type.
    pub kind: &'static str,
    /// What is shown.
    pub body: Vec<u8>,
}

impl PageAnswer {
    /// 200 with a body of this type.
    pub fn file(kind: &'static str, body: impl Into<Vec<u8>>) -> PageAnswer {
        PageAnswer { status: "200 OK", kind, body: body.into() }
    }

    /// A page of metrics.
    pub fn metrics(text: MetricsText) -> PageAnswer {
        PageAnswer::file("text/plain; version=0.0.4", text.0)
    }

    /// A status with a sentence.
    pub fn text(status: &'static str, message: impl Display) -> PageAnswer {
        let body = format!("{message}\n").into_bytes();
        PageAnswer { status, kind: "text/plain; charset=utf-8", body }
    }
}

fn serve(
    answer: &impl Fn(&str) -> Option<PageAnswer>,
    names: &str,
    port: u16,
    mut stream: TcpStream,
) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_LIMIT))?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let head = read_head(&mut stream)?;
    let answer = match request::path(&head, port) {
        Ok(path) => answer(path)
            .unwrap_or_else(|| PageAnswer::text("404 Not Found", format_args!("there are {names}"))),
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

/// What comes before the empty line, or as much as is read at most.
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

/// Numbers for Prometheus, in its text format 0.0.4.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MetricsText(pub String);

impl MetricsText {
    /// What comes before the series of a family.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A family of one series.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// A series; values of labels have no quotes, backslashes or line ends.
    pub fn series(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let _ = writeln!(self.0, "{name}{{{}}} {value}", labels.join(","));
    }
}
