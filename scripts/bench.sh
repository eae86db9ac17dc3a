#!/usr/bin/env bash
# The standard measurements: one node, three nodes, idle ones, and what a fault costs, on this machine. They run with
# the load generator on the same cores, so the broker's CPU time per message is what to compare.
#
#   scripts/bench.sh [FILE]      write docs/benchmarks.md, or FILE
#
# Nodes run with the settings that a user gets; a part whose nodes have others says so. A round begins with raft and
# its log alone, and each row tells its ratio to that: machines differ, and so do minutes.
# ROUNDS (1) is how often each row is measured, in turns, on a queue of its own each time; what is
# written is the median of each figure. DURATION (10s, 4s with rounds) is how long each row is
# measured, after WARMUP (2s, 1s with rounds); ROWS picks rows by a pattern, PARTS parts of the page. TRIALS (10) is how
# often each fault is made. `make bench ROUNDS=5` takes 45 minutes.
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
parts=${PARTS:-.}
nice=${NICE:-0}
work=$(mktemp -d)
export CLUSTER_DIR=$work/cluster CLUSTER_PORT_OFFSET=${CLUSTER_PORT_OFFSET:-24000}
flags=${CLUSTER_FLAGS:-} # of the nodes
procs=                   # GOMAXPROCS of a node; empty leaves it to the runtime
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
at() { # at N: the client's commands go to node N
	local port=$((base + CLUSTER_PORT_OFFSET + 10 * ($1 - 1)))
	export SERVICEBUS_CONNECTION_STRING="Endpoint=sb://127.0.0.1:$port;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
}
connect() { # connect QUEUE: to the node that leads the partition of the queue's first share, or to the one behind it
	local n=1 partition
	if ((${#pids[@]} > 2)); then
		partition=$(curl -fsS -H "Authorization: $("$bin" token "$1")" "$ops/api/entities/$1/description" | sed -n 's/.*"shares":\[{"partition":\([0-9]*\).*/\1/p')
		until # the leader is known by its name
			n=$("$bin" cluster status --ops "$ops" | awk -v p="$partition" '$1 == p { print substr($2, 2) }')
			[[ $n =~ ^[1-9]$ ]]
		do sleep 0.1; done
		[[ $place == leader ]] || n=$((n % (${#pids[@]} / 2) + 1))
	fi
	at "$n"
}

pids=()
number=0 # of the queue
count=0  # of the row
shown=   # set when raft alone has its rows in the table
full=1   # CPU of a message in raft and its log alone in this round, full entries
lone=1   # the same, one message an entry

# rated BASE: the row with its ratio to that of raft alone as a column behind the CPU.
rated() {
	awk -F'|' -v OFS='|' -v base="$1" '{ $4 = $4 "|" ($4 + 0 > 0 && base > 0 ? sprintf(" %.2f ", $4 / base) : " – "); print }'
}

row() { # row NAME FLAG...: one measurement, on a queue of its own, added to the row's file
	local name=$1 against=$full queue
	shift
	[[ $name =~ $pick ]] || return 0
	number=$((number + 1))
	count=$((count + 1))
	queue=bench-$number
	at 1
	# The queue is made, and one message or none goes through it.
	"$bin" bench "$queue" "$@" --create --mode latency --rate 10 --connections 2 --duration 100ms --warmup 0s >/dev/null
	connect "$queue$([[ " $* " != *' --queues '* ]] || echo -1)"
	[[ $name == *'one at a time'* || $name == *'messages/s'* ]] && against=$lone
	[[ $place == leader ]] || name+=', at another node'
	echo "measuring: $name (load $(cut -d' ' -f1 /proc/loadavg 2>/dev/null || echo '?'))" >&2
	bench "$queue" --name "$name" "${pids[@]}" "$@" | rated "$against" >>"$work/$(printf 'row%03d' "$count")"
}

# alone VOTERS: what this round is compared with.
alone() {
	local kind name one
	for kind in full lone; do
		name="raft and raft-wal alone, entries of 200 messages"
		[[ $kind == full ]] || name="raft and raft-wal alone, one message an entry"
		echo "measuring: $name" >&2
		one=$(bench --name "$name" --baseline raft --nodes "$1" $([[ $kind == full ]] || echo --in-flight 1))
		printf -v "$kind" '%s' "$(cut -d'|' -f4 <<<"$one" | tr -d ' ')"
		[[ $shown ]] || rated "${!kind}" <<<"$one" >>"$work/row000$kind"
	done
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

each() { # each COMMAND NODES: raft alone and the command's rows, once a round; then their medians
	local i f
	rm -f "$work"/row*
	for ((i = 1; i <= rounds; i++)); do
		count=0
		alone "$2"
		"$@"
	done
	for f in "$work"/row*; do [[ ! -f $f ]] || medians "$f"; done
}

heading() {
	echo
	echo "## $1"
	echo
	echo '| load | messages/s | broker CPU µs/message | × raft alone | user + system | confirmed p50 / p99 ms | end to end p50 / p99 ms | settled p50 / p99 ms | write calls / bytes to disk per message | switches per message |'
	echo '|---|---|---|---|---|---|---|---|---|---|'
}

up() { # up N: a new cluster, which has been used
	local i
	rm -rf "$CLUSTER_DIR"
	CLUSTER_FLAGS=$flags env ${procs:+GOMAXPROCS=$procs} "$root/scripts/cluster.sh" up "$1" >&2
	pids=()
	for ((i = 1; i <= $1; i++)); do
		pids+=(--pid "$(cat "$CLUSTER_DIR/n$i/pid")")
		prefer "$(cat "$CLUSTER_DIR/n$i/pid")"
	done
	# A new node writes its ballast and touches its memory for the first time; neither is a message's.
	at 1
	bench bench-first --create --duration "$settle" >/dev/null
}

part() { # part HEADING NODES COMMAND...: rows of commands, each on a new cluster
	local command title=$1 n=$2
	[[ $title =~ $parts ]] || return 0
	heading "$title"
	shift 2
	shown=
	for command in "$@"; do
		up "$n"
		each "$command" "$n"
		shown=yes
		"$root/scripts/cluster.sh" down >&2
	done
}

loads() { # loads NODES
	row 'send' --mode send
	row 'send, one at a time' --mode send --in-flight 1
	row 'receive, 20,000 waiting' --mode receive --preload 20000
	row 'cycle, settle first' --mode cycle
	row 'cycle, settle second' --mode cycle --settle second
	row 'cycle, 24 sessions with accept and state' --mode cycle --sessions 24 --session-state
	base=5673
	row 'cycle, loopback listener' --mode cycle
	row 'cycle, loopback listener, receive buffer of 8 KiB' --mode cycle --receive-buffer 8192
	base=5672
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
	row 'cycle at 200 messages/s' --mode latency --rate 200
	row 'cycle at 2,000 messages/s' --mode latency --rate 2000
	row 'cycle at 2,000 messages/s, settle second' --mode latency --rate 2000 --settle second
	if (($1 > 1)); then
		place=other
		row 'cycle at 2,000 messages/s' --mode latency --rate 2000
		place=leader
	fi
}

sizes() {
	row 'cycle, 100 bytes' --mode cycle --size 100
	row 'cycle, 16 KiB' --mode cycle --size 16384 --in-flight 100
	row 'cycle, 256 KiB' --mode cycle --size 262144 --in-flight 16 --backlog 200 --credit 100
	row 'cycle, 1 MiB' --mode cycle --size 1048000 --in-flight 8 --backlog 100 --credit 50
}

# A thousand messages are under way in each of these, on all connections together.
crowds() {
	row 'cycle, 1 + 1 connections' --mode cycle --in-flight 500 --credit 500
	row 'cycle, 10 + 10 connections' --mode cycle --connections 20 --senders 10 --receivers 10 --in-flight 50 --credit 50
	row 'cycle, 100 + 100 connections' --mode cycle --connections 200 --senders 100 --receivers 100 --in-flight 5 --credit 5
	row 'cycle, 500 + 500 connections' --mode cycle --connections 1000 --senders 500 --receivers 500 --in-flight 1 --credit 1
	row 'cycle, 10 + 10 connections, 100 queues' --mode cycle --connections 20 --senders 100 --receivers 100 --queues 100 --in-flight 5 --credit 5
}

spread() {
	row 'cycle, 2 + 2 connections, a queue of one partition' --mode cycle --connections 4 --senders 2 --receivers 2
	row 'cycle, 2 + 2 connections, a queue over 16 partitions' --mode cycle --connections 4 --senders 2 --receivers 2 --partitioned
	row 'cycle at 2,000 messages/s, a queue over 16 partitions' --mode latency --rate 2000 --partitioned
}

# Nothing bounds what is sent and not received.
saturation() {
	local duration=60s
	row 'cycle, settle first, a minute without a bound' --mode cycle --backlog 0
	row 'cycle, settle second, a minute without a bound' --mode cycle --backlog 0 --settle second
}

lonely() {
	row 'send, one at a time' --mode send --in-flight 1
	row 'cycle, settle first' --mode cycle
	row 'cycle at 2,000 messages/s' --mode latency --rate 2000
}

idle() { # idle NODES NAME [QUEUES]: what a cluster takes to which nobody speaks
	rm -f "$work"/row*
	up "$1"
	at 1
	[[ -z ${3:-} ]] || bench crowd --create --queues "$3" --senders "$3" --receivers "$3" --in-flight 1 --credit 1 --duration 1s >/dev/null
	sleep 30 # what follows a load is over
	local i
	for ((i = 1; i <= rounds; i++)); do
		echo "measuring: idle, $2" >&2
		bench --mode idle --name "$2" "${pids[@]}" >>"$work/row001"
	done
	"$root/scripts/cluster.sh" down >&2
	medians "$work/row001"
}

idles() {
	local flags=$flags
	[[ Idle =~ $parts ]] || return 0
	echo
	echo '## Idle'
	echo
	echo '| all nodes together | CPU ms a second | context switches a second | resident MiB |'
	echo '|---|---|---|---|'
	idle 1 'one node'
	idle 3 'three nodes'
	flags+=' --partitions 64'
	idle 3 'three nodes, 64 partitions, 1,000 queues' 1000
}

faults() {
	[[ Faults =~ $parts ]] || return 0
	mkdir -p "$root/bin/tools"
	(cd "$root/test/chaos" && go build -o "$root/bin/tools/chaos" .)
	echo
	echo '## Faults'
	echo
	echo "The node that leads most of the load meets a fault, ${TRIALS:-10} times. Clients of the other nodes see the longest time without an answer:"
	echo
	echo '| fault | median | 95th percentile | longest |'
	echo '|---|---|---|---|'
	(cd "$root/test/chaos" && "$root/bin/tools/chaos" -binary "$bin" -outage -trials "${TRIALS:-10}" -faults kill,host,stop) |
		sed -n 's/^== \([a-z]*\): .* most: \([^,]*\), \([^,]*\), \([^;]*\);.*/| \1 | \2 | \3 | \4 |/p' |
		sed 's/^| kill /| the process is killed /; s/^| host /| the host is silent: no reset of its connections /; s/^| stop /| it is stopped in good order /'
}

notes() { # what people wrote about the figures
	if [[ -f $out ]]; then sed -n '/^<!-- notes -->$/,/^<!-- end of notes -->$/p' "$out"; fi
}

kept=$(notes)
{
	cat <<TEXT
# Benchmarks

\`make bench\` writes this page; [benchmarks-method.md](benchmarks-method.md) tells how to read it. Nodes have the
settings of \`busbar serve\` unless a heading says otherwise. Bodies have 1 KiB unless a row says otherwise. Every write is
fsynced on a majority before it is confirmed. A row takes $duration$(((rounds > 1)) && echo ", and is the median of $rounds"). All nodes and the load
generator share the machine.

- machine: $(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), $(uname -sr)
- date: $(date -u +%F), $(go version | cut -d' ' -f3)
- commit: $(git -C "$root" rev-parse --short HEAD)$(git -C "$root" diff --quiet HEAD 2>/dev/null || echo ' and changes')
- load average before and after: $(cut -d' ' -f1-3 /proc/loadavg), LOADAFTER
TEXT
	idles
	part 'Three nodes' 3 loads rates
	part 'Three nodes: sizes' 3 sizes
	part 'Three nodes: many connections and queues' 3 crowds
	part 'Three nodes: saturated' 3 saturation
	plain=$flags procs=1 flags+=' --partitions 1 --log-level warn'
	part 'Three nodes with other settings: GOMAXPROCS=1, one partition, log-level warn' 3 lonely
	procs= flags="$plain --partitions 16"
	part 'Three nodes with other settings: 16 partitions' 3 spread
	flags=$plain
	part 'One node' 1 loads rates sizes
	faults
	echo
	if [[ -n $kept ]]; then echo "$kept"; else printf '<!-- notes -->\n<!-- end of notes -->\n'; fi
} >"$work/page"
sed "s|LOADAFTER|$(cut -d' ' -f1-3 /proc/loadavg)|" "$work/page" >"$out"
echo "wrote $out" >&2
