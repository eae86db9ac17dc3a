#!/usr/bin/env bash
# The standard measurements: one node, three nodes, and the baselines, on this machine. They run with
# the load generator on the same cores, so the broker's CPU time per message is what to compare.
#
#   scripts/bench.sh [FILE]      write docs/benchmarks.md, or FILE
#
# ROUNDS (1) is how often each row is measured, in turns, on a queue of its own each time; what is
# written is the median of each figure. DURATION (10s, 4s with rounds) is how long each row is
# measured, after WARMUP (2s, 1s with rounds); ROWS picks rows by a pattern. `make bench ROUNDS=5`
# takes 14 minutes.
# NODE_PROCS is GOMAXPROCS of a node: as many as there are processors for each of them, at least 1.
# NICE (0; -15 needs root) is the priority of nodes and load generator, each in a session of its own,
# where plain nice(1) has no effect on Linux.
# Text between the markers "notes" and "end of notes" is kept from the file that is replaced.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/bin/busbar
out=${1:-$root/docs/benchmarks.md}
rounds=${ROUNDS:-1}
duration=${DURATION:-$([[ $rounds == 1 ]] && echo 10s || echo 4s)}
warmup=${WARMUP:-$([[ $rounds == 1 ]] && echo 2s || echo 1s)}
settle=8s # of load on new nodes before anything is measured
pick=${ROWS:-.}
nice=${NICE:-0}
work=$(mktemp -d)
export CLUSTER_DIR=$work/cluster CLUSTER_PORT_OFFSET=${CLUSTER_PORT_OFFSET:-24000}
export CLUSTER_FLAGS="--log-level warn --partitions 1 ${CLUSTER_FLAGS:-}" # one leader, which can be chosen
export CLUSTER_LISTEN=    # all addresses, as a node listens by default
export CLUSTER_LOOPBACK=1 # and one on loopback, which agrees to small segments (docs/decisions/0040)
ops=http://127.0.0.1:$((5300 + CLUSTER_PORT_OFFSET))

finish() {
	"$root/scripts/cluster.sh" down >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap finish EXIT

prefer() { # prefer PID: give its session the priority asked for
	[[ $nice == 0 ]] || echo "$nice" >"/proc/$1/autogroup"
}

bench() { # bench FLAG...: one measurement, in a session of its own
	setsid -w bash -c '[[ $0 == 0 ]] || echo "$0" >/proc/$$/autogroup; exec "$@"' "$nice" \
		"$bin" bench --output row --duration "$duration" --warmup "$warmup" "$@"
}

place=leader # where the client is: at the node that leads, or at the next one (other)
base=5672    # the port of node 1 that the client connects to; 5673 is the listener on loopback
connect() {
	local n=1
	if ((${#pids[@]} > 2)); then
		until # the leader is known by its name
			n=$("$bin" cluster status --ops "$ops" | awk '$1 == "1" { print substr($2, 2) }')
			[[ $n =~ ^[1-9]$ ]]
		do sleep 0.1; done
		[[ $place == leader ]] || n=$((n % (${#pids[@]} / 2) + 1))
	fi
	local port=$((base + CLUSTER_PORT_OFFSET + 10 * (n - 1)))
	export SERVICEBUS_CONNECTION_STRING="Endpoint=sb://127.0.0.1:$port;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
}

pids=()
number=0 # of the queue
count=0  # of the row
row() { # row NAME FLAG...: one measurement, on a queue of its own, added to the row's file
	local name=$1
	shift
	[[ $name =~ $pick ]] || return 0
	number=$((number + 1))
	count=$((count + 1))
	connect
	[[ $place == leader ]] || name+=', at another node'
	echo "measuring: $name (load $(cut -d' ' -f1 /proc/loadavg 2>/dev/null || echo '?'))" >&2
	bench "bench-$number" --create --name "$name" "${pids[@]}" "$@" >>"$work/$(printf 'row%03d' "$count")"
}

baseline() { # baseline NAME FLAG...
	local name=$1
	shift
	[[ $name =~ $pick ]] || return 0
	count=$((count + 1))
	echo "measuring: $name" >&2
	bench --name "$name" "$@" >>"$work/$(printf 'row%03d' "$count")"
}

# medians FILE: one line in which every figure is the median of those at its place, the first cell and
# what is no figure being the same in all lines.
medians() {
	awk -F'|' '
		{
			lines++
			rest = substr($0, length($1) + length($2) + 3)
			if (lines == 1) { head = "|" $2 "|"; form = rest }
			n = 0
			while (match(rest, /[0-9]+(\.[0-9]+)?/)) {
				value[lines, ++n] = substr(rest, RSTART, RLENGTH)
				rest = substr(rest, RSTART + RLENGTH)
			}
		}
		END {
			out = head
			for (k = 1; match(form, /[0-9]+(\.[0-9]+)?/); k++) {
				for (i = 1; i <= lines; i++) v[i] = value[i, k]
				for (i = 2; i <= lines; i++)
					for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
				out = out substr(form, 1, RSTART - 1) v[int((lines + 1) / 2)]
				form = substr(form, RSTART + RLENGTH)
			}
			if (lines) print out form
		}' "$1"
}

each() { # each COMMAND...: it measures its rows once a round; then their medians
	local i f
	rm -f "$work"/row*
	for ((i = 1; i <= rounds; i++)); do
		count=0
		"$@"
	done
	for f in "$work"/row*; do [[ ! -f $f ]] || medians "$f"; done
}

heading() {
	echo
	echo "## $1"
	echo
	echo '| load | messages/s | broker CPU µs/message | user + system | confirmed p50 / p99 ms | end to end p50 / p99 ms | settled p50 / p99 ms | write calls / bytes to disk per message |'
	echo '|---|---|---|---|---|---|---|---|'
}

procs() { # procs N: GOMAXPROCS of each of N nodes
	local n=$(($(nproc) / $1))
	echo "${NODE_PROCS:-$((n > 1 ? n : 1))}"
}

nodes() { # nodes N COMMAND: the rows of the command on a new cluster of N
	local i
	rm -rf "$CLUSTER_DIR"
	GOMAXPROCS=$(procs "$1") "$root/scripts/cluster.sh" up "$1" >&2
	pids=()
	for ((i = 1; i <= $1; i++)); do
		pids+=(--pid "$(cat "$CLUSTER_DIR/n$i/pid")")
		prefer "$(cat "$CLUSTER_DIR/n$i/pid")"
	done
	# A new node writes its ballast and touches its memory for the first time; neither is a message's.
	connect
	bench bench-first --create --duration "$settle" >/dev/null
	each "$2" "$1"
	"$root/scripts/cluster.sh" down >&2
}

loads() { # loads NODES
	row 'send' --mode send
	row 'send, one at a time' --mode send --in-flight 1
	row 'receive, 20,000 waiting' --mode receive --preload 20000
	row 'cycle, settle first' --mode cycle
	row 'cycle, settle second' --mode cycle --settle second
	row 'cycle, 24 sessions with accept and state' --mode cycle --sessions 24 --session-state
	row 'cycle, 8 connections, 4 senders, 4 receivers' --mode cycle --connections 8 --senders 4 --receivers 4
	base=5673
	row 'cycle, loopback listener' --mode cycle
	row 'cycle, loopback listener, receive buffer of 8 KiB' --mode cycle --receive-buffer 8192
	base=5672
	row 'cycle, 16 KiB' --mode cycle --size 16384 --in-flight 100
	if (($1 > 1)); then # the client's node passes on what it is asked
		place=other
		row 'send' --mode send
		row 'send, one at a time' --mode send --in-flight 1
		row 'cycle, settle first' --mode cycle
		row 'cycle, settle second' --mode cycle --settle second
		row 'cycle, 24 sessions with accept and state' --mode cycle --sessions 24 --session-state
		place=leader
	fi
}

# What full speed leaves behind, millions of messages that a snapshot writes, is no part of an even load.
rates() { # rates NODES
	row 'cycle at 2,000 messages/s' --mode latency --rate 2000
	if (($1 > 1)); then
		place=other
		row 'cycle at 2,000 messages/s' --mode latency --rate 2000
		place=leader
	fi
}

baselines() {
	baseline 'raft and raft-wal, nothing else, 1 voter' --baseline raft --nodes 1
	baseline 'raft and raft-wal, nothing else, 3 voters' --baseline raft --nodes 3
	baseline 'AMQP and the state machine in memory' --baseline frontend
}

notes() { # what people wrote about the figures
	if [[ -f $out ]]; then sed -n '/^<!-- notes -->$/,/^<!-- end of notes -->$/p' "$out"; fi
}

kept=$(notes)
{
	cat <<TEXT
# Benchmarks

\`make bench\` writes this page. Bodies have 1 KiB unless a row says otherwise. Every write is fsynced on a
majority before it is confirmed. A row takes $duration$(((rounds > 1)) && echo ", and is the median of $rounds"). There is one partition, and the client is at the node
that leads it unless the row says otherwise. All nodes and the load generator share the machine. So compare
the CPU time per message, which is of all broker processes together. The messages/s are what was left over for
them. Latency counts from when a message was due (\`busbar bench --help\`).

- machine: $(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), $(uname -sr)
- date: $(date -u +%F), $(go version | cut -d' ' -f3)
- commit: $(git -C "$root" rev-parse --short HEAD)$(git -C "$root" diff --quiet HEAD 2>/dev/null || echo ' and changes')
- processors of a node (GOMAXPROCS): $(procs 1) when alone, $(procs 3) when there are three
- load average before and after: $(cut -d' ' -f1-3 /proc/loadavg), LOADAFTER
TEXT
	heading 'One node'
	nodes 1 loads
	nodes 1 rates
	heading 'Three nodes, three replicas'
	nodes 3 loads
	nodes 3 rates
	heading 'Baselines'
	each baselines
	echo
	if [[ -n $kept ]]; then echo "$kept"; else printf '<!-- notes -->\n<!-- end of notes -->\n'; fi
} >"$work/page"
sed "s|LOADAFTER|$(cut -d' ' -f1-3 /proc/loadavg)|" "$work/page" >"$out"
echo "wrote $out" >&2
