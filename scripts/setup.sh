#!/bin/sh
# Installs the Debian or Ubuntu packages of scripts/packages.txt that are missing, and nothing else.
#
#   scripts/setup.sh            say what is missing, install it, or say that all is there
#   scripts/setup.sh --quiet    the same, silent when nothing is missing
#   scripts/setup.sh --list     only list what is missing; installs nothing
#   scripts/setup.sh --transparency    the packages of packages-transparency.txt as well
#
# Idempotent. Uses apt-get alone. Servers that come with packages (nginx, sshd) are not started: a
# policy-rc.d that forbids it stands for the time of the installation, unless the host has one already.
set -eu
here=$(dirname "$0")
mode=${1:-}
lists=$here/packages.txt
[ "$mode" != --transparency ] || lists="$lists $here/packages-transparency.txt"
PATH=$PATH:/usr/sbin:/sbin

missing_lines() {
    cat $lists | grep -v '^#' | while IFS='|' read -r package probe why; do
        package=$(echo $package) probe=$(echo $probe) why=$(echo $why)
        [ -n "$package" ] || continue
        case $probe in
        /*) [ -e "$probe" ] && continue ;;
        *) command -v "$probe" >/dev/null 2>&1 && continue ;;
        esac
        printf '  %-16s %s\n' "$package" "$why"
    done
}

missing=$(missing_lines)
if [ -z "$missing" ]; then
    [ "$mode" = --quiet ] || [ "$mode" = --list ] || echo "setup: all packages are there"
    exit 0
fi
if [ "$mode" = --list ]; then
    echo "$missing"
    exit 0
fi
echo "setup: missing packages:"
echo "$missing"
if [ "$(id -u)" != 0 ]; then
    echo "setup: installing needs root: run  sudo $here/setup.sh" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    echo "setup: no apt-get here; install by hand what the packages above provide" >&2
    exit 1
fi

policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    trap 'exit 130' INT TERM HUP
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
fi
names=$(echo "$missing" | awk '{print $1}')
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
install() {
    apt-get install -y --no-install-recommends $names >"$log" 2>&1
}
echo "setup: installing by apt-get ..."
if ! install; then
    apt-get update >"$log" 2>&1 || true
    if ! install; then
        tail -n 20 "$log" >&2
        echo "setup: apt-get failed; its output is in $log" >&2
        exit 1
    fi
fi
rm -f "$log"
left=$(missing_lines)
if [ -n "$left" ]; then
    echo "setup: installed, but these are still not found:" >&2
    echo "$left" >&2
    exit 1
fi
echo "setup: done"
