//! TLS for PostgreSQL: a connector for `tokio-postgres`, with rustls.
//!
//! The server must prove that it is the host of the URL, with a certificate from the trusted roots. This proof is also required for
//! `sslmode=require`, because encryption to an unknown peer keeps no secret. Channel binding is not used.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use stores::Roots;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// TLS configuration of connections; `None` without TLS.
#[derive(Clone)]
pub(super) struct Tls(Option<(Arc<ClientConfig>, Roots)>);

impl Tls {
    pub(super) fn none() -> Tls {
        Tls(None)
    }

    /// Reads the trusted root certificates.
    pub(super) fn with_roots(path: &Path) -> Result<Tls, String> {
        let roots = Roots::read(path)?;
        Ok(Tls(Some((roots.client_config()?, roots))))
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = TlsSocket;
    type TlsConnect = ToHost;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<ToHost> {
        Ok(ToHost { tls: self.clone(), host: host.to_owned() })
    }
}

/// Connector to a host.
pub(super) struct ToHost {
    tls: Tls,
    host: String,
}

impl ToHost {
    async fn shake_hands(self, socket: Socket) -> io::Result<TlsSocket> {
        let (config, roots) = self.tls.0.ok_or_else(|| io::Error::other("no TLS was asked for"))?;
        let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
        let connected = TlsConnector::from(config).connect(name, socket).await;
        connected.map(TlsSocket).map_err(|error| io::Error::other(roots.explain(&error)))
    }
}

impl TlsConnect<Socket> for ToHost {
    type Stream = TlsSocket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsSocket>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(self.shake_hands(socket))
    }
}

/// A socket with TLS.
pub(super) struct TlsSocket(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for TlsSocket {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
