"""One SCTP association whose packets are sealed (docs/adr/0027), over UDP (RFC 6951): enough of RFC 9260 for one path that loses little.

It is a judge: where the peer does what the description forbids, [Violation] ends it. Begin with connect() or accept().
"""
import collections
import hmac
import os
import select
import struct
import time

import craft
import sealed_records as records
from craft import (ABORT, COOKIE_ACK, COOKIE_ECHO, DATA, ERROR, HEARTBEAT, HEARTBEAT_ACK, INIT, INIT_ACK, SACK, SHUTDOWN,
                   SHUTDOWN_ACK, SHUTDOWN_COMPLETE)
from sealed_records import FIRST_EPOCH, NotOpened, Violation
from sealed_tls import Tls

PAD = 0x84
KEY_PPID, DATA_PPID = 4242, 53
BEGIN, END, UNORDERED = 2, 1, 4                             # flags of DATA
HELLO, CLIENT_HELLO_AT = 1, 6                               # of a message about keys
PACKET = 1400                                               # octets
PIECE = PACKET - 12 - 28 - 16                               # user data of one DATA chunk
INIT_LEAST = 256                                            # a shorter INIT is not answered by ours
WINDOW, OUR_WINDOW = 32_768, 1 << 20                        # octets
RTO, PATIENCE = 1, 20                                       # seconds
IN_THE_CLEAR = {DATA, SACK, ABORT, ERROR, COOKIE_ACK, COOKIE_ECHO, SHUTDOWN, SHUTDOWN_ACK, SHUTDOWN_COMPLETE, INIT, INIT_ACK}
UNKNOWN_TO_ALL = 0x8F01                                     # a parameter to be skipped
REPORT_UNKNOWN = 0x4000                                     # the bit of a parameter's type that asks for a report


class Message:
    """A message of the application."""

    def __init__(self, stream, text, is_unordered):
        self.stream, self.text, self.is_unordered = stream, text, is_unordered


def later(tsn, other):
    return 0 < (tsn - other & 0xFFFFFFFF) < 1 << 31


def key_parameter(role):
    """Without padding: it may be the last one of its chunk."""
    return struct.pack("!HH", records.KEY_MANAGEMENT, 10) + os.urandom(4) + bytes([role, records.METHOD])


def init_body(tag, tsn, parameters):
    return struct.pack("!IIHHI", tag, OUR_WINDOW, 100, 100, tsn) + parameters


def altered(body):
    """An INIT of which somebody on the way has changed one bit: the lowest of the window, which harms nothing else."""
    return body[:7] + bytes([body[7] ^ 1]) + body[8:]


class Session:
    """One handshake and the epoch of its keys."""

    def __init__(self, association, is_server, epoch):
        options = association.options
        self.association, self.is_server, self.epoch, self.has_keys = association, is_server, epoch, False
        self.tls = Tls(is_server, options.private_key, options.groups, options.suite, not options.no_alpn,
                       options.tickets)

    def begin(self):
        return self._message(self.tls.take())

    def take(self, message):
        if message[0] != self.epoch & 0x7F:
            raise Violation("a message about the keys of epoch %d, not %d" % (message[0], self.epoch))
        answer = self._take_records(message[1:])
        if self.tls.exporter_secret and not self.has_keys:
            confirmation = self._install()
            if self.is_server:
                answer += confirmation
            else:
                self._compare(confirmation)
        if answer:
            self.association.send_message(0, self._message(answer), ppid=KEY_PPID)
        if self.tls.is_done:
            self._finish()

    def _take_records(self, octets):
        """Behind the records that end a client's handshake comes the server's confirmation."""
        if self.is_server:
            return self.tls.take(octets)
        answer = b""
        while octets and not self.tls.is_done:
            length = 5 + int.from_bytes(octets[3:5], "big")
            answer += self.tls.take(octets[:length])
            octets = octets[length:]
        self.confirmed = octets
        return answer

    def _compare(self, confirmation):
        if (self.confirmed == confirmation) == bool(self.association.options.alter_init):
            raise Violation("the server confirms %r, not %r" % (self.confirmed, confirmation))

    def _message(self, octets):
        return bytes([self.epoch & 0x7F]) + octets

    def _contexts(self):
        return records.contexts(self.tls.suite(), self.association.transcript, self.epoch)

    def _install(self):
        exporter = records.Exporter(self.tls.suite(), self.tls.exporter_secret)
        keys = {False: {}, True: {}}
        for is_server, what, context, length in self._contexts():
            keys[is_server][what] = exporter.export(context, length)
        confirmation = keys[True].pop(records.CONFIRMATION)
        directions = {side: records.Direction(self.tls.suite(), self.epoch, keys[side]) for side in keys}
        self.has_keys = True
        self.association.install(directions[self.is_server], directions[not self.is_server], at_once=not self.is_server)
        return confirmation

    def _finish(self):
        """What OpenSSL exports now is what the keys were made of."""
        exporter = records.Exporter(self.tls.suite(), self.tls.exporter_secret)
        for _, _, context, length in self._contexts():
            if self.tls.export(records.LABEL, context, length) != exporter.export(context, length):
                raise Violation("the exporter of OpenSSL has other keys")
        self.association.on_handshake_over(self)


class Association:
    """One end."""

    def __init__(self, udp, peer, is_client, options):
        self.udp, self.peer, self.is_client, self.options = udp, peer, is_client, options
        self.our_port = self.peer_port = self.tag = 0
        self.our_tag = int.from_bytes(os.urandom(4), "big") | 1
        self.next_tsn = int.from_bytes(os.urandom(4), "big")
        self.transcript = self.cookie = self.session = self.peer_key = None
        self.send_keys = self.next_keys = None
        self.receive_keys = {}
        self.is_enforced = self.has_sealed_come = self.is_up = self.is_over = self.is_shut = False
        self.cumulative = 0                                 # the last TSN of the peer before a gap
        self.clear_taken = self.clear_sent = 0              # messages about keys in the clear
        self.is_bounded = False
        self.early, self.pieces = {}, []                    # DATA behind a gap; pieces of one message
        self.unsent, self.flight = collections.deque(), collections.OrderedDict()
        self.peer_window, self.last_send = WINDOW, 0
        self.ssn = collections.Counter()
        self.messages, self.heartbeats = collections.deque(), []
        self.must_sack, self.echoes, self.init_ack = False, [], b""
        self.opened, self.unopened, self.duplicates, self.sessions = 0, 0, 0, []

    # Packets.

    def pack(self, *chunks, tag=None, padding=0):
        """A packet with these chunks, sealed if there are keys."""
        body = b"".join(chunks)
        if self.send_keys:
            body = self.send_keys.seal(body, padding)
        return self.pack_unsealed(body, tag)

    def pack_unsealed(self, body, tag=None):
        head = struct.pack("!HHI", self.our_port, self.peer_port, self.tag if tag is None else tag)
        return head + struct.pack("<I", craft.crc32c(head + bytes(4) + body)) + body

    def send(self, *chunks, **how):
        self.send_packet(self.pack(*chunks, **how))

    def send_packet(self, packet):
        self.udp.sendto(packet, self.peer)

    def receive(self, seconds):
        """The chunks of the next packet; none if no packet comes in time, or none that counts."""
        if not select.select([self.udp], [], [], max(0, seconds))[0]:
            return []
        packet, source = self.udp.recvfrom(65536)
        self.peer = self.peer or source
        head, checksum, body = packet[:8], packet[8:12], packet[12:]
        if struct.pack("<I", craft.crc32c(head + bytes(4) + body)) != checksum:
            raise Violation("a packet with a wrong checksum")
        from_port, to_port, tag = struct.unpack("!HHI", head)
        chunks = list(craft.chunks(packet))
        if chunks[0][0] == INIT:
            self.peer_port = self.peer_port or from_port
        elif tag != self.our_tag:
            raise Violation("a packet with the tag %08x" % tag)
        if (from_port, to_port) != (self.peer_port, self.our_port):
            raise Violation("a packet from port %d to %d" % (from_port, to_port))
        return self._open(chunks, packet) if chunks[0][0] == records.DTLS_CHUNK else self._in_the_clear(chunks)

    def _in_the_clear(self, chunks):
        if self.has_sealed_come:
            raise Violation("an unsealed packet behind a sealed one: %s" % [kind for kind, *_ in chunks])
        for kind, _, body in chunks:
            if kind not in IN_THE_CLEAR:
                raise Violation("a chunk of type %d in the clear" % kind)
            if kind == DATA and struct.unpack_from("!I", body, 8)[0] != KEY_PPID:
                raise Violation("data of the application in the clear")
        return [] if self.is_enforced else chunks

    def _open(self, chunks, packet):
        (_, flags, body), *others = chunks
        if others:
            raise Violation("chunks behind a DTLS chunk")
        bits = records.read_header(flags, body)
        keys = self.receive_keys.get(bits)
        try:
            if not keys:
                raise NotOpened
            expected = keys.next
            number, inside = keys.open(body)
        except NotOpened:
            self.unopened += 1
            return []
        if not self._is_new(keys, number, expected):
            return []
        self._dump("opened", keys, number, packet, inside)
        self.opened += 1
        self.has_sealed_come = True
        self._enforce()
        if self.next_keys and self.next_keys.epoch == keys.epoch:
            self.send_keys, self.next_keys = self.next_keys, None
        return list(craft.chunks(bytes(12) + inside))

    def _is_new(self, keys, number, expected):
        """One path keeps the order: a number that is not the next one was used twice, or left out."""
        if number != expected and not self.options.lossy:
            raise Violation("record %d where %d is the next" % (number, expected))
        is_new = number not in keys.seen
        keys.seen.add(number)
        return is_new

    def _dump(self, what, keys, number, packet, inside):
        if not self.options.dump:
            return
        names = dict(zip(("key", "number_key", "iv"), (keys.keys[i].hex() for i in range(3)), strict=True))
        fields = dict(epoch=keys.epoch, number=number, **names, chunks=inside.hex(), packet=packet.hex())
        print(what, *("%s=%s" % field for field in fields.items()), file=self.options.dump, flush=True)

    # Keys.

    def install(self, ours, peers, at_once):
        """Takes the keys of an epoch: the peer's open from now on; ours seal AT_ONCE, or when the peer's have opened a packet."""
        self.receive_keys[peers.epoch & 3] = peers
        if at_once:
            self._enforce()
            self.send_keys = ours
        else:
            self.next_keys = ours

    def _enforce(self):
        """From now on nothing in the clear counts."""
        if not self.is_enforced:
            self.is_enforced = True
            self.clear_end = self.cumulative, self.clear_taken, self.next_tsn - 1 & 0xFFFFFFFF, self.clear_sent

    def on_handshake_over(self, session):
        key = session.tls.peer_key()
        if self.peer_key not in (None, key):
            raise Violation("the peer has another key than before")
        self.peer_key, self.session = key, None
        self.sessions.append((session.epoch, session.tls.suite(), session.tls.group(), session.tls.protocol()))
        session.tls.close()

    def renew(self):
        """Agrees on keys of the next epoch; this end is the client of the handshake."""
        self.session = Session(self, False, self.send_keys.epoch + 1)
        self.send_message(0, self.session.begin(), ppid=KEY_PPID)
        self.run(lambda: self.session is None and not self.flight, "new keys")
        epoch = self.send_keys.epoch
        count = len(self.heartbeats)
        self.send(craft.chunk(HEARTBEAT, craft.parameter(1, b"new keys")))
        self.run(lambda: len(self.heartbeats) > count, "an answer under new keys")
        if not self.receive_keys[epoch & 3].next:
            raise Violation("the peer goes on with its old keys")

    def _on_key_message(self, message):
        is_hello = message[1:2] == b"\x16" and message[CLIENT_HELLO_AT] == HELLO
        if self.session is None and is_hello:
            epoch = self.send_keys.epoch + 1 if self.send_keys else FIRST_EPOCH
            self.session = Session(self, True, epoch)
        if self.session is None:
            raise Violation("a message about keys that nobody waits for")
        if not self.is_enforced:
            self.clear_taken += 1
        elif not self.is_client and not self.is_bounded:
            message = self._off_boundary(message)
        self.session.take(message)

    def _off_boundary(self, message):
        """The client's first sealed message ends with what it took in the clear."""
        self.is_bounded = True
        found, ours = struct.unpack("!IHIH", message[-12:]), self.clear_end
        if found != ours[2:] + ours[:2]:
            raise Violation("the client took and sent %r in the clear, not %r" % (found, ours[2:] + ours[:2]))
        return message[:-12]

    def _with_boundary(self, message):
        if not self.send_keys:
            self.clear_sent += 1
        elif self.is_client and not self.is_bounded:
            self.is_bounded = True
            message += struct.pack("!IHIH", *self.clear_end)
        return message

    # The beginning.

    def connect(self, port):
        self.our_port, self.peer_port = 20_000 + int.from_bytes(os.urandom(2), "big") % 40_000, port
        self.session = Session(self, False, FIRST_EPOCH)
        # Skipped by whoever does not know it, and of a length that needs padding.
        unknown = craft.parameter(UNKNOWN_TO_ALL, b"12345")
        body = init_body(self.our_tag, self.next_tsn, unknown + craft.padded(key_parameter(records.ROLE_CLIENT)))
        padding = INIT_LEAST - 16 - len(body) - 4
        body += craft.parameter(records.COOKIE_PRESERVATIVE, struct.pack("!I", 1000))
        body += craft.parameter(records.PADDING, bytes(padding - 8))
        packet = self.pack(craft.chunk(INIT, altered(body) if self.options.alter_init else body), tag=0)
        ack = self._ask(packet, INIT_ACK)
        self._take_peer(ack)
        cookie = self._check_parameters(ack, records.ROLE_SERVER)
        self.transcript = records.transcript(self.our_port, self.peer_port, body, ack)
        self._echo(cookie, self.session.begin())
        self.run(lambda: self.is_up, "COOKIE ACK")

    def _echo(self, cookie, hello):
        """Each part of the first message goes behind a COOKIE ECHO of its own."""
        echo = craft.chunk(COOKIE_ECHO, cookie)
        room = PACKET - 12 - 28 - len(echo) - 16
        self.clear_sent += 1
        self.echoes = [self.pack(echo, self._to_flight(piece)) for piece in self._cut(0, hello, KEY_PPID, room=room)]
        self._send_echoes()

    def _send_echoes(self):
        self.last_send = time.monotonic()
        for packet in self.echoes:
            self.send_packet(packet)

    def accept(self, port):
        self.our_port = port
        init = self._expect(INIT, PATIENCE)
        self._check_parameters(init, records.ROLE_CLIENT)
        self._take_peer(init)
        self.cookie = os.urandom(100)
        reports = [octets for kind, octets in records.parameters(init[16:]) if kind & REPORT_UNKNOWN]
        parts = [craft.parameter(UNKNOWN_TO_ALL, b"1"), craft.parameter(records.STATE_COOKIE, self.cookie)]
        parts += [craft.parameter(records.UNRECOGNIZED, octets) for octets in reports]
        ack = init_body(self.our_tag, self.next_tsn, b"".join(parts) + key_parameter(records.ROLE_SERVER))
        seen = altered(init) if self.options.alter_init else init
        self.transcript = records.transcript(self.peer_port, self.our_port, seen, ack)
        self.init_ack = self.pack(craft.chunk(INIT_ACK, ack))
        self.send_packet(self.init_ack)
        self.run(lambda: self.is_up, "COOKIE ECHO")

    def _ask(self, packet, wanted):
        """Sends the packet until a chunk of type WANTED comes; returns its body."""
        for _ in range(5):
            self.send_packet(packet)
            try:
                return self._expect(wanted, RTO)
            except TimeoutError:
                pass
        raise TimeoutError("no chunk of type %d" % wanted)

    def _expect(self, wanted, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for kind, _, body in self.receive(until - time.monotonic()):
                if kind == wanted:
                    return body
                if kind == ABORT:
                    raise ConnectionAbortedError("ABORT with %s" % body.hex())
        raise TimeoutError("no chunk of type %d" % wanted)

    def _take_peer(self, body):
        self.tag, self.peer_window, _, _, tsn = struct.unpack_from("!IIHHI", body)
        self.cumulative = tsn - 1 & 0xFFFFFFFF

    @staticmethod
    def _check_parameters(body, role):
        found = dict(records.parameters(body[16:]))
        offer = found.get(records.KEY_MANAGEMENT, b"")
        if len(offer) != 10 or offer[8] != role or offer[9] != records.METHOD:
            raise Violation("the offer of protection is %s" % (offer.hex() or "missing"))
        return found.get(records.STATE_COOKIE, b"")[4:]

    # Sending.

    def _cut(self, stream, message, ppid, is_unordered=False, room=PIECE):
        ssn = self.ssn[stream] & 0xFFFF
        self.ssn[stream] += not is_unordered
        for at in range(0, len(message), room):
            flags = BEGIN * (at == 0) | END * (at + room >= len(message)) | UNORDERED * is_unordered
            head = struct.pack("!IHHI", self.next_tsn, stream, ssn, ppid)
            yield self.next_tsn, craft.chunk(DATA, head + message[at:at + room], flags)
            self.next_tsn = self.next_tsn + 1 & 0xFFFFFFFF

    def _to_flight(self, piece):
        tsn, chunk = piece
        self.flight[tsn], self.last_send = chunk, time.monotonic()
        return chunk

    def send_message(self, stream, message, is_unordered=False, ppid=DATA_PPID):
        if ppid == KEY_PPID:
            message = self._with_boundary(message)
        self.unsent.extend(self._cut(stream, message, ppid, is_unordered))

    def _flush(self):
        if self.must_sack:
            self.must_sack = False
            self.send(craft.chunk(SACK, struct.pack("!IIHH", self.cumulative, OUR_WINDOW, 0, 0)))
        while self.unsent and sum(map(len, self.flight.values())) < min(WINDOW, max(self.peer_window, 1)):
            self.send(self._to_flight(self.unsent.popleft()))
        if self.flight and time.monotonic() > self.last_send + RTO:
            self.last_send = time.monotonic()
            self.send(next(iter(self.flight.values())))

    # Receiving.

    def run(self, is_done, what, seconds=PATIENCE):
        """Goes on until IS_DONE."""
        until = time.monotonic() + seconds
        while not is_done():
            if time.monotonic() > until:
                raise TimeoutError("no %s in %s s" % (what, seconds))
            self.turn(min(0.1, until - time.monotonic()))

    def run_for(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.turn(min(0.1, until - time.monotonic()))

    def turn(self, seconds):
        if self.is_up:
            self._flush()
        elif self.echoes and time.monotonic() > self.last_send + RTO:
            self._send_echoes()
        for kind, flags, body in self.receive(seconds):
            self._on_chunk(kind, flags, body)

    def _on_chunk(self, kind, flags, body):
        if kind == INIT:
            self.send_packet(self.init_ack)                 # repeated
        elif kind == INIT_ACK:
            return                                          # repeated
        elif kind in (DATA, SACK) and not self.is_up:
            return                                          # COOKIE ACK was lost; an answer taken now would end all that is in the clear
        elif kind == DATA:
            self._on_data(flags, body)
        elif kind == SACK:
            self._on_sack(body)
        elif kind == COOKIE_ECHO:
            self._on_cookie_echo(body)
        elif kind == COOKIE_ACK:
            self.is_up = True
        elif kind == HEARTBEAT:
            self.send(craft.chunk(HEARTBEAT_ACK, body))
        elif kind == HEARTBEAT_ACK:
            self.heartbeats.append(body)
        elif kind == SHUTDOWN:
            self._acknowledge(struct.unpack_from("!I", body)[0])
            self.is_shut = True
        elif kind == SHUTDOWN_ACK:
            self.send(craft.chunk(SHUTDOWN_COMPLETE))
            self.is_over = True
        elif kind == SHUTDOWN_COMPLETE:
            self.is_over = True
        elif kind == PAD:
            return                                          # of a probe for the MTU (RFC 4820)
        elif kind == ABORT:
            raise ConnectionAbortedError("ABORT with %s" % body.hex())
        else:
            raise Violation("a chunk of type %d: %s" % (kind, body.hex()))

    def _on_cookie_echo(self, body):
        if not hmac.compare_digest(body, self.cookie or b""):
            raise Violation("another cookie than ours")
        self.is_up = True
        self.send(craft.chunk(COOKIE_ACK))

    def _on_sack(self, body):
        cumulative, self.peer_window, gaps, duplicates = struct.unpack_from("!IIHH", body)
        self.duplicates += duplicates
        self._acknowledge(cumulative)

    def _acknowledge(self, cumulative):
        for tsn in [tsn for tsn in self.flight if not later(tsn, cumulative)]:
            del self.flight[tsn]
            self.last_send = time.monotonic()

    def _on_data(self, flags, body):
        self.must_sack = True
        tsn = struct.unpack_from("!I", body)[0]
        if later(tsn, self.cumulative):
            self.early[tsn] = flags, body
        while (following := self.cumulative + 1 & 0xFFFFFFFF) in self.early:
            self.cumulative = following
            self._on_piece(*self.early.pop(following))

    def _on_piece(self, flags, body):
        _, stream, _, ppid = struct.unpack_from("!IHHI", body)
        if bool(flags & BEGIN) == bool(self.pieces):
            raise Violation("pieces of a message out of order")
        self.pieces.append(body[12:])
        if not flags & END:
            return
        message, self.pieces = b"".join(self.pieces), []
        if ppid == KEY_PPID:
            self._on_key_message(message)
        else:
            self.messages.append(Message(stream, message, bool(flags & UNORDERED)))

    # The end.

    def shutdown(self):
        self.run(lambda: not self.unsent and not self.flight, "acknowledgement")
        self.send(craft.chunk(SHUTDOWN, struct.pack("!I", self.cumulative)))
        self.run(lambda: self.is_over, "SHUTDOWN ACK")

    def answer_shutdown(self):
        self.run(lambda: not self.unsent and not self.flight, "acknowledgement")
        self.send(craft.chunk(SHUTDOWN_ACK))
        self.run(lambda: self.is_over, "SHUTDOWN COMPLETE")
