//! Tests of trains that carry packets without data of several associations.

use base::{Carrier, Route, Time};
use sctp::{AssociationConfig, Connect, Endpoint, EndpointConfig, Transmit};
use std::net::{IpAddr, Ipv4Addr};

/// Number of local addresses that makes an INIT longer than the minimum.
const MANY_ADDRESSES: u8 = 60;

/// Creates an endpoint with one INIT to send per entry. An entry holds the last octet of the peer's address, and the number of local
/// addresses that the INIT announces.
fn endpoint_with_inits(inits: &[(u8, u8)]) -> Endpoint {
    let mut endpoint = Endpoint::new(Time::ZERO, EndpointConfig::default(), [1; 32]);
    for (&(peer, addresses), local_port) in inits.iter().zip(1..) {
        let ours = |n: u8| IpAddr::from(Ipv4Addr::new(10, 0, 0, n));
        let carrier = Carrier::Udp { peer_port: 9899 };
        let connect = Connect {
            local_port,
            remote_port: 5001,
            init_routes: vec![Route { local: ours(1), remote: [10, 0, 1, peer].into(), carrier }],
            local_addresses: (1..=addresses).map(ours).collect(),
            config: AssociationConfig::default(),
        };
        endpoint.connect(Time::ZERO, connect).unwrap();
    }
    endpoint
}

/// Returns each train with the SCTP source ports of its packets.
fn trains(endpoint: &mut Endpoint, room: usize) -> Vec<(Transmit, Vec<u16>)> {
    let mut buf = vec![0; room];
    let mut trains = Vec::new();
    while let Some(train) = endpoint.poll_transmit(Time::ZERO, &mut buf) {
        let packets = buf[..train.len].chunks(train.segment_size);
        trains.push((train, packets.map(|packet| u16::from_be_bytes([packet[0], packet[1]])).collect()));
    }
    trains
}

fn ports(inits: &[(u8, u8)], room: usize) -> Vec<Vec<u16>> {
    trains(&mut endpoint_with_inits(inits), room).into_iter().map(|(_, ports)| ports).collect()
}

#[test]
fn inits_to_one_host_leave_as_one_train() {
    assert_eq!(ports(&[(1, 1), (1, 1), (1, 1)], 65_536), [[1, 2, 3]]);
}

#[test]
fn a_train_has_up_to_64_packets() {
    let trains = ports(&[(1, 1); 70], 65_536);
    assert_eq!(trains.iter().map(Vec::len).collect::<Vec<_>>(), [64, 6]);
}

#[test]
fn packets_for_another_host_leave_by_themselves() {
    assert_eq!(ports(&[(1, 1), (2, 1), (2, 1)], 65_536), [vec![1], vec![2, 3]]);
}

#[test]
fn a_train_ends_where_the_buffer_has_no_room_for_another_packet() {
    assert_eq!(ports(&[(1, 1), (1, 1)], 1_500), [[1], [2]]);
}

#[test]
fn of_two_packets_the_longer_goes_first() {
    let mut endpoint = endpoint_with_inits(&[(1, 1), (1, MANY_ADDRESSES)]);
    let trains = trains(&mut endpoint, 65_536);
    let (train, ports) = &trains[0];
    assert_eq!(*ports, [2, 1]);
    assert!(train.len < 2 * train.segment_size);
}

#[test]
fn a_shorter_packet_ends_its_train() {
    assert_eq!(ports(&[(1, MANY_ADDRESSES), (1, 1), (1, 1)], 65_536), [vec![1, 2], vec![3]]);
}

#[test]
fn a_packet_that_is_longer_than_those_of_the_train_goes_next() {
    assert_eq!(ports(&[(1, 1), (1, 1), (1, MANY_ADDRESSES), (1, 1)], 65_536), [vec![1, 2], vec![3, 4]]);
}
