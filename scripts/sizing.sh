#!/usr/bin/env bash
# What a node needs, and what each partition, entity, connection, session and message adds. It prints rows for
# docs/sizing.md, of the average node: live heap behind a collection and without the floor of 128 MiB that is never
# touched, resident memory, goroutines, open files, disk, and the share of a core that is used while nothing happens.
#
#   scripts/sizing.sh idle                      nothing but the partitions
#   scripts/sizing.sh entities COUNT            that many queues more
#   scripts/sizing.sh connections COUNT         that many connections more, half with a sender, half with a receiver
#   scripts/sizing.sh messages COUNT            that many messages of 1 KiB more, in one queue
#   scripts/sizing.sh sessions COUNT            that many sessions of one message more
#
# NODES (3) and PARTITIONS (6) are the cluster's. SETTLE (20) is how many seconds it rests before a measurement. The data
# goes to a new directory under TMPDIR. SIZING_PORT (21000) shifts every port.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/bin/busbar
mode=${1:-}
count=${2:-1000}
nodes=${NODES:-3}
partitions=${PARTITIONS:-6}
settle=${SETTLE:-20}
offset=${SIZING_PORT:-21000}
work=$(mktemp -d)
export CLUSTER_DIR=$work/cluster CLUSTER_PORT_OFFSET=$offset
export CLUSTER_FLAGS="--log-level warn --partitions $partitions --pprof"
load=

finish() {
	[[ -z $load ]] || { kill "$load" && wait "$load"; } 2>/dev/null || true
	"$root/scripts/cluster.sh" down >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap finish EXIT

fail() { # fail TEXT
	echo "$1" >&2
	exit 1
}

ops() { echo "http://127.0.0.1:$((5300 + offset + 10 * ($1 - 1)))"; } # ops NODE
pid() { cat "$CLUSTER_DIR/n$1/pid"; }
metric() { curl -sf -m 20 "$(ops "$1")/metrics" | awk -v m="$2" '$1 == m { printf "%.0f\n", $2 }'; }
ticks() { awk '{ print $14 + $15 }' "/proc/$(pid "$1")/stat"; }
resident() { awk '/VmRSS/ { printf "%d", $2 / 1024 }' "/proc/$(pid "$1")/status"; }
disk() { du -sm "$CLUSTER_DIR/n$1" | cut -f1; }

connect() { # connect NODE
	export SERVICEBUS_CONNECTION_STRING="Endpoint=sb://127.0.0.1:$((5672 + offset + 10 * ($1 - 1)));SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
}

row() { # row NAME: the average of all nodes
	local i heap=0 rss=0 routines=0 files=0 space=0 before=() cpu=0
	sleep "$settle"
	for ((i = 1; i <= nodes; i++)); do before[i]=$(ticks "$i"); done
	sleep 10
	for ((i = 1; i <= nodes; i++)); do ((cpu += $(ticks "$i") - before[i])) || true; done
	for ((i = 1; i <= nodes; i++)); do
		curl -sf -m 60 -o /dev/null "$(ops "$i")/debug/pprof/heap?gc=1"
		((heap += $(metric "$i" go_memstats_heap_alloc_bytes) / 1024)) || true
		((rss += $(resident "$i"))) || true
		((routines += $(metric "$i" go_goroutines))) || true
		((files += $(metric "$i" process_open_fds))) || true
		((space += $(disk "$i"))) || true
	done
	awk -v name="$1" -v n="$nodes" -v heap="$heap" -v rss="$rss" -v g="$routines" -v f="$files" -v d="$space" -v cpu="$cpu" -v hz="$(getconf CLK_TCK)" 'BEGIN {
		printf "| %s | %.1f | %d | %d | %d | %d | %.1f |\n", name, heap / n / 1024 - 128, rss / n, g / n, f / n, d / n, 100 * cpu / n / hz / 10 }'
}

up() {
	local began=${EPOCHREALTIME/./}
	"$root/scripts/cluster.sh" up "$nodes" >/dev/null
	echo "ready $(((${EPOCHREALTIME/./} - began) / 1000)) ms after the start of the first node"
	connect 1
	echo '| what | live heap, MiB | resident, MiB | goroutines | open files | disk, MiB | CPU, % of a core |'
	echo '| --- | --- | --- | --- | --- | --- | --- |'
	row "$nodes nodes, $partitions partitions"
}

restart() { # the last node, which then has everything from its disk
	local began
	"$root/scripts/cluster.sh" stop "$nodes" >/dev/null
	began=${EPOCHREALTIME/./}
	"$root/scripts/cluster.sh" start "$nodes" >/dev/null
	echo "n$nodes was ready $(((${EPOCHREALTIME/./} - began) / 1000)) ms after a start"
}

entities() {
	local i began
	{
		echo 'UserConfig:'
		echo '  Namespaces:'
		echo '    - Name: sizing'
		echo '      Queues:'
		for ((i = 1; i <= count; i++)); do echo "        - Name: entity-$i"; done
	} >"$work/entities.yaml"
	began=${EPOCHREALTIME/./}
	"$bin" entities apply "$work/entities.yaml" >/dev/null
	echo "$count entities were made in $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
	row "$count entities more"
	restart
}

connections() {
	"$bin" queue create wide >/dev/null
	row 'a queue more'
	"$bin" bench wide --mode latency --rate 10 --duration 10m --connections "$count" --senders $((count / 2)) \
		--receivers $((count / 2)) --in-flight 4 --credit 4 >/dev/null 2>&1 &
	load=$!
	until (($(metric 1 busbar_connections || echo 0) >= count)); do
		kill -0 "$load" 2>/dev/null || fail "the load ended before it had $count connections"
		sleep 0.2
	done
	row "$count connections of n1 more, ten messages a second"
	echo "n1 alone: $(resident 1) MiB resident, $(metric 1 go_goroutines) goroutines, $(metric 1 process_open_fds) files"
}

fill() { # fill FLAG...
	local had=0
	while ((had < count)); do
		"$bin" bench full --create --mode send --senders 4 --connections 4 --in-flight 2000 --warmup 0s --duration 10s "$@" >/dev/null
		had=$("$bin" queue show full -o json | sed -n 's/.*"counts":{"active":\([0-9][0-9]*\).*/\1/p')
		[[ -n $had ]] || fail 'the queue does not tell how many messages it has'
	done
	row "$had messages more ($*)"
	restart
}

case $mode in
idle) up && restart ;;
entities | connections) up && "$mode" ;;
messages) up && fill --size 1024 ;;
sessions) up && fill --size 1024 --sessions "$count" ;;
*)
	sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
	exit 2
	;;
esac
