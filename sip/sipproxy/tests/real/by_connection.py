"""A telephone that is there by its TCP connection alone (RFC 5626): its contact leads nowhere. Usage: USER PROXY-ADDRESS"""
import socket
import sys

USER, PROXY = sys.argv[1], sys.argv[2]
COPIED = ("via", "from", "to", "call-id", "cseq", "record-route")

connection = socket.create_connection((PROXY, 5060))
place = "%s:%d" % connection.getsockname()
contact = f'Contact: <sip:{USER}@127.255.255.254:9;transport=tcp>;+sip.instance="<urn:uuid:1>";reg-id=1'
sender = f"<sip:{USER}@example.com>"


def send(lines):
    connection.sendall("\r\n".join([*lines, "Content-Length: 0", "", ""]).encode())


def messages():
    waiting = b""
    while more := connection.recv(65536):
        waiting += more
        while b"\r\n\r\n" in waiting:
            head, rest = waiting.split(b"\r\n\r\n", 1)
            lines = head.decode().split("\r\n")
            length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
            if len(rest) < length:
                break
            waiting = rest[length:]
            yield lines


def answer(lines):
    copied = [line for line in lines[1:] if line.split(":")[0].lower() in COPIED]
    tagged = [line + ";tag=answered" if line.lower().startswith("to:") and "tag=" not in line else line for line in copied]
    send(["SIP/2.0 200 OK", *tagged, contact])


send(["REGISTER sip:example.com SIP/2.0", f"Via: SIP/2.0/TCP {place};branch=z9hG4bK{USER}", "Max-Forwards: 70",
      f"From: {sender};tag=1", f"To: {sender}", f"Call-ID: {USER}", "CSeq: 1 REGISTER", contact])
for message in messages():
    if message[0].startswith("SIP/2.0"):
        print(message[0], flush=True)
    elif not message[0].startswith("ACK"):
        answer(message)
