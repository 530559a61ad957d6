# pgbench against PostgreSQL: its usual load, a connection for each transaction, prepared statements; COPY; trust by address.
. "$(dirname "$0")/world.sh"
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
data=$PWD/data
chmod 755 . .. ; mkdir data && chown postgres data
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
(cd / && as "$bin/initdb" -D "$data" -A reject --no-sync) >initdb.log
printf 'local all all trust\nhost all all %s/32 trust\n' "$ALPHA_IP" >"$data/pg_hba.conf"
printf "listen_addresses='*'\nunix_socket_directories='%s'\nfsync=off\nmax_connections=100\n" "$data" >>"$data/postgresql.conf"
(cd / && exec nsenter --net=/run/netns/"$BETA" -- setpriv --reuid=postgres --regid=postgres --clear-groups "$bin/postgres" -D "$data") </dev/null >server.log 2>&1 &
wait_port 5432
export PGHOST=$BETA_IP PGUSER=postgres PGDATABASE=postgres PGCONNECT_TIMEOUT=20
for _ in $(seq 100); do as "$bin/psql" -h "$data" -c 'select 1' >/dev/null 2>&1 && break; sleep 0.1; done
load() { alpha timeout 100 "$bin/pgbench" "$@" >out 2>&1; status=$?; cat out >&2; [ $status = 0 ] && grep -q 'failed transactions: 0' out; }
init() { alpha timeout 100 "$bin/pgbench" -i -s 1 -q; }
copied() {
    alpha timeout 60 "$bin/psql" -qc 'copy pgbench_accounts to stdout' >table
    [ "$(wc -l <table)" = 100000 ] && alpha timeout 60 "$bin/psql" -qc 'create table again (like pgbench_accounts)' &&
        alpha timeout 60 "$bin/psql" -qc '\copy again from table' &&
        [ "$(alpha "$bin/psql" -Atc 'select count(*) from again')" = 100000 ]
}
address() { [ "$(alpha "$bin/psql" -Atc 'select host(inet_client_addr())')" = "$ALPHA_IP" ]; }
cancelled() { ! alpha timeout 20 "$bin/psql" -c "set statement_timeout='500ms'; select pg_sleep(10)"; }
judge "make tables" init
judge "8 clients" load -c 8 -j 2 -t 100
judge "a connection for each transaction" load -c 2 -C -t 50
judge "prepared statements, reading only" load -c 8 -j 2 -S -M prepared -t 300
judge "pipelined COPY both ways" copied
judge "the client's own address" address
judge "a statement that is cancelled" cancelled
