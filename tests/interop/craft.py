"""Packets that no well-behaved stack sends, to hear what another one answers: craft.py LOCAL REMOTE PORT CASE...

Runs on a host without SCTP in its kernel, over IP 132 with IPv4 (a raw socket: root). An SCTP server listens at
REMOTE, PORT. Each CASE is one small conversation; see the functions named case_*. It checks that the answer has the
chunk it is after, prints what came back, and exits 1 if it did not.
"""
import os
import socket
import struct
import sys
import time

DATA, INIT, INIT_ACK, SACK, HEARTBEAT, HEARTBEAT_ACK, ABORT, SHUTDOWN, SHUTDOWN_ACK, ERROR, COOKIE_ECHO, COOKIE_ACK, \
    ECNE, CWR, SHUTDOWN_COMPLETE = range(15)
NAMES = ("DATA INIT INIT_ACK SACK HEARTBEAT HEARTBEAT_ACK ABORT SHUTDOWN SHUTDOWN_ACK ERROR COOKIE_ECHO COOKIE_ACK "
         "ECNE CWR SHUTDOWN_COMPLETE").split()
OUR_TAG, OUR_TSN = 0x01020304, 1000


def table():
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        yield crc


TABLE = list(table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def padded(data):
    return data + bytes(-len(data) % 4)


def parameter(kind, data=b""):
    return padded(struct.pack("!HH", kind, 4 + len(data)) + data)


def chunk(kind, body=b"", flags=0):
    return padded(struct.pack("!BBH", kind, flags, 4 + len(body)) + body)


def init(parameters=b"", tag=OUR_TAG, streams=10):
    return chunk(INIT, struct.pack("!IIHHI", tag, 65536, streams, 10, OUR_TSN) + parameters)


def data(tsn, text, stream=0, ssn=0, flags=3):
    return chunk(DATA, struct.pack("!IHHI", tsn, stream, ssn, 0) + text, flags)


def chunks(packet):
    at = 12
    while at + 4 <= len(packet):
        kind, flags, length = struct.unpack_from("!BBH", packet, at)
        if length < 4:
            return
        yield kind, flags, packet[at + 4:at + length]
        at += length + -length % 4


class Conversation:
    """One of our ports talking to the server."""

    def __init__(self, local, remote, port):
        self.remote, self.port = remote, port
        self.source = 20000 + int.from_bytes(os.urandom(2), "big") % 40000
        self.raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, 132)
        self.raw.bind((local, 0))
        self.raw.settimeout(3)
        self.tag = self.peer_tsn = 0

    def send(self, *parts, tag=None, port=None):
        head = struct.pack("!HHI", self.source, port or self.port, self.tag if tag is None else tag)
        body = b"".join(parts)
        self.raw.sendto(head + struct.pack("<I", crc32c(head + bytes(4) + body)) + body, (self.remote, 0))

    def expect(self, wanted):
        """The body of the next chunk of type WANTED; whatever else comes is printed and passed over."""
        until = time.monotonic() + 3
        while time.monotonic() < until:
            packet = self.raw.recv(65536)
            packet = packet[(packet[0] & 15) * 4:]
            if struct.unpack_from("!H", packet, 2)[0] != self.source:
                continue
            found = None
            for kind, flags, body in chunks(packet):
                print("  <", NAMES[kind] if kind < 15 else kind, "flags %d," % flags, len(body), "octets")
                if kind == wanted and found is None:
                    found = body
            if found is not None:
                return found
        raise TimeoutError

    def start(self, parameters=b"", our_tag=OUR_TAG):
        """As far as the INIT ACK: its cookie."""
        self.send(init(parameters, our_tag), tag=0)
        ack = self.expect(INIT_ACK)
        self.tag = struct.unpack_from("!I", ack)[0]
        self.peer_tsn = struct.unpack_from("!I", ack, 12)[0]
        at = 16
        while at + 4 <= len(ack):
            kind, length = struct.unpack_from("!HH", ack, at)
            if kind == 7:
                return ack[at + 4:at + length]
            at += length + -length % 4
        raise ValueError("INIT ACK without cookie")

    def establish(self, parameters=b"", our_tag=OUR_TAG):
        self.send(chunk(COOKIE_ECHO, self.start(parameters, our_tag)))
        self.expect(COOKIE_ACK)

    def end(self):
        self.send(chunk(ABORT))


def case_ootb_data(talk):
    """DATA out of the blue: ABORT with the T bit and our tag."""
    talk.send(data(1, b"who are you"), tag=0x0A0B0C0D)
    talk.expect(ABORT)


def case_ootb_shutdown_ack(talk):
    """SHUTDOWN ACK out of the blue: SHUTDOWN COMPLETE with the T bit."""
    talk.send(chunk(SHUTDOWN_ACK), tag=0x0A0B0C0D)
    talk.expect(SHUTDOWN_COMPLETE)


def case_closed_port(talk):
    """INIT to a port where nobody listens: ABORT."""
    talk.send(init(), tag=0, port=9)
    talk.expect(ABORT)


def case_no_streams(talk):
    """INIT with no outbound stream: ABORT, invalid mandatory parameter."""
    talk.send(init(streams=0), tag=0)
    talk.expect(ABORT)


def case_unknown_parameter(talk):
    """INIT with parameters to report (0xC0DE) and to stop at (0x4242): INIT ACK with Unrecognized Parameter."""
    talk.start(parameter(0xC0DE, b"abcd") + parameter(0x4242, b"efgh"))


def case_unresolvable_address(talk):
    """INIT with a host name address: ABORT with Unresolvable Address, or another cause."""
    talk.send(init(parameter(11, b"nam.invalid\0")), tag=0)
    talk.expect(ABORT)


def case_stale_cookie(talk):
    """The cookie comes back after its life (net.sctp.valid_cookie_life, 1 s here): ERROR, stale cookie."""
    cookie = talk.start()
    time.sleep(1.6)
    talk.send(chunk(COOKIE_ECHO, cookie))
    talk.expect(ERROR)


def case_unknown_chunk(talk):
    """A chunk to report (type 0xFE): ERROR, unrecognized chunk type."""
    talk.establish()
    talk.send(chunk(0xFE, b"unknown"))
    talk.expect(ERROR)
    talk.end()


def case_invalid_stream(talk):
    """DATA on a stream that there is not: SACK, and ERROR, invalid stream identifier."""
    talk.establish()
    talk.send(data(OUR_TSN, b"x", stream=4000))
    talk.expect(ERROR)
    talk.end()


def case_no_user_data(talk):
    """DATA without user data: ABORT, no user data."""
    talk.establish()
    talk.send(data(OUR_TSN, b""))
    talk.expect(ABORT)


def case_gaps_and_duplicates(talk):
    """TSNs missing and doubled: SACK with gap blocks and duplicate TSNs. Then the gaps are filled."""
    talk.establish()
    for offset in (0, 2, 3, 5, 5, 3, 8):
        talk.send(data(OUR_TSN + offset, b"%d" % offset, ssn=offset))
    talk.expect(SACK)
    time.sleep(0.5)
    talk.send(*[data(OUR_TSN + offset, b"%d" % offset, ssn=offset) for offset in (1, 4, 6, 7)])
    time.sleep(0.5)
    talk.end()


def case_ecn(talk):
    """DATA marked with congestion experienced: ECNE, which our CWR ends."""
    talk.establish(parameter(0x8000))
    talk.raw.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 3)
    talk.send(data(OUR_TSN, b"marked"))
    talk.expect(ECNE)
    talk.raw.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 2)
    talk.send(chunk(CWR, struct.pack("!I", OUR_TSN)), data(OUR_TSN + 1, b"unmarked", ssn=1))
    time.sleep(0.3)
    talk.end()


def case_heartbeat(talk):
    """A HEARTBEAT with 100 octets of our own: they come back."""
    talk.establish()
    info = parameter(1, bytes(range(96)))
    talk.send(chunk(HEARTBEAT, info))
    if talk.expect(HEARTBEAT_ACK) != info:
        raise ValueError("the heartbeat's information came back changed")
    talk.end()


def case_restart(talk):
    """The same ports set up a second association without having ended the first: restart, with our new tag."""
    talk.establish()
    talk.send(data(OUR_TSN, b"before"))
    talk.expect(SACK)
    talk.establish(our_tag=OUR_TAG + 1)
    talk.send(data(OUR_TSN, b"after"))
    talk.expect(SACK)
    talk.end()


def case_protocol_violation(talk):
    """A SACK for TSNs never sent: ABORT, protocol violation."""
    talk.establish()
    talk.send(chunk(SACK, struct.pack("!IIHH", (talk.peer_tsn + 999) & 0xFFFFFFFF, 65536, 0, 0)))
    talk.expect(ABORT)


def case_shutdown_ack_lost(talk):
    """SHUTDOWN from us; their SHUTDOWN ACK goes unanswered once, then SHUTDOWN COMPLETE."""
    talk.establish()
    talk.send(chunk(SHUTDOWN, struct.pack("!I", (talk.peer_tsn - 1) & 0xFFFFFFFF)))
    talk.expect(SHUTDOWN_ACK)
    talk.expect(SHUTDOWN_ACK)
    talk.send(chunk(SHUTDOWN_COMPLETE))


def main():
    local, remote, port, *cases = sys.argv[1:]
    failed = 0
    for case in cases:
        print(case)
        try:
            globals()["case_" + case](Conversation(local, remote, int(port)))
        except (TimeoutError, ValueError) as error:
            print("  FAILED:", case, error or "no answer")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
