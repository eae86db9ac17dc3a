#!/usr/bin/env bash
# What grows: one node with a long backlog, many sessions, many entities, many connections. It prints
# rows for docs/benchmarks-log.md: the load beside it empty, and at each size.
#
#   scripts/growth.sh backlog    fill MESSAGES (10000000) of 1 KiB, cycle beside them, restart
#   scripts/growth.sh sessions   cycles beside SESSIONS (1000 100000 1000000) of them, then a restart
#   scripts/growth.sh wide       ENTITIES (1000) and CONNECTIONS (2000), 16 partitions
#
# One node stands for three. GROWTH_DIR is where its data goes (a new directory under TMPDIR) and stays
# until the end; STEP (50s) is the length of one piece of filling, DURATION (10s) of a measurement,
# GOMEMLIMIT (2500MiB) that of the node.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${BUSBAR_BINARY:-$root/bin/busbar}
mode=${1:-backlog}
messages=${MESSAGES:-10000000}
read -ra sessions <<<"${SESSIONS:-1000 100000 1000000}"
entities=${ENTITIES:-1000}
connections=${CONNECTIONS:-2000}
step=${STEP:-50s}
duration=${DURATION:-10s}
limit=${GOMEMLIMIT:-2500MiB}
work=$(mktemp -d)
dir=${GROWTH_DIR:-$work}/node
port=${GROWTH_PORT:-29672}
ops=127.0.0.1:$((port + 1))
partitions=1
[[ $mode == wide ]] && partitions=16
pid=
export SERVICEBUS_CONNECTION_STRING="Endpoint=sb://127.0.0.1:$port;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"

stop() {
	[[ -n $pid ]] || return 0
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	pid=
}
trap 'stop; rm -rf "$work"' EXIT

start() { # start the node and say how long it took to be ready
	local began=${EPOCHREALTIME/./}
	GOMEMLIMIT=$limit "$bin" serve --dev --data-dir "$dir" --partitions "$partitions" --node-id n1 \
		--amqp-listen "127.0.0.1:$port" --tls-listen 127.0.0.1:0 --ops-listen "$ops" --log-level warn \
		2>>"$work/log" &
	pid=$!
	until curl -sf -m 5 "$ops/readyz" >/dev/null; do
		kill -0 "$pid" || { cat "$work/log" >&2; exit 1; }
		sleep 0.02
	done
	echo "ready after $(((${EPOCHREALTIME/./} - began) / 1000)) ms, $(memory)"
}

metric() { curl -sf -m 10 "$ops/metrics" | awk -v m="$1" 'index($1, m) == 1 { if ($2 > x) x = $2 } END { print x + 0 }'; }
memory() { awk '/VmRSS/ { r = $2 } /VmHWM/ { h = $2 } END { printf "resident %d MiB, at most %d MiB", r / 1024, h / 1024 }' "/proc/$pid/status"; }
told() { # what was the worst so far
	echo "$(memory); apply at most $(metric busbar_partition_apply_peak_seconds) s, paused by a snapshot at most $(metric busbar_partition_snapshot_pause_seconds) s; $(metric go_goroutines) goroutines, $(metric process_open_fds) files"
}
row() { # row NAME QUEUE FLAG...
	local name=$1 queue=$2
	shift 2
	"$bin" bench "$queue" --create --name "$name" --output row --pid "$pid" "$@"
}
waiting() { "$bin" queue show "$1" -o json | sed -n 's/.*"counts":{"active":\([0-9][0-9]*\).*/\1/p'; }

backlog() {
	row 'cycle, nothing else there' beside-0 --mode cycle --duration "$duration"
	local had=0 now
	while ((had < messages)); do
		row "fill, from $had" backlog --mode send --senders 4 --connections 4 --in-flight 2000 --warmup 0s --duration "$step"
		now=$(waiting backlog)
		((now > had)) || { echo "the backlog does not grow: $had, $now" >&2; exit 1; }
		had=$now
		told
	done
	row "cycle beside $had messages" beside-1 --mode cycle --duration "$duration"
	stop
	start
	row "cycle beside $had messages, after a restart" beside-2 --mode cycle --duration "$duration"
	told
}

sessions() {
	local n now
	for n in "${sessions[@]}"; do
		row "fill $n sessions" "sessions-$n" --mode send --senders 4 --connections 4 --in-flight 2000 --warmup 0s \
			--duration "$step" --sessions "$n"
		now=$(waiting "sessions-$n")
		((now >= n)) || { echo "only $now of $n sessions were filled: set STEP higher" >&2; exit 1; }
		row "cycle beside $n sessions, 24 others" "beside-$n" --mode cycle --duration "$duration" --sessions 24 --session-state
		told
	done
	stop
	start
}

wide() {
	local i
	for ((i = 1; i <= entities; i++)); do "$bin" queue create "entity-$i" >/dev/null; done
	told
	row "cycle beside $entities entities" entity-1 --mode cycle --duration "$duration"
	row "cycle, $connections connections" entity-2 --mode cycle --duration "$duration" --connections "$connections" \
		--senders $((connections / 2)) --receivers $((connections / 2)) --in-flight 4 --credit 4
	told
	stop
	start
}

case $mode in
backlog | sessions | wide) start && "$mode" ;;
*)
	sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
	exit 2
	;;
esac
