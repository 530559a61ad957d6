"""Offers packets to a queueing discipline behind a gate of HTB's, and tells what comes out, in which order and when.

Standard input is one JSON object: "leaf" is the discipline in tc's words, "steps" what is done, one after the other:
["fill", PACKETS, BITS] closes the gate behind the first packet, offers the others while it is shut, and then lets them go at so many
bits per second until none waits; ["wait", SECONDS] does nothing. A packet is [flow, bytes with Ethernet's header, id, ECN].
Standard output is a list, for each fill, of what came: [id, nanoseconds, ECN]; and when the last packet had been offered.
"""
import errno
import json
import socket
import struct
import subprocess
import sys
import time

# What the gate carries while it is shut: the first packet opens a pause of two seconds.
SHUT = "6kbit burst 1 cburst 1"
PATIENCE_S = 20
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
SO_SNDBUFFORCE = 32


def tc(words):
    return subprocess.run(["tc", *words.split()], check=True, capture_output=True, text=True).stdout


def gate(verb, rate):
    tc(f"class {verb} dev v0 parent 1: classid 1:1 htb quantum 1514 rate {rate}")


def build(leaf):
    subprocess.run("ip link del v0 2>/dev/null; ip link add v0 type veth peer name v1", shell=True, check=True)
    for end in ("v0", "v1"):
        # The kernel's own packets would take places in the queue.
        with open(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6", "w") as file:
            file.write("1")
        subprocess.run(["ip", "link", "set", end, "up"], check=True)
    tc("qdisc add dev v0 root handle 1: htb default 1")
    gate("add", SHUT)
    tc(f"qdisc add dev v0 parent 1:1 handle 10: {leaf}")


def frame(flow, length, number, ecn):
    ethernet = bytes.fromhex("020000000002" "020000000001" "0800")
    ip = struct.pack("!BBHHHBBHII", 0x45, ecn, length - 14, 0, 0, 64, 132, 0, 0x0A000000 + flow, 0x0AFF0001)
    sctp = struct.pack("!HHII", 40000, 7, 1, 0)
    data = struct.pack("!BBHIHHII", 0, 3, length - 14 - 32, number, 0, 0, 0, number)
    return (ethernet + ip + sctp + data).ljust(length, b"\0")


def waiting():
    return sum(q["qlen"] for q in json.loads(tc("-j -s qdisc show dev v0")) if q["kind"] != "htb")


def arrived(tap):
    came = []
    while True:
        try:
            data, notes, _, _ = tap.recvmsg(2048, 256, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return came
        seconds, nanos = struct.unpack("qq", next(it[2] for it in notes if it[1] == SO_TIMESTAMPNS)[:16])
        came.append([struct.unpack("!I", data[62:66])[0], seconds * 10**9 + nanos, data[15] & 3])


def fill(door, tap, packets, rate):
    frames = [frame(*packet) for packet in packets]
    gate("change", SHUT)
    for packet in frames:
        try:
            door.send(packet)
        except OSError as error:
            # The queue dropped this very packet, and says so.
            if error.errno != errno.ENOBUFS:
                raise
    offered = time.time_ns()
    gate("change", f"{rate} burst 1500 cburst 1500")
    end = time.monotonic() + PATIENCE_S
    while waiting() and time.monotonic() < end:
        time.sleep(0.1)
    return {"offered": offered, "came": arrived(tap)}


def main():
    request = json.load(sys.stdin)
    build(request["leaf"])
    door = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    door.bind(("v0", 0))
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    tap.bind(("v1", 0x0800))
    tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    door.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 64 << 20)
    results = []
    for step, *words in request["steps"]:
        if step == "fill":
            results.append(fill(door, tap, *words))
        else:
            time.sleep(*words)
    json.dump(results, sys.stdout)


main()
