#!/bin/bash
# Makes the captures of engine/wire/tests/golden anew: make-golden.sh [DIRECTORY [NAME...]]
#
# Boots two guests with the Linux kernel's SCTP (tests/kernel-sctp), lets them talk to each other, to libusrsctp and
# to hand-made packets, and captures at the first guest's two taps. Each capture is judged by tshark (nothing malformed,
# every checksum right) and must hold the chunk types it is made for. Two minutes, root, Debian.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
out=$(readlink -f "${1:-$here/../../engine/wire/tests/golden}"); shift || true
wanted=("$@")
export KSCTP_PREFIX=gold$$
boot=$here/../kernel-sctp/boot.sh
kernel_dir=$(readlink -f "$here/../kernel-sctp")
tmp=$(mktemp -d)
net=/run/netns/$KSCTP_PREFIX-net
limit=60000                       # octets in a capture
started=()

finish() {
  local p
  for p in "${started[@]}"; do kill "$p" 2>/dev/null || true; done
  "$boot" down-all
  rm -rf "$tmp" "${KSCTP_WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/ksctp}/run-$KSCTP_PREFIX"
}
trap finish EXIT

say() { echo "make-golden: $*" >&2; }
g() { local n=$1; shift; "$boot" exec "$n" -t 30 "$@" </dev/null; }
peer() { "$boot" peer timeout 30 "$@" </dev/null; }
kp="python3 /run/host$kernel_dir/kernel_peer.py"
k1=10.60.0.11 k1b=10.60.1.11 k1v6=fd60:0::11 k2=10.60.0.12 k2b=10.60.1.12 host=10.60.0.1 hostb=10.60.1.1

tap() { nsenter --net="$net" ip link set "t1.$1" "${@:2}"; }
server() { # ARG...: an echo or sink in k1 at port 5000, ready when this returns, gone when its capture ends
  g k1 "$kp $* >/tmp/server.log 2>&1 & echo \$! >/tmp/server.pid
    for n in \$(seq 100); do grep -qs ' 5000 ' /proc/net/sctp/eps && exit; sleep 0.1; done; exit 1"
}
stop_server() { g k1 'kill $(cat /tmp/server.pid) 2>/dev/null; while grep -qs " 5000 " /proc/net/sctp/eps; do sleep 0.1; done'; }
both() { local n; for n in k1 k2; do g $n "$@"; done; }
defaults() {
  both "sysctl -qw net.sctp.auth_enable=0 net.sctp.addip_enable=0 net.sctp.reconf_enable=0 net.sctp.intl_enable=0 \
    net.sctp.hb_interval=30000 net.sctp.rto_min=1000 net.sctp.rto_initial=3000 net.sctp.path_max_retrans=5 \
    net.sctp.valid_cookie_life=60000; tc qdisc del dev eth0 root 2>/dev/null; tc qdisc del dev eth1 root 2>/dev/null; true"
}

begin() { # both taps, each into a file of its own
  local i
  for i in 0 1; do
    nsenter --net="$net" tcpdump -Z root -U --immediate-mode -q -s0 -i "t1.$i" -w "$tmp/$i.pcap" \
      'proto 132 or ip6 proto 132 or udp port 9899 or icmp' 2>"$tmp/tcpdump.$i" &
    started+=($!)
    until grep -qs listening "$tmp/tcpdump.$i"; do sleep 0.05; done
  done
}

end() { # NAME CHUNK-TYPE...
  local name=$1 p types; shift
  sleep 0.3
  for p in "${started[@]}"; do kill "$p"; wait "$p" || true; done
  started=()
  stop_server
  mergecap -F pcap -w "$tmp/$name.pcap" "$tmp/0.pcap" "$tmp/1.pcap"
  types=$("$here/judge.sh" "$tmp/$name.pcap") || { say "$name: $types"; exit 1; }
  for p; do
    grep -qw -- "$p" <<<"$types" || { say "$name: no chunk of type $p, only: $types"; exit 1; }
  done
  [ "$(stat -c %s "$tmp/$name.pcap")" -le $limit ] || { say "$name: larger than $limit octets"; exit 1; }
  mv "$tmp/$name.pcap" "$out/"
  say "$name: $(stat -c %s "$out/$name.pcap") octets, chunk types: $types"
}

# --- the captures: one function each ------------------------------------------------------------

small_association() { # two paths, three streams, ordered and unordered, heartbeats, SHUTDOWN
  both 'sysctl -qw net.sctp.hb_interval=300 net.sctp.rto_initial=300 net.sctp.rto_min=200'
  begin
  server echo 5000
  g k2 "$kp --local $k2 --local $k2b --streams 3 --window 3 client $k1 5000 6 100"
  g k2 "$kp --local $k2 --local $k2b --streams 3 --unordered --hold 1.5 client $k1 5000 3 50"
}
kernel_raw() { small_association; end kernel-raw 0 1 2 3 4 5 7 8 10 11 14; }
kernel_udp() { both_encap 9899; small_association; end kernel-udp 0 1 2 3 4 5 7 8 10 11 14; both_encap 0; }
both_encap() { local n; for n in k1 k2; do "$boot" encap $n "$1"; done; }

kernel_v6_large() { # fragments of one large message, IPv6
  begin
  server echo 5000
  g k2 "$kp client $k1v6 5000 1 20000"
  end kernel-v6-large 0 3
}

usrsctp_raw() {
  begin
  server echo 5000
  peer "$tmp/usrsctp_peer" -l $host -l $hostb -s 3 -w 3 client $k1 5000 6 100
  peer "$tmp/usrsctp_peer" -o -s 2 client $k1 5000 2 3000
  end usrsctp-raw 0 1 2 3 7 8 10 11 14
}

usrsctp_udp() { # the kernel is the client here
  "$boot" encap k1 9899
  begin
  peer "$tmp/usrsctp_peer" -u 9899 -U 9899 echo 6000 & started+=($!)
  sleep 0.5
  g k1 "$kp --streams 2 client $host 6000 4 1000"
  g k1 "echo >/tmp/server.pid"
  wait "${started[-1]}"; unset 'started[-1]'
  end usrsctp-udp 0 1 2 3 7 8 10 11 14
  "$boot" encap k1 0
}

kernel_abort() {
  begin
  server echo 5000
  g k2 "$kp --abort client $k1 5000 1 100"
  end kernel-abort 0 6
}

path_cut() { # the first path goes silent under a running transfer; T3, heartbeats, the second path takes over
  both 'sysctl -qw net.sctp.rto_min=100 net.sctp.rto_initial=200 net.sctp.path_max_retrans=1 net.sctp.hb_interval=300'
  begin
  server echo 5000
  (sleep 1.2; tap 0 nomaster; sleep 3; tap 0 master br0) & 
  local cut=$!
  # One message, then the path dies while the association idles a little, then more messages.
  g k2 "tc qdisc add dev eth0 root netem delay 100ms; tc qdisc add dev eth1 root netem delay 100ms
    $kp --local $k2 --local $k2b client $k1 5000 20 500"
  wait $cut
  end kernel-path-cut 0 3 4 5
}

loss() { # gaps, fast retransmit
  begin
  server sink 5000
  g k2 "tc qdisc add dev eth0 root netem delay 10ms loss 20%; $kp --local $k2 send $k1 5000 30 1200"
  end kernel-loss 0 3
}

zero_window() { # the reader stops: a_rwnd 0 and probes
  both 'sysctl -qw net.sctp.rto_min=200 net.sctp.rto_initial=300'
  begin
  server --rcvbuf 8000 --stall 2.5 sink 5000
  g k2 "$kp send $k1 5000 25 1000"
  end kernel-zero-window 0 3
}

simultaneous_open() { # INITs cross on the way
  begin
  both 'tc qdisc add dev eth0 root netem delay 200ms'
  g k1 "$kp --local $k1 --bind-port 7000 --hold 1 client $k2 7000 0 1 >/tmp/open.log 2>&1 & sleep 0.05; echo >/tmp/server.pid" &
  g k2 "$kp --local $k2 --bind-port 7000 --hold 1 client $k1 7000 0 1"
  wait $!
  end kernel-simultaneous-open 1 2 10 11
}

crafted() { # see craft.py
  g k1 'sysctl -qw net.sctp.ecn_enable=1 net.sctp.rto_initial=500 net.sctp.rto_min=200'
  begin
  server sink 5000
  peer python3 "$here/craft.py" $host $k1 5000 ootb_data ootb_shutdown_ack closed_port no_streams unknown_parameter \
    unresolvable_address unknown_chunk invalid_stream no_user_data gaps_and_duplicates ecn heartbeat restart \
    protocol_violation shutdown_ack_lost >"$tmp/craft.log" || { cat "$tmp/craft.log" >&2; exit 1; }
  g k1 'sysctl -qw net.sctp.valid_cookie_life=1000'
  stop_server
  server sink 5000
  peer python3 "$here/craft.py" $host $k1 5000 stale_cookie >"$tmp/craft.log" || { cat "$tmp/craft.log" >&2; exit 1; }
  end crafted-to-kernel 6 9 12 13 14 5 254
}

auth() { # HMAC-ID
  both 'sysctl -qw net.sctp.auth_enable=1'
  begin
  server --auth "$1" echo 5000
  g k2 "$kp --auth $1 --streams 2 client $k1 5000 4 200"
  end kernel-auth-$2 0 15
}
auth_sha1() { auth 1 sha1; }
auth_sha256() { auth 3 sha256; }

asconf() { # an address is added to a running association, then deleted; each chunk under AUTH
  both 'sysctl -qw net.sctp.auth_enable=1 net.sctp.addip_enable=1'
  begin
  server echo 5000
  g k2 "$kp --local $k2 --add $k2b client $k1 5000 2 100"
  end kernel-asconf 15 193 128
}

reconf() { # outgoing and incoming stream reset, streams added
  both 'sysctl -qw net.sctp.reconf_enable=1'
  begin
  server --reconf echo 5000
  g k2 "$kp --reconf --reset --hold 0.5 --streams 2 client $k1 5000 4 100"
  end kernel-reconf 130
}

idata() { # whole and in fragments (see the README about the kernel's FSN)
  both 'sysctl -qw net.sctp.intl_enable=1'
  begin
  server --idata echo 5000
  g k2 "$kp --idata --streams 2 --adaptation 0x53425000 client $k1 5000 2 3000"
  peer "$tmp/usrsctp_peer" -i client $k1 5000 2 500
  end idata 64
}

give_up() { # messages that are lost and not sent again: FORWARD TSN
  both 'sysctl -qw net.sctp.rto_min=200 net.sctp.rto_initial=300'
  g k2 'tc qdisc add dev eth0 root netem loss 25%'
  begin
  server ${1:-} sink 5000
  g k2 "$kp ${1:-} --pr-rtx 0 --local $k2 --streams 2 send $k1 5000 60 300"
}
forward_tsn() { give_up; end kernel-forward-tsn 192; }
i_forward_tsn() {
  both 'sysctl -qw net.sctp.intl_enable=1'
  give_up --idata
  end kernel-i-forward-tsn 194
}

all="kernel_raw kernel_udp kernel_v6_large usrsctp_raw usrsctp_udp kernel_abort path_cut loss zero_window
  simultaneous_open crafted auth_sha1 auth_sha256 asconf reconf idata forward_tsn i_forward_tsn"

"$boot" up k1
"$boot" up k2
gcc -O2 -o "$tmp/usrsctp_peer" "$kernel_dir/usrsctp_peer.c" -lusrsctp -lpthread
# Checksums are to be in the packets, not left to a card that is not there.
for i in 0 1; do "$boot" peer ethtool -K eth$i tx off gso off gro off >/dev/null; done
for name in ${wanted[@]:-$all}; do
  say "$name"
  defaults
  $name >&2
done
