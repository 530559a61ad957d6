# redis-benchmark: many clients, pipelining, large values; and a blocking client.
. "$(dirname "$0")/world.sh"
beta redis-server --port 6379 --bind 0.0.0.0 --protected-mode no --save '' --appendonly no --dir "$PWD" </dev/null >server.log 2>&1 &
wait_port 6379
bench() {
    alpha timeout 100 redis-benchmark -h "$BETA_IP" --csv "$@" >out 2>errors || { cat errors >&2; return 1; }
    cat out >&2
    grep -q '^"' out && ! grep -qiE 'error|refused' out errors
}
cli() { alpha timeout 20 redis-cli -h "$BETA_IP" "$@"; }
large() {
    head -c 3000000 /dev/urandom | base64 -w0 >value
    cli -x set large <value && [ "$(cli get large | sha256sum)" = "$( (cat value; echo) | sha256sum)" ]
}
blocking() {
    cli blpop queue 10 >popped &
    sleep 0.3
    cli rpush queue pushed && wait $! && grep -qx pushed popped
}
sees_client() { cli client list | grep -q "addr=$ALPHA_IP:"; }
judge "50 clients" bench -t ping_inline,set,get,incr,lpush,lrange_100 -n 5000
judge "50 clients, 16 requests at once" bench -t set,get -n 20000 -P 16
judge "a connection for each request" bench -t set -n 500 -k 0
judge "values of 64 KiB" bench -t set,get -n 500 -d 65536
judge "one value of 4 MB" large
judge "a blocking client" blocking
judge "the client's own address" sees_client
