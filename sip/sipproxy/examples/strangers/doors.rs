//! Transports over which messages reach the proxy.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use peer::options::{CarrierKind, Mode, Options};
use peer::talk::Talk;

/// Time limit for an answer to OPTIONS, after which the request is repeated.
const PATIENCE: Duration = Duration::from_secs(1);
/// Limit on the transmissions of an OPTIONS request.
const QUESTIONS_MAX: u32 = 20;
/// Messages per TCP connection. The number is small, because a mutated message may make all later messages of its connection unreadable.
const OF_A_CONNECTION: usize = 4;

/// A transport to the proxy.
pub(crate) trait Door {
    fn name(&self) -> &'static str;

    /// Sends messages, and returns once the proxy has read them or closed the connection.
    fn send(&mut self, messages: &[Vec<u8>]) -> Result<()>;
}

/// Builds an OPTIONS request that is addressed to the proxy itself.
fn question(transport: &str, local: SocketAddr, proxy: SocketAddr, number: u32) -> String {
    format!(
        "OPTIONS sip:{proxy} SIP/2.0\r\nVia: SIP/2.0/{transport} {local};rport;branch=z9hG4bKask{number}\r\n\
         Max-Forwards: 70\r\nFrom: <sip:stranger@example.org>;tag=s\r\nTo: <sip:{proxy}>\r\nCall-ID: ask{number}\r\n\
         CSeq: {number} OPTIONS\r\nContent-Length: 0\r\n\r\n"
    )
}

fn is_answer(bytes: &[u8], number: u32) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.starts_with("SIP/2.0 200 ") && text.contains(&format!("\r\nCSeq: {number} OPTIONS\r\n"))
}

/// The UDP transport.
pub(crate) struct UdpDoor {
    socket: UdpSocket,
    proxy: SocketAddr,
    number: u32,
    pub(crate) asked_again: u32,
}

impl UdpDoor {
    pub(crate) fn open(local: IpAddr, proxy: SocketAddr) -> Result<UdpDoor> {
        let socket = UdpSocket::bind((local, 0))?;
        socket.connect(proxy)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(UdpDoor { socket, proxy, number: 0, asked_again: 0 })
    }

    /// Repeats an OPTIONS request until the proxy answers, up to [`QUESTIONS_MAX`] times.
    pub(crate) fn ask(&mut self) -> Result<()> {
        self.number += 1;
        let question = question("UDP", self.socket.local_addr()?, self.proxy, self.number);
        let mut buffer = [0; 65_536];
        for asked in 0..QUESTIONS_MAX {
            self.asked_again += u32::from(asked > 0);
            self.socket.send(question.as_bytes()).context("the proxy has gone")?;
            loop {
                match self.socket.recv(&mut buffer) {
                    Ok(length) if is_answer(&buffer[..length], self.number) => return Ok(()),
                    Ok(_) => {}
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                        break;
                    }
                    Err(error) => return Err(error).context("the proxy has gone"),
                }
            }
        }
        bail!("the proxy does not answer");
    }
}

impl Door for UdpDoor {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn send(&mut self, messages: &[Vec<u8>]) -> Result<()> {
        for message in messages {
            self.socket.send(&message[..message.len().min(65_000)])?;
        }
        self.ask()
    }
}

/// The TCP transport, with a new connection for every [`OF_A_CONNECTION`] messages.
pub(crate) struct TcpDoor {
    proxy: SocketAddr,
}

impl TcpDoor {
    pub(crate) fn new(proxy: SocketAddr) -> TcpDoor {
        TcpDoor { proxy }
    }

    /// Sends messages on a new connection, and waits until the proxy closes it. If sending fails, the proxy has already closed the
    /// connection.
    fn connection(&self, messages: &[Vec<u8>]) -> Result<()> {
        let mut stream = TcpStream::connect(self.proxy)?;
        stream.set_read_timeout(Some(PATIENCE * QUESTIONS_MAX))?;
        // The proxy may close the connection after a malformed message, before it has read the later messages.
        let told = messages.iter().try_for_each(|message| stream.write_all(message));
        if told.and_then(|()| stream.shutdown(Shutdown::Write)).is_err() {
            return Ok(());
        }
        match stream.read_to_end(&mut Vec::new()) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(error).context("the proxy does not close")
            }
            _ => Ok(()),
        }
    }
}

impl Door for TcpDoor {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn send(&mut self, messages: &[Vec<u8>]) -> Result<()> {
        messages.chunks(OF_A_CONNECTION).try_for_each(|some| self.connection(some))
    }
}

/// The SCTP transport: one association.
pub(crate) struct SctpDoor {
    talk: Talk,
    local: IpAddr,
    proxy: SocketAddr,
    number: u32,
}

impl SctpDoor {
    pub(crate) fn open(local: IpAddr, proxy: SocketAddr) -> Result<SctpDoor> {
        let mode = Mode::Echo { port: proxy.port() };
        let options = Options::new(CarrierKind::Ip, vec![local], mode);
        let talk = Talk::connect(&options, proxy.ip(), proxy.port()).context("no association")?;
        Ok(SctpDoor { talk, local, proxy, number: 0 })
    }
}

impl Door for SctpDoor {
    fn name(&self) -> &'static str {
        "sctp"
    }

    fn send(&mut self, messages: &[Vec<u8>]) -> Result<()> {
        for message in messages {
            self.talk.send(&Bytes::copy_from_slice(message))?;
        }
        self.number += 1;
        let local = SocketAddr::new(self.local, self.proxy.port());
        let question = question("SCTP", local, self.proxy, self.number);
        self.talk.send(&Bytes::from(question))?;
        loop {
            let answer = self.talk.receive()?.context("the proxy ended the association")?;
            if is_answer(&answer, self.number) {
                return Ok(());
            }
        }
    }
}
