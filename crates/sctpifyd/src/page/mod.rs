//! The web page and the metrics: what goes on, for people and for Prometheus, on 127.0.0.1 alone.
//!
//! It can be looked at and nothing else: GET of a few fixed names. A request must name this host as a browser that was
//! sent here on purpose does, so that no page from elsewhere can have its own name lead here (DNS rebinding). Nothing is
//! loaded from anywhere else. Begin with [`Page::run`]; [`metrics`] writes the numbers.

mod metrics;
mod request;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use control::{Request, Response};

use crate::control_server::Desk;
use request::{HEAD_MAX, Refused};

/// Requests served at once at most.
const SERVED_MAX: usize = 16;
/// How long a browser may take to ask, or to take the answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);
/// What the page may load and do: its own files, and ask its own host.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The listener.
pub(crate) struct Page {
    listener: TcpListener,
    desk: Desk,
    port: u16,
}

impl Page {
    /// Listens on `port` of 127.0.0.1; none where it is 0.
    pub(crate) fn bind(port: u16, desk: Desk) -> Result<Option<Page>> {
        if port == 0 {
            return Ok(None);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| {
            format!("cannot open port {port} of 127.0.0.1 for the page: see setting page_port")
        })?;
        Ok(Some(Page { listener, desk, port }))
    }

    /// Serves until the process ends.
    pub(crate) fn run(self) {
        let served = Arc::new(AtomicUsize::new(0));
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else { continue };
            let slot = Slot(served.clone());
            if slot.0.fetch_add(1, Ordering::Relaxed) >= SERVED_MAX {
                continue;
            }
            let (desk, port) = (self.desk.clone(), self.port);
            let serve = move || {
                let _slot = slot;
                if let Err(error) = serve(&desk, port, stream) {
                    tracing::debug!(%error, "a request for the page");
                }
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
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
}

fn serve(desk: &Desk, port: u16, mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_LIMIT))?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let head = read_head(&mut stream)?;
    let answer = match request::path(&head, port) {
        Ok(path) => answer(desk, path),
        Err(refused) => text(refused.status(), refused.to_string()),
    };
    let Answer { status, kind, body } = answer;
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

fn answer(desk: &Desk, path: &str) -> Answer {
    let file = |kind, body: &str| Answer { status: "200 OK", kind, body: body.into() };
    match path {
        "/" => file("text/html; charset=utf-8", include_str!("page.html")),
        "/page.css" => file("text/css; charset=utf-8", include_str!("page.css")),
        "/page.js" => file("text/javascript; charset=utf-8", include_str!("page.js")),
        "/status.json" => json(&desk.look(Request::Status)),
        "/rules.json" => json(&desk.look(Request::RulesList { chain: None, policy: None })),
        "/metrics" => match desk.look(Request::Status) {
            Response::Status(status) => file("text/plain; version=0.0.4", &metrics::write(&status)),
            _ => text("503 Service Unavailable", "the daemon is stopping or overloaded".to_owned()),
        },
        _ => text(Refused::NoSuchPath.status(), Refused::NoSuchPath.to_string()),
    }
}

/// The same line as on the control socket.
fn json(response: &Response) -> Answer {
    let mut body = Vec::new();
    match control::write_response(&mut body, response) {
        Ok(()) => Answer { status: "200 OK", kind: "application/json", body },
        Err(error) => text("500 Internal Server Error", error.to_string()),
    }
}

fn text(status: &'static str, message: String) -> Answer {
    Answer { status, kind: "text/plain; charset=utf-8", body: (message + "\n").into() }
}
