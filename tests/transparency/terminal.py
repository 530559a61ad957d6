"""Uses a remote shell as somebody at a terminal does: terminal.py COMMAND...

Runs the command on a terminal of its own, waits for the shell, has it compute something, interrupts a command that would last, and
leaves. The exit status is 0 when all that came back was right.
"""
import os
import pty
import select
import sys
import time

LIMIT_S = 20


def read_until(terminal, mark):
    """What comes up to the mark, which may come in pieces."""
    told, end = b"", time.monotonic() + LIMIT_S
    while mark not in told:
        if not select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
            raise TimeoutError(f"no {mark!r} in {told!r}")
        told += os.read(terminal, 4096)
    return told


def type_in(terminal, text):
    """One key after another."""
    for key in text.encode():
        os.write(terminal, bytes([key]))
        time.sleep(0.002)


def use(terminal):
    # The product is in no echo of what was typed.
    type_in(terminal, "echo ready-$((6 * 7))\r")
    read_until(terminal, b"ready-42")
    type_in(terminal, "sleep 1000\r")
    time.sleep(0.3)
    type_in(terminal, "\x03")
    type_in(terminal, "seq 20000 | tail -n +1; echo done-$((7 * 7))\r")
    assert b"\n19999\r\n20000\r\n" in read_until(terminal, b"done-49")
    type_in(terminal, "exit\r")


def main():
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(sys.argv[1], sys.argv[1:])
    use(terminal)
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        try:
            if not os.read(terminal, 4096):
                break
        except OSError:
            break
    os.waitpid(child, 0)


main()
