#!/bin/bash
# Proves what the guests can do: selftest.sh [BACKEND]. Boots two guests of its own, in namespaces of its
# own, and takes them down again. Prints a line for each check; exits 1 if one failed.
set -u
cd "$(dirname "$(readlink -f "$0")")" || exit 1
backend=${1:-uml}
export KSCTP_PREFIX=kstest$$      # so that two runs do not meet
work=${KSCTP_WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/ksctp}
tmp=$(mktemp -d)
failed=0
echo_pid=

g() { local n=$1; shift; ./boot.sh exec "$n" -t 60 "$@" </dev/null; }
peer() { ./boot.sh peer timeout 60 "$@" </dev/null; }
ok() { echo "ok    $*"; }
bad() { echo "FAIL  $*"; failed=1; }
check() { # NAME COMMAND...: the last line that it prints goes on the line
  local name=$1; shift
  if "$@" >"$tmp/out" 2>&1; then ok "$name: $(tail -1 "$tmp/out")"; else bad "$name: $(tail -3 "$tmp/out" | tr '\n' ' ')"; fi
}
finish() {
  [ -z "$echo_pid" ] || kill "$echo_pid" 2>/dev/null
  ./boot.sh down-all
  rm -rf "$work/run-$KSCTP_PREFIX"
  rm -rf "$tmp"
}
trap finish EXIT

dpkg -s libusrsctp-dev >/dev/null 2>&1 ||
  apt-get install -y -q --no-install-recommends libusrsctp-dev >"$work/apt.log" 2>&1
gcc -O2 -Wall -Wextra -o "$tmp/peer" usrsctp_peer.c -lusrsctp -lpthread || exit 1

./boot.sh up k1 -b "$backend" || exit 1
./boot.sh up k2 -b "$backend" || exit 1
v4=10.60.0.11 v6=fd60:0::11 v4b=10.60.1.11     # k1; k2 is .12

check "kernel" g k1 'uname -srm'
check "checksctp" g k1 checksctp

iperf() { # GUEST|peer ARG...
  local n=$1; shift
  g k1 'pkill -x iperf3; iperf3 -s -D >/dev/null 2>&1; sleep 0.5'
  case $n in peer) peer iperf3 "$@" ;; *) g "$n" iperf3 "$@" ;; esac >"$tmp/iperf" 2>&1
  rate "$tmp/iperf"
}
rate() { # FILE
  sed -n 's/.*[0-9] *sec  *\(.*[^ ]\)  *receiver/\1/p' "$1" | grep . || { tail -3 "$1"; return 1; }
}
loopback() {
  g k1 'ip link set lo mtu 1500'
  iperf k1 -c 127.0.0.1 --sctp -t 3
}
check "SCTP, kernel to kernel, between guests" iperf k2 -c $v4 --sctp -t 3
check "SCTP, kernel to kernel, in a guest, lo at mtu 1500" loopback
check "TCP, host to guest" iperf peer -c $v4 -t 3
check "TCP, guest to host" iperf peer -c $v4 -t 3 -R

kp="python3 /run/host$PWD/kernel_peer.py"
g k1 "$kp echo 5000 >/tmp/echo.log 2>&1 & sleep 1"
g k1 "$kp sink 5001 >/tmp/sink.log 2>&1 & sleep 1"
check "kernel to kernel, IPv6, every octet compared" g k2 "$kp client fd60:1::11 5000 20 50000"
check "usrsctp to kernel, IP 132, IPv4" peer "$tmp/peer" client $v4 5000 200 1000
check "usrsctp to kernel, IP 132, IPv6" peer "$tmp/peer" client $v6 5000 200 1000
check "usrsctp to kernel, IP 132, messages of 60000" peer "$tmp/peer" client $v4 5000 20 60000

kernel_client() { # PEER-OPTIONS...
  ./boot.sh peer timeout 60 "$tmp/peer" "$@" echo 6000 </dev/null >"$tmp/echo" 2>&1 &
  echo_pid=$!
  sleep 0.5
  g k1 "$kp client 10.60.0.1 6000 20 50000" || { kill $echo_pid; return 1; }
  wait "$echo_pid"; echo_pid=
  grep -q 'echoed .* 1000000 octets' "$tmp/echo"
}
check "kernel to usrsctp, IP 132, messages of 50000" kernel_client
./boot.sh encap k1 9899
check "usrsctp to kernel, UDP, IPv4" peer "$tmp/peer" -u 9899 -U 9899 client $v4 5000 200 1000
check "usrsctp to kernel, UDP, IPv6" peer "$tmp/peer" -u 9899 -U 9899 client $v6 5000 200 1000
check "usrsctp to kernel, UDP, another port" peer "$tmp/peer" -u 20000 -U 9899 client $v4 5000 200 1000
check "usrsctp to kernel, UDP, messages of 60000" peer "$tmp/peer" -u 9899 -U 9899 client $v4 5000 20 60000
check "kernel to usrsctp, UDP, messages of 50000" kernel_client -u 9899 -U 9899
./boot.sh encap k2 9899
check "kernel to kernel, UDP" g k2 "$kp client $v4 5000 20 50000"
for n in k1 k2; do ./boot.sh encap $n 0; done

# Two paths: the first fails under a running transfer.
failover() {
  (sleep 3; nsenter --net=/run/netns/$KSCTP_PREFIX-net ip link set t1.0 nomaster) &
  g k2 "sysctl -qw net.sctp.rto_min=50 net.sctp.rto_initial=200 net.sctp.path_max_retrans=1
    (sleep 1; ss -Sin | grep -o 'peers:[^ ]*' | head -1) &
    timeout 20 $kp flow $v4 5001 8 60000" >"$tmp/failover" 2>&1
  nsenter --net=/run/netns/$KSCTP_PREFIX-net ip link set t1.0 master br0
  g k1 'cat /tmp/sink.log' | tr '\n' ' ' >>"$tmp/failover"
  cat "$tmp/failover"
  grep -q "peers:$v4,$v4b" "$tmp/failover" && grep -q ' [789] s: [1-9]' "$tmp/failover"
}
check "two paths, the first one cut after 3 s" failover

delay() { # QDISC: the mean round trip, in ms, through it
  g k1 "tc qdisc replace dev eth0 root $1" || return 1
  peer ping -c 10 -i 0.1 -q $v4 | sed -n 's#rtt.*= [^/]*/\([^/]*\)/.*#\1 ms#p'
  g k1 'tc qdisc del dev eth0 root'
}
check "netem delay 50ms" delay "netem delay 50ms"
check "sfq" delay "sfq perturb 10"

./boot.sh router k1
./boot.sh peer2 timeout 60 iperf3 -s -1 -D
sleep 0.3
g k1 'tc qdisc add dev eth1 root handle 1: htb default 1
  tc class add dev eth1 parent 1: classid 1:1 htb rate 20mbit quantum 1514
  tc qdisc add dev eth1 parent 1:1 netem delay 10ms loss 1%'
routed() { peer iperf3 -c 10.60.1.2 -u -b 10M -t 3 >"$tmp/iperf"; rate "$tmp/iperf"; }
check "host to host by the guest, UDP at 10 Mbit/s, htb 20mbit, netem 10ms and 1% loss" routed
g k1 'tc qdisc del dev eth1 root'

# What an endpoint with everything on announces.
g k1 'pkill -f kernel_pee[r]; sysctl -qw net.sctp.auth_enable=1 net.sctp.addip_enable=1 net.sctp.reconf_enable=1 net.sctp.intl_enable=1 net.sctp.prsctp_enable=1'
g k1 "$kp --idata echo 5000 >/tmp/echo.log 2>&1 & sleep 1"
check "INIT ACK of the kernel" peer python3 init_probe.py 10.60.0.1 $v4 5000
g k2 'sysctl -qw net.sctp.intl_enable=1'
check "I-DATA, kernel to kernel, fragmented" g k2 "$kp --idata client $v4 5000 20 5000"
check "I-DATA, usrsctp to kernel, in one piece" peer "$tmp/peer" -i client $v4 5000 100 1000
exit $failed
