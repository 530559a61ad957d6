"""An SCTP peer on the sockets of a Linux kernel: kernel_peer.py [OPTIONS] echo|sink|client|send|flow ...

    echo PORT                       send every message back on the stream it came by
    sink PORT                       read everything; print the rate each second
    client HOST PORT COUNT SIZE     send COUNT messages of SIZE octets, read each back, compare every octet
    send HOST PORT COUNT SIZE       send COUNT messages of SIZE octets, and close
    flow HOST PORT SECONDS SIZE     send for a while

It prints "listening" or "connected" when it is. echo and sink serve one association at a time for ever, or one
with --once. Their exit status, and the client's, is 0 only when the association ended by SHUTDOWN with nothing lost.
usrsctp_peer.c has the same modes and the options of the first group; the second group is for captures of the
kernel's extensions.
"""
import argparse
import collections
import errno
import hashlib
import ipaddress
import os
import socket
import struct
import sys
import time

SCTP = 132
UNORDERED = 1
SNDINFO, RCVINFO = 2, 3                                     # control messages
INITMSG, NODELAY, ADAPTATION, FRAGMENT_INTERLEAVE, AUTH_CHUNK, HMAC_IDENT, AUTH_KEY, AUTH_ACTIVE_KEY = \
    2, 3, 7, 18, 21, 22, 23, 24                             # socket options
AUTO_ASCONF, RECVRCVINFO, BINDX_ADD, BINDX_REM = 30, 32, 100, 101
DEFAULT_PRINFO, ENABLE_STREAM_RESET, RESET_STREAMS, ADD_STREAMS, INTERLEAVING_SUPPORTED = 114, 118, 119, 121, 125
PR_TTL, PR_RTX = 0x10, 0x20
BUFFER = 4 << 20                                            # octets; more than the largest message
GOLDEN_KEY = b"sctpify golden key"


def sockaddr(address, port):
    ip = ipaddress.ip_address(address)
    if ip.version == 4:
        return struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, ip.packed)
    return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI16sI", port, 0, ip.packed, 0)


def open_socket(family, options):
    sock = socket.socket(family, socket.SOCK_STREAM, SCTP)
    sock.setsockopt(SCTP, INITMSG, struct.pack("HHHH", max(10, options.streams), 2048, 0, 0))
    sock.setsockopt(SCTP, NODELAY, struct.pack("i", not options.nagle))
    sock.setsockopt(SCTP, RECVRCVINFO, struct.pack("i", 1))
    for force, size in ((32, BUFFER), (33, options.rcvbuf)):  # SO_SNDBUFFORCE, SO_RCVBUFFORCE
        sock.setsockopt(socket.SOL_SOCKET, force, size)
    if options.idata:
        sock.setsockopt(SCTP, FRAGMENT_INTERLEAVE, struct.pack("i", 2))
        sock.setsockopt(SCTP, INTERLEAVING_SUPPORTED, struct.pack("iI", 0, 1))
    if options.adaptation is not None:
        sock.setsockopt(SCTP, ADAPTATION, struct.pack("I", options.adaptation))
    if options.reconf:
        sock.setsockopt(SCTP, ENABLE_STREAM_RESET, struct.pack("iI", 0, 7))
    if options.auto_asconf:
        sock.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", 0))
        sock.setsockopt(SCTP, AUTO_ASCONF, struct.pack("i", 1))
    if options.auth is not None:
        ask_for_auth(sock, options)
    policy, value = limit(options)
    if policy:
        sock.setsockopt(SCTP, DEFAULT_PRINFO, struct.pack("iIH2x", 0, value, policy))
    return sock


def limit(options):
    """The policy of partial reliability, and its value."""
    if options.pr_ttl is not None:
        return PR_TTL, options.pr_ttl
    return (0, 0) if options.pr_rtx is None else (PR_RTX, options.pr_rtx)


def ask_for_auth(sock, options):
    """DATA only in packets with AUTH, under the known key number 1."""
    sock.setsockopt(SCTP, AUTH_CHUNK, struct.pack("B", 64 if options.idata else 0))
    idents = [options.auth, 1] if options.auth != 1 else [1]
    sock.setsockopt(SCTP, HMAC_IDENT, struct.pack("I%dH" % len(idents), len(idents), *idents))
    sock.setsockopt(SCTP, AUTH_KEY, struct.pack("iHH", 0, 1, len(GOLDEN_KEY)) + GOLDEN_KEY)
    sock.setsockopt(SCTP, AUTH_ACTIVE_KEY, struct.pack("iH2x", 0, 1))


def bind(sock, addresses, port):
    for address in addresses:
        sock.setsockopt(SCTP, BINDX_ADD, sockaddr(address, port))


def send(sock, message, stream, unordered, policy=0):
    info = struct.pack("HHIIi", stream, policy | (UNORDERED if unordered else 0), 0, 0, 0)
    sock.sendmsg([message], [(SCTP, SNDINFO, info)])


def receive(sock):
    """One whole message: (octets, stream, unordered), or None at the association's end."""
    message = b""
    while True:
        part, control, flags, _ = sock.recvmsg(1 << 20, 256)
        if not part:
            return None
        message += part
        if flags & socket.MSG_EOR:
            for level, kind, data in control:
                if level == SCTP and kind == RCVINFO:
                    stream, _, received_flags = struct.unpack_from("HHH", data)
                    return message, stream, bool(received_flags & UNORDERED)
            return message, 0, False


def serve(options, port, handle):
    family = socket.AF_INET if options.local and ":" not in options.local[0] else socket.AF_INET6
    listener = open_socket(family, options)
    if options.local:
        bind(listener, options.local, port)
    else:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", port))
    listener.listen(5)
    print("listening", flush=True)
    while True:
        conn = listener.accept()[0]
        failed = None
        with conn:
            try:
                handle(options, conn)
            except OSError as error:
                failed = error
                print(error, flush=True)
        if options.once:
            return 1 if failed else 0


def echo(options, conn):
    count = total = 0
    while got := receive(conn):
        send(conn, *got)
        count += 1
        total += len(got[0])
    print("echoed %d messages, %d octets" % (count, total), flush=True)


def sink(options, conn):
    time.sleep(options.stall)
    start = last = time.monotonic()
    count = messages = total = 0
    digest = hashlib.sha256()
    numbers = []                                              # each times 31 is what the message begins with, modulo 256
    while got := receive(conn):
        digest.update(got[0])
        numbers.append(got[0][0] * 223 % 256)
        messages += 1
        total += len(got[0])
        count += len(got[0])
        if (now := time.monotonic()) - last >= 1:
            print("%.0f s: %.1f Mbit/s" % (now - start, count * 8e-6 / (now - last)), flush=True)
            last, count = now, 0
    print("received %d messages, %d octets, sha256 %s" % (messages, total, digest.hexdigest()), flush=True)
    print("numbers", *numbers[:256], flush=True)


def connect(options, host, port):
    sock = open_socket(socket.AF_INET6 if ":" in host else socket.AF_INET, options)
    bind(sock, options.local, options.bind_port)
    if not options.local and options.bind_port:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("", options.bind_port))
    sock.connect((host, port))
    print("connected", flush=True)
    return sock


def content(number, size):
    """Message NUMBER: the octets (NUMBER * 31 + position * 7) mod 256, as in the other peers."""
    cycle = bytes((number * 31 + position * 7) & 255 for position in range(256))
    return (cycle * (size // 256 + 1))[:size]


def client(options, host, port, count, size):
    sock = connect(options, host, port)
    start = time.monotonic()
    waiting = collections.defaultdict(collections.deque)      # per stream: the numbers sent and not yet back
    digest = hashlib.sha256()
    sent = back = longest = 0
    last = start
    while back < count:
        while sent < count and sent - back < options.window:
            stream = sent % options.streams
            message = content(sent, size)
            time.sleep(options.gap)
            send(sock, message, stream, options.unordered)
            digest.update(message)
            waiting[stream].append(sent)
            sent += 1
        got = receive(sock)
        if not got:
            sys.exit("closed after %d messages" % back)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
        take_back(options, waiting, size, *got)
        back += 1
    before_end(options, sock)
    print("%d messages of %d octets and back in %.2f s, longest silence %.3f s, sha256 %s" %
          (count, size, time.monotonic() - start, longest, digest.hexdigest()))
    return end(options, sock)


def take_back(options, waiting, size, message, stream, unordered):
    """Ends the program unless MESSAGE is the next one of its stream (any one sent, if unordered), unchanged."""
    queue = waiting[stream]
    if unordered != options.unordered:
        sys.exit("a message came back %s" % ("unordered" if unordered else "ordered"))
    candidates = list(queue) if unordered else list(queue)[:1]
    for number in candidates:
        if content(number, size) == message:
            queue.remove(number)
            return
    sys.exit("a message of stream %d came back changed or out of order" % stream)


def send_only(options, host, port, count, size):
    sock = connect(options, host, port)
    digest = hashlib.sha256()
    policy, _ = limit(options)
    for number in range(count):
        message = content(number, size)
        time.sleep(options.gap)
        send(sock, message, number % options.streams, options.unordered, policy)
        digest.update(message)
    before_end(options, sock)
    print("%d messages of %d octets, sha256 %s" % (count, size, digest.hexdigest()))
    return end(options, sock)


def flow(options, host, port, seconds, size):
    sock = connect(options, host, port)
    message = bytes(size)
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            send(sock, message, 0, options.unordered)
    except OSError as error:
        sys.exit(str(error))
    before_end(options, sock)
    return end(options, sock)


def before_end(options, sock):
    if options.reset:
        sock.setsockopt(SCTP, RESET_STREAMS, struct.pack("iHH2H", 0, 3, 2, 0, 1))
        time.sleep(0.5)
        sock.setsockopt(SCTP, ADD_STREAMS, struct.pack("iHH", 0, 0, 3))
        time.sleep(0.5)
        sock.setsockopt(SCTP, ADD_STREAMS, struct.pack("iHH", 0, 2, 0))
    for address in options.add:
        sock.setsockopt(SCTP, BINDX_ADD, sockaddr(address, sock.getsockname()[1]))
        time.sleep(0.5)
        sock.setsockopt(SCTP, BINDX_REM, sockaddr(address, sock.getsockname()[1]))
    time.sleep(options.hold)


def end(options, sock):
    if options.abort:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        return 0
    sock.shutdown(socket.SHUT_WR)
    try:
        while receive(sock):
            pass
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise
    return 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    both = parser.add_argument_group("known to every peer")
    both.add_argument("--local", action="append", default=[], metavar="ADDRESS", help="bind it (repeatable)")
    both.add_argument("--streams", type=int, default=1, metavar="N", help="use N streams in turn")
    both.add_argument("--unordered", action="store_true")
    both.add_argument("--window", type=int, default=1, metavar="N", help="client: N messages at once under way")
    both.add_argument("--gap", type=float, default=0, metavar="SECONDS", help="client, send: pause before each message")
    both.add_argument("--once", action="store_true", help="echo, sink: one association, then exit")
    own = parser.add_argument_group("of the kernel only")
    own.add_argument("--nagle", action="store_true")
    own.add_argument("--bind-port", type=int, default=0, metavar="PORT")
    own.add_argument("--rcvbuf", type=int, default=BUFFER, metavar="OCTETS")
    own.add_argument("--stall", type=float, default=0, metavar="SECONDS", help="sink: read nothing at first")
    own.add_argument("--hold", type=float, default=0, metavar="SECONDS", help="stay idle before the end")
    own.add_argument("--abort", action="store_true", help="end by ABORT")
    own.add_argument("--idata", action="store_true", help="I-DATA (needs net.sctp.intl_enable=1)")
    own.add_argument("--adaptation", type=lambda text: int(text, 0), metavar="NUMBER")
    own.add_argument("--auth", type=int, choices=(1, 3), help="authenticate DATA with HMAC 1 (SHA-1) or 3 (SHA-256)")
    own.add_argument("--reconf", action="store_true", help="allow RE-CONFIG (needs net.sctp.reconf_enable=1)")
    own.add_argument("--reset", action="store_true", help="reset streams 0 and 1, add streams, before the end")
    own.add_argument("--auto-asconf", action="store_true", help="send ASCONF when an address comes or goes")
    own.add_argument("--add", action="append", default=[], metavar="ADDRESS", help="ASCONF: add and delete it")
    own.add_argument("--pr-ttl", type=int, metavar="MS", help="send: give up a message after so many milliseconds")
    own.add_argument("--pr-rtx", type=int, metavar="N", help="send: give up a message after N retransmissions")
    parser.add_argument("mode", choices=("echo", "sink", "client", "send", "flow"))
    parser.add_argument("words", nargs="+", metavar="ARGUMENT")
    return parser.parse_args()


def main():
    options = arguments()
    words = options.words
    if options.mode in ("echo", "sink"):
        return serve(options, int(words[0]), echo if options.mode == "echo" else sink)
    host, port, amount, size = words
    if options.mode in ("client", "send"):
        return (client if options.mode == "client" else send_only)(options, host, int(port), int(amount), int(size))
    return flow(options, host, int(port), float(amount), int(size))


sys.exit(main())
