//! Transfers a file over one association. Shows flow control, and that only an orderly shutdown is a success.
//!
//! ```text
//! cargo run --release -p sctp-engine --example file_transfer -- receive 127.0.0.1 COPY
//! cargo run --release -p sctp-engine --example file_transfer -- send 127.0.0.2 127.0.0.1 FILE
//! ```
//!
//! The sender keeps the send buffer full and waits for [`Event::Writable`]. If the receiver's disk is slow, the
//! receiver reads messages slowly. The receive window then closes, and the sender waits until the window opens again.
//! Only an orderly shutdown completes the file. Any other end of the association is an error.

mod udp;

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::net::IpAddr;

use sctp::{
    AssociationConfig, AssociationId, Bytes, CloseReason, Event, Ppid, SendError, SendOptions, StreamId, Time,
};
use udp::Driver;

const PORT: u16 = 5001;

/// Maximum length of a message, in bytes.
const MESSAGE: usize = 64 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", local, path] => {
            receive(Driver::bind(&[local.parse()?], AssociationConfig::default())?, &mut File::create(path)?)
        }
        ["send", local, remote, path] => send(
            Driver::bind(&[local.parse()?], AssociationConfig::default())?,
            remote.parse()?,
            &mut File::open(path)?,
        ),
        _ => Err("usage: file_transfer receive LOCAL FILE | send LOCAL REMOTE FILE".into()),
    }
}

/// Receives one file.
fn receive(mut driver: Driver, file: &mut File) -> Result<(), Box<dyn Error>> {
    let mut bytes = 0;
    loop {
        for (id, event) in driver.turn() {
            let now = driver.now();
            match event {
                Event::Incoming { .. } => driver.endpoint.accept(now, id),
                Event::Readable => {
                    while let Some(message) = driver.endpoint.recv(now, id) {
                        for piece in &message.pieces {
                            file.write_all(piece)?;
                            bytes += piece.len();
                        }
                    }
                }
                Event::Closed(CloseReason::Graceful) => {
                    println!("received {bytes} bytes");
                    return Ok(());
                }
                Event::Closed(reason) => return Err(format!("ended after {bytes} bytes: {reason:?}").into()),
                _ => {}
            }
        }
    }
}

/// A file that is being sent.
struct Outgoing<'a> {
    file: &'a mut File,
    /// Message that waits for room in the send buffer.
    waiting: Option<Bytes>,
}

impl Outgoing<'_> {
    /// Sends messages until the send buffer is full. Shuts the association down at the end of the file.
    fn fill(&mut self, driver: &mut Driver, id: AssociationId) -> Result<(), Box<dyn Error>> {
        loop {
            let message = match self.waiting.take() {
                Some(message) => message,
                None => self.read()?,
            };
            let now = driver.now();
            if message.is_empty() {
                driver.endpoint.shutdown(now, id);
                return Ok(());
            }
            let options = SendOptions::default();
            match driver.endpoint.send(now, id, StreamId(0), Ppid(0), message.clone(), options) {
                Ok(()) => {}
                // Event::Writable follows when the buffer has room again.
                Err(SendError::WouldBlock) => {
                    self.waiting = Some(message);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn read(&mut self) -> Result<Bytes, Box<dyn Error>> {
        let mut bytes = Vec::with_capacity(MESSAGE);
        self.file.take(MESSAGE as u64).read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }
}

fn send(mut driver: Driver, remote: IpAddr, file: &mut File) -> Result<(), Box<dyn Error>> {
    driver.connect(remote, PORT)?;
    let mut outgoing = Outgoing { file, waiting: None };
    loop {
        for (id, event) in driver.turn() {
            match event {
                Event::Established { .. } | Event::Writable => outgoing.fill(&mut driver, id)?,
                Event::Closed(CloseReason::Graceful) => {
                    println!("sent in {:.2} s", driver.now().since(Time::ZERO).as_secs_f64());
                    return Ok(());
                }
                Event::Closed(reason) => return Err(format!("the association ended: {reason:?}").into()),
                _ => {}
            }
        }
    }
}
