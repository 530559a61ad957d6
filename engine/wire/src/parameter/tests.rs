//! Golden octets, most of them captured from Linux, and round trips of every parameter.

use proptest::prelude::*;

use super::*;
use crate::cause::Cause;
use crate::test_support::{
    assert_golden_parameter, assert_parameter_reads_back, hex, octets, read_parameter,
};

fn octet_string() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..300)
}

#[test]
fn parameters_of_init_read_and_write() {
    let types: [u16; 2] = [6, 5];
    assert_golden_parameter("0001 0007 010203", Parameter::HeartbeatInfo(&[1, 2, 3]));
    assert_golden_parameter("0005 0008 0a3c000b", Parameter::Ipv4Address([10, 60, 0, 11].into()));
    assert_golden_parameter(
        "0006 0014 fd600000000000000000000000000011",
        Parameter::Ipv6Address("fd60::11".parse().unwrap()),
    );
    assert_golden_parameter("0007 0005 ff", Parameter::StateCookie(&[0xff]));
    assert_golden_parameter(
        "0008 000c c0de000861626364",
        Parameter::UnrecognizedParameter(&hex("c0de000861626364")),
    );
    assert_golden_parameter("0009 0008 000003e8", Parameter::CookiePreservative(1000));
    assert_golden_parameter("000b 0010 6e616d2e696e76616c696400", Parameter::HostName(b"nam.invalid\0"));
    assert_golden_parameter("000c 0008 0006 0005", Parameter::SupportedAddressTypes(List::from(&types[..])));
    assert_golden_parameter("8000 0004", Parameter::EcnCapable);
    assert_golden_parameter("c000 0004", Parameter::ForwardTsnSupported);
    assert_golden_parameter("4242 0008 65666768", Parameter::Unknown { ptype: 0x4242, value: b"efgh" });
}

#[test]
//= rfc4895#3.1-1 3.2-1 3.3-2 3.2-2
//= rfc9653#4-1
fn parameters_of_extensions_in_init_read_and_write() {
    let hmacs: [u16; 2] = [3, 1];
    assert_golden_parameter("8001 0008 00000001", Parameter::ZeroChecksumAcceptable { edmid: 1 });
    assert_golden_parameter("8002 0006 4a3e", Parameter::Random(&[0x4a, 0x3e]));
    assert_golden_parameter("8003 0005 00", Parameter::ChunkList(&[0]));
    assert_golden_parameter("8004 0008 0003 0001", Parameter::RequestedHmac(List::from(&hmacs[..])));
    assert_golden_parameter("8005 0006 0000", Parameter::Padding { len: 2 });
    let roles = KeyRoles { restart: true, server: false, client: true };
    assert_golden_parameter(
        "8006 000b 01020304 05 c801",
        Parameter::DtlsKeyManagement { tie_breaker: 0x0102_0304, roles, methods: &[0xc8, 1] },
    );
    assert_golden_parameter("8008 0005 40", Parameter::SupportedExtensions(&[64]));
    assert_golden_parameter("c006 0008 53425000", Parameter::AdaptationLayerIndication(0x5342_5000));
}

#[test]
fn parameters_of_asconf_read_and_write() {
    let address = IpAddr::from([10, 60, 1, 12]);
    let causes = [Cause::DeleteLastRemainingAddress(&hex("00050008 0a3c010c"))];
    let inside = "0005 0008 0a3c010c";
    assert_golden_parameter(
        &format!("c001 0010 00000000 {inside}"),
        Parameter::AddIp { correlation: 0, address },
    );
    assert_golden_parameter(
        &format!("c002 0010 00000001 {inside}"),
        Parameter::DelIp { correlation: 1, address },
    );
    assert_golden_parameter(
        &format!("c004 0010 00000002 {inside}"),
        Parameter::SetPrimary { correlation: 2, address },
    );
    assert_golden_parameter(
        &format!("e5c0 0018 00000005 02 03 0000 00007530 {inside}"),
        Parameter::AddressUse { correlation: 5, address, rank: 2, link: 3, heartbeat_ms: 30_000 },
    );
    assert_golden_parameter("c005 0008 00000003", Parameter::SuccessIndication { correlation: 3 });
    let bytes = hex(&format!("c003 0014 00000004 00a0 000c {inside}"));
    let parameter = Parameter::ErrorCause { correlation: 4, causes: Causes::from(&causes[..]) };
    assert_eq!(read_parameter(&bytes), Ok(parameter));
    assert_eq!(octets(|out| parameter.write(out)), bytes);
}

#[test]
//= rfc6525#4.1-1 4.2-1 4.3-1 4.4-1 4.4-2 4.5-1 4.5-2 4.6-1
fn parameters_of_re_config_read_and_write() {
    let streams = [StreamId(1)];
    let streams = List::from(&streams[..]);
    assert_golden_parameter(
        "000d 0012 9db4d6b9 49532c4a 9db4d6bc 0001",
        Parameter::OutgoingSsnReset {
            request: RequestSn(0x9db4_d6b9),
            response: RequestSn(0x4953_2c4a),
            last_tsn: Tsn(0x9db4_d6bc),
            streams,
        },
    );
    assert_golden_parameter(
        "000e 000a 9db4d6ba 0001",
        Parameter::IncomingSsnReset { request: RequestSn(0x9db4_d6ba), streams },
    );
    assert_golden_parameter("000f 0008 00000007", Parameter::SsnTsnReset { request: RequestSn(7) });
    assert_golden_parameter(
        "0010 0014 9db4d6b9 00000001 00000002 00000003",
        Parameter::ReconfigResponse {
            response: RequestSn(0x9db4_d6b9),
            result: ReconfigResult::Performed,
            next_tsns: Some((Tsn(2), Tsn(3))),
        },
    );
    assert_golden_parameter(
        "0011 000c 9db4d6bb 0003 0000",
        Parameter::AddOutgoingStreams { request: RequestSn(0x9db4_d6bb), new_streams: 3 },
    );
    assert_golden_parameter(
        "0012 000c 9db4d6bc 0002 0000",
        Parameter::AddIncomingStreams { request: RequestSn(0x9db4_d6bc), new_streams: 2 },
    );
}

#[test]
fn every_result_of_a_reconfiguration_keeps_its_number() {
    for number in (0..9).chain([u32::MAX]) {
        assert_eq!(u32::from(ReconfigResult::from(number)), number);
    }
}

#[test]
fn values_of_the_wrong_length_are_refused() {
    let wrong = [
        "0005 0007 0a3c00",
        "0005 0009 0a3c000b00",
        "0006 0008 0a3c000b",
        "0009 0007 000000",
        "000c 0005 00",
        "000d 000f 00000001 00000001 000000",
        "000d 0011 00000001 00000001 00000001 00",
        "000e 0009 00000001 00",
        "000f 0004",
        "0010 0008 00000001",
        "0010 0010 00000001 00000001 00000001",
        "0011 0008 00000001",
        "0012 0009 00000001 00",
        "8001 0006 0000",
        "8006 0009 01020304 01",
        "8004 0007 000100",
        "c001 0004",
        "c001 0008 00000001",
        "c002 000f 00000001 00050007 0a3c00",
        "c003 0006 0000",
        "c005 0007 000000",
        "c006 0004",
    ];
    for text in wrong {
        let bytes = hex(text);
        assert!(matches!(read_parameter(&bytes), Err(ParameterError::Length { .. })), "{text}");
    }
}

#[test]
fn a_change_of_something_that_is_no_address_is_refused() {
    let error = ParameterError::Unexpected { ptype: 11 };
    assert_eq!(read_parameter(&hex("c004 000c 00000001 000b0004")), Err(error));
}

#[test]
fn a_change_with_a_broken_address_inside_is_refused() {
    let bytes = hex("c004 000c 00000001 00050008");
    assert!(matches!(read_parameter(&bytes), Err(ParameterError::Frame(TlvError::Length { kind: 5, .. }))));
}

#[test]
fn a_malformed_value_does_not_hide_the_parameters_behind_it() {
    let bytes = hex("00050007 0a3c0000 80000004");
    let all: Vec<_> = Parameters::from_wire(&bytes).iter().collect();
    assert_eq!(all, [Err(ParameterError::Length { ptype: 5, length: 7 }), Ok(Parameter::EcnCapable)]);
}

#[test]
fn an_unrecognized_parameter_can_be_quoted_whole() {
    let bytes = hex("80000004 c0de0007 61626300 c0000004");
    let tlv = Parameters::from_wire(&bytes).tlvs().nth(1).unwrap().unwrap();
    assert_eq!((tlv.kind, tlv.value, tlv.bytes), (0xc0de, &b"abc"[..], &bytes[4..11]));
}

#[test]
fn a_list_made_for_sending_has_no_octets_to_quote() {
    assert_eq!(Parameters::from(&[Parameter::EcnCapable][..]).tlvs().count(), 0);
}

proptest! {
    #[test]
    fn any_octets_and_numbers_read_back(octets in octet_string(), number: u32, len in 0..2000usize) {
        for parameter in [
            Parameter::HeartbeatInfo(&octets),
            Parameter::StateCookie(&octets),
            Parameter::UnrecognizedParameter(&octets),
            Parameter::HostName(&octets),
            Parameter::Random(&octets),
            Parameter::ChunkList(&octets),
            Parameter::SupportedExtensions(&octets),
            Parameter::Unknown { ptype: 0x8abc, value: &octets },
            Parameter::CookiePreservative(number),
            Parameter::ZeroChecksumAcceptable { edmid: number },
            Parameter::SuccessIndication { correlation: number },
            Parameter::AdaptationLayerIndication(number),
            Parameter::Padding { len },
        ] {
            assert_parameter_reads_back(parameter);
        }
    }

    #[test]
    fn any_address_reads_back(address: IpAddr, correlation: u32, rank: u8, link: u8, heartbeat_ms: u32) {
        assert_parameter_reads_back(Parameter::AddressUse { correlation, address, rank, link, heartbeat_ms });
        assert_parameter_reads_back(address.into());
        assert_parameter_reads_back(Parameter::AddIp { correlation, address });
        assert_parameter_reads_back(Parameter::DelIp { correlation, address });
        assert_parameter_reads_back(Parameter::SetPrimary { correlation, address });
    }

    #[test]
    fn any_list_of_numbers_reads_back(numbers: Vec<u16>) {
        assert_parameter_reads_back(Parameter::SupportedAddressTypes(List::from(&numbers[..])));
        assert_parameter_reads_back(Parameter::RequestedHmac(List::from(&numbers[..])));
    }

    #[test]
    fn any_reconfiguration_reads_back(
        numbers: [u32; 4],
        streams: Vec<u16>,
        new_streams: u16,
        next: Option<(u32, u32)>,
    ) {
        let [request, response, last_tsn, result] = numbers;
        let (request, response, last_tsn) = (RequestSn(request), RequestSn(response), Tsn(last_tsn));
        let streams: Vec<_> = streams.into_iter().map(StreamId).collect();
        let streams = List::from(&streams[..]);
        let next_tsns = next.map(|(sender, receiver)| (Tsn(sender), Tsn(receiver)));
        for parameter in [
            Parameter::OutgoingSsnReset { request, response, last_tsn, streams },
            Parameter::IncomingSsnReset { request, streams },
            Parameter::SsnTsnReset { request },
            Parameter::ReconfigResponse { response, result: result.into(), next_tsns },
            Parameter::AddOutgoingStreams { request, new_streams },
            Parameter::AddIncomingStreams { request, new_streams },
        ] {
            assert_parameter_reads_back(parameter);
        }
    }
}
