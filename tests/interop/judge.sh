#!/bin/bash
# Judges a capture by tshark: judge.sh FILE [TSHARK-OPTION...]
# Prints the SCTP chunk types in it, in numeric order. Exits 1, with the packets, if one is malformed or has a wrong
# checksum or length; and if there is no SCTP at all. TSHARK-OPTIONS: -d udp.port==N,sctp for other ports than 9899.
set -euo pipefail
file=$1; shift
ask() { tshark -n -o "sctp.checksum:CRC 32c" "$@" 2>/dev/null; }
bad='sctp.checksum_bad.expert or _ws.malformed or sctp.chunk_length.bad or sctp.parameter_length.bad
  or sctp.sack_gap_block_malformed or sctp.sack_gap_block_out_of_order'
found=$(ask -r "$file" "$@" -Y "$bad")
[ -z "$found" ] || { echo "bad packets in $file:"; echo "$found"; exit 1; }
types=$(ask -r "$file" "$@" -Y sctp -T fields -e sctp.chunk_type -E separator=' ' | tr ', ' '\n\n' | grep . | sort -nu | tr '\n' ' ')
[ -n "$types" ] || { echo "no SCTP in $file"; exit 1; }
echo "$types"
