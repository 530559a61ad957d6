# What the scripts of this directory share; they begin with `. "$(dirname "$0")/world.sh"`.
#
# Given by the caller: ALPHA and BETA, two network namespaces; ALPHA_IP, BETA_IP, BETA_IP6, their addresses on the link between them;
# the working directory, which is the script's own and goes with the run. A script prints "ok NAME" or "not ok NAME" for each
# test; servers that it leaves running are ended with its process group.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir "$(basename "$0" .sh)-$$" && cd "$(basename "$0" .sh)-$$" || exit 1

# Runs a command on one host.
alpha() { nsenter --net=/run/netns/"$ALPHA" -- "$@"; }
beta() { nsenter --net=/run/netns/"$BETA" -- "$@"; }

# judge NAME COMMAND...: the test passes when the command succeeds within a minute or so; what it prints goes to standard error.
judge() {
    name=$1
    shift
    if "$@" </dev/null >&2; then echo "ok $name"; else echo "not ok $name"; fi
}

# Waits until something listens on beta's TCP port $1.
wait_port() {
    for _ in $(seq 200); do
        beta ss -Hltn "sport = :$1" | grep -q . && return
        sleep 0.05
    done
    echo "nothing listens on port $1" >&2
    return 1
}

# Makes file $1 of $2 mebibytes.
make_file() { head -c "$(($2 * 1048576))" /dev/urandom >"$1"; }

# Starts an sshd on beta, in a mount namespace of its own, which finds /run/sshd and an account that is not locked; `ssh -F
# ssh_config root@$BETA_IP` gets in.
start_sshd() {
    for key in host client; do ssh-keygen -q -t ed25519 -N '' -f "$key"; done
    cp client.pub authorized_keys
    printf 'root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n' >shadow
    cat >sshd_config <<END
Port 22
HostKey $PWD/host
AuthorizedKeysFile $PWD/authorized_keys
PidFile none
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
StrictModes no
Subsystem sftp internal-sftp
END
    cat >ssh_config <<END
IdentityFile $PWD/client
IdentitiesOnly yes
BatchMode yes
StrictHostKeyChecking no
UserKnownHostsFile $PWD/known
END
    beta unshare --mount sh -c "mount -t tmpfs -o mode=755 tmpfs /run && mkdir -m 755 /run/sshd &&
        mount --bind '$PWD/shadow' /etc/shadow && exec /usr/sbin/sshd -D -e -f '$PWD/sshd_config'" </dev/null 2>sshd.log &
    wait_port 22
}
