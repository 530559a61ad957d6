# TLS: openssl's server and client, curl over https, renegotiated keys, a close_notify from either side.
. "$(dirname "$0")/world.sh"
openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out certificate -days 2 -subj "/CN=$BETA_IP" -addext "subjectAltName=IP:$BETA_IP" 2>/dev/null
mkdir files && make_file files/large 16
(cd files && exec nsenter --net=/run/netns/"$BETA" -- openssl s_server -accept 4433 -key ../key -cert ../certificate -WWW -quiet) </dev/null &
beta openssl s_server -accept 4434 -key key -cert certificate -rev -quiet </dev/null &
wait_port 4433 && wait_port 4434
fetch() { alpha curl -sS --max-time 60 --cacert certificate "$@" "https://$BETA_IP:4433/large" -o got; cmp got files/large; }
reverse() {
    (echo forwards; sleep 1) | alpha timeout 20 openssl s_client -connect "$BETA_IP:4434" -CAfile certificate -verify_return_error -brief "$@" >out 2>/dev/null
    grep -q sdrawrof out
}
judge "16 MiB by TLS 1.3" fetch --tlsv1.3
judge "16 MiB by TLS 1.2" fetch --tlsv1.2 --tls-max 1.2
judge "a dialogue by TLS 1.3" reverse -tls1_3
judge "a dialogue by TLS 1.2" reverse -tls1_2
