//! The server of a measurement.
//!
//! Limits: the serving time that the operator sets, [`SERVED_MAX`] concurrent connections, and [`CONNECTION_LIMIT`] for each connection.

use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use control::{Done, Response, Transport};
use socket2::{Domain, Socket};

use super::{CONNECT, CONNECTION_LIMIT, UPLOAD, now, port_of, socket};
use crate::session::Session;
use crate::{CliError, show};

/// Limit on concurrent connections; further connections are closed at once.
const SERVED_MAX: usize = 16;
const BACKLOG: i32 = 64;
/// Interval at which the server checks whether its time has expired.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 1 << 18;

/// Serves measurements on three consecutive ports from `port`, for `seconds` seconds.
pub(crate) fn serve(session: Session<'_>, port: u16, seconds: u32) -> Result<(), CliError> {
    let served = Arc::new(AtomicUsize::new(0));
    for transport in Transport::ALL {
        match listen(transport, port_of(transport, port)) {
            Ok(listener) => {
                let served = Arc::clone(&served);
                thread::spawn(move || accept_all(&listener, &served));
            }
            Err(error) if transport == Transport::Mptcp => eprintln!("no MPTCP here: {error}"),
            Err(error) => {
                let port = port_of(transport, port);
                return Err(CliError::Failed(format!("cannot listen on port {port}: {error}; see --port")));
            }
        }
    }
    let message = format!("serving measurements on ports {port} to {} for {seconds} s", port + 2);
    session.print(&Response::Done(Done::new(message)), show::answer)?;
    let start = now();
    while start.elapsed() < Duration::from_secs(seconds.into()) {
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Listens on all addresses, of both families if the host has IPv6.
fn listen(transport: Transport, port: u16) -> io::Result<TcpListener> {
    let listen = |socket: Socket, address: SocketAddr| {
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    match socket(transport, Domain::IPV6) {
        Ok(socket) => {
            socket.set_only_v6(false)?;
            listen(socket, (Ipv6Addr::UNSPECIFIED, port).into())
        }
        Err(_) => listen(socket(transport, Domain::IPV4)?, ([0, 0, 0, 0], port).into()),
    }
}

fn accept_all(listener: &TcpListener, served: &Arc<AtomicUsize>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        if served.fetch_add(1, Ordering::Relaxed) >= SERVED_MAX {
            served.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let served = Arc::clone(served);
        thread::spawn(move || {
            // The error is ignored here, because the client reports it.
            let _ = serve_one(stream);
            served.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn serve_one(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(CONNECTION_LIMIT))?;
    stream.set_write_timeout(Some(CONNECTION_LIMIT))?;
    let mut word = [0];
    stream.read_exact(&mut word)?;
    match word[0] {
        CONNECT => stream.write_all(&word),
        UPLOAD => {
            let count = count(&mut stream)?;
            stream.write_all(&count.to_be_bytes())
        }
        _ => Ok(()),
    }
}

/// Counts the bytes until the end of the stream. Fails after [`CONNECTION_LIMIT`].
fn count(stream: &mut TcpStream) -> io::Result<u64> {
    let (start, mut count, mut buffer) = (now(), 0, vec![0; READ_BYTES]);
    while start.elapsed() < CONNECTION_LIMIT {
        match stream.read(&mut buffer)? {
            0 => return Ok(count),
            length => count += length as u64,
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}
