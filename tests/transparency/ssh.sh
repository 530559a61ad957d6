# ssh, scp and sftp: commands, files both ways, ports forwarded both ways, several sessions in one connection.
. "$(dirname "$0")/world.sh"
start_sshd
make_file file 16
there() { alpha timeout 60 ssh -F ssh_config "$@"; }
status() { there "root@$BETA_IP" exit 3; [ $? = 3 ]; }
judge "a command's status" status
through() { there "root@$BETA_IP" cat <file | cmp - file; }
judge "16 MiB through a remote cat" through
to() { alpha timeout 60 scp -q -F ssh_config file "root@$BETA_IP:$PWD/copied" && cmp copied file; }
judge "scp to the server" to
from() { alpha timeout 60 scp -q -F ssh_config "root@$BETA_IP:$PWD/file" fetched && cmp fetched file; }
judge "scp from the server" from
by6() { alpha timeout 60 scp -q -F ssh_config file "root@[$BETA_IP6]:$PWD/copied6" && cmp copied6 file; }
judge "scp by IPv6" by6
old() { alpha timeout 60 scp -O -q -F ssh_config file "root@$BETA_IP:$PWD/copied-old" && cmp copied-old file; }
judge "scp by its own protocol" old
session() {
    printf 'put file put-%s\nget put-%s got\nrm put-%s\n' $$ $$ $$ | alpha timeout 60 sftp -q -F ssh_config -b - "root@$BETA_IP:$PWD" && cmp got file
}
judge "sftp both ways" session
# A terminal: what is typed is echoed, and an interrupt ends the command.
judge "a terminal" alpha timeout 60 python3 "$here/terminal.py" ssh -tt -F ssh_config "root@$BETA_IP" /bin/sh
shared() {
    there -M -S mux -N -f "root@$BETA_IP" || return 1
    for n in 1 2 3 4 5 6 7 8; do there -S mux "root@$BETA_IP" "sleep 0.2; echo $n" >"shared-$n" & pids="${pids:-} $!"; done
    wait $pids
    for n in 1 2 3 4 5 6 7 8; do grep -qx "$n" "shared-$n" || return 1; done
    there -S mux -O exit "root@$BETA_IP"
}
judge "eight sessions in one connection" shared
