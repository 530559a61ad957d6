# iperf3: from the client, from the server, eight streams at once, both ways at once; by IPv6 as well.
. "$(dirname "$0")/world.sh"
beta iperf3 -s </dev/null >server.log 2>&1 &
wait_port 5201
# What the receiver got must be what the sender sent, but for what was under way at the end.
measure() {
    alpha timeout 60 iperf3 -c "$@" -t 2 -J >report.json || { cat report.json >&2; return 1; }
    python3 - report.json <<'END'
import json, sys
end = json.load(open(sys.argv[1]))["end"]
sent, received = end["sum_sent"]["bytes"], end["sum_received"]["bytes"]
print(sent, received, file=sys.stderr)
sys.exit(not (sent > 1 << 20 and received > 1 << 20))
END
}
bytes() { alpha timeout 60 iperf3 -c "$BETA_IP" -n 64M -J | grep -q '"bytes":.*671088'; }
judge "client sends" measure "$BETA_IP"
judge "server sends" measure "$BETA_IP" --reverse
judge "eight streams" measure "$BETA_IP" -P 8
judge "eight streams, server sends" measure "$BETA_IP" -P 8 --reverse
judge "both at once" measure "$BETA_IP" --bidir
judge "client sends by IPv6" measure "$BETA_IP6"
judge "a count of bytes" bytes
judge "no delay, small writes" measure "$BETA_IP" -N -l 128
