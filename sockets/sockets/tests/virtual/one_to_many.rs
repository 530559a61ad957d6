//! Tests of one-to-many sockets.

use std::net::Ipv4Addr;
use std::time::Duration;

use base::Time;
use bytes::Bytes;
use sockets::{Delivery, Output, Sent, SocketKey};
use sockproto::abi::{option, sinfo};
use sockproto::{DataHeader, Kind, Peer, SockAddr, flag};

use crate::world::{A, ALL_EVENTS, B, Host, PORT, USER, World, name};

/// Returns two hosts with one one-to-many socket each, and the sockets' keys.
fn pair() -> (World, [SocketKey; 2]) {
    let mut world = World::new();
    let keys = [world.hosts[0].one_to_many(PORT), world.hosts[1].one_to_many(PORT)];
    (world, keys)
}

/// Reads one message. Returns its text, the association's identifier and the peer.
fn read_one(world: &mut World, host: usize, key: SocketKey) -> (String, i32, SockAddr) {
    let now = world.now;
    let Host { sockets, engine, .. } = &mut world.hosts[host];
    let Delivery { header, peer, bytes } = sockets.next(now, engine, key).expect("a message");
    assert_eq!(header.kind, Kind::Data);
    (String::from_utf8(bytes.to_vec()).unwrap(), header.association, peer.unwrap())
}

fn ids(host: &mut Host, key: SocketKey) -> Vec<i32> {
    let list = host.get(key, option::ASSOC_ID_LIST, 64).unwrap();
    let numbers: Vec<i32> =
        list.chunks_exact(4).map(|number| i32::from_ne_bytes(number.try_into().unwrap())).collect();
    assert_eq!(host.get(key, option::ASSOC_NUMBER, 4).unwrap(), list[..4]);
    assert_eq!(usize::try_from(numbers[0]), Ok(numbers.len() - 1));
    numbers[1..].to_vec()
}

fn to(association: i32, sinfo_flags: u16) -> DataHeader {
    DataHeader { association, sinfo_flags, flags: flag::WITH_INFO, ..DataHeader::new(Kind::Data) }
}

#[test]
fn a_message_begins_an_association_and_the_answer_goes_by_its_identifier() {
    let (mut world, [a, b]) = pair();
    let now = world.now;
    assert!(!world.hosts[0].sockets.take_unfilled(a), "it is writable at once");
    for text in [&b"first"[..], b"second"] {
        assert_eq!(world.hosts[0].send_to(now, a, name(B, PORT), text), Sent::Taken);
    }
    world.settle();
    let (text, id, peer) = read_one(&mut world, 1, b);
    assert_eq!((&*text, peer), ("first", name(A, PORT)));
    assert_eq!(read_one(&mut world, 1, b), ("second".to_owned(), id, peer));
    assert_eq!(ids(&mut world.hosts[1], b), [id]);
    assert_eq!(world.hosts[1].send_with(world.now, b, &to(id, 0), None, b"answer"), Sent::Taken);
    world.settle();
    let (text, id, peer) = read_one(&mut world, 0, a);
    assert_eq!((&*text, peer), ("answer", name(B, PORT)));
    assert_eq!(ids(&mut world.hosts[0], a), [id], "one association in both directions");
    assert_eq!(world.hosts[0].send_with(world.now, a, &to(id + 1, 0), None, b"x"), Sent::Refused);
    assert_eq!(world.hosts[0].send_with(world.now, a, &to(0, 0), None, b"x"), Sent::Refused);
}

#[test]
fn notifications_name_the_association_and_its_end_leaves_the_socket() {
    let (mut world, [a, b]) = pair();
    for (host, key) in [(0, a), (1, b)] {
        world.hosts[host].set(key, option::EVENTS, &ALL_EVENTS);
    }
    world.hosts[0].connect(world.now, a, B, PORT).unwrap();
    assert_eq!(world.hosts[0].connect(world.now, a, B, PORT), Err(libc::EALREADY));
    world.settle();
    assert_eq!(world.hosts[0].connect(world.now, a, B, PORT), Err(libc::EISCONN));
    let [id] = ids(&mut world.hosts[0], a)[..] else { panic!("one association") };
    let attempted = Output::Attempted { socket: a, association: id, error: 0 };
    assert!(world.hosts[0].outputs.contains(&attempted));
    assert_eq!(
        (world.read(0, a), world.read(1, b)),
        (
            vec!["8001 state 0".into(), "8008 state 0".into()],
            vec!["8001 state 0".into(), "8008 state 0".into()]
        )
    );
    assert_eq!(world.hosts[0].send_with(world.now, a, &to(id, sinfo::EOF), None, b"last"), Sent::Taken);
    world.settle();
    assert_eq!(world.read(1, b), ["last", "8005 state 3", "8001 state 3"]);
    assert_eq!(world.read(0, a), ["8009 state 3", "8001 state 3"]);
    assert_eq!([ids(&mut world.hosts[0], a), ids(&mut world.hosts[1], b)], [vec![], vec![]]);
    assert_eq!(world.hosts[0].send_to(world.now, a, name(B, PORT), b"again"), Sent::Taken);
    world.settle();
    assert_eq!(world.read(1, b), ["8001 state 0", "8008 state 0", "again"]);
}

#[test]
fn an_abort_of_one_association_leaves_the_others() {
    let (mut world, [a, b]) = pair();
    let other = world.hosts[0].one_to_many(PORT + 1);
    for key in [a, other] {
        world.hosts[0].send_to(Time::ZERO, key, name(B, PORT), b"hello");
    }
    world.settle();
    assert_eq!(world.read(1, b), ["hello", "hello"]);
    world.hosts[1].set(b, option::EVENTS, &ALL_EVENTS);
    let [first, second] = ids(&mut world.hosts[1], b)[..] else { panic!("two associations") };
    let sent = world.hosts[1].send_with(world.now, b, &to(first, sinfo::ABORT), None, b"reason");
    assert_eq!(sent, Sent::Taken);
    world.settle();
    assert_eq!(world.read(1, b), ["8001 state 1"]);
    assert_eq!(ids(&mut world.hosts[1], b), [second]);
    assert_eq!(world.hosts[1].send_with(world.now, b, &to(second, 0), None, b"still"), Sent::Taken);
    world.settle();
    let texts: Vec<_> = [a, other].into_iter().flat_map(|key| world.read(0, key)).collect();
    assert_eq!(texts, ["still"]);
}

#[test]
fn a_message_for_all_reaches_each_peer_once() {
    let (mut world, [a, b]) = pair();
    let others: Vec<_> = (1..6).map(|n| world.hosts[0].one_to_many(PORT + n)).collect();
    let all: Vec<_> = others.iter().copied().chain([a]).collect();
    for key in &all {
        world.hosts[0].send_to(Time::ZERO, *key, name(B, PORT), b"hello");
    }
    world.settle();
    let sent = world.hosts[1].send_with(world.now, b, &to(0, sinfo::SENDALL), None, b"to all");
    assert_eq!(sent, Sent::Taken);
    world.settle();
    for key in all {
        assert_eq!(world.read(0, key), ["to all"]);
    }
}

#[test]
fn a_refused_association_is_notified_with_its_unsent_messages() {
    let mut world = World::new();
    let a = world.hosts[0].one_to_many(PORT);
    world.hosts[0].set(a, option::EVENTS, &ALL_EVENTS);
    assert_eq!(world.hosts[0].send_to(Time::ZERO, a, name(B, PORT), b"unsent"), Sent::Taken);
    world.settle();
    let now = world.now;
    let Host { sockets, engine, .. } = &mut world.hosts[0];
    let notes: Vec<_> = std::iter::from_fn(|| sockets.next(now, engine, a)).collect();
    let kinds: Vec<_> = notes.iter().map(|note| u16::from_ne_bytes([note.bytes[0], note.bytes[1]])).collect();
    assert_eq!(kinds, [0x8001, 0x8003, 0x800d]);
    assert_eq!(notes[0].bytes[8], 4, "SCTP_CANT_STR_ASSOC");
    assert_eq!((&notes[1].bytes[48..], &notes[2].bytes[32..]), (&b"unsent"[..], &b"unsent"[..]));
    assert!(ids(&mut world.hosts[0], a).is_empty());
    assert_eq!(world.hosts[0].error(a), 0, "only notifications tell of it");
}

#[test]
fn a_peeled_off_association_is_a_one_to_one_socket() {
    let (mut world, [a, b]) = pair();
    let other = world.hosts[0].one_to_many(PORT + 1);
    for key in [a, other] {
        world.hosts[0].send_to(Time::ZERO, key, name(B, PORT), b"hello");
    }
    world.settle();
    let [first, second] = ids(&mut world.hosts[1], b)[..] else { panic!("two associations") };
    assert_eq!(world.hosts[1].sockets.peel_off(b, 99), Err(libc::EINVAL));
    let peeled = world.hosts[1].sockets.peel_off(b, first).unwrap();
    assert_eq!(world.hosts[1].sockets.peel_off(b, first), Err(libc::EINVAL));
    assert_eq!(world.hosts[1].sockets.peel_off(peeled, second), Err(libc::EINVAL));
    assert_eq!(ids(&mut world.hosts[1], b), [second]);
    assert_eq!((world.read(1, peeled), world.read(1, b)), (vec!["hello".into()], vec!["hello".into()]));
    assert_eq!(world.hosts[1].sockets.peer_name(peeled), Ok(name(A, PORT)));
    assert_eq!(world.hosts[1].send(world.now, peeled, b"by itself"), Sent::Taken);
    let host = &mut world.hosts[1];
    host.sockets.close(world.now, &mut host.engine, b, false);
    world.settle();
    assert_eq!(world.read(0, a), ["by itself"]);
    world.hosts[0].send_to(world.now, a, name(B, PORT), b"back");
    world.settle();
    assert_eq!(world.read(1, peeled), ["back"], "it outlives the socket it comes from");
}

#[test]
fn an_unused_association_is_closed() {
    let (mut world, [a, b]) = pair();
    world.hosts[1].set(b, option::AUTOCLOSE, &10_u32.to_ne_bytes());
    world.hosts[0].send_to(Time::ZERO, a, name(B, PORT), b"hello");
    world.run(Duration::from_secs(7));
    assert_eq!(world.read(1, b), ["hello"]);
    world.run(Duration::from_secs(7));
    assert_eq!(ids(&mut world.hosts[1], b).len(), 1, "it was used 7 s ago");
    world.run(Duration::from_secs(7));
    assert_eq!((world.read(1, b).len(), world.read(0, a).len()), (0, 0));
    assert_eq!([ids(&mut world.hosts[0], a), ids(&mut world.hosts[1], b)], [vec![], vec![]]);
    let one_to_one = world.hosts[0].socket();
    assert_eq!(world.hosts[0].get(one_to_one, option::AUTOCLOSE, 4), Err(libc::EOPNOTSUPP));
}

#[test]
fn an_association_keeps_a_limited_number_of_messages_for_which_there_is_no_room() {
    let (mut world, [a, b]) = pair();
    let now = world.now;
    assert_eq!(world.hosts[0].send_to(now, a, name(B, PORT), b"hello"), Sent::Taken);
    world.settle();
    read_one(&mut world, 1, b);
    let [own] = ids(&mut world.hosts[0], a)[..] else { panic!("one association") };
    let Host { sockets, engine, .. } = &mut world.hosts[0];
    assert_eq!((sockets.may_peel_off(a, own + 1), sockets.may_peel_off(a, own)), (Err(libc::EINVAL), Ok(())));
    let message = Bytes::from(vec![0; 64 << 10]);
    let header = to(own, 0);
    let taken = (0..1000)
        .take_while(|_| sockets.queue_unsent(engine, a, (&header, &Peer::default()), message.clone()))
        .count();
    assert!((8 * 16..10 * 16).contains(&taken), "{taken}");
}

#[test]
fn a_peeled_off_association_is_not_closed_for_being_unused() {
    let (mut world, [a, b]) = pair();
    world.hosts[1].set(b, option::AUTOCLOSE, &10_u32.to_ne_bytes());
    world.hosts[0].send_to(Time::ZERO, a, name(B, PORT), b"hello");
    world.settle();
    let [id] = ids(&mut world.hosts[1], b)[..] else { panic!("one association") };
    let peeled = world.hosts[1].sockets.peel_off(b, id).unwrap();
    world.run(Duration::from_secs(30));
    assert_eq!(world.hosts[1].send(world.now, peeled, b"still"), Sent::Taken);
    world.settle();
    assert_eq!(world.read(0, a), ["still"]);
}

#[test]
fn a_message_for_all_waits_for_the_peer_that_does_not_read() {
    let (mut world, [a, b]) = pair();
    world.hosts[0].send_to(Time::ZERO, a, name(B, PORT), b"hello");
    world.settle();
    assert_eq!(world.read(1, b), ["hello"]);
    let long: &'static [u8] = vec![b'l'; 200_000].leak();
    let mut taken = 0;
    for _ in 0..200 {
        match world.hosts[1].send_with(world.now, b, &to(0, sinfo::SENDALL), None, long) {
            Sent::Taken => taken += 1,
            Sent::Full(_) => break,
            Sent::Refused => panic!("refused"),
        }
        world.run(Duration::from_millis(10));
    }
    assert!(taken < 200, "the sockets hold {taken} messages of a peer that reads none");
    let mut length = 0;
    for _ in 0..200 {
        length += world.hosts[0].read_bytes(world.now, a);
        world.run(Duration::from_millis(50));
    }
    assert_eq!(length, taken * long.len());
}

#[test]
fn messages_that_wait_are_delivered_although_the_program_closes() {
    let (mut world, [a, b]) = pair();
    world.hosts[0].send_to(Time::ZERO, a, name(B, PORT), b"hello");
    world.settle();
    let long: &'static [u8] = vec![b'l'; 200_000].leak();
    let mut taken = 0;
    while world.hosts[1].send_with(world.now, b, &to(0, sinfo::SENDALL), None, long) == Sent::Taken {
        taken += 1;
    }
    let host = &mut world.hosts[1];
    host.sockets.next(world.now, &mut host.engine, b).expect("a message that would be a reason for ABORT");
    host.sockets.close(world.now, &mut host.engine, b, false);
    let mut length = 0;
    for _ in 0..200 {
        length += world.hosts[0].read_bytes(world.now, a);
        world.run(Duration::from_millis(50));
    }
    assert_eq!(length, taken * long.len());
    assert!(world.hosts[1].sockets.is_empty());
}

#[test]
fn options_apply_to_future_current_all_or_single_associations() {
    let (mut world, [a, b]) = pair();
    world.hosts[0].send_to(Time::ZERO, a, name(B, PORT), b"hello");
    world.settle();
    let [id] = ids(&mut world.hosts[1], b)[..] else { panic!("one association") };
    let host = &mut world.hosts[1];
    let context = |id: i32, value: u32| [id.to_ne_bytes(), value.to_ne_bytes()].concat();
    let of = |host: &mut Host, id: i32| {
        let value = host.sockets.option(&host.engine, b, (132, option::CONTEXT), &context(id, 0))?;
        Ok(u32::from_ne_bytes(value[4..].try_into().unwrap()))
    };
    let invalid = Err(libc::EINVAL);
    assert_eq!([0, id, 77, 2].map(|id| of(host, id)), [Ok(0), Ok(0), invalid, invalid]);
    for (target, value, expected) in [(0, 1, [1, 0]), (1, 2, [1, 2]), (id, 3, [1, 3]), (2, 4, [4, 4])] {
        host.set(b, option::CONTEXT, &context(target, value));
        assert_eq!([0, id].map(|id| of(host, id).unwrap()), expected, "set for {target}");
    }
    let unknown = context(77, 1);
    let set = host.sockets.set_option(world.now, &mut host.engine, b, (132, option::CONTEXT), &unknown);
    assert_eq!(set, Err(libc::EINVAL));
    assert_eq!(host.get(b, option::STATUS, 176), Err(libc::EINVAL), "it names no association");
}

#[test]
fn a_long_message_of_one_peer_is_not_mixed_with_anothers() {
    let (mut world, [a, b]) = pair();
    let other = world.hosts[0].one_to_many(PORT + 1);
    let long: &'static [u8] = vec![b'l'; 1_000_000].leak();
    for key in [a, other] {
        world.hosts[0].send_to(world.now, key, name(B, PORT), b"hello");
    }
    world.settle();
    assert_eq!(world.read(1, b), ["hello", "hello"]);
    let mut unsent: Vec<(SocketKey, &[u8])> = [(a, long), (other, b"short".as_slice())].repeat(3);
    let (mut open, mut length, mut ended) = (None, 0, Vec::new());
    for _ in 0..400 {
        unsent.retain(|(key, text)| {
            let sent = world.hosts[0].send_to(world.now, *key, name(B, PORT), text);
            matches!(sent, Sent::Full(_))
        });
        world.run(Duration::from_millis(20));
        let now = world.now;
        let Host { sockets, engine, .. } = &mut world.hosts[1];
        while let Some(Delivery { header, bytes, .. }) = sockets.next(now, engine, b) {
            assert!(open.is_none_or(|id| id == header.association), "a message within another");
            length += bytes.len();
            open = (header.flags & flag::MORE != 0).then_some(header.association);
            if open.is_none() {
                ended.push(std::mem::take(&mut length));
            }
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [5, 5, 5, 1_000_000, 1_000_000, 1_000_000]);
}

#[test]
fn one_user_cannot_take_all_associations() {
    let config = sockets::Config { sockets_per_user: 3, ..sockets::Config::default() };
    let mut world = World::new();
    world.hosts[1].sockets = sockets::Sockets::new(config, 1);
    world.hosts[1].sockets.set_addresses(vec![B.into()]);
    let b = world.hosts[1].one_to_many(PORT);
    let keys: Vec<_> = (0..5).map(|n| world.hosts[0].one_to_many(PORT + n)).collect();
    for key in keys {
        world.hosts[0].send_to(world.now, key, name(B, PORT), b"hello");
        world.settle();
    }
    assert_eq!(ids(&mut world.hosts[1], b).len(), 2, "and the socket itself");
    let to_third = name(Ipv4Addr::new(192, 0, 2, 3), PORT);
    assert_eq!(world.hosts[1].send_to(world.now, b, to_third, b"x"), Sent::Refused);
    assert_eq!(world.hosts[1].sockets.open(libc::AF_INET, libc::SOCK_STREAM, USER), Err(libc::EMFILE));
    let host = &mut world.hosts[1];
    host.sockets.close(world.now, &mut host.engine, b, false);
    world.run(Duration::from_secs(2));
    assert!(world.hosts[1].sockets.is_empty());
}
