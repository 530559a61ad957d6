//! Sends a message to an echo server over UDP: the smallest client and server with real sockets.
//!
//! ```text
//! cargo run -p sctp-engine --example echo_udp                                    both, on loopback
//! cargo run -p sctp-engine --example echo_udp -- serve 127.0.0.1
//! cargo run -p sctp-engine --example echo_udp -- say 127.0.0.2 127.0.0.1 hello   from, to, words
//! ```

mod udp;

use std::error::Error;
use std::net::IpAddr;

use sctp::{AssociationConfig, Bytes, CloseReason, Event, Ppid, SendOptions, StreamId};
use udp::Driver;

const ECHO_PORT: u16 = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let server = Driver::bind(&["127.0.0.1".parse()?], AssociationConfig::default())?;
            std::thread::spawn(|| serve(server));
            say(
                Driver::bind(&["127.0.0.2".parse()?], AssociationConfig::default())?,
                "127.0.0.1".parse()?,
                "hello",
            )
        }
        ["serve", local] => {
            serve(Driver::bind(&[local.parse()?], AssociationConfig::default())?);
            Ok(())
        }
        ["say", local, remote, words] => {
            say(Driver::bind(&[local.parse()?], AssociationConfig::default())?, remote.parse()?, words)
        }
        _ => Err("usage: echo_udp [serve LOCAL | say LOCAL REMOTE WORDS]".into()),
    }
}

/// Sends each message back on the stream that it arrived on.
fn serve(mut driver: Driver) {
    loop {
        for (id, event) in driver.turn() {
            let now = driver.now();
            match event {
                Event::Incoming { route, .. } => {
                    println!("server: an association with {}", route.remote);
                    driver.endpoint.accept(now, id);
                }
                Event::Readable => {
                    while let Some(message) = driver.endpoint.recv(now, id) {
                        let (stream, ppid, bytes) = (message.stream, message.ppid, message.into_bytes());
                        if let Err(error) =
                            driver.endpoint.send(now, id, stream, ppid, bytes, SendOptions::default())
                        {
                            eprintln!("server: {error}");
                        }
                    }
                }
                Event::Closed(_) => driver.endpoint.release(now, id),
                _ => {}
            }
        }
    }
}

/// Sends one message, prints the answer and shuts down.
fn say(mut driver: Driver, remote: IpAddr, words: &str) -> Result<(), Box<dyn Error>> {
    driver.connect(remote, ECHO_PORT)?;
    loop {
        for (id, event) in driver.turn() {
            let now = driver.now();
            match event {
                Event::Established { .. } => {
                    let message = Bytes::copy_from_slice(words.as_bytes());
                    driver.endpoint.send(now, id, StreamId(0), Ppid(0), message, SendOptions::default())?;
                }
                Event::Readable => {
                    while let Some(message) = driver.endpoint.recv(now, id) {
                        println!("client: {}", String::from_utf8_lossy(&message.into_bytes()));
                    }
                    driver.endpoint.shutdown(now, id);
                }
                Event::Closed(CloseReason::Graceful) => return Ok(()),
                Event::Closed(reason) => return Err(format!("the association ended: {reason:?}").into()),
                _ => {}
            }
        }
    }
}
