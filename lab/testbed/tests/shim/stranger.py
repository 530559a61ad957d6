# A small SCTP peer over UDP (RFC 6951) that a test gives a mind of its own: it says what it likes about addresses, ports and tags.
import os, select, socket, struct, sys, time

INIT, INIT_ACK, SACK, HEARTBEAT, HEARTBEAT_ACK, ABORT = 1, 2, 3, 4, 5, 6
SHUTDOWN, SHUTDOWN_ACK, ERROR, COOKIE_ECHO, COOKIE_ACK, I_DATA = 7, 8, 9, 10, 11, 64
IPV4, STATE_COOKIE, ADAPTATION, EXTENSIONS, PADDING = 5, 7, 0xC006, 0x8008, 0x8005
PORT, SHARED, ALONE = 9899, 0x73637474, 0x73637466
STREAMS = 16385
MASK = 0xFFFFFFFF

TABLE = []
for value in range(256):
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    TABLE.append(value)

def crc32c(data):
    crc = MASK
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ MASK

def padded(data):
    return data + bytes(-len(data) % 4)

def chunk(kind, value, flags=0):
    return struct.pack('!BBH', kind, flags, 4 + len(value)) + value

def parameter(kind, value):
    return padded(struct.pack('!HH', kind, 4 + len(value)) + value)

def address(ip):
    return parameter(IPV4, socket.inet_aton(ip))

def packet(source, to, tag, *chunks):
    body = b''.join(map(padded, chunks))
    head = struct.pack('!HHI', source, to, tag)
    return head + struct.pack('<I', crc32c(head + bytes(4) + body)) + body

def tlvs(data, header):
    # Pairs of type and value, behind a header of this format.
    while len(data) >= 4:
        fields = struct.unpack(header, data[:4])
        kind, length = fields[0], fields[-1]
        if length < 4 or length > len(data):
            return
        yield kind, data[4:length]
        data = data[length + -length % 4:]

def read(data):
    source, to, tag = struct.unpack('!HHI', data[:8])
    return source, to, tag, list(tlvs(data[12:], '!BBH'))

def read_init(value):
    tag, window, out, into, tsn = struct.unpack('!IIHHI', value[:16])
    return {'tag': tag, 'tsn': tsn, 'parameters': list(tlvs(value[16:], '!HH'))}

def addresses_in(init):
    return [socket.inet_ntoa(value) for kind, value in init['parameters'] if kind == IPV4]

def init_value(tag, tsn, parameters, streams):
    return struct.pack('!IIHHI', tag, 1 << 20, streams, streams, tsn) + parameters

def letters(word):
    return struct.unpack('!I', word)[0]

def udp(port=0):
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    bound.bind(('', port))
    return bound

def receive(bound, limit):
    if not select.select([bound], [], [], limit)[0]:
        return None
    return bound.recvfrom(65535)

def shared_parameters(addresses=(), room=200):
    # INIT's parameters of an association to be shared; `room` bytes of padding let the answer be long.
    said = parameter(EXTENSIONS, bytes([64, 194, 192])) + parameter(ADAPTATION, struct.pack('!I', SHARED))
    return said + parameter(0xC000, b'') + b''.join(map(address, addresses)) + parameter(PADDING, bytes(room))

def own_parameters(room=200):
    # The same of an association for one connection.
    said = parameter(EXTENSIONS, bytes([194])) + parameter(ADAPTATION, struct.pack('!I', ALONE))
    return said + parameter(PADDING, bytes(room))

class Association:
    def __init__(self, bound, peer, ports, tags, tsns):
        # `ports`, `tags` and `tsns`: ours, then the peer's.
        self.bound, self.peer, self.ports, self.tags, self.tsn = bound, peer, ports, tags, tsns[0]
        self.cumulative, self.seen, self.mids, self.messages, self.is_up, self.abort = (tsns[1] - 1) & MASK, set(), {}, [], True, None

    def transmit(self, *chunks, to=None):
        try:
            self.bound.sendto(packet(*self.ports, self.tags[1], *chunks), to or self.peer)
        except OSError:
            pass

    def send(self, stream, kind, data=b''):
        mid = self.mids.get(stream, 0)
        self.mids[stream] = mid + 1
        head = struct.pack('!IHHII', self.tsn, stream, 0, mid, letters(kind))
        self.transmit(chunk(I_DATA, head + data, 3))
        self.tsn = (self.tsn + 1) & MASK

    def hello(self):
        self.send(0, b'scth', bytes([1, 0]) + struct.pack('!H', 8192))

    def open(self, stream, client, server):
        ends = struct.pack('!IIHH', 1, 1 << 18, client[1], server[1])
        ends += b'\x04' + socket.inet_aton(client[0]) + b'\x04' + socket.inet_aton(server[0])
        self.send(stream, b'scto', ends)

    def on_chunks(self, chunks, source):
        for kind, value in chunks:
            if kind == HEARTBEAT:
                self.transmit(chunk(HEARTBEAT_ACK, value), to=source)
            elif kind == I_DATA:
                self.on_data(value)
            elif kind == ABORT:
                self.abort, self.is_up = value, False
            elif kind == SHUTDOWN:
                self.transmit(chunk(SHUTDOWN_ACK, b''))

    def on_data(self, value):
        tsn, stream, _, _, kind = struct.unpack('!IHHII', value[:16])
        if tsn not in self.seen and 0 < (tsn - self.cumulative & MASK) < 1 << 31:
            self.seen.add(tsn)
            self.messages.append((stream, struct.pack('!I', kind), value[16:]))
        while (self.cumulative + 1) & MASK in self.seen:
            self.cumulative = (self.cumulative + 1) & MASK
        self.transmit(chunk(SACK, struct.pack('!IIHH', self.cumulative, 1 << 20, 0, 0)))

    def run(self, seconds, is_over=lambda association: False):
        end = time.time() + seconds
        while time.time() < end and not is_over(self):
            if came := receive(self.bound, 0.05):
                self.on_chunks(read(came[0])[3], came[1])

    def answer(self, stream):
        # What the peer said on a stream: the letters of its messages, and their bytes.
        return [(kind, data) for of, kind, data in self.messages if of == stream]

def connect(bound, peer, ports, tag, parameters, streams=1, limit=3):
    # Shakes hands; an Association and the INIT ACK, or None and what came instead.
    init = packet(*ports, 0, chunk(INIT, init_value(tag, 1000, parameters, streams)))
    end, answer, sent = time.time() + limit, None, 0
    while time.time() < end:
        if answer is None and time.time() - sent > 0.3:
            bound.sendto(init, peer)
            sent = time.time()
        came = receive(bound, 0.1)
        if not came or read(came[0])[2] != tag:
            continue
        chunks = read(came[0])[3]
        for at, (kind, value) in enumerate(chunks):
            if kind == INIT_ACK:
                answer = read_init(value)
                cookie = dict(answer['parameters'])[STATE_COOKIE]
                bound.sendto(packet(*ports, answer['tag'], chunk(COOKIE_ECHO, cookie)), peer)
            elif kind == COOKIE_ACK and answer:
                made = Association(bound, peer, ports, (tag, answer['tag']), (1000, answer['tsn']))
                made.on_chunks(chunks[at + 1:], came[1])
                return made, answer
            elif kind == ABORT:
                return None, 'ABORT'
    return None, 'silence'

def connect_shared(bound, peer, port=61000, addresses=(), tag=0x33330001):
    return connect(bound, peer, (port, PORT), tag, shared_parameters(addresses), STREAMS)
