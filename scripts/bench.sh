#!/usr/bin/env bash
# The standard measurements: one node, three nodes, and the baselines, on this machine. They run with
# the load generator on the same cores, so the broker's CPU time per message is what to compare.
#
#   scripts/bench.sh [FILE]      write docs/benchmarks.md, or FILE
#
# DURATION (10s) is how long each row is measured, after 2 s of warm-up; ROWS picks rows by a pattern.
# Text between the markers "notes" and "end of notes" is kept from the file that is replaced.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/bin/busbar
out=${1:-$root/docs/benchmarks.md}
duration=${DURATION:-10s}
pick=${ROWS:-.}
work=$(mktemp -d)
export CLUSTER_DIR=$work/cluster CLUSTER_PORT_OFFSET=${CLUSTER_PORT_OFFSET:-24000}
export CLUSTER_FLAGS="--log-level warn ${CLUSTER_FLAGS:-}"
port=$((5672 + CLUSTER_PORT_OFFSET))
export SERVICEBUS_CONNECTION_STRING="Endpoint=sb://127.0.0.1:$port;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"

finish() {
	"$root/scripts/cluster.sh" down >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap finish EXIT

pids=()
number=0
row() { # row NAME FLAG...: one measurement, on a queue of its own
	local name=$1 load
	shift
	[[ $name =~ $pick ]] || return 0
	number=$((number + 1))
	load=$(cut -d' ' -f1 /proc/loadavg 2>/dev/null || echo '?')
	echo "measuring: $name (load $load)" >&2
	"$bin" bench "bench-$number" --create --name "$name" --output row --duration "$duration" "${pids[@]}" "$@"
}

heading() {
	echo
	echo "## $1"
	echo
	echo '| load | messages/s | broker CPU µs/message | user + system | confirmed p50 / p99 ms | end to end p50 / p99 ms | settled p50 / p99 ms | write calls / bytes to disk per message |'
	echo '|---|---|---|---|---|---|---|---|'
}

baseline() { # baseline NAME FLAG...
	local name=$1
	shift
	[[ $name =~ $pick ]] || return 0
	echo "measuring: $name" >&2
	"$bin" bench --name "$name" --output row --duration "$duration" "$@"
}

nodes() { # nodes N: every row on a new cluster of N
	local i
	rm -rf "$CLUSTER_DIR"
	"$root/scripts/cluster.sh" up "$1" >&2
	pids=()
	for ((i = 1; i <= $1; i++)); do pids+=(--pid "$(cat "$CLUSTER_DIR/n$i/pid")"); done
	row 'send' --mode send
	row 'send, one at a time' --mode send --in-flight 1
	row 'receive, 20,000 waiting' --mode receive --preload 20000
	row 'cycle, settle first' --mode cycle
	row 'cycle, settle second' --mode cycle --settle second
	row 'cycle, 24 sessions with accept and state' --mode cycle --sessions 24 --session-state
	row 'cycle, 8 connections, 4 senders, 4 receivers' --mode cycle --connections 8 --senders 4 --receivers 4
	row 'cycle, 16 KiB' --mode cycle --size 16384 --in-flight 100
	row 'cycle at 2,000 messages/s' --mode latency --rate 2000
	"$root/scripts/cluster.sh" down >&2
}

notes() { # what people wrote about the figures
	if [[ -f $out ]]; then sed -n '/^<!-- notes -->$/,/^<!-- end of notes -->$/p' "$out"; fi
}

kept=$(notes)
{
	cat <<TEXT
# Benchmarks

\`make bench\` writes this page: bodies of 1 KiB unless a row says otherwise, every write fsynced on a
majority before it is confirmed, $duration per row. All nodes and the load generator share the machine,
so compare the CPU time per message, which is of all broker processes together, and read messages/s as
what was left over for it. Latency counts from when a message was due (\`busbar bench --help\`).

- machine: $(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), $(uname -sr)
- date: $(date -u +%F), $(go version | cut -d' ' -f3)
- commit: $(git -C "$root" rev-parse --short HEAD)$(git -C "$root" diff --quiet HEAD 2>/dev/null || echo ' and changes')
- load average before and after: $(cut -d' ' -f1-3 /proc/loadavg), LOADAFTER
TEXT
	heading 'One node'
	nodes 1
	heading 'Three nodes, three replicas'
	nodes 3
	heading 'Baselines'
	baseline 'raft and raft-wal, nothing else, 1 voter' --baseline raft --nodes 1
	baseline 'raft and raft-wal, nothing else, 3 voters' --baseline raft --nodes 3
	baseline 'AMQP and the state machine in memory' --baseline frontend
	echo
	if [[ -n $kept ]]; then echo "$kept"; else printf '<!-- notes -->\n<!-- end of notes -->\n'; fi
} >"$work/page"
sed "s|LOADAFTER|$(cut -d' ' -f1-3 /proc/loadavg)|" "$work/page" >"$out"
echo "wrote $out" >&2
