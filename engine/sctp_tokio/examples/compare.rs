//! Compares an SCTP association with a TCP connection over loopback, in one program. It measures the rate of a bulk transfer and the time
//! of a ping-pong.
//!
//! ```text
//! cargo run --release -p sctp-engine-tokio --example compare [ROUNDS]
//! ```
//!
//! Each round measures SCTP first, then TCP. The last lines show the median, the minimum and the maximum of each figure.

use std::error::Error;
use std::time::Instant;

use sctp_tokio::{ConnectOptions, Stack, StackConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Bytes of the bulk transfer.
const BULK: usize = 256 << 20;
/// Bytes of each write.
const WRITE: usize = 64 << 10;
/// Number of ping-pongs.
const PINGS: u32 = 20_000;
/// Bytes of each ping-pong message.
const PING: usize = 64;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(5), |word| word.parse())?;
    let mut figures = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        let (near, far) = associated().await?;
        let sctp = measure(near, far).await?;
        let (near, far) = connected().await?;
        let tcp = measure(near, far).await?;
        println!("SCTP {:.2} Gbit/s, {:.1} us; TCP {:.2} Gbit/s, {:.1} us", sctp.0, sctp.1, tcp.0, tcp.1);
        for (all, figure) in figures.iter_mut().zip([sctp.0, tcp.0, sctp.1, tcp.1]) {
            all.push(figure);
        }
    }
    let names = ["SCTP bulk, Gbit/s", "TCP bulk, Gbit/s", "SCTP ping-pong, us", "TCP ping-pong, us"];
    for (name, all) in names.into_iter().zip(&mut figures) {
        all.sort_by(f64::total_cmp);
        println!("{name}: {:.2} ({:.2} to {:.2})", all[all.len() / 2], all[0], all[all.len() - 1]);
    }
    Ok(())
}

/// Makes two stacks in one program, and an association between them.
async fn associated() -> Result<(sctp_tokio::SctpStream, sctp_tokio::SctpStream), sctp_tokio::Error> {
    let any_port = StackConfig { udp_port: Some(0), ..StackConfig::default() };
    let (server, client) = (Stack::open(any_port.clone())?, Stack::open(any_port)?);
    let listener = server.listen(7)?;
    let options = ConnectOptions { peer_udp_port: server.udp_port(), ..ConnectOptions::default() };
    let near = client.connect_with("127.0.0.1:7", &options).await?;
    Ok((near, listener.accept().await?))
}

async fn connected() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    near.set_nodelay(true)?;
    let (far, _) = listener.accept().await?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// Returns the bulk rate in Gbit/s, and the time of a ping-pong in microseconds.
#[allow(clippy::disallowed_methods, reason = "this program measures")]
async fn measure<S>(mut near: S, mut far: S) -> std::io::Result<(f64, f64)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let echo = tokio::spawn(async move {
        let mut room = vec![0; WRITE];
        for _ in 0..PINGS {
            far.read_exact(&mut room[..PING]).await?;
            far.write_all(&room[..PING]).await?;
        }
        let mut left = BULK;
        while left > 0 {
            left -= far.read(&mut room).await?.min(left);
        }
        far.write_all(b"!").await?;
        std::io::Result::Ok(far)
    });
    let mut room = vec![0; WRITE];
    let start = Instant::now();
    for _ in 0..PINGS {
        near.write_all(&room[..PING]).await?;
        near.read_exact(&mut room[..PING]).await?;
    }
    let ping = start.elapsed().as_secs_f64() * 1e6 / f64::from(PINGS);
    let start = Instant::now();
    for _ in 0..BULK / WRITE {
        near.write_all(&room).await?;
    }
    near.read_exact(&mut room[..1]).await?;
    let rate = BULK as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9;
    echo.await.map_err(std::io::Error::other)??;
    Ok((rate, ping))
}
