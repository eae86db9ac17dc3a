#!/usr/bin/env bash
# The CPU profile by which Go compiles the programs for users (docs/decisions/0113). Three nodes with the settings of a
# user take loads of several kinds, and tell what they did.
#
#   scripts/profile.sh [FILE]      write cmd/busbar/default.pgo, or FILE
#
# DURATION (10) is for how many seconds each load is recorded. It takes two minutes.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:-$root/cmd/busbar/default.pgo}
seconds=${DURATION:-10}
work=$(mktemp -d)
export CLUSTER_DIR=$work/cluster CLUSTER_PORT_OFFSET=${CLUSTER_PORT_OFFSET:-21000} CLUSTER_FLAGS=--pprof CLUSTER_LISTEN=
export SERVICEBUS_CONNECTION_STRING="Endpoint=sb://127.0.0.1:$((5672 + CLUSTER_PORT_OFFSET));SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"

# A profile names the file of the program, so that is a copy at a place that tells nothing of this machine.
mkdir -p "$work/bin" "$work/scripts"
cp "$root/bin/busbar" "$work/bin/busbar"
cp "$root/scripts/cluster.sh" "$work/scripts/cluster.sh"

finish() {
	"$work/scripts/cluster.sh" down >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap finish EXIT

number=0
record() { # record FLAG...: a load, and the profiles of the nodes under it
	local i pids=()
	number=$((number + 1))
	echo "recording: $*" >&2
	"$work/bin/busbar" bench "profile-$number" --create --warmup 2s --duration $((seconds + 2))s "$@" >/dev/null &
	pids+=($!)
	sleep 3
	for i in 0 1 2; do
		curl -fsS -o "$work/$number-$i.pb" "http://127.0.0.1:$((5300 + CLUSTER_PORT_OFFSET + 10 * i))/debug/pprof/profile?seconds=$seconds" &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i"; done
}

"$work/scripts/cluster.sh" up 3 >&2
record --mode latency --rate 2000
record --mode latency --rate 2000 --settle second
record --mode send --in-flight 1
record --mode cycle
record --mode cycle --settle second
record --mode cycle --sessions 24 --session-state
record --mode cycle --size 262144 --in-flight 16 --backlog 200 --credit 100
record --mode cycle --connections 200 --senders 100 --receivers 100 --in-flight 5 --credit 5
go tool pprof -proto "$work"/*.pb >"$work/merged"
mv "$work/merged" "$out"
echo "wrote $out" >&2
