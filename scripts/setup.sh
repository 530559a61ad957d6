#!/bin/sh
# Installs the packages that the project's commands use and this host lacks, and nothing else: Debian's or Ubuntu's (packages-demo.txt,
# packages.txt, packages-optional.txt), Python's (packages-pip.txt) and SCTP stacks (packages-stacks.txt).
#
#   scripts/setup.sh            say what is missing, install it, or say that all is there
#   --quiet                     the same, silent when nothing is missing, and on a terminal only if the user agrees
#   --yes                       do not ask
#   --list                      only list what is missing; installs nothing
#   --demo                      only what `./x demo` uses
#   --ask-all                   with --demo: ask for all that will be installed later, too
#   --transparency              what `./x test --transparency` uses as well (packages-transparency.txt)
#
# Exit status 3: the user said no. With SCTPIFY_INSTALL=no, --quiet installs nothing.
#
# Idempotent. Uses apt-get, and pip, cargo and go for a directory of its own. Servers that come with packages (nginx, sshd) are not started: a
# policy-rc.d that forbids it stands for the time of the installation, unless the host has one already.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
own=/usr/local/lib/sctpify-tests
PATH=$PATH:/usr/sbin:/sbin
every="$here/packages-demo.txt $here/packages.txt $here/packages-optional.txt $here/packages-pip.txt $here/packages-stacks.txt"
mode=
case ${CI:-} in '' | 0 | false) yes= ;; *) yes=1 ;; esac
ask_all=
lists="$here/packages-demo.txt $here/packages.txt"
optional=$here/packages-optional.txt
pip=$here/packages-pip.txt
stacks=$here/packages-stacks.txt
for word; do
    case $word in
    --quiet | --list) mode=$word ;;
    --yes) yes=1 ;;
    --ask-all) ask_all=1 ;;
    --demo-sctp) lists=$here/packages-demo-sctp.txt optional=/dev/null pip=/dev/null stacks=/dev/null ;;
    --demo) lists=$here/packages-demo.txt optional=/dev/null pip=/dev/null stacks=/dev/null ;;
    --transparency) lists="$lists $here/packages-transparency.txt" every="$every $here/packages-transparency.txt" ;;
    *)
        echo "setup: unknown word: $word" >&2
        exit 2
        ;;
    esac
done

[ "$mode" != --quiet ] || [ "${SCTPIFY_INSTALL:-}" != no ] || exit 0

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
missing_optional=$(missing_lines $optional)
missing_pip=$(missing_lines $pip)
missing_stacks=$(missing_lines $stacks)
all_missing=$(printf '%s\n' "$missing" "$missing_optional" "$missing_pip" "$missing_stacks" | grep . || true)

# Installing without having been told to needs the user's word, where there is a user.
if [ "$mode" = --quiet ] && [ -z "$yes" ] && [ -t 0 ] && [ -t 1 ]; then
    [ -z "$ask_all" ] || asked=$(missing_lines $every)
    asked=${asked-$all_missing}
    if [ -n "$asked" ]; then
        echo "setup: these packages are missing and will be installed:"
        echo "$asked"
        printf 'setup: go on? (--yes: do not ask) [Y/n] '
        read -r answer || answer=n
        case $answer in
        "" | [yY]*) ;;
        *)
            echo "setup: nothing is installed; what needs these is skipped or fails" >&2
            exit 3
            ;;
        esac
    fi
fi
if [ -z "$all_missing" ]; then
    [ "$mode" = --quiet ] || [ "$mode" = --list ] || echo "setup: all packages are there"
    exit 0
fi
if [ "$mode" = --list ]; then
    echo "$all_missing"
    exit 0
fi
echo "setup: missing packages:"
echo "$all_missing"
if [ "$(id -u)" != 0 ]; then
    echo "setup: installing needs root: run  sudo $here/setup.sh" >&2
    exit 1
fi
if [ -n "$missing$missing_optional" ] && ! command -v apt-get >/dev/null; then
    echo "setup: no apt-get here; install by hand what the packages above provide" >&2
    [ -z "$missing" ] || exit 1
    missing_optional=
fi

# apt-get, which waits while another one is at work; what it says goes to $log.
apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1
}

install_packages() {
    apt install --no-install-recommends "$@"
}

install_by_apt() {
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        trap 'rm -f $policy' EXIT
        trap 'exit 130' INT TERM HUP
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
    fi
    names=$(echo "$missing" | awk '{print $1}')
    names_optional=$(echo "$missing_optional" | awk '{print $1}')
    log=$(mktemp)
    echo "setup: installing by apt-get ..."
    # At once where all are to be had, after a look at what there is at the latest.
    if ! install_packages $names $names_optional && { apt update || true; } && ! install_packages $names $names_optional; then
        if ! install_packages $names; then
            tail -n 20 "$log" >&2
            echo "setup: apt-get failed; its output is in $log" >&2
            exit 1
        fi
        for package in $names_optional; do
            install_packages $package || echo "setup: apt-get cannot install $package: what needs it will be skipped" >&2
        done
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

# The module that the go.mod in this directory of tests/interop names.
fetch_go() {
    cd "$here/../tests/interop/$1" && GOTOOLCHAIN=local GOMODCACHE=$own/go go mod download
}

# Without optimisation, which takes longer than all its runs.
make_cargo_deny() {
    cargo install --quiet --debug --locked --root $own --target-dir "$scratch/target" cargo-deny@0.20.2
}

# As with pip.
install_stacks() {
    scratch=$(mktemp -d)
    for package in $(echo "$missing_stacks" | awk '{print $1}'); do
        case $package in
        datachannel-sys) bring=make_usrsctp ;;
        cargo-deny) bring=make_cargo_deny ;;
        ishidawataru/sctp) bring="fetch_go go-sctp" ;;
        *) bring="fetch_go pion" ;;
        esac
        echo "setup: bringing $package ..."
        if ! ($bring) >"$scratch/log" 2>&1; then
            tail -n 5 "$scratch/log" >&2
            echo "setup: $package cannot be had: tests that need it will be skipped" >&2
        fi
    done
    rm -rf "$scratch"
}

[ -z "$missing$missing_optional" ] || install_by_apt
[ -z "$missing_pip" ] || install_by_pip
[ -z "$missing_stacks" ] || install_stacks
echo "setup: done"
