//! Each end has two addresses. After a path fails, the conversation continues on another path.
//!
//! ```text
//! cargo run -p sctp-engine --example multihomed
//! ```
//!
//! Both ends run in this program, on loopback. After ten answers, all packets to and from the client's first address
//! are lost. The example prints the events that report the failure, and the time that each answer took.

mod udp;

use std::error::Error;
use std::time::Duration;

use sctp::{AssociationConfig, AssociationId, Bytes, Event, Ppid, SendOptions, StreamId, Timing};
use udp::Driver;

const PORT: u16 = 7;
const MESSAGES: u32 = 30;
const CUT_AFTER: u32 = 10;
/// Pause between an answer and the next message.
const PAUSE: Duration = Duration::from_millis(50);

fn main() -> Result<(), Box<dyn Error>> {
    // With the defaults of RFC 9260, a timeout takes a second or longer. These settings detect a silent path within a
    // few round trips.
    let timing = Timing { rto_min: Duration::from_millis(100), doubts_silence: true, ..Timing::default() };
    let config = AssociationConfig { timing, ..AssociationConfig::default() };
    let mut server = Driver::bind(&["127.0.1.1".parse()?, "127.0.1.2".parse()?], config.clone())?;
    std::thread::spawn(move || {
        loop {
            answer(&mut server);
        }
    });
    let mut client = Driver::bind(&["127.0.2.1".parse()?, "127.0.2.2".parse()?], config)?;
    let id = client.connect("127.0.1.1".parse()?, PORT)?;
    let mut number = 0;
    let mut asked_at = client.now();
    let mut next_at = None;
    while number < MESSAGES {
        for (_, event) in client.turn() {
            match event {
                Event::Established { route, .. } => {
                    println!("up by {} -> {}", route.local, route.remote);
                    next_at = Some(client.now());
                }
                Event::Readable => {
                    while client.endpoint.recv(client.now(), id).is_some() {
                        number += 1;
                        println!("answer {number} after {:.1?}", client.now().since(asked_at));
                        next_at = Some(client.now() + PAUSE);
                    }
                    if number == CUT_AFTER {
                        println!("the client's first address is cut off");
                        client.cut = vec!["127.0.2.1".parse()?];
                    }
                }
                Event::PathChanged { route, from, to, reason, .. } => {
                    println!("path {} -> {}: {from:?} -> {to:?} ({reason:?})", route.local, route.remote);
                }
                Event::PathSwitched { from, to, reason, .. } => {
                    println!(
                        "data moves from {} -> {} to {} -> {} ({reason:?})",
                        from.local, from.remote, to.local, to.remote
                    );
                }
                Event::Closed(reason) => return Err(format!("the association ended: {reason:?}").into()),
                _ => {}
            }
        }
        if next_at.is_some_and(|at| at <= client.now()) {
            asked_at = client.now();
            next_at = None;
            say(&mut client, id, Bytes::from_static(b"are you there?"));
        }
    }
    println!("{number} messages were answered");
    Ok(())
}

/// Handles the events of the server, which sends each message back.
fn answer(server: &mut Driver) {
    for (id, event) in server.turn() {
        let now = server.now();
        match event {
            Event::Incoming { .. } => server.endpoint.accept(now, id),
            Event::Readable => {
                while let Some(message) = server.endpoint.recv(now, id) {
                    say(server, id, message.into_bytes());
                }
            }
            Event::Closed(_) => server.endpoint.release(now, id),
            _ => {}
        }
    }
}

fn say(driver: &mut Driver, id: AssociationId, message: Bytes) {
    let now = driver.now();
    if let Err(error) = driver.endpoint.send(now, id, StreamId(0), Ppid(0), message, SendOptions::default()) {
        eprintln!("cannot send: {error}");
    }
}
