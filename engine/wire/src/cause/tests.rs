//! Golden octets, most of them captured from Linux, and round trips of every error cause.

use proptest::prelude::*;

use super::*;
use crate::test_support::{assert_cause_reads_back, assert_golden_cause, hex, read_cause};

#[test]
fn causes_with_a_value_of_their_own_read_and_write() {
    let missing: [u16; 1] = [7];
    assert_golden_cause("0001 0008 0fa0 0000", Cause::InvalidStreamIdentifier { stream: StreamId(4000) });
    assert_golden_cause(
        "0002 000a 00000001 0007",
        Cause::MissingMandatoryParameter { missing: List::from(&missing[..]) },
    );
    assert_golden_cause("0003 0008 00092aa7", Cause::StaleCookie { staleness: 0x0009_2aa7 });
    assert_golden_cause("0009 0008 000003e8", Cause::NoUserData { tsn: Tsn(1000) });
    assert_golden_cause("0105 0006 0003", Cause::UnsupportedHmacIdentifier { hmac_id: 3 });
}

#[test]
fn causes_without_a_value_read_and_write() {
    assert_golden_cause("0004 0004", Cause::OutOfResource);
    assert_golden_cause("0007 0004", Cause::InvalidMandatoryParameter);
    assert_golden_cause("000a 0004", Cause::CookieReceivedWhileShuttingDown);
    assert_golden_cause("00a3 0004", Cause::IllegalAsconfAck);
}

#[test]
fn causes_that_quote_octets_read_and_write() {
    let quote = &b"abc"[..];
    assert_golden_cause("0005 0007 616263", Cause::UnresolvableAddress(quote));
    assert_golden_cause("0006 0007 616263", Cause::UnrecognizedChunkType(quote));
    assert_golden_cause("0008 0007 616263", Cause::UnrecognizedParameters(quote));
    assert_golden_cause("000b 0007 616263", Cause::RestartWithNewAddresses(quote));
    assert_golden_cause("000c 0007 616263", Cause::UserInitiatedAbort(quote));
    assert_golden_cause("000d 0007 616263", Cause::ProtocolViolation(quote));
    assert_golden_cause("00a0 0007 616263", Cause::DeleteLastRemainingAddress(quote));
    assert_golden_cause("00a1 0007 616263", Cause::RefusedDueToResourceShortage(quote));
    assert_golden_cause("00a2 0007 616263", Cause::DeleteSourceAddress(quote));
    assert_golden_cause("00a4 0007 616263", Cause::RefusedNoAuthorization(quote));
    assert_golden_cause("7777 0007 616263", Cause::Unknown { code: 0x7777, value: quote });
}

#[test]
fn values_of_the_wrong_length_are_refused() {
    let wrong = [
        "0001 0005 00",
        "0002 0007 000000",
        "0002 0008 00000001",
        "0002 000a ffffffff 0007",
        "0003 0007 000000",
        "0009 0004",
        "0105 0005 00",
    ];
    for text in wrong {
        let bytes = hex(text);
        assert!(matches!(read_cause(&bytes), Err(CauseError::Length { .. })), "{text}");
    }
}

#[test]
fn causes_follow_each_other_on_multiples_of_four() {
    let causes = [Cause::UserInitiatedAbort(b"x"), Cause::OutOfResource];
    let bytes = hex("000c0005 78000000 00040004");
    assert_eq!(Causes::from_wire(&bytes), Causes::from(&causes[..]));
    assert_eq!(crate::test_support::octets(|out| Causes::from(&causes[..]).write(out)), bytes);
}

proptest! {
    #[test]
    fn any_octets_and_numbers_read_back(
        octets in proptest::collection::vec(any::<u8>(), 0..300),
        numbers: Vec<u16>,
        number: u32,
        short: u16,
    ) {
        for cause in [
            Cause::InvalidStreamIdentifier { stream: StreamId(short) },
            Cause::MissingMandatoryParameter { missing: List::from(&numbers[..]) },
            Cause::StaleCookie { staleness: number },
            Cause::UnresolvableAddress(&octets),
            Cause::UnrecognizedChunkType(&octets),
            Cause::UnrecognizedParameters(&octets),
            Cause::NoUserData { tsn: Tsn(number) },
            Cause::RestartWithNewAddresses(&octets),
            Cause::UserInitiatedAbort(&octets),
            Cause::ProtocolViolation(&octets),
            Cause::DeleteLastRemainingAddress(&octets),
            Cause::RefusedDueToResourceShortage(&octets),
            Cause::DeleteSourceAddress(&octets),
            Cause::RefusedNoAuthorization(&octets),
            Cause::UnsupportedHmacIdentifier { hmac_id: short },
            Cause::Unknown { code: short | 0x8000, value: &octets },
        ] {
            assert_cause_reads_back(cause);
        }
    }
}
