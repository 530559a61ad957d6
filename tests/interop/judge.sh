#!/bin/bash
# Judges a capture by tshark: judge.sh [--zero-checksum] FILE [TSHARK-OPTION...]
# Prints the SCTP chunk types in it, in numeric order. Exits 1, with the packets, if one is malformed or has a wrong
# checksum or length; and if there is no SCTP at all. TSHARK-OPTIONS: -d udp.port==N,sctp for other ports than 9899.
# With --zero-checksum both ends must send DATA with a checksum of zero (RFC 9653); INIT, COOKIE ECHO and ASCONF must have a right one.
set -euo pipefail
zero=
[ "$1" != --zero-checksum ] || { zero=yes; shift; }
file=$1; shift
ask() { tshark -n -o "sctp.checksum:CRC 32c" "$@" 2>/dev/null; }
checksum=sctp.checksum_bad.expert
[ -z "$zero" ] || checksum="($checksum and (sctp.checksum != 0 or sctp.chunk_type in {1, 10, 193}))"
# What tshark takes for another protocol's message, because of a random port, is none: only SCTP is judged.
# pion sends HEARTBEATs without Heartbeat Information.
bad="$checksum"' or (_ws.malformed and not frame.protocols matches "sctp:(?!data)" and not (sctp.chunk_type == 4 and sctp.chunk_length == 4)) or sctp.chunk_length.bad or sctp.parameter_length.bad
  or sctp.sack_gap_block_malformed or sctp.sack_gap_block_out_of_order'
found=$(ask -r "$file" "$@" -Y "$bad")
[ -z "$found" ] || { echo "bad packets in $file:"; echo "$found"; exit 1; }
if [ -n "$zero" ]; then
  senders=$(ask -r "$file" "$@" -Y 'sctp.checksum == 0 and sctp.chunk_type in {0, 64}' -T fields -e ip.src | sort -u)
  [ "$(echo "$senders" | grep -c .)" = 2 ] || { echo "no DATA with a checksum of zero from both ends in $file, only from: $senders"; exit 1; }
fi
types=$(ask -r "$file" "$@" -Y sctp -T fields -e sctp.chunk_type -E separator=' ' | tr ', ' '\n\n' | grep . | sort -nu | tr '\n' ' ')
[ -n "$types" ] || { echo "no SCTP in $file"; exit 1; }
echo "$types"
