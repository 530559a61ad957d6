"""Keys and records of sealed packets: the exporter of TLS 1.3 (RFC 8446 section 7.5), the schedule of docs/adr/0027, and the DTLS chunk with one
record of DTLS 1.3 (RFC 9147 section 4)."""
import hashlib
import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

import craft

DTLS_CHUNK = 65
KEY_MANAGEMENT = 0x8006                                     # the parameter of INIT and INIT ACK
METHOD = 229
ROLE_CLIENT, ROLE_SERVER = 1, 2
STATE_COOKIE, UNRECOGNIZED, COOKIE_PRESERVATIVE, PADDING = 7, 8, 9, 0x8005
LABEL = b"EXPORTER_TLS_FOR_DTLS_IN_SCTP"
RECORD_KEY, NUMBER_KEY, IV, CONFIRMATION = range(4)         # what is exported
APPLICATION_DATA = 0x17
UNIFIED = 0b0010_1000                                       # 16-bit number, no connection id, no length
TAG, IV_LENGTH, CONFIRMATION_LENGTH = 16, 12, 32
FIRST_EPOCH = 3
# Suite: hash, length of keys, AEAD.
SUITES = {
    "TLS_AES_128_GCM_SHA256": ("sha256", 16, AESGCM),
    "TLS_AES_256_GCM_SHA384": ("sha384", 32, AESGCM),
    "TLS_CHACHA20_POLY1305_SHA256": ("sha256", 32, ChaCha20Poly1305),
}


class NotOpened(Exception):
    """A record that none of our keys opens."""


class Violation(Exception):
    """The peer does what the description forbids."""


def parameters(octets):
    """Type and octets, without padding, of each parameter."""
    at = 0
    while at + 4 <= len(octets):
        kind, length = struct.unpack_from("!HH", octets, at)
        yield kind, octets[at:at + length]
        at += length + -length % 4


def said(init):
    """The hash of what the body of an INIT or INIT ACK says."""
    tag, window, outbound, inbound, tsn = struct.unpack_from("!IIHHI", init)
    digest = hashlib.sha256(struct.pack("!IIIHH", tag, window, tsn, outbound, inbound))
    for kind, octets in parameters(init[16:]):
        if kind not in (STATE_COOKIE, UNRECOGNIZED, COOKIE_PRESERVATIVE, PADDING):
            digest.update(octets)
    return digest.digest()


def transcript(client_port, server_port, init, init_ack):
    """What the keys are bound to. Ports are SCTP's."""
    ports = client_port.to_bytes(2, "big") + server_port.to_bytes(2, "big")
    return hashlib.sha256(ports + said(init) + said(init_ack)).digest()


class Exporter:
    """RFC 8446 section 7.5, from the exporter master secret."""

    def __init__(self, suite, secret):
        self.hash, self.secret = SUITES[suite][0], secret

    def export(self, context, length):
        secret = self._expand_label(self.secret, LABEL, self._digest(b""), hashlib.new(self.hash).digest_size)
        return self._expand_label(secret, b"exporter", self._digest(context), length)

    def _digest(self, octets):
        return hashlib.new(self.hash, octets).digest()

    def _expand_label(self, secret, label, context, length):
        label = b"tls13 " + label
        info = struct.pack("!HB", length, len(label)) + label + struct.pack("!B", len(context)) + context
        out = block = b""
        while len(out) < length:
            block = hmac.digest(secret, block + info + bytes([len(out) // len(block) + 1 if block else 1]), self.hash)
            out += block
        return out[:length]


def contexts(suite, transcript_hash, epoch):
    """Of each export: whose packets it is for (client or server), what it is, its context and its length."""
    lengths = {RECORD_KEY: SUITES[suite][1], NUMBER_KEY: SUITES[suite][1], IV: IV_LENGTH, CONFIRMATION: CONFIRMATION_LENGTH}
    for is_server in (False, True):
        for what, length in lengths.items():
            context = bytes([is_server, 0, what]) + transcript_hash + struct.pack("!Q", epoch)
            yield is_server, what, context, length


class Direction:
    """The keys of one direction and epoch."""

    def __init__(self, suite, epoch, keys):
        self.epoch, self.keys, self.next, self.seen = epoch, keys, 0, set()
        self.aead = SUITES[suite][2](keys[RECORD_KEY])
        self.is_chacha = SUITES[suite][2] is ChaCha20Poly1305

    def _mask(self, ciphertext):
        """RFC 9147 section 4.2.3."""
        sample, key = ciphertext[:16], self.keys[NUMBER_KEY]
        if self.is_chacha:
            return Cipher(algorithms.ChaCha20(key, sample), None).encryptor().update(bytes(2))
        return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(sample)[:2]

    def _nonce(self, number):
        return xor(self.keys[IV], number.to_bytes(IV_LENGTH, "big"))

    def _header(self, number):
        return struct.pack("!BH", UNIFIED | self.epoch & 3, number & 0xFFFF)

    def seal(self, chunks, padding=0):
        """The DTLS chunk with these chunks inside; PADDING octets of zero behind the content type (RFC 8446 section 5.4)."""
        number, self.next = self.next, self.next + 1
        header = self._header(number)
        text = chunks + bytes([APPLICATION_DATA]) + bytes(padding)
        ciphertext = self.aead.encrypt(self._nonce(number), text, header)
        hidden = xor(header[1:], self._mask(ciphertext))
        return craft.chunk(DTLS_CHUNK, b"\0" + header[:1] + hidden + ciphertext)

    def open(self, body):
        """The number and the chunks of a DTLS chunk's body, once its unified header is known to have this epoch."""
        ciphertext = body[4:]
        low = int.from_bytes(xor(body[2:4], self._mask(ciphertext)), "big")
        number = self._nearest(low)
        try:
            text = self.aead.decrypt(self._nonce(number), ciphertext, self._header(number))
        except InvalidTag:
            raise NotOpened from None
        chunks = text.rstrip(b"\0")
        if chunks[-1:] != bytes([APPLICATION_DATA]):
            raise Violation("a record of another content type: %s" % chunks[-1:].hex())
        self.next = max(self.next, number + 1)
        return number, chunks[:-1]

    def _nearest(self, low):
        """The number with these 16 bits that is nearest to the next one (RFC 9147 section 4.2.2)."""
        candidates = [(self.next >> 16) + turn for turn in (-1, 0, 1)]
        numbers = [(high << 16) + low for high in candidates if high >= 0]
        return min(numbers, key=lambda number: abs(number - self.next))


def read_header(flags, body):
    """The two lowest bits of the epoch of a DTLS chunk, whose form is checked."""
    if len(body) < 4 + 1 + TAG:
        raise Violation("a DTLS chunk of %d octets" % len(body))
    if flags or body[0] or body[1] & ~3 != UNIFIED:
        raise Violation("a DTLS chunk with flags %d and head %s" % (flags, body[:2].hex()))
    return body[1] & 3


def xor(left, right):
    return bytes(a ^ b for a, b in zip(left, right, strict=False))
