//! An echo server, and a client that sends lines of its standard input. Both hosts may have any number of network paths.
//!
//! ```text
//! cargo run -p sctp-engine-tokio --example echo -- serve 7000
//! cargo run -p sctp-engine-tokio --example echo -- ask 192.0.2.1:7000 [198.51.100.1:7000 ...]
//! ```
//!
//! Both hosts use UDP port 9899 for packets. The client prints the answers and the events of its paths. If a link fails, the association
//! continues over another link.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use sctp_tokio::{AssociationConfig, EndpointConfig, SctpStream, Stack, StackConfig, Timing};
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", port] => serve(&open()?, port.parse()?).await,
        ["ask", ref peers @ ..] if !peers.is_empty() => {
            let peers = peers.iter().map(|peer| peer.parse()).collect::<Result<Vec<SocketAddr>, _>>()?;
            ask(&open()?, &peers).await
        }
        _ => Err("usage: echo serve PORT | echo ask ADDRESS:PORT...".into()),
    }
}

/// Opens a stack that suspects a silent path after about two round trips. By default, a path is suspected only after the first
/// retransmission timeout of one second (RFC 9260 section 16).
fn open() -> Result<Stack, sctp_tokio::Error> {
    let timing = Timing {
        rto_min: Duration::from_millis(50),
        heartbeat_interval: Duration::from_secs(1),
        doubts_silence: true,
        ..Timing::default()
    };
    let association = AssociationConfig { timing, ..AssociationConfig::default() };
    let engine = EndpointConfig { association, ..EndpointConfig::default() };
    Stack::open(StackConfig { engine, ..StackConfig::default() })
}

async fn serve(stack: &Stack, port: u16) -> Result<(), Box<dyn Error>> {
    let listener = stack.listen(port)?;
    println!("listening on port {}", listener.local_port());
    loop {
        let stream = listener.accept().await?;
        tokio::spawn(async move {
            println!("an association with {:?}", stream.peer_addr());
            if let Err(error) = echo(&stream).await {
                eprintln!("{error}");
            }
        });
    }
}

async fn echo(stream: &SctpStream) -> Result<(), sctp_tokio::Error> {
    while let Some(message) = stream.recv().await? {
        let number = message.stream.0;
        stream.send(message.into_bytes(), number).await?;
    }
    Ok(())
}

async fn ask(stack: &Stack, peers: &[SocketAddr]) -> Result<(), Box<dyn Error>> {
    let stream = stack.connect(peers).await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        tokio::select! {
            line = lines.next_line() => match line? {
                Some(line) if line.is_empty() => {}
                Some(line) => stream.send(line, 0).await?,
                None => break,
            },
            message = stream.recv() => match message? {
                Some(message) => println!("{}", String::from_utf8_lossy(&message.into_bytes())),
                None => break,
            },
            Some(event) = stream.event() => println!("{event:?}"),
        }
    }
    stream.shutdown();
    while let Some(message) = stream.recv().await? {
        println!("{}", String::from_utf8_lossy(&message.into_bytes()));
    }
    Ok(stream.close().await?)
}
