#!/usr/bin/env bash
# A cluster of real processes on loopback, for development and tests.
#
#   scripts/cluster.sh up [N]      start N nodes (3) and return when all answer /readyz
#   scripts/cluster.sh down        end all nodes
#   scripts/cluster.sh kill I      kill -9 node I
#   scripts/cluster.sh stop I      SIGTERM node I and wait until it has ended
#   scripts/cluster.sh start I     start node I again and wait until it answers /readyz
#   scripts/cluster.sh pause I     SIGSTOP        resume I   SIGCONT
#   scripts/cluster.sh status      one line per node
#
# Node I listens on 5672+10(I-1) AMQP, 5671+10(I-1) TLS, 5300+10(I-1) operations, 5301+10(I-1) peers,
# 5302+10(I-1) gossip. State is in .cluster/nI (with pid and log), the CA in .cluster/tls/ca.pem.
# CLUSTER_DIR moves .cluster, CLUSTER_PORT_OFFSET shifts every port, CLUSTER_FLAGS adds flags.
# CLUSTER_LISTEN is the host of the AMQP listener (127.0.0.1; empty for all addresses). CLUSTER_LOOPBACK=1 adds an AMQP
# listener on 127.0.0.1, port 5673+10(I-1).
# It signals only processes that it started: a pid counts only while /proc shows our binary under it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/bin/busbar
dir=${CLUSTER_DIR:-$root/.cluster}
offset=${CLUSTER_PORT_OFFSET:-0}
read -r -a extra <<<"${CLUSTER_FLAGS:-}"
ready_seconds=60

usage() {
	sed -n '4,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
	exit 2
}

port() { echo $(($1 + offset + 10 * ($2 - 1))); } # port BASE NODE

# alive NODE: is the process of that node running, and is it ours?
alive() {
	local pid
	pid=$(cat "$dir/n$1/pid" 2>/dev/null) || return 1
	[[ -n $pid ]] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q -- "--data-dir $dir/n$1 "
}

signal() { # signal NAME NODE
	if ! alive "$2"; then
		echo "n$2 is not running" >&2
		return 1
	fi
	kill "-$1" "$(cat "$dir/n$2/pid")"
}

gone() { # gone NODE SECONDS: wait until the process has ended
	local deadline=$((SECONDS + $2))
	while alive "$1"; do
		((SECONDS < deadline)) || return 1
		sleep 0.05
	done
}

size() { cat "$dir/size" 2>/dev/null || echo 0; }

each() { # each COMMAND: for every node of the cluster
	local i
	for ((i = 1; i <= $(size); i++)); do "$1" "$i" || return 1; done
}

known() { # known NODE: is it one of ours?
	[[ ${1:-} =~ ^[0-9]+$ ]] && (($1 >= 1 && $1 <= $(size))) || {
		echo "no node '${1:-}': the cluster has $(size)" >&2
		exit 2
	}
}

launch() { # launch NODE: start the process
	local i=$1 n join=() loopback=() j
	n=$(size)
	[[ -z ${CLUSTER_LOOPBACK:-} ]] || loopback=(--amqp-listen "127.0.0.1:$(port 5673 "$i")")
	if alive "$i"; then
		echo "n$i is already running" >&2
		return 1
	fi
	for ((j = 1; j <= n; j++)); do
		((j == i)) || join+=(--join "127.0.0.1:$(port 5302 "$j")")
	done
	mkdir -p "$dir/n$i" "$dir/tls"
	# A session of its own, so that a Ctrl-C at the terminal does not reach the node.
	setsid "$bin" serve --dev --dev-ca-dir "$dir/tls" --data-dir "$dir/n$i" --node-id "n$i" \
		--amqp-listen "${CLUSTER_LISTEN-127.0.0.1}:$(port 5672 "$i")" --tls-listen "127.0.0.1:$(port 5671 "$i")" "${loopback[@]}" \
		--ops-listen "127.0.0.1:$(port 5300 "$i")" --peer-listen "127.0.0.1:$(port 5301 "$i")" \
		--gossip-listen "127.0.0.1:$(port 5302 "$i")" --advertise 127.0.0.1 \
		--bootstrap-expect "$n" "${join[@]}" "${extra[@]}" \
		>>"$dir/n$i/log" 2>&1 </dev/null &
	local pid=$! deadline=$((SECONDS + 5))
	echo "$pid" >"$dir/n$i/pid"
	# Until it has become our binary the process still looks like this script.
	until alive "$i" || ! kill -0 "$pid" 2>/dev/null || ((SECONDS >= deadline)); do sleep 0.01; done
}

ready() { curl -fsS -m 2 -o /dev/null "http://127.0.0.1:$(port 5300 "$1")/readyz" 2>/dev/null; }

await() { # await NODE: wait until it answers /readyz
	local deadline=$((SECONDS + ready_seconds))
	until ready "$1"; do
		if ! alive "$1"; then
			echo "n$1 ended before it was ready:" >&2
			tail -n 20 "$dir/n$1/log" >&2
			return 1
		fi
		if ((SECONDS >= deadline)); then
			echo "n$1 was not ready after $ready_seconds s:" >&2
			tail -n 20 "$dir/n$1/log" >&2
			return 1
		fi
		sleep 0.1
	done
}

end() { # end NODE: SIGTERM, and SIGKILL if that does not help
	alive "$1" || return 0
	signal CONT "$1" # a paused process does not hear SIGTERM
	signal TERM "$1"
	gone "$1" 30 || { signal KILL "$1" && gone "$1" 5; }
	rm -f "$dir/n$1/pid"
}

all_ready() {
	local i
	for ((i = 1; i <= $(size); i++)); do ready "$i" || return 1; done
}

line() {
	local state=down
	if alive "$1"; then
		state=starting
		if ready "$1"; then
			state=ready
		elif [[ $(awk '/^State:/ {print $2}' "/proc/$(cat "$dir/n$1/pid")/status") == T ]]; then
			state=paused
		fi
	fi
	echo "n$1 $state pid=$(cat "$dir/n$1/pid" 2>/dev/null || echo -) amqp=$(port 5672 "$1")" \
		"tls=$(port 5671 "$1") ops=$(port 5300 "$1")"
}

up() {
	local n=${1:-3} i
	[[ $n =~ ^[1-9][0-9]*$ ]] || usage
	[[ -x $bin ]] || { echo "$bin is missing: run make build" >&2; exit 1; }
	for ((i = 1; i <= $(size); i++)); do
		if alive "$i"; then
			echo "the cluster is up already: scripts/cluster.sh down" >&2
			exit 1
		fi
	done
	if (($(size) != 0 && $(size) != n)); then
		echo "$dir holds a cluster of $(size) nodes: start that, or remove the directory" >&2
		exit 1
	fi
	mkdir -p "$dir"
	echo "$n" >"$dir/size"
	# The first node alone makes the CA, so that two do not make it at once.
	launch 1
	local deadline=$((SECONDS + 10))
	until [[ -s $dir/tls/ca.pem ]]; do
		alive 1 || { tail -n 20 "$dir/n1/log" >&2; exit 1; }
		((SECONDS < deadline)) || { echo "n1 made no CA in $dir/tls" >&2; exit 1; }
		sleep 0.05
	done
	for ((i = 2; i <= n; i++)); do launch "$i"; done
	# A node that was ready may lose its leaders again while the last ones join: all at once counts.
	each await
	until all_ready; do
		((SECONDS < deadline + ready_seconds)) || { echo "not all nodes became ready" >&2; exit 1; }
		sleep 0.1
	done
	each line
}

case ${1:-} in
up) up "${2:-}" ;;
down) each end ;;
kill) known "${2:-}"; signal KILL "$2"; gone "$2" 5; rm -f "$dir/n$2/pid" ;;
stop) known "${2:-}"; signal TERM "$2"; gone "$2" 30; rm -f "$dir/n$2/pid" ;;
start) known "${2:-}"; launch "$2"; await "$2" ;;
pause) known "${2:-}"; signal STOP "$2" ;;
resume) known "${2:-}"; signal CONT "$2" ;;
status) each line ;;
*) usage ;;
esac
