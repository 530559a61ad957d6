"""TLS 1.3 for the keys of packets, by OpenSSL: raw public keys at both ends (RFC 7250), in messages instead of a connection.

Python's own modules know no raw public keys. So OpenSSL is called by ctypes: the one that the package psycopg-binary brings, since Debian 12 has
none that knows X25519MLKEM768. Nothing of a database is used.
"""
import ctypes
import glob
import os
import sys
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_long, c_size_t, c_ubyte, c_ulong, c_void_p

ALPN = b"\x09sctpify/1"
TLS_1_3 = 0x0304
SET_GROUPS, SET_SIGALGS, SET_MIN_VERSION = 92, 98, 123      # SSL_CTX_ctrl
VERIFY_PEER, FAIL_IF_NO_PEER_KEY = 1, 2
RAW_PUBLIC_KEY = b"\x02"                                    # RFC 7250 section 3
WANT_READ = 2
TLS_ALERT_NO_ALPN = 2                                       # SSL_TLSEXT_ERR_ALERT_FATAL


def libraries():
    for folder in sys.path:
        for path in glob.glob(os.path.join(folder, "psycopg_binary.libs", "libssl-*.so*")):
            crypto = glob.glob(os.path.join(folder, "psycopg_binary.libs", "libcrypto-*.so*"))[0]
            return ctypes.CDLL(crypto), ctypes.CDLL(path)
    raise ImportError("no OpenSSL of psycopg-binary in PYTHONPATH")


CRYPTO, SSL = libraries()
OnLine = CFUNCTYPE(None, c_void_p, c_char_p)
OnKey = CFUNCTYPE(c_int, c_int, c_void_p)
OnProtocols = CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p), POINTER(c_ubyte), c_void_p, c_ulong, c_void_p)


def function(library, name, result, *arguments):
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


version = function(CRYPTO, "OpenSSL_version", c_char_p, c_int)
get_error = function(CRYPTO, "ERR_get_error", c_ulong)
error_text = function(CRYPTO, "ERR_error_string_n", None, c_ulong, c_char_p, c_size_t)
read_key = function(CRYPTO, "d2i_AutoPrivateKey", c_void_p, c_void_p, POINTER(c_char_p), c_long)
free_key = function(CRYPTO, "EVP_PKEY_free", None, c_void_p)
raw_public_key = function(CRYPTO, "EVP_PKEY_get_raw_public_key", c_int, c_void_p, c_char_p, POINTER(c_size_t))
memory = function(CRYPTO, "BIO_s_mem", c_void_p)
new_bio = function(CRYPTO, "BIO_new", c_void_p, c_void_p)
bio_read = function(CRYPTO, "BIO_read", c_int, c_void_p, c_char_p, c_int)
bio_write = function(CRYPTO, "BIO_write", c_int, c_void_p, c_char_p, c_int)
client_method = function(SSL, "TLS_client_method", c_void_p)
server_method = function(SSL, "TLS_server_method", c_void_p)
new_context = function(SSL, "SSL_CTX_new", c_void_p, c_void_p)
free_context = function(SSL, "SSL_CTX_free", None, c_void_p)
control = function(SSL, "SSL_CTX_ctrl", c_long, c_void_p, c_int, c_long, c_char_p)
set_tickets = function(SSL, "SSL_CTX_set_num_tickets", c_int, c_void_p, c_size_t)
set_suites = function(SSL, "SSL_CTX_set_ciphersuites", c_int, c_void_p, c_char_p)
set_key = function(SSL, "SSL_CTX_use_PrivateKey", c_int, c_void_p, c_void_p)
set_client_types = function(SSL, "SSL_CTX_set1_client_cert_type", c_int, c_void_p, c_char_p, c_size_t)
set_server_types = function(SSL, "SSL_CTX_set1_server_cert_type", c_int, c_void_p, c_char_p, c_size_t)
set_verify = function(SSL, "SSL_CTX_set_verify", None, c_void_p, c_int, OnKey)
set_key_log = function(SSL, "SSL_CTX_set_keylog_callback", None, c_void_p, OnLine)
set_protocols = function(SSL, "SSL_CTX_set_alpn_protos", c_int, c_void_p, c_char_p, c_int)
set_choice = function(SSL, "SSL_CTX_set_alpn_select_cb", None, c_void_p, OnProtocols, c_void_p)
select_protocol = function(SSL, "SSL_select_next_proto", c_int, POINTER(c_void_p), POINTER(c_ubyte), c_char_p, c_int, c_void_p,
                           c_int)
new_connection = function(SSL, "SSL_new", c_void_p, c_void_p)
free_connection = function(SSL, "SSL_free", None, c_void_p)
set_bios = function(SSL, "SSL_set_bio", None, c_void_p, c_void_p, c_void_p)
be_server = function(SSL, "SSL_set_accept_state", None, c_void_p)
be_client = function(SSL, "SSL_set_connect_state", None, c_void_p)
handshake = function(SSL, "SSL_do_handshake", c_int, c_void_p)
why = function(SSL, "SSL_get_error", c_int, c_void_p, c_int)
current_cipher = function(SSL, "SSL_get_current_cipher", c_void_p, c_void_p)
pending_cipher = function(SSL, "SSL_get_pending_cipher", c_void_p, c_void_p)
cipher_name = function(SSL, "SSL_CIPHER_get_name", c_char_p, c_void_p)
group_name = function(SSL, "SSL_get0_group_name", c_char_p, c_void_p)
chosen_protocol = function(SSL, "SSL_get0_alpn_selected", None, c_void_p, POINTER(c_void_p), POINTER(c_int))
peer_raw_key = function(SSL, "SSL_get0_peer_rpk", c_void_p, c_void_p)
export_keys = function(SSL, "SSL_export_keying_material", c_int, c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, c_char_p,
                       c_size_t, c_int)


class TlsError(Exception):
    """What OpenSSL says of a failure."""

    def __init__(self, what):
        texts = []
        while code := get_error():
            text = ctypes.create_string_buffer(256)
            error_text(code, text, len(text))
            texts.append(text.value.decode())
        super().__init__("TLS: %s: %s" % (what, "; ".join(texts) or "no reason given"))


def must(result, what):
    if not result or result < 0:
        raise TlsError(what)
    return result


class Tls:
    """One end of a handshake."""

    def __init__(self, is_server, private_key, groups, suites, has_alpn=True, tickets=0):
        """PRIVATE_KEY: an Ed25519 key in PKCS #8. GROUPS and SUITES: lists as OpenSSL reads them."""
        self.is_server, self.is_done, self.exporter_secret = is_server, False, None
        self.context = must(new_context(server_method() if is_server else client_method()), "context")
        self._set_algorithms(groups, suites, tickets)
        self._set_keys(private_key)
        if has_alpn:
            self._set_alpn()
        self._on_line = OnLine(self._take_line)
        set_key_log(self.context, self._on_line)
        self.connection = must(new_connection(self.context), "connection")
        self.inward, self.outward = new_bio(memory()), new_bio(memory())
        set_bios(self.connection, self.inward, self.outward)
        (be_server if is_server else be_client)(self.connection)

    def _set_algorithms(self, groups, suites, tickets):
        must(control(self.context, SET_MIN_VERSION, TLS_1_3, None), "version")
        must(control(self.context, SET_GROUPS, 0, groups.encode()), "groups")
        must(control(self.context, SET_SIGALGS, 0, b"ed25519"), "signatures")
        must(set_suites(self.context, suites.encode()), "suites")
        must(set_tickets(self.context, tickets), "tickets")

    def _set_keys(self, private_key):
        key = must(read_key(None, byref(c_char_p(private_key)), len(private_key)), "private key")
        must(set_key(self.context, key), "private key")
        free_key(key)
        must(set_client_types(self.context, RAW_PUBLIC_KEY, 1), "type of the client's key")
        must(set_server_types(self.context, RAW_PUBLIC_KEY, 1), "type of the server's key")
        # Any key is taken whose holder has signed; which one it was is asked later.
        self._on_key = OnKey(lambda _is_good, _store: 1)
        set_verify(self.context, VERIFY_PEER | FAIL_IF_NO_PEER_KEY, self._on_key)

    def _set_alpn(self):
        if self.is_server:
            self._on_protocols = OnProtocols(self._choose)
            set_choice(self.context, self._on_protocols, None)
        elif set_protocols(self.context, ALPN, len(ALPN)) != 0:
            raise TlsError("application protocol")

    @staticmethod
    def _choose(_connection, out, out_length, offered, length, _argument):
        NEGOTIATED = 1
        is_chosen = select_protocol(out, out_length, ALPN, len(ALPN), offered, length) == NEGOTIATED
        return 0 if is_chosen else TLS_ALERT_NO_ALPN

    def _take_line(self, _connection, line):
        label, _, secret = line.decode().split(" ")
        if label == "EXPORTER_SECRET":
            self.exporter_secret = bytes.fromhex(secret)

    def take(self, octets=b""):
        """Takes what came, and goes on with the handshake as far as that leads; returns what is to be sent."""
        if octets and bio_write(self.inward, octets, len(octets)) != len(octets):
            raise TlsError("no memory")
        result = handshake(self.connection)
        if result == 1:
            self.is_done = True
        elif why(self.connection, result) != WANT_READ:
            raise TlsError("handshake")
        return self._written()

    def _written(self):
        room, out = ctypes.create_string_buffer(16_384), b""
        while (length := bio_read(self.outward, room, len(room))) > 0:
            out += room.raw[:length]
        return out

    def suite(self):
        cipher = current_cipher(self.connection) or pending_cipher(self.connection)
        return cipher_name(must(cipher, "no suite yet")).decode()

    def group(self):
        return (group_name(self.connection) or b"?").decode()

    def protocol(self):
        start, length = c_void_p(), c_int()
        chosen_protocol(self.connection, byref(start), byref(length))
        return ctypes.string_at(start, length.value) if start else b""

    def peer_key(self):
        """The 32 octets of the peer's key."""
        room, length = ctypes.create_string_buffer(32), c_size_t(32)
        key = must(peer_raw_key(self.connection), "no raw public key of the peer")
        must(raw_public_key(key, room, byref(length)), "the peer's key is not Ed25519")
        return room.raw[:length.value]

    def export(self, label, context, length):
        room = ctypes.create_string_buffer(length)
        done = export_keys(self.connection, room, length, label, len(label), context, len(context), 1)
        must(done, "exporter")
        return room.raw

    def close(self):
        free_connection(self.connection)
        free_context(self.context)
