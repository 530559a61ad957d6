"""A second implementation of sealed packets (docs/adr/0027), and a judge of the first: SCTP in Python, TLS 1.3 by OpenSSL, over UDP.

    sealed_peer.py --local ADDRESS [OPTIONS] echo PORT
    sealed_peer.py --local ADDRESS [OPTIONS] client HOST PORT COUNT SIZE

It sends the same content as the other peers and prints the same digest (tests/kernel-sctp/kernel_peer.py). The exit status is 0 only when the
association ended by SHUTDOWN, nothing was lost, and the peer broke no rule that this program checks: what may go in the clear, the form
and the numbers of records, keys that equal those of OpenSSL's exporter.
"""
import argparse
import base64
import collections
import hashlib
import os
import socket
import sys

sys.dont_write_bytecode = True                              # nothing appears beside the sources

import craft
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sealed_association import Association
from sealed_records import Violation

UDP_PORT = 9899
GROUPS = "X25519MLKEM768:X25519:P-256"
SUITES = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384"
SILENCE = 2                                                 # seconds in which nothing must come


def content(number, size):
    """Message NUMBER: the octets (NUMBER * 31 + position * 7) mod 256, as in the other peers."""
    cycle = bytes((number * 31 + position * 7) & 255 for position in range(256))
    return (cycle * (size // 256 + 1))[:size]


def key_text(key):
    return "sctpify1:" + base64.b64encode(key).decode().rstrip("=")


def private_key(path):
    """The key of a file, in PKCS #8, which is made if it is missing; without a file a new one."""
    if path and os.path.exists(path):
        with open(path, "rb") as file:
            return file.read()
    key = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    if path:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key)
    return key


def public_key(private):
    key = serialization.load_der_private_key(private, None).public_key()
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def open_udp(options):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    udp.bind((options.local, options.udp_port))
    return udp


def secure(here, options):
    """Waits for the keys, and says what was agreed on."""
    if options.alter_init:
        return expect_nothing(here)
    here.run(lambda: here.peer_key and here.send_keys, "keys")
    epoch, suite, group, protocol = here.sessions[0]
    print("peer key %s\nsuite %s, group %s, protocol %s" % (key_text(here.peer_key), suite, group, protocol.decode()))
    if options.peer_key not in (None, key_text(here.peer_key)):
        sys.exit("not the key of --peer-key")
    if options.replay:
        check_replays(here)
    return None


def expect_nothing(here):
    """Under another INIT both ends have other keys: no packet opens, and no message comes. A client finds it out by the confirmation."""
    is_refused = False
    try:
        here.run_for(SILENCE)
    except ConnectionAbortedError:
        is_refused = True
    if here.opened or here.messages:
        raise Violation("%d packets open though INIT was changed" % here.opened)
    if here.is_client and not here.send_keys:
        raise Violation("the handshake has failed before keys were made")
    if not here.is_client and (here.unopened or not is_refused):
        raise Violation("the client goes on though our keys are others")
    print("nothing was delivered: INIT was changed (%d packets did not open)" % here.unopened)
    sys.exit(0)


def check_replays(here):
    """The same sealed packet counts once; neither does one count of which a bit was changed, nor one in the clear."""
    def answers(*packets):
        before = len(here.heartbeats)
        for packet in packets:
            here.send_packet(packet)
        here.run_for(0.3)
        return len(here.heartbeats) - before

    def heartbeat(text):
        return craft.chunk(craft.HEARTBEAT, craft.parameter(1, text.ljust(8)))

    def require(count, wanted, what):
        if count != wanted:
            raise Violation("%d answers to %s, not %d" % (count, what, wanted))

    once, again, padded = here.pack(heartbeat(b"once")), here.pack(heartbeat(b"once")), here.pack(heartbeat(b"long"), padding=37)
    require(answers(once, again), 2, "two packets")
    require(answers(once, again, once), 0, "packets that were there before")
    require(answers(padded), 1, "a record with padding")
    late, early = here.pack(heartbeat(b"late")), here.pack(heartbeat(b"early"))
    require(answers(early, late, early), 2, "packets in another order")
    for at in (17, 18, 19, 20, -20):
        packet = bytearray(here.pack(heartbeat(b"changed")))
        packet[at] ^= 4
        require(answers(here.pack_unsealed(bytes(packet[12:]))), 0, "a packet changed at %d" % at)
    require(answers(here.pack_unsealed(heartbeat(b"clear"))), 0, "a packet in the clear")
    send_all_twice(here)
    print("replays, changes and packets in the clear were not taken")


def send_all_twice(here):
    """Sends each packet twice from now on. The peer must not even report a TSN that came twice."""
    send = here.send_packet

    def twice(packet):
        send(packet)
        send(packet)

    here.send_packet = twice


def echo(options, port):
    here = Association(open_udp(options), None, False, options)
    print("listening", flush=True)
    here.accept(port)
    secure(here, options)
    messages = octets = 0
    while not here.is_shut:
        here.run(lambda: here.messages or here.is_shut, "message")
        while here.messages:
            message = here.messages.popleft()
            here.send_message(message.stream, message.text, message.is_unordered)
            messages += 1
            octets += len(message.text)
            if messages == 1 and options.renew:
                here.renew()
    here.answer_shutdown()
    finish(here)
    print("echoed %d messages, %d octets" % (messages, octets), flush=True)


def client(options, host, port, count, size):
    here = Association(open_udp(options), (host, options.peer_udp_port), True, options)
    here.connect(port)
    secure(here, options)
    print("connected", flush=True)
    waiting = collections.defaultdict(list)                 # per stream: the numbers sent and not yet back
    digest = hashlib.sha256()
    sent = 0
    for back in range(count):
        while sent < count and sent - back < options.window:
            digest.update(content(sent, size))
            waiting[sent % options.streams].append(sent)
            here.send_message(sent % options.streams, content(sent, size), options.unordered)
            sent += 1
        if back == count // 2 and options.renew:
            here.renew()
        here.run(lambda: here.messages, "message")
        take_back(options, waiting, size, here.messages.popleft())
    here.shutdown()
    finish(here)
    print("%d messages of %d octets and back, sha256 %s" % (count, size, digest.hexdigest()), flush=True)


def take_back(options, waiting, size, message):
    """Ends the program unless the message is the next one of its stream (any one sent, if unordered), unchanged."""
    queue = waiting[message.stream]
    for number in queue if options.unordered else queue[:1]:
        if content(number, size) == message.text:
            return queue.remove(number)
    raise Violation("a message of stream %d came back changed or out of order" % message.stream)


def finish(here):
    if here.unopened:
        raise Violation("%d packets did not open" % here.unopened)
    if here.options.replay and here.duplicates:
        raise Violation("%d duplicates were reported: a replayed packet was taken" % here.duplicates)
    for epoch, suite, group, _ in here.sessions:
        print("epoch %d: %s, %s, exporter equal" % (epoch, suite, group))
    print("%d sealed packets opened" % here.opened)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local", required=True, metavar="ADDRESS", help="bind it")
    parser.add_argument("--udp-port", type=int, default=UDP_PORT, metavar="N")
    parser.add_argument("--peer-udp-port", type=int, default=UDP_PORT, metavar="N")
    parser.add_argument("--host-key", metavar="FILE", help="this end's private key, created if it is missing")
    parser.add_argument("--peer-key", metavar="KEY", help="the key that the other end must have")
    parser.add_argument("--groups", default=GROUPS, help="key exchanges, as OpenSSL lists them")
    parser.add_argument("--suite", default=SUITES, help="cipher suites, as OpenSSL lists them")
    parser.add_argument("--no-alpn", action="store_true", help="name no application protocol")
    parser.add_argument("--tickets", type=int, default=0, metavar="N", help="as a server of TLS, send N session tickets")
    parser.add_argument("--replay", action="store_true", help="check that packets which come again, changed or in the clear do not count")
    parser.add_argument("--renew", action="store_true", help="agree on new keys in the middle")
    parser.add_argument("--alter-init", action="store_true", help="change a bit of INIT, and check that nothing is delivered")
    parser.add_argument("--lossy", action="store_true", help="packets are lost, doubled or overtaken on the way")
    parser.add_argument("--dump", type=argparse.FileType("w"), metavar="FILE", help="write each opened packet with its keys")
    parser.add_argument("--streams", type=int, default=1, metavar="N", help="client: use N streams in turn")
    parser.add_argument("--window", type=int, default=1, metavar="N", help="client: N messages at once under way")
    parser.add_argument("--unordered", action="store_true")
    modes = parser.add_subparsers(dest="mode", required=True)
    modes.add_parser("echo").add_argument("port", type=int)
    sender = modes.add_parser("client")
    sender.add_argument("host")
    for name in ("port", "count", "size"):
        sender.add_argument(name, type=int)
    return parser.parse_args()


def main():
    options = arguments()
    options.private_key = private_key(options.host_key)
    print("own key", key_text(public_key(options.private_key)), flush=True)
    if options.mode == "echo":
        echo(options, options.port)
    else:
        client(options, options.host, options.port, options.count, options.size)


if __name__ == "__main__":
    main()
