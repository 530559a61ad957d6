"""Runs a program for each connection, which is its standard input and output, as inetd does: inetd.py PORT COMMAND..."""
import os
import signal
import socket
import sys

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    connection, _ = listener.accept()
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(connection.fileno(), 0)
        os.dup2(connection.fileno(), 1)
        os.execvp(sys.argv[2], sys.argv[2:])
    connection.close()
