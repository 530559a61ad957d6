//! A plain TCP program for measurements: moves bytes for a time, or connects again and again.
//!
//!     bulk receive PORT                      prints "listening", then "BYTES MICROSECONDS"
//!     bulk send ADDRESS:PORT SECONDS SIZE    writes of SIZE bytes for SECONDS
//!     bulk accept PORT                       prints "listening"; accepts and closes, for ever
//!     bulk connect ADDRESS:PORT COUNT        prints how long each connect took, in microseconds
//!
//! The receiver's time runs from its first to its last byte. Knows nothing of SCTP.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use testbed::process::now;

/// Size of the receiver's reads.
const READ_BYTES: usize = 1 << 18;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["receive", port] => receive(port.parse()?),
        ["send", to, seconds, size] => {
            send(to.parse()?, Duration::from_secs_f64(seconds.parse()?), size.parse()?)
        }
        ["accept", port] => accept(port.parse()?),
        ["connect", to, count] => connect(to.parse()?, count.parse()?),
        _ => bail!(
            "usage: bulk receive PORT | send ADDRESS:PORT SECONDS SIZE | accept PORT | connect ADDRESS:PORT COUNT"
        ),
    }
}

fn listen(port: u16) -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .with_context(|| format!("cannot listen on {port}"))?;
    println!("listening");
    Ok(listener)
}

fn receive(port: u16) -> Result<()> {
    let (mut stream, _) = listen(port)?.accept()?;
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = stream.read(&mut buffer)?;
    let first = now();
    let mut last = first;
    while let n @ 1.. = stream.read(&mut buffer)? {
        bytes += n;
        last = now();
    }
    println!("{bytes} {}", last.duration_since(first).as_micros());
    Ok(())
}

fn send(to: SocketAddr, time: Duration, size: usize) -> Result<()> {
    let mut stream = TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))?;
    let message = vec![0; size];
    let start = now();
    while start.elapsed() < time {
        stream.write_all(&message)?;
    }
    Ok(())
}

fn accept(port: u16) -> Result<()> {
    let listener = listen(port)?;
    loop {
        drop(listener.accept()?);
    }
}

fn connect(to: SocketAddr, count: u32) -> Result<()> {
    for _ in 0..count {
        let start = now();
        let stream = TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))?;
        println!("{}", start.elapsed().as_micros());
        drop(stream);
    }
    Ok(())
}
