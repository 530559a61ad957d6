# A WebSocket: upgrade from HTTP, messages of all sizes both ways, pings, an idle time, a close from either side.
. "$(dirname "$0")/world.sh"
beta python3 "$here/websocket.py" serve 8765 </dev/null &
wait_port 8765
for what in echo large ping idle client-closes server-closes many; do
    judge "$what" alpha timeout 60 python3 "$here/websocket.py" "$BETA_IP" 8765 "$what"
done
