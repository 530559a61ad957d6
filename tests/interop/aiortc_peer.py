"""An SCTP peer on aiortc's RTCSctpTransport, over UDP with port 9899 at both ends (RFC 6951).

    aiortc_peer.py --local ADDRESS [OPTIONS] echo PORT
    aiortc_peer.py --local ADDRESS [OPTIONS] client HOST PORT COUNT SIZE

It sends the same content as the other peers and prints the same digest (tests/kernel-sctp/kernel_peer.py). The exit status is 0
only when the association ended by SHUTDOWN and nothing was lost. The library has ICE and DTLS beneath SCTP; here bare UDP takes
DTLS's place, so that of the package only its SCTP is loaded and none of what codecs need. Both its ends send an INIT, as
WebRTC has it: its server's collides with ours (RFC 9260 section 5.2.1). It has no call for SHUTDOWN and knows no SHUTDOWN ACK, only
an ABORT in their place: these two steps of section 9.2 are added here, with the library's own chunks.
"""
import argparse
import asyncio
import collections
import hashlib
import importlib
import importlib.util
import struct
import sys
import types

UDP_PORT = 9899
CLIENT_PORT = 49_200                                        # SCTP
BINARY = 53                                                 # payload protocol identifier
PATIENCE = 20                                               # seconds
LINGER = 0.2                                                # seconds in which the end is answered once more


class Udp(asyncio.DatagramProtocol):
    """A socket with the face of an RTCDtlsTransport."""

    state = "connected"
    _role = "client"

    def __init__(self, peer=None):
        self.peer = peer
        self.receiver = None
        self.first = asyncio.get_running_loop().create_future()
        self.packets = asyncio.Queue()

    def connection_made(self, transport):
        self.socket = transport

    def datagram_received(self, data, address):
        self.peer = self.peer or address
        if not self.first.done():
            self.first.set_result(struct.unpack_from("!H", data)[0])
        self.packets.put_nowait(data)

    def error_received(self, error):
        print(error, file=sys.stderr, flush=True)

    def _register_data_receiver(self, receiver):
        self.receiver = receiver

    async def _send_data(self, data):
        self.socket.sendto(data, self.peer)

    async def deliver(self):
        """Hands packets over one after another, as DTLS does."""
        while True:
            await self.receiver._handle_data(await self.packets.get())


def load_sctp():
    """The module aiortc.rtcsctptransport, with Udp for DTLS and without what the package's own start imports."""
    package = types.ModuleType("aiortc")
    package.__path__ = importlib.util.find_spec("aiortc").submodule_search_locations
    dtls = types.ModuleType("aiortc.rtcdtlstransport")
    dtls.RTCDtlsTransport = Udp
    sys.modules.update({"aiortc": package, "aiortc.rtcdtlstransport": dtls})
    # Each of the two modules imports the other, and only so does it come out even.
    importlib.import_module("aiortc.rtcdatachannel")
    return importlib.import_module("aiortc.rtcsctptransport")


def association(sctp):
    """The class of associations, whose messages go to a queue; None there is the end."""

    class Association(sctp.RTCSctpTransport):
        def __init__(self, udp, port):
            super().__init__(udp, port)
            self.messages = asyncio.Queue()
            self.is_up = asyncio.Event()
            self.is_over = asyncio.get_running_loop().create_future()

        async def _receive(self, stream_id, pp_id, data):
            self.messages.put_nowait((stream_id, data))

        async def _receive_chunk(self, chunk):
            if isinstance(chunk, sctp.ShutdownAckChunk) and self._association_state == self.State.SHUTDOWN_SENT:
                await self._send_chunk(sctp.ShutdownCompleteChunk())
                self._set_state(self.State.CLOSED)
            else:
                await super()._receive_chunk(chunk)

        def _set_state(self, state):
            ended_well = self._association_state in (self.State.SHUTDOWN_SENT, self.State.SHUTDOWN_ACK_SENT)
            super()._set_state(state)
            if state == self.State.ESTABLISHED:
                self.is_up.set()
            elif state == self.State.CLOSED and not self.is_over.done():
                self.is_over.set_result(ended_well)
                self.messages.put_nowait(None)

        async def shutdown(self):
            chunk = sctp.ShutdownChunk()
            chunk.cumulative_tsn = self._last_received_tsn
            self._set_state(self.State.SHUTDOWN_SENT)
            await self._send_chunk(chunk)
            self._t2_start(chunk)

    return Association


def content(number, size):
    """Message NUMBER: the octets (NUMBER * 31 + position * 7) mod 256, as in the other peers."""
    cycle = bytes((number * 31 + position * 7) & 255 for position in range(256))
    return (cycle * (size // 256 + 1))[:size]


async def open_udp(options, peer=None):
    loop = asyncio.get_running_loop()
    _, udp = await loop.create_datagram_endpoint(lambda: Udp(peer), local_addr=(options.local, UDP_PORT))
    return udp


async def wait_for_end(here):
    if not await asyncio.wait_for(here.is_over, PATIENCE):
        sys.exit("the association ended otherwise than by SHUTDOWN")
    await asyncio.sleep(LINGER)


async def start(here, sctp, remote_port):
    await here.start(sctp.RTCSctpCapabilities(maxMessageSize=0), remote_port)
    # Kept, or it would be collected.
    here.delivery = asyncio.create_task(here.transport.deliver())


async def echo(options, sctp, port):
    udp = await open_udp(options)
    udp._role = "server"
    print("listening", flush=True)
    remote_port = await udp.first
    here = association(sctp)(udp, port)
    await start(here, sctp, remote_port)
    messages = octets = 0
    while got := await here.messages.get():
        stream, message = got
        await here._send(stream, BINARY, message, ordered=not options.unordered)
        messages += 1
        octets += len(message)
    await wait_for_end(here)
    print("echoed %d messages, %d octets" % (messages, octets), flush=True)


async def client(options, sctp, host, port, count, size):
    here = association(sctp)(await open_udp(options, (host, UDP_PORT)), CLIENT_PORT)
    await start(here, sctp, port)
    await asyncio.wait_for(here.is_up.wait(), PATIENCE)
    print("connected", flush=True)
    waiting = collections.defaultdict(list)                  # per stream: the numbers sent and not yet back
    digest = hashlib.sha256()
    sent = 0
    for back in range(count):
        while sent < count and sent - back < options.window:
            message = content(sent, size)
            digest.update(message)
            waiting[sent % options.streams].append(sent)
            await here._send(sent % options.streams, BINARY, message, ordered=not options.unordered)
            sent += 1
        got = await asyncio.wait_for(here.messages.get(), PATIENCE)
        if not got:
            sys.exit("closed after %d messages" % back)
        take_back(options, waiting[got[0]], size, *got)
    await here.shutdown()
    await wait_for_end(here)
    print("%d messages of %d octets and back, sha256 %s" % (count, size, digest.hexdigest()), flush=True)


def take_back(options, queue, size, stream, message):
    """Ends the program unless MESSAGE is the next one of its stream (any one sent, if unordered), unchanged."""
    for number in queue if options.unordered else queue[:1]:
        if content(number, size) == message:
            return queue.remove(number)
    sys.exit("a message of stream %d came back changed or out of order" % stream)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local", required=True, metavar="ADDRESS", help="bind it")
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
    sctp = load_sctp()
    if options.mode == "echo":
        asyncio.run(echo(options, sctp, options.port))
    else:
        asyncio.run(client(options, sctp, options.host, options.port, options.count, options.size))


if __name__ == "__main__":
    main()
