"""Client of the roundtrip server on asyncio, with a connect that does not block.

    roundtrip.py HOST PORT BYTES      exit status 0 when all bytes came back

Sends random bytes, closes its sending half, reads one line (its address as the server sees it) and the bytes.
"""

import asyncio
import os
import socket
import sys


async def receive(loop, connection):
    """Everything up to the end of the stream."""
    parts = []
    while part := await loop.sock_recv(connection, 1 << 16):
        parts.append(part)
    return b"".join(parts)


async def roundtrip(host, port, size):
    loop = asyncio.get_running_loop()
    content = os.urandom(size)
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, address)
        here = connection.getsockname()
        await loop.sock_sendall(connection, content)
        connection.shutdown(socket.SHUT_WR)
        seen, _, back = (await receive(loop, connection)).partition(b"\n")
    if back != content:
        sys.exit(f"sent {len(content)} bytes, {len(back)} came back, and they differ")
    here = f"[{here[0]}]:{here[1]}" if family == socket.AF_INET6 else f"{here[0]}:{here[1]}"
    print(f"address here {here}, seen by the server {seen.decode()}")


asyncio.run(roundtrip(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
