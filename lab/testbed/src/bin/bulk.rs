//! Plain TCP program for measurements: transfers bytes for a time, measures round trips, or connects repeatedly.
//!
//!     bulk receive PORT [SECONDS]            prints "listening", then "processor MICROSECONDS" and
//!                                            "BYTES MICROSECONDS"; counts for up to SECONDS
//!     bulk send ADDRESS:PORT SECONDS SIZE    writes SIZE bytes at a time, for SECONDS; prints "processor MICROSECONDS"
//!     bulk send-now ADDRESS:PORT SECONDS SIZE  like send, with TCP_NODELAY
//!     bulk send-paced ADDRESS:PORT SECONDS SIZE MICROSECONDS  like send-now, with a write every MICROSECONDS
//!     bulk accept PORT                       prints "listening"; accepts and closes connections, forever
//!     bulk connect ADDRESS:PORT COUNT        connects COUNT times; prints the duration of each connect, in microseconds
//!     bulk race ADDRESS:PORT ADDRESS:PORT COUNT  COUNT times, connects to both at once, and closes both once they are up;
//!                                            prints the duration of the faster connect, in microseconds, and its number, 1 or 2
//!     bulk connects ADDRESS:PORT COUNT       connects and closes COUNT times; prints "COUNT MICROSECONDS"; while all ports of
//!                                            this host are in TIME-WAIT, waits until one is free
//!     bulk keep PORT                         prints "listening"; accepts and keeps all connections, forever
//!     bulk hold ADDRESS:PORT COUNT           connects COUNT times, prints "holding COUNT", and keeps all connections, forever
//!     bulk echo PORT                         prints "listening"; returns the bytes of one connection
//!     bulk ping ADDRESS:PORT COUNT SIZE [MICROSECONDS]  prints each round trip of SIZE bytes in microseconds; starts one
//!                                            every MICROSECONDS, or, by default, when the previous one has ended
//!     bulk give PORT                         prints "listening"; sends each connection the number of bytes that it requests, forever
//!     bulk fetch ADDRESS:PORT COUNT SIZE PARALLEL  makes COUNT connections, PARALLEL at a time, and requests SIZE
//!                                            bytes on each; prints "COUNT MICROSECONDS"
//!
//! The receiver's time runs from its first to its last byte. The receiver's processor time counts from the accept of
//! the connection. The program does not use SCTP.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{self, Backlog};
use nix::time::{ClockId, clock_gettime};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::thread::sleep;
use std::time::Duration;
use testbed::process::now;

/// Limit on connections that wait to be accepted: the maximum in a new network namespace (net.core.somaxconn).
const BACKLOG: i32 = 4096;
/// Size of the receiver's reads, in bytes.
const READ_BYTES: usize = 1 << 18;
/// Pause before the next attempt to get a port.
const PORT_WAIT: Duration = Duration::from_millis(100);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["receive", port] => receive(port.parse()?, Duration::MAX),
        ["receive", port, seconds] => receive(port.parse()?, Duration::from_secs_f64(seconds.parse()?)),
        ["send", to, seconds, size] => {
            send(to.parse()?, false, Duration::from_secs_f64(seconds.parse()?), size.parse()?, Duration::ZERO)
        }
        ["send-now", to, seconds, size] => {
            send(to.parse()?, true, Duration::from_secs_f64(seconds.parse()?), size.parse()?, Duration::ZERO)
        }
        ["send-paced", to, seconds, size, apart] => {
            let apart = Duration::from_micros(apart.parse()?);
            send(to.parse()?, true, Duration::from_secs_f64(seconds.parse()?), size.parse()?, apart)
        }
        ["accept", port] => accept(port.parse()?),
        ["connect", to, count] => connect(to.parse()?, count.parse()?),
        ["race", one, other, count] => race([one.parse()?, other.parse()?], count.parse()?),
        ["connects", to, count] => connects(to.parse()?, count.parse()?),
        ["keep", port] => keep(port.parse()?),
        ["hold", to, count] => hold(to.parse()?, count.parse()?),
        ["echo", port] => echo(port.parse()?),
        ["give", port] => give(port.parse()?),
        ["fetch", to, count, size, parallel] => {
            fetch(to.parse()?, count.parse()?, size.parse()?, parallel.parse()?)
        }
        ["ping", to, count, size] => ping(to.parse()?, count.parse()?, size.parse()?, Duration::ZERO),
        ["ping", to, count, size, apart] => {
            ping(to.parse()?, count.parse()?, size.parse()?, Duration::from_micros(apart.parse()?))
        }
        _ => bail!(
            "usage: bulk receive PORT [SECONDS] | send ADDRESS:PORT SECONDS SIZE | send-now ADDRESS:PORT SECONDS SIZE | \
             send-paced ADDRESS:PORT SECONDS SIZE MICROSECONDS | accept PORT \
             | connect ADDRESS:PORT COUNT | race ADDRESS:PORT ADDRESS:PORT COUNT | connects ADDRESS:PORT COUNT | keep PORT | hold ADDRESS:PORT COUNT | echo PORT | ping ADDRESS:PORT COUNT SIZE [MICROSECONDS] \
             | give PORT | fetch ADDRESS:PORT COUNT SIZE PARALLEL"
        ),
    }
}

fn listen(port: u16) -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .with_context(|| format!("cannot listen on {port}"))?;
    // With Rust's default of 128, the queue overflows if the scheduler delays the server by 5 ms. The kernel then drops
    // SYNs, and each lost SYN costs a second.
    socket::listen(&listener, Backlog::new(BACKLOG)?)?;
    println!("listening");
    Ok(listener)
}

fn receive(port: u16, time: Duration) -> Result<()> {
    let (mut stream, _) = listen(port)?.accept()?;
    let processor = processor_time()?;
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = stream.read(&mut buffer)?;
    let first = now();
    let mut last = first;
    while let n @ 1.. = stream.read(&mut buffer)? {
        bytes += n;
        last = now();
        if last.duration_since(first) >= time {
            break;
        }
    }
    tell_processor(processor)?;
    println!("{bytes} {}", last.duration_since(first).as_micros());
    Ok(())
}

/// Returns the processor time that this process has used so far.
fn processor_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).context("no clock of processor time")?.into())
}

fn tell_processor(since: Duration) -> Result<()> {
    println!("processor {}", (processor_time()? - since).as_micros());
    Ok(())
}

fn connected(to: SocketAddr) -> Result<TcpStream> {
    TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))
}

/// Connects. If all ports of this host are in TIME-WAIT, waits until a port is free.
fn connected_with_port(to: SocketAddr) -> Result<TcpStream> {
    loop {
        match TcpStream::connect(to) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => sleep(PORT_WAIT),
            connected => return connected.with_context(|| format!("cannot connect to {to}")),
        }
    }
}

fn send(to: SocketAddr, at_once: bool, time: Duration, size: usize, apart: Duration) -> Result<()> {
    let mut stream = connected(to)?;
    stream.set_nodelay(at_once)?;
    let message = vec![0; size];
    let (start, processor) = (now(), processor_time()?);
    let mut due = Duration::ZERO;
    while start.elapsed() < time {
        stream.write_all(&message)?;
        due += apart;
        sleep(due.saturating_sub(start.elapsed()));
    }
    tell_processor(processor)
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
        let stream = connected(to)?;
        println!("{}", start.elapsed().as_micros());
        drop(stream);
    }
    Ok(())
}

fn race(both: [SocketAddr; 2], count: u32) -> Result<()> {
    for _ in 0..count {
        let start_line = Barrier::new(both.len());
        let run = |to| -> Result<(Duration, TcpStream)> {
            start_line.wait();
            let start = now();
            let stream = connected(to)?;
            Ok((start.elapsed(), stream))
        };
        let run = &run;
        let [one, other] = std::thread::scope(|scope| {
            let racers = both.map(|to| scope.spawn(move || run(to)));
            racers.map(|racer| racer.join().unwrap_or_else(|_| bail!("a thread panicked")))
        });
        let (one, other) = (one?.0, other?.0);
        println!("{} {}", one.min(other).as_micros(), if one <= other { 1 } else { 2 });
    }
    Ok(())
}

fn connects(to: SocketAddr, count: u32) -> Result<()> {
    let start = now();
    for _ in 0..count {
        drop(connected_with_port(to)?);
    }
    println!("{count} {}", start.elapsed().as_micros());
    Ok(())
}

fn keep(port: u16) -> Result<()> {
    raise_descriptor_limit()?;
    let listener = listen(port)?;
    let mut kept = Vec::new();
    loop {
        kept.push(listener.accept()?);
    }
}

fn hold(to: SocketAddr, count: u32) -> Result<()> {
    raise_descriptor_limit()?;
    let held = (0..count).map(|_| connected(to)).collect::<Result<Vec<_>>>()?;
    println!("holding {}", held.len());
    loop {
        std::thread::park();
    }
}

fn raise_descriptor_limit() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit of open files")
}

fn echo(port: u16) -> Result<()> {
    let (mut stream, _) = listen(port)?.accept()?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; READ_BYTES];
    while let n @ 1.. = stream.read(&mut buffer)? {
        stream.write_all(&buffer[..n])?;
    }
    Ok(())
}

fn give(port: u16) -> Result<()> {
    let listener = listen(port)?;
    loop {
        let (stream, _) = listener.accept()?;
        std::thread::spawn(move || give_one(stream));
    }
}

/// Reads eight bytes that encode a number, and sends that number of bytes.
fn give_one(mut stream: TcpStream) -> Result<()> {
    let mut size = [0; 8];
    stream.read_exact(&mut size)?;
    let mut left = usize::try_from(u64::from_be_bytes(size))?;
    let block = vec![0; READ_BYTES.min(left)];
    while left > 0 {
        let step = left.min(block.len());
        stream.write_all(&block[..step])?;
        left -= step;
    }
    Ok(())
}

fn fetch(to: SocketAddr, count: u32, size: u64, parallel: u32) -> Result<()> {
    let start = now();
    let next = std::sync::atomic::AtomicU32::new(0);
    let fetch_some = || -> Result<()> {
        while next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < count {
            fetch_one(to, size)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..parallel).map(|_| scope.spawn(fetch_some)).collect();
        all.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")))
    })?;
    println!("{count} {}", start.elapsed().as_micros());
    Ok(())
}

fn fetch_one(to: SocketAddr, size: u64) -> Result<()> {
    let mut stream = connected(to)?;
    stream.write_all(&size.to_be_bytes())?;
    let mut buffer = vec![0; READ_BYTES];
    let mut got = 0;
    while let n @ 1.. = stream.read(&mut buffer)? {
        got += n as u64;
    }
    if got != size {
        bail!("{got} bytes instead of {size}");
    }
    Ok(())
}

fn ping(to: SocketAddr, count: u32, size: usize, apart: Duration) -> Result<()> {
    let mut stream = connected(to)?;
    stream.set_nodelay(true)?;
    let mut message = vec![0; size];
    let mut round_trips = Vec::new();
    for _ in 0..count {
        let start = now();
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        round_trips.push(start.elapsed());
        sleep(apart.saturating_sub(start.elapsed()));
    }
    for time in round_trips {
        println!("{:.1}", time.as_secs_f64() * 1e6);
    }
    Ok(())
}
