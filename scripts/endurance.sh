#!/usr/bin/env bash
# What three nodes do over long times and at large sizes. It prints rows for docs/benchmarks-log.md.
#
#   scripts/endurance.sh catchup   a follower is away while MESSAGES (10000000) of SIZE (128) bytes come, and
#                                  returns: how long until it has them, and what a cycle costs meanwhile
#   scripts/endurance.sh steady    RATE (1000) messages/s through a queue and half as many through sessions
#                                  for TIME (1h): memory, files, goroutines and disk of every node, SAMPLES
#                                  (12) times; fails when one of them grew from the second quarter to the last
#
# The data goes to a new directory under TMPDIR. DURATION (10s) is the length of a measurement, GOMEMLIMIT
# (2500MiB) the limit of a node.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/bin/busbar
mode=${1:-}
work=$(mktemp -d)
offset=${CLUSTER_PORT_OFFSET:-25000}
export CLUSTER_DIR=$work/cluster CLUSTER_PORT_OFFSET=$offset GOMEMLIMIT=${GOMEMLIMIT:-2500MiB}
export CLUSTER_FLAGS="--log-level warn --partitions 1"
duration=${DURATION:-10s}
loads=()

finish() {
	((${#loads[@]} == 0)) || kill "${loads[@]}" 2>/dev/null || true
	"$root/scripts/cluster.sh" down >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap finish EXIT

ops() { echo "http://127.0.0.1:$((5300 + offset + 10 * ($1 - 1)))"; } # ops NODE
pid() { cat "$CLUSTER_DIR/n$1/pid"; }
metric() { curl -sf -m 10 "$(ops "$1")/metrics" | awk -v m="$2" 'index($1, m) == 1 { if ($2 > x) x = $2 } END { printf "%.0f\n", x }'; }
applied() { metric "$1" 'busbar_partition_applied_index{partition="1"}'; }
resident() { awk '/VmRSS/ { printf "%d", $2 / 1024 }' "/proc/$(pid "$1")/status"; }
disk() { du -sm "$CLUSTER_DIR/n$1" | cut -f1; }

connect() { # connect NODE
	export SERVICEBUS_CONNECTION_STRING="Endpoint=sb://127.0.0.1:$((5672 + offset + 10 * ($1 - 1)));SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
}

leader() { # of the partition
	local n
	until n=$("$bin" cluster status --ops "$(ops 1)" | awk '$1 == "1" { print substr($2, 2) }') && [[ $n =~ ^[1-3]$ ]]; do sleep 0.1; done
	echo "$n"
}

row() { # row NAME QUEUE FLAG...
	local name=$1 queue=$2 i pids=()
	shift 2
	for i in 1 2 3; do [[ ! -f $CLUSTER_DIR/n$i/pid ]] || pids+=(--pid "$(pid "$i")"); done
	"$bin" bench "$queue" --create --name "$name" --output row "${pids[@]}" "$@"
}

catchup() {
	local messages=${MESSAGES:-10000000} size=${SIZE:-128} lead away had=0 now target began
	lead=$(leader)
	away=$((lead % 3 + 1))
	connect "$lead"
	row 'cycle, three nodes, nothing else there' beside-0 --mode cycle --duration "$duration"
	"$root/scripts/cluster.sh" stop "$away"
	while ((had < messages)); do
		row "fill, from $had" backlog --mode send --senders 4 --connections 4 --in-flight 2000 --warmup 0s --duration 50s --size "$size"
		now=$("$bin" queue show backlog -o json | sed -n 's/.*"counts":{"active":\([0-9][0-9]*\).*/\1/p')
		((now > had)) || { echo "the backlog does not grow: $had, $now" >&2; exit 1; }
		had=$now
	done
	row "cycle beside $had messages, two nodes" beside-1 --mode cycle --duration "$duration"
	target=$(applied "$lead")
	began=${EPOCHREALTIME/./}
	"$root/scripts/cluster.sh" start "$away"
	row "cycle beside $had messages while n$away catches up" beside-2 --mode cycle --duration "$duration" &
	loads=($!)
	until now=$(applied "$away") && ((now >= target)); do sleep 0.1; done
	echo "n$away had all entries of before its start $(((${EPOCHREALTIME/./} - began) / 1000)) ms after it; resident $(resident "$away") MiB, of n$lead $(resident "$lead") MiB"
	wait "${loads[0]}"
	loads=()
	until now=$(applied "$away") && ((now >= $(applied "$lead"))); do sleep 0.1; done
	row "cycle beside $had messages, three nodes again" beside-3 --mode cycle --duration "$duration"
}

sample() { # sample: a line for each node, kept for the verdict
	local i
	for i in 1 2 3; do
		echo "$SECONDS n$i $(resident "$i") $(metric "$i" go_goroutines) $(metric "$i" process_open_fds) $(disk "$i")" | tee -a "$work/samples"
	done
}

# verdict: the most of the last quarter may be a fifth more than the most of the second, which is after
# every buffer, table and trailing log has its size.
verdict() {
	awk -v n="$1" '
		BEGIN { split("resident goroutines files disk", name) }
		{
			line = int((NR - 1) / 3) + 1
			for (k = 1; k <= 4; k++) {
				if (line > n / 4 && line <= n / 2 && $(k + 2) > before[k]) before[k] = $(k + 2)
				if (line > n * 3 / 4 && $(k + 2) > after[k]) after[k] = $(k + 2)
			}
		}
		END {
			for (k = 1; k <= 4; k++) {
				grew = after[k] > before[k] * 1.2 + 8
				print name[k] ": at most " before[k] " in the second quarter, " after[k] " in the last" (grew ? ": it grew" : "")
				bad += grew
			}
			exit bad > 0
		}' "$work/samples"
}

steady() {
	local time=${TIME:-1h} samples=${SAMPLES:-12} rate=${RATE:-1000} seconds i
	seconds=$(awk -v t="$time" 'BEGIN { u = substr(t, length(t)); print int(t * (u == "h" ? 3600 : u == "m" ? 60 : 1)) }')
	connect "$(leader)"
	"$bin" bench plain --create --mode latency --rate "$rate" --duration "$time" >"$work/plain" &
	loads=($!)
	"$bin" bench grouped --create --mode latency --rate $((rate / 2)) --sessions 24 --session-state --duration "$time" >"$work/grouped" &
	loads+=($!)
	echo "seconds node resident_MiB goroutines files disk_MiB"
	for ((i = 1; i <= samples; i++)); do
		sleep $((seconds / samples))
		((i == samples)) || sample
	done
	for i in "${loads[@]}"; do wait "$i"; done
	loads=()
	sample
	cat "$work/plain" "$work/grouped"
	verdict "$samples"
}

case $mode in
catchup | steady)
	[[ -x $bin ]] || { echo "$bin is missing: run make build" >&2; exit 1; }
	GOMAXPROCS=${NODE_PROCS:-1} "$root/scripts/cluster.sh" up 3
	"$mode"
	;;
*)
	sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
	exit 2
	;;
esac
