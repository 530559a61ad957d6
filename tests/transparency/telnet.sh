# telnet: a login session with telnetd, and telnet as a plain client of other servers.
. "$(dirname "$0")/world.sh"
printf '#!/bin/sh\nexec /bin/sh\n' >shell && chmod 755 shell
beta python3 "$here/inetd.py" 23 /usr/sbin/telnetd -h -E "$PWD/shell" </dev/null &
beta python3 "$here/inetd.py" 7 cat </dev/null &
wait_port 23 && wait_port 7
judge "a session" alpha timeout 60 python3 "$here/terminal.py" telnet -E "$BETA_IP"
judge "a session by IPv6" alpha timeout 60 python3 "$here/terminal.py" telnet -E "$BETA_IP6"
together() {
    pids=
    for _ in 1 2 3 4; do alpha timeout 60 python3 "$here/terminal.py" telnet -E "$BETA_IP" & pids="$pids $!"; done
    for pid in $pids; do wait "$pid" || return 1; done
}
judge "four sessions at once" together
plain() { (echo "a word"; sleep 1) | alpha timeout 20 telnet -E "$BETA_IP" 7 | grep -q "a word"; }
judge "a plain echo" plain
closed() { alpha timeout 20 telnet -E "$BETA_IP" 9 2>&1 </dev/null | grep -q "Connection refused"; }
judge "a closed port" closed
