//! Sockets of two stacks in one program, on loopback.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sctp_tokio::sctp::{Limits, PathState};
use sctp_tokio::{
    AssociationConfig, CloseReason, ConnectOptions, EndpointConfig, Error, SctpListener, SctpStream,
    SendInfo, SocketEvent, Stack, StackConfig, StreamId,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PORT: u16 = 7;
/// Time limit of a test. Tests without a delay take milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

fn any_port() -> StackConfig {
    StackConfig { udp_port: Some(0), ..StackConfig::default() }
}

fn open() -> Stack {
    Stack::open(any_port()).unwrap()
}

fn to(stack: &Stack) -> ConnectOptions {
    ConnectOptions { peer_udp_port: stack.udp_port(), ..ConnectOptions::default() }
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// A server, a client and an association between them.
struct Pair {
    server: Stack,
    client: Stack,
    listener: SctpListener,
    near: SctpStream,
    far: SctpStream,
}

async fn pair() -> Pair {
    let (server, client) = (open(), open());
    let listener = server.listen(PORT).unwrap();
    let near = client.connect_with(address(PORT), &to(&server)).await.unwrap();
    let far = listener.accept().await.unwrap();
    Pair { server, client, listener, near, far }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, test).await.expect("the test ends") });
}

async fn text(stream: &SctpStream) -> String {
    String::from_utf8(stream.recv().await.unwrap().expect("a message").into_bytes().to_vec()).unwrap()
}

#[test]
fn messages_keep_their_bounds_streams_and_identifiers() {
    run(async {
        let Pair { near, far, .. } = pair().await;
        near.send("one", 0).await.unwrap();
        let info = SendInfo { stream: StreamId(3), ppid: sctp_tokio::Ppid(46), ..SendInfo::default() };
        near.send("two", info).await.unwrap();
        assert_eq!(text(&far).await, "one");
        let message = far.recv().await.unwrap().unwrap();
        assert_eq!((message.stream, message.ppid, message.len()), (StreamId(3), sctp_tokio::Ppid(46), 3));
        assert_eq!(near.peer_addr().unwrap(), address(PORT));
        assert_eq!(far.local_addr().unwrap().port(), PORT);
        assert_eq!(near.local_addr().unwrap().port(), far.peer_addr().unwrap().port());
        assert!(matches!(near.send("", 0).await, Err(Error::Send(_))));
        assert!(matches!(near.send("x", 9999).await, Err(Error::Send(_))));
    });
}

#[test]
fn a_close_delivers_all_messages_and_then_reports_the_end() {
    run(async {
        let Pair { near, far, .. } = pair().await;
        for number in 0..100 {
            near.send(number.to_string(), 0).await.unwrap();
        }
        let closing = tokio::spawn(near.close());
        for number in 0..100 {
            assert_eq!(text(&far).await, number.to_string());
        }
        assert!(far.recv().await.unwrap().is_none());
        assert!(far.send("late", 0).await.is_err());
        closing.await.unwrap().unwrap();
        assert!(far.event().await.is_none(), "it is over");
    });
}

#[test]
fn bytes_pass_as_by_tcp_in_both_directions_at_once() {
    const LENGTH: usize = 8 << 20;
    run(async {
        let Pair { near, far, .. } = pair().await;
        let bytes: Vec<u8> = (0..LENGTH).map(|n| (n % 251) as u8).collect();
        let move_all = |stream: SctpStream| {
            let sent = bytes.clone();
            tokio::spawn(async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                let writing = tokio::spawn(async move { writer.write_all(&sent).await.map(|()| writer) });
                let mut received = vec![0; LENGTH];
                reader.read_exact(&mut received).await.unwrap();
                let writer = writing.await.unwrap().unwrap();
                (received, reader.unsplit(writer))
            })
        };
        let (one, other) = (move_all(near), move_all(far));
        let (received, mut near) = one.await.unwrap();
        assert!(received == bytes);
        let (received, mut far) = other.await.unwrap();
        assert!(received == bytes);
        AsyncWriteExt::shutdown(&mut near).await.unwrap();
        assert_eq!(far.read(&mut [0; 9]).await.unwrap(), 0);
    });
}

#[test]
fn a_port_without_listener_refuses_and_a_closed_udp_port_is_unreachable() {
    run(async {
        let (server, client) = (open(), open());
        let refused = client.connect_with(address(PORT), &to(&server)).await.unwrap_err();
        assert!(matches!(refused, Error::Refused(_)), "{refused}");
        assert_eq!(std::io::Error::from(refused).kind(), std::io::ErrorKind::ConnectionRefused);
        let options = to(&server);
        drop(server);
        let refused = loop {
            // The server's task may still hold the UDP port.
            match client.connect_with(address(PORT), &options).await.unwrap_err() {
                Error::Refused(_) => tokio::task::yield_now().await,
                other => break other,
            }
        };
        assert!(matches!(refused, Error::Closed(CloseReason::Unreachable(_))), "{refused}");
        assert!(client.connect("[ff02::1]:7").await.is_err());
        let two_ports = [address(7), address(8)];
        assert!(matches!(client.connect(&two_ports[..]).await, Err(Error::Peer)));
    });
}

#[test]
fn ports_are_used_once_and_free_again_after_their_use() {
    run(async {
        let stack = open();
        let listener = stack.listen(PORT).unwrap();
        assert!(matches!(stack.listen(PORT), Err(Error::PortInUse(PORT))));
        assert!(matches!(stack.bind(PORT), Err(Error::PortInUse(PORT))));
        drop(listener);
        let many = stack.bind(PORT).unwrap();
        assert!(matches!(stack.listen(PORT), Err(Error::PortInUse(PORT))));
        drop(many);
        assert_ne!(stack.listen(0).unwrap().local_port(), 0);
    });
}

#[test]
fn one_stack_reaches_itself() {
    run(async {
        let stack = open();
        let listener = stack.listen(PORT).unwrap();
        let near = stack.connect_with(address(PORT), &to(&stack)).await.unwrap();
        let far = listener.accept().await.unwrap();
        near.send("to myself", 0).await.unwrap();
        assert_eq!(text(&far).await, "to myself");
    });
}

#[test]
fn a_full_backlog_takes_no_more_until_somebody_accepts() {
    run(async {
        let (server, client) = (open(), open());
        let listener = server.listen_with(PORT, 1).unwrap();
        let first = client.connect_with(address(PORT), &to(&server)).await.unwrap();
        let options = to(&server);
        let second = client.connect_with(address(PORT), &options);
        let mut second = Box::pin(second);
        let waiting = tokio::time::timeout(Duration::from_millis(200), second.as_mut()).await;
        assert!(waiting.is_err(), "it waits");
        let far = listener.accept().await.unwrap();
        let second = second.await.unwrap();
        second.send("second", 0).await.unwrap();
        assert_eq!(text(&listener.accept().await.unwrap()).await, "second");
        first.send("first", 0).await.unwrap();
        assert_eq!(text(&far).await, "first");
    });
}

#[test]
fn a_one_to_many_socket_serves_peers_and_one_is_peeled_off() {
    run(async {
        let (server, client) = (open(), Stack::open(StackConfig { peer_udp_port: 0, ..any_port() }).unwrap());
        let socket = server.bind(PORT).unwrap();
        let (a, b) = (
            client.connect_with(address(PORT), &to(&server)).await.unwrap(),
            client.connect_with(address(PORT), &to(&server)).await.unwrap(),
        );
        a.send("from a", 0).await.unwrap();
        b.send("from b", 0).await.unwrap();
        let (mut up, mut told) = (Vec::new(), Vec::new());
        while told.len() < 2 {
            match socket.recv().await.unwrap() {
                SocketEvent::Up { association, .. } => up.push(association),
                SocketEvent::Message { association, peer, message } => {
                    assert!(up.contains(&association), "the beginning comes first");
                    let text = String::from_utf8(message.into_bytes().to_vec()).unwrap();
                    socket.send(association, format!("to {text}"), 0).await.unwrap();
                    assert_eq!(socket.send_to(peer, "and again", 0).await.unwrap(), association);
                    told.push((association, text));
                }
                other => panic!("{other:?}"),
            }
        }
        for (stream, name) in [(&a, "from a"), (&b, "from b")] {
            assert_eq!(text(stream).await, format!("to {name}"));
            assert_eq!(text(stream).await, "and again");
        }
        let (of_a, _) = told.iter().find(|(_, text)| text == "from a").unwrap();
        a.send("unread", 0).await.unwrap();
        while server_has_unread(&socket, *of_a) == 0 {
            tokio::task::yield_now().await;
        }
        let peeled = socket.peel_off(*of_a).unwrap();
        assert!(matches!(socket.peel_off(*of_a), Err(Error::NoAssociation)));
        drop(b);
        assert!(matches!(
            socket.recv().await.unwrap(),
            SocketEvent::Over { reason: CloseReason::Graceful, association } if association != *of_a
        ));
        drop(socket);
        assert_eq!(text(&peeled).await, "unread", "it outlives the socket");
        peeled.send("still there", 0).await.unwrap();
        assert_eq!(text(&a).await, "still there");
    });
}

fn server_has_unread(socket: &sctp_tokio::SctpSocket, association: sctp_tokio::AssociationId) -> usize {
    socket.info(association).unwrap().receive_buffered
}

#[test]
fn a_one_to_many_socket_opens_associations_and_reports_failed_ones() {
    run(async {
        let server = open();
        let config = StackConfig { peer_udp_port: server.udp_port().unwrap(), ..any_port() };
        let client = Stack::open(config).unwrap();
        let (listener, socket) = (server.listen(PORT).unwrap(), client.bind(0).unwrap());
        let sent = socket.send_to(address(PORT), "hello", 2).await.unwrap();
        let far = listener.accept().await.unwrap();
        assert_eq!(text(&far).await, "hello");
        assert!(
            matches!(socket.recv().await.unwrap(), SocketEvent::Up { association, .. } if association == sent)
        );
        assert!(socket.send_to(address(9), "to nobody", 0).await.is_err());
        let SocketEvent::Over { association, reason } = socket.recv().await.unwrap() else {
            panic!("an end")
        };
        assert!(matches!(reason, CloseReason::PeerAborted(_)));
        assert!(matches!(socket.send(association, "x", 0).await, Err(Error::NoAssociation)));
    });
}

#[test]
fn dropped_streams_deliver_and_dropped_attempts_leave_nothing() {
    run(async {
        let Pair { server, client, listener, near, far } = pair().await;
        let attempt = tokio::time::timeout(
            Duration::from_millis(50),
            // No host answers at this address of a documentation network.
            client.connect("192.0.2.1:7"),
        )
        .await;
        assert!(attempt.map_or(true, |ended| ended.is_err()));
        near.send("last words", 0).await.unwrap();
        drop(near);
        assert_eq!(text(&far).await, "last words");
        assert!(far.recv().await.unwrap().is_none());
        client.wait_idle().await;
        // A drop with unread messages aborts the association, and the peer receives the ABORT.
        let near = client.connect_with(address(PORT), &to(&server)).await.unwrap();
        let far = listener.accept().await.unwrap();
        near.send("unread", 0).await.unwrap();
        while far.info().unwrap().receive_buffered == 0 {
            tokio::task::yield_now().await;
        }
        drop(far);
        assert!(matches!(near.recv().await, Err(Error::Closed(CloseReason::PeerAborted(_)))));
    });
}

#[test]
fn sockets_outlive_the_stack_and_fail_after_the_runtime_ends() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (near, far) = runtime.block_on(async {
        let Pair { near, far, .. } = pair().await;
        near.send("without stack", 0).await.unwrap();
        assert_eq!(text(&far).await, "without stack");
        (near, far)
    });
    drop(runtime);
    run(async move {
        assert!(matches!(near.send("x", 0).await, Err(Error::StackEnded)));
        assert!(matches!(far.recv().await, Err(Error::StackEnded)));
        assert!(far.event().await.is_none() && near.local_addr().is_err());
    });
}

#[test]
fn many_tasks_share_a_stream_and_no_message_is_lost_or_doubled() {
    const TASKS: u32 = 8;
    const EACH: u32 = 500;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let Pair { near, far, .. } = pair().await;
        let (near, far) = (std::sync::Arc::new(near), std::sync::Arc::new(far));
        for task in 0..TASKS {
            let near = std::sync::Arc::clone(&near);
            tokio::spawn(async move {
                for number in 0..EACH {
                    // The messages together are longer than the initial buffers.
                    let mut message = vec![0; 2000];
                    message[..4].copy_from_slice(&(task * EACH + number).to_be_bytes());
                    near.send(message, (task % 4) as u16).await.unwrap();
                }
            });
        }
        let received = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
        let readers = (0..4).map(|_| {
            let (far, received) = (std::sync::Arc::clone(&far), std::sync::Arc::clone(&received));
            tokio::spawn(async move {
                while received.lock().unwrap().len() < (TASKS * EACH) as usize {
                    let Ok(Ok(message)) = tokio::time::timeout(Duration::from_secs(1), far.recv()).await
                    else {
                        continue;
                    };
                    let bytes = message.unwrap().into_bytes();
                    assert!(
                        received.lock().unwrap().insert(u32::from_be_bytes(bytes[..4].try_into().unwrap()))
                    );
                }
            })
        });
        for reader in readers.collect::<Vec<_>>() {
            tokio::time::timeout(LIMIT, reader).await.expect("all messages arrive").unwrap();
        }
    });
}

#[test]
fn engine_commands_are_available_and_limits_are_enforced() {
    run(async {
        let limits = Limits { associations: 1, ..Limits::default() };
        let association = AssociationConfig { outbound_streams: 5, ..AssociationConfig::default() };
        let engine = EndpointConfig { limits, association, ..EndpointConfig::default() };
        let (server, client) = (open(), Stack::open(StackConfig { engine, ..any_port() }).unwrap());
        let listener = server.listen(PORT).unwrap();
        let near = client.connect_with(address(PORT), &to(&server)).await.unwrap();
        let _far = listener.accept().await.unwrap();
        assert!(matches!(client.connect_with(address(PORT), &to(&server)).await, Err(Error::Connect(_))));
        let info = near.info().unwrap();
        assert_eq!((info.outbound_streams, info.paths[0].state), (5, PathState::Active));
        let remote = info.paths[0].route.remote;
        near.with_engine(|engine, now, id| engine.set_primary(now, id, remote)).unwrap();
        let nothing = StackConfig { udp_port: None, ..StackConfig::default() };
        assert!(matches!(Stack::open(nothing), Err(Error::Settings(_))));
        let taken = StackConfig { udp_port: server.udp_port(), ..StackConfig::default() };
        let error = std::io::Error::from(Stack::open(taken).unwrap_err());
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}");
    });
}

#[test]
fn an_association_that_ends_before_it_is_accepted_keeps_its_messages() {
    run(async {
        let (server, client) = (open(), open());
        let listener = server.listen(PORT).unwrap();
        let near = client.connect_with(address(PORT), &to(&server)).await.unwrap();
        near.send("before you looked", 0).await.unwrap();
        near.close().await.unwrap();
        let far = listener.accept().await.unwrap();
        assert_eq!(text(&far).await, "before you looked");
        assert!(far.recv().await.unwrap().is_none());
        // A closed listener aborts an association that nobody has accepted.
        let near = client.connect_with(address(PORT), &to(&server)).await.unwrap();
        drop(listener);
        assert!(matches!(near.close().await, Err(Error::Closed(CloseReason::PeerAborted(_)))));
    });
}

#[test]
fn a_burst_of_twice_the_backlog_is_taken() {
    run(async {
        let (server, client) = (open(), open());
        let listener = server.listen_with(PORT, 8).unwrap();
        let options = to(&server);
        let attempts = (0..16).map(|_| {
            let (client, options) = (client.clone(), options.clone());
            tokio::spawn(async move { client.connect_with(address(PORT), &options).await })
        });
        let attempts: Vec<_> = attempts.collect();
        let accepted: Vec<_> = {
            let mut all = Vec::new();
            for _ in 0..16 {
                all.push(listener.accept().await.unwrap());
            }
            all
        };
        for attempt in attempts {
            assert!(attempt.await.unwrap().is_ok());
        }
        assert_eq!(accepted.len(), 16);
    });
}

#[test]
fn a_sender_that_waits_for_room_fails_when_the_association_shuts_down() {
    run(async {
        let Pair { near, far, .. } = pair().await;
        let (near, sent) = (std::sync::Arc::new(near), std::sync::Arc::new(AtomicUsize::new(0)));
        let fill = {
            let (near, sent) = (std::sync::Arc::clone(&near), std::sync::Arc::clone(&sent));
            tokio::spawn(async move {
                while near.send(vec![0; 60_000], 0).await.is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        // The far end reads nothing, so the buffers fill.
        let mut before = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = sent.load(Ordering::Relaxed);
            if now > 0 && now == before {
                break;
            }
            before = now;
        }
        assert!(far.info().unwrap().receive_buffered > 0);
        near.shutdown();
        fill.await.unwrap();
    });
}

#[test]
fn the_end_of_an_association_is_reported_while_another_always_has_messages() {
    run(async {
        let (server, client) = (open(), open());
        let socket = server.bind(PORT).unwrap();
        let busy = client.connect_with(address(PORT), &to(&server)).await.unwrap();
        let ends = client.connect_with(address(PORT), &to(&server)).await.unwrap();
        let sending = tokio::spawn(async move { while busy.send(vec![0; 1000], 0).await.is_ok() {} });
        while !matches!(socket.recv().await.unwrap(), SocketEvent::Message { .. }) {}
        ends.send("last", 0).await.unwrap();
        drop(ends);
        let (mut has_last, mut messages) = (false, 0);
        loop {
            match socket.recv().await.unwrap() {
                SocketEvent::Over { reason, .. } => {
                    assert!(has_last, "messages come before the end");
                    assert!(matches!(reason, CloseReason::Graceful));
                    break;
                }
                SocketEvent::Message { message, .. } => {
                    messages += 1;
                    has_last |= message.into_bytes() == "last";
                    // The reads are slow, so the busy association always has further messages.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                _ => {}
            }
        }
        assert!(messages > 1, "the other one went on");
        sending.abort();
    });
}

#[test]
fn settings_that_are_not_supported_are_refused_for_each_association() {
    run(async {
        let stack = open();
        let protection = Some(sctp_tokio::sctp::ProtectionConfig::new(1, false));
        let association = AssociationConfig { protection, ..AssociationConfig::default() };
        let options = ConnectOptions { association: Some(association), ..ConnectOptions::default() };
        assert!(matches!(stack.connect_with(address(PORT), &options).await, Err(Error::Settings(_))));
    });
}
