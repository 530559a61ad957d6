"""WebSocket (RFC 6455), both ends, on asyncio. Usage: websocket.py serve PORT | websocket.py SERVER PORT WHAT"""

import asyncio
import base64
import hashlib
import os
import struct
import sys

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def frame(opcode, payload, masked):
    length = len(payload)
    head = bytes([0x80 | opcode])
    bit = 0x80 if masked else 0
    if length < 126:
        head += bytes([bit | length])
    elif length < 1 << 16:
        head += bytes([bit | 126]) + struct.pack(">H", length)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", length)
    if not masked:
        return head + payload
    key = os.urandom(4)
    mask = (key * (length // 4 + 1))[:length]
    masked_payload = (int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")).to_bytes(length, "big")
    return head + key + masked_payload


async def receive(reader):
    first, second = await reader.readexactly(2)
    length = second & 0x7F
    if length == 126:
        (length,) = struct.unpack(">H", await reader.readexactly(2))
    elif length == 127:
        (length,) = struct.unpack(">Q", await reader.readexactly(8))
    key = await reader.readexactly(4) if second & 0x80 else bytes(4)
    payload = await reader.readexactly(length)
    mask = (key * (length // 4 + 1))[:length]
    return first & 0x0F, (int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")).to_bytes(length, "big")


def accept_key(key):
    return base64.b64encode(hashlib.sha1(key + MAGIC).digest())


async def serve_one(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    key = next(line.split(b": ", 1)[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
    writer.write(upgrade + accept_key(key) + b"\r\n\r\n")
    while True:
        opcode, payload = await receive(reader)
        if opcode == PING:
            writer.write(frame(PONG, payload, False))
        elif opcode == CLOSE or payload == b"close, please":
            writer.write(frame(CLOSE, payload if opcode == CLOSE else struct.pack(">H", 1000), False))
            break
        else:
            writer.write(frame(opcode, payload, False))
        await writer.drain()
    writer.close()


async def connect(server, port):
    reader, writer = await asyncio.open_connection(server, port)
    key = base64.b64encode(os.urandom(16))
    request = f"GET / HTTP/1.1\r\nHost: {server}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    writer.write(request.encode() + b"Sec-WebSocket-Key: " + key + b"\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101") and accept_key(key) in head, head
    return reader, writer


async def exchange(reader, writer, opcode, payload, answer):
    writer.write(frame(opcode, payload, True))
    assert await receive(reader) == (answer, payload)


async def dialogue(server, port, what):
    reader, writer = await connect(server, port)
    if what == "echo":
        for size in [0, 1, 125, 126, 65535, 65536, 200000]:
            await exchange(reader, writer, BINARY, os.urandom(size), BINARY)
    elif what == "large":
        await exchange(reader, writer, BINARY, os.urandom(8 << 20), BINARY)
    elif what == "ping":
        for number in range(200):
            await exchange(reader, writer, PING, b"%d" % number, PONG)
    elif what == "idle":
        await asyncio.sleep(3)
        await exchange(reader, writer, TEXT, b"still there", TEXT)
    elif what == "many":
        for number in range(2000):
            writer.write(frame(TEXT, b"%d" % number, True))
        for number in range(2000):
            assert await receive(reader) == (TEXT, b"%d" % number)
    if what == "server-closes":
        writer.write(frame(TEXT, b"close, please", True))
    else:
        writer.write(frame(CLOSE, struct.pack(">H", 1000), True))
    assert await receive(reader) == (CLOSE, struct.pack(">H", 1000))
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def main():
    if sys.argv[1] == "serve":
        async with await asyncio.start_server(serve_one, "", int(sys.argv[2])) as server:
            await server.serve_forever()
    await dialogue(sys.argv[1], int(sys.argv[2]), sys.argv[3])


asyncio.run(main())
