#!/bin/sh
# Installs the Debian or Ubuntu packages of scripts/packages.txt, the Python packages of scripts/packages-pip.txt and the SCTP stacks
# of scripts/packages-stacks.txt that are missing, and nothing else.
#
#   scripts/setup.sh            say what is missing, install it, or say that all is there
#   scripts/setup.sh --quiet    the same, silent when nothing is missing
#   scripts/setup.sh --list     only list what is missing; installs nothing
#   scripts/setup.sh --transparency    the packages of packages-transparency.txt as well
#
# Idempotent. Uses apt-get, and pip, cargo and go for a directory of its own. Servers that come with packages (nginx, sshd) are not started: a
# policy-rc.d that forbids it stands for the time of the installation, unless the host has one already.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mode=${1:-}
own=/usr/local/lib/sctpify-tests
lists=$here/packages.txt
[ "$mode" != --transparency ] || lists="$lists $here/packages-transparency.txt"
PATH=$PATH:/usr/sbin:/sbin

# What these lists have and the host has not.
missing_lines() {
    cat "$@" | grep -v '^#' | while IFS='|' read -r package probe why hashes; do
        package=$(echo $package) probe=$(echo $probe) why=$(echo $why)
        [ -n "$package" ] || continue
        case $probe in
        /*) [ -e "$probe" ] && continue ;;
        *) command -v "$probe" >/dev/null 2>&1 && continue ;;
        esac
        printf '  %-16s %s\n' "$package" "$why"
    done
}

missing=$(missing_lines $lists)
missing_pip=$(missing_lines "$here/packages-pip.txt")
missing_stacks=$(missing_lines "$here/packages-stacks.txt")
if [ -z "$missing$missing_pip$missing_stacks" ]; then
    [ "$mode" = --quiet ] || [ "$mode" = --list ] || echo "setup: all packages are there"
    exit 0
fi
if [ "$mode" = --list ]; then
    printf '%s\n' "$missing" "$missing_pip" "$missing_stacks" | grep .
    exit 0
fi
echo "setup: missing packages:"
printf '%s\n' "$missing" "$missing_pip" "$missing_stacks" | grep .
if [ "$(id -u)" != 0 ]; then
    echo "setup: installing needs root: run  sudo $here/setup.sh" >&2
    exit 1
fi
if [ -n "$missing" ] && ! command -v apt-get >/dev/null; then
    echo "setup: no apt-get here; install by hand what the packages above provide" >&2
    exit 1
fi

install_by_apt() {
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
    left=$(missing_lines $lists)
    if [ -n "$left" ]; then
        echo "setup: installed, but these are still not found:" >&2
        echo "$left" >&2
        exit 1
    fi
}

# Not every host can have each of these, and what needs them is skipped without.
install_by_pip() {
    log=$(mktemp)
    for package in $(echo "$missing_pip" | awk '{print $1}'); do
        echo "setup: installing $package by pip ..."
        sed -n "s/^\($package\) *|.*|\([^|]*\)$/\1 \2/p" "$here/packages-pip.txt" |
            awk '{ for (i = 2; i <= NF; i++) $i = "--hash=sha256:" $i; print }' >"$log.requirements"
        if ! python3 -m pip install --target $own --upgrade --no-deps --only-binary :all: --require-hashes \
            --retries 1 --quiet --disable-pip-version-check --root-user-action ignore -r "$log.requirements" >"$log" 2>&1; then
            tail -n 5 "$log" >&2
            echo "setup: pip cannot install $package: tests that need it will be skipped" >&2
        fi
    done
    rm -f "$log" "$log.requirements"
}

# The library is made of the sources alone, without what the crate builds around them.
make_usrsctp() {
    cargo vendor --quiet --locked --manifest-path "$here/../tests/interop/usrsctp/Cargo.toml" "$scratch/vendor" >/dev/null &&
        cd "$scratch/vendor/datachannel-sys/libdatachannel/deps/usrsctp/usrsctplib" &&
        gcc -c -O1 -w -I. -D_GNU_SOURCE -D__Userspace__ -DSCTP_SIMPLE_ALLOCATOR -DSCTP_PROCESS_LEVEL_LOCKS -DINET -DINET6 \
            -DHAVE_SYS_QUEUE_H -DHAVE_LINUX_IF_ADDR_H -DHAVE_LINUX_RTNETLINK_H -DHAVE_NETINET_IP_ICMP_H -DHAVE_NET_ROUTE_H \
            -DHAVE_STDATOMIC_H ./*.c netinet/*.c netinet6/*.c &&
        mkdir -p $own/usrsctp-0.23.0 && cp usrsctp.h $own/usrsctp-0.23.0 && ar rcs $own/usrsctp-0.23.0/libusrsctp.a ./*.o
}

fetch_pion() {
    cd "$here/../tests/interop/pion" && GOTOOLCHAIN=local GOMODCACHE=$own/go go mod download
}

# As with pip.
install_stacks() {
    scratch=$(mktemp -d)
    for package in $(echo "$missing_stacks" | awk '{print $1}'); do
        case $package in
        datachannel-sys) bring=make_usrsctp ;;
        *) bring=fetch_pion ;;
        esac
        echo "setup: bringing $package ..."
        if ! ($bring) >"$scratch/log" 2>&1; then
            tail -n 5 "$scratch/log" >&2
            echo "setup: $package cannot be had: tests that need it will be skipped" >&2
        fi
    done
    rm -rf "$scratch"
}

[ -z "$missing" ] || install_by_apt
[ -z "$missing_pip" ] || install_by_pip
[ -z "$missing_stacks" ] || install_stacks
echo "setup: done"
