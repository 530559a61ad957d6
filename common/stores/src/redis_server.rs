//! Connects to a Redis server over TCP, TLS or a Unix socket.
//!
//! The `redis` crate encodes commands and parses values; this module supplies the stream. The TLS of the `redis` crate is not used, for two
//! reasons. First, it would read all root certificates of the system for each connection, but a confined process cannot read these files.
//! Second, it cannot explain in words why it refuses a certificate.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redis::{Client, Cmd, ConnectionAddr, ConnectionLike, Parser, RedisConnectionInfo, RedisResult, Value};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::roots::Roots;

/// Scheme of the URL of a server with TLS.
const TLS: &str = "rediss://";

/// Address of a Redis server, and the login for it.
pub struct RedisServer {
    address: ServerAddress,
    login: RedisConnectionInfo,
}

enum ServerAddress {
    Unix(PathBuf),
    Tcp { host: String, port: u16, tls: Option<Tls> },
}

struct Tls {
    config: Arc<ClientConfig>,
    roots: Roots,
}

impl RedisServer {
    /// Parses a URL: `redis://USER:PASSWORD@HOST:PORT/DB`, the same with `rediss` for TLS, or `redis+unix:///SOCKET?user=…&pass=…&db=…`.
    /// For TLS, this call also reads the root certificates from the file `roots`.
    ///
    /// # Errors
    /// A sentence about the fault in the URL or in `roots`, without the secret parts of the URL.
    pub fn new(url: &str, roots: &Path) -> Result<RedisServer, String> {
        let of_tls = url.strip_prefix(TLS);
        if of_tls.is_some_and(|rest| rest.contains('#')) {
            return Err(
                "has a `#` fragment, which has no meaning here: TLS always verifies certificates".to_owned()
            );
        }
        // The library's message might contain a secret part of the URL.
        let wrong = |_| {
            "is not a Redis URL: expected redis://USER:PASSWORD@HOST:PORT/DB, or rediss:// for TLS".to_owned()
        };
        let plain = of_tls.map_or_else(|| url.to_owned(), |rest| format!("redis://{rest}"));
        let client = Client::open(plain).map_err(wrong)?;
        let info = client.get_connection_info();
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let tls = of_tls.map(|_| Tls::new(roots)).transpose()?;
                ServerAddress::Tcp { host: host.clone(), port: *port, tls }
            }
            ConnectionAddr::Unix(path) => ServerAddress::Unix(path.clone()),
            _ => return Err(format!("is not a Redis URL: expected redis://, {TLS} or redis+unix://")),
        };
        Ok(RedisServer { address, login: info.redis_settings().clone() })
    }

    /// Returns the number of the database.
    pub fn db(&self) -> i64 {
        self.login.db()
    }

    /// Connects and logs in. `limit` applies separately to the TCP connect, and to each read and write on the connection. The limit stays
    /// in force after this call.
    ///
    /// # Errors
    /// The text of the error, without secrets.
    pub fn connect(&self, limit: Duration) -> Result<RedisConnection, String> {
        let stream = self.address.connect(limit)?;
        let mut connection =
            RedisConnection { stream, parser: Parser::new(), db: self.login.db(), is_open: true };
        let mut hello = redis::pipe();
        if let Some(password) = self.login.password() {
            let login = hello.cmd("AUTH");
            self.login.username().into_iter().for_each(|user| _ = login.arg(user));
            login.arg(password).ignore();
        }
        if self.login.db() != 0 {
            hello.cmd("SELECT").arg(self.login.db()).ignore();
        }
        if hello.is_empty() {
            return Ok(connection);
        }
        hello.exec(&mut connection).map_err(|error| error.to_string())?;
        Ok(connection)
    }
}

impl Tls {
    fn new(roots: &Path) -> Result<Tls, String> {
        let roots = Roots::read(roots)?;
        Ok(Tls { config: roots.client_config()?, roots })
    }

    fn connect(&self, host: &str, mut tcp: TcpStream) -> Result<Stream, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("`{host}` cannot be in a certificate"))?;
        let mut tls = ClientConnection::new(self.config.clone(), name).map_err(|error| error.to_string())?;
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp).map_err(|error| self.roots.explain(&error))?;
        }
        Ok(Stream::Tls(Box::new(StreamOwned::new(tls, tcp))))
    }
}

impl ServerAddress {
    fn connect(&self, limit: Duration) -> Result<Stream, String> {
        match self {
            ServerAddress::Unix(path) => connect_unix(path, limit).map(Stream::Unix).map_err(text),
            ServerAddress::Tcp { host, port, tls } => {
                let tcp = connect_tcp(host, *port, limit).map_err(text)?;
                match tls {
                    Some(tls) => tls.connect(host, tcp),
                    None => Ok(Stream::Tcp(tcp)),
                }
            }
        }
    }
}

fn connect_unix(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    Ok(stream)
}

/// Connects to the first of the host's addresses that accepts the connection. `limit` applies to each address.
fn connect_tcp(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(limit))?;
                stream.set_write_timeout(Some(limit))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn text(error: io::Error) -> String {
    error.to_string()
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn set_read_limit(&self, limit: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(tcp) => tcp.set_read_timeout(Some(limit)),
            Stream::Unix(unix) => unix.set_read_timeout(Some(limit)),
            Stream::Tls(tls) => tls.sock.set_read_timeout(Some(limit)),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(tcp) => tcp.write_all(bytes),
            Stream::Unix(unix) => unix.write_all(bytes),
            // Without the flush, written bytes could stay in the TLS session.
            Stream::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }
}

impl Read for &mut Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(tcp) => tcp.read(buffer),
            Stream::Unix(unix) => unix.read(buffer),
            Stream::Tls(tls) => tls.read(buffer),
        }
    }
}

/// A connection that executes commands of the `redis` crate. After a command has failed without an answer, all later commands fail.
/// Otherwise, a late answer would be taken for the answer to another command.
pub struct RedisConnection {
    stream: Stream,
    parser: Parser,
    db: i64,
    is_open: bool,
}

impl RedisConnection {
    /// Sets the time limit on each later read from the server. The limit must not be zero.
    ///
    /// # Errors
    /// The error of the socket, for example for a limit of zero.
    pub fn set_read_limit(&mut self, limit: Duration) -> RedisResult<()> {
        Ok(self.stream.set_read_limit(limit)?)
    }

    /// Sends a command without a wait for the answers; [`RedisConnection::receive`] returns the answers.
    ///
    /// # Errors
    /// The error of the stream, or `NotConnected` after an earlier failure.
    pub fn send(&mut self, command: &Cmd) -> RedisResult<()> {
        self.send_packed(&command.get_packed_command())
    }

    /// Returns the next message. The caller may call again after a timeout (`is_timeout`).
    ///
    /// # Errors
    /// The error of the stream, or the error that the server reports.
    pub fn receive(&mut self) -> RedisResult<Value> {
        self.parser.parse_value(&mut self.stream)?.extract_error()
    }

    fn send_packed(&mut self, bytes: &[u8]) -> RedisResult<()> {
        if !self.is_open {
            return Err(
                io::Error::new(io::ErrorKind::NotConnected, "the connection has failed before").into()
            );
        }
        let sent = self.stream.send(bytes);
        self.is_open = sent.is_ok();
        Ok(sent?)
    }

    fn answer(&mut self) -> RedisResult<Value> {
        let answer = self.parser.parse_value(&mut self.stream);
        self.is_open &= answer.is_ok();
        answer
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.send_packed(command)?;
        self.answer()
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.send_packed(commands)?;
        // The answers before `offset` only confirm that the server has queued the commands of a transaction.
        let answers = (0..offset + count).map(|_| self.answer()).collect::<RedisResult<Vec<_>>>()?;
        Ok(answers.into_iter().skip(offset).collect())
    }

    fn get_db(&self) -> i64 {
        self.db
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").exec(self).is_ok()
    }

    fn is_open(&self) -> bool {
        self.is_open
    }
}
