#!/usr/bin/env bash
# What users of other brokers look for, tried with this program one by one, and timed: the section "Tried" of
# docs/comparison.md. A row whose command does not say what it should ends the script with 1.
#
#   scripts/comparison.sh [FILE]      write docs/comparison.md, or FILE, which has the two markers
#
# One node runs, and then three, on ports that are CLUSTER_PORT_OFFSET (26000) above the usual ones. Data and the list of
# contexts are in a directory of their own. The commands take two minutes, and the tests behind them ten. On a busy machine
# the times are longer.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:-$root/docs/comparison.md}
work=$(mktemp -d)
home=$HOME # of who runs this: what Go keeps is there
export TMPDIR=$work/tmp HOME=$work/home XDG_CONFIG_HOME=$work/home/.config PATH=$root/bin:$PATH
export CLUSTER_DIR=$work/cluster CLUSTER_PORT_OFFSET=${CLUSTER_PORT_OFFSET:-26000}
unset SERVICEBUS_CONNECTION_STRING BUSBAR_OPS BUSBAR_CONTEXT
mkdir -p "$HOME" "$TMPDIR"
cd "$work"
node=

finish() {
	[[ -z $node ]] || kill "$node" 2>/dev/null || true
	"$root/scripts/cluster.sh" down >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap finish EXIT

now() { date +%s%N; }
port() { echo $(($1 + CLUSTER_PORT_OFFSET)); }
quiet() { bash -euo pipefail -c "$1" >"$work/quiet" 2>&1 || { echo "failed: $1" >&2; cat "$work/quiet" >&2; exit 1; }; } # a step of no row
cell() { sed 's/|/\\|/g; s/  */ /g' <<<"$1"; }
seconds() { awk -v n="$1" 'BEGIN { s = n / 1e9; printf (s < 1 ? "%.2f s" : "%.1f s"), s }'; }

# shown COMMAND: the command with the ports that a node has by default, and without directories of this run.
shown() {
	local text=${1//"$root/"/} n
	text=${text//"$work/"/}
	for n in 5671 5672 5300 5310 5320; do text=${text//$(port $n)/$n}; done
	cell "$text"
}

put() { echo "| $(cell "$1") | $(cell "${2:-–}") | \`$(shown "$3")\` | $4 | $5 |"; } # put WHAT ELSEWHERE COMMAND TIME SAYS

# row WHAT ELSEWHERE PATTERN COMMAND [CODE]: the command runs, ends with CODE (0), and a line of what it prints has the
# pattern. ELSEWHERE is what other brokers have for it. The part of the line that the pattern fits stands in the row.
row() {
	local elsewhere=$2
	set -- "$1" "${@:3}"
	local began rc=0 said
	began=$(now)
	timeout 120 bash -o pipefail -c "$3" >"$work/said" 2>&1 || rc=$?
	local took=$(($(now) - began))
	if ((rc != ${4:-0})) || ! said=$(grep -oEm1 -- "$2" "$work/said" | head -n 1); then
		echo "row \"$1\": code $rc, want ${4:-0} and $2: $3" >&2
		head -c 3000 "$work/said" >&2
		exit 1
	fi
	[[ ${4:-0} == 0 ]] || said+=" (code $4)"
	put "$1" "$elsewhere" "$3" "$(seconds $took)" "$(cell "$said")"
}

# tested WHAT ELSEWHERE DIRECTORY COMMAND: a test of the project shows it. One that is skipped shows nothing.
tested() {
	local began
	began=$(now)
	(cd "$root/$3" && env -u TMPDIR HOME=$home XDG_CONFIG_HOME=$work/none bash -c "${4/go test/go test -v}") >"$work/said" 2>&1 && ! grep -qE '^--- SKIP|no tests to run' "$work/said" || {
		echo "row \"$1\": in $3: $4" >&2
		tail -n 40 "$work/said" >&2
		exit 1
	}
	[[ $3 == . ]] || set -- "$1" "$2" "$3" "cd $3 && $4"
	put "$1" "$2" "$4" "$(seconds $(($(now) - began)))" 'passes'
}

heading() {
	echo
	echo "### $1"
	echo
	echo '| what | elsewhere | command | time | it says |'
	echo '| --- | --- | --- | --- | --- |'
}

known() { # known NODE: the commands speak to that node of the cluster
	local at=$((10 * ($1 - 1)))
	busbar context add tried --use --ops "http://127.0.0.1:$(port $((5300 + at)))" --connection-string \
		"Endpoint=sb://127.0.0.1:$(port $((5672 + at)));SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true" >/dev/null
}

listens() { echo "--amqp-listen 127.0.0.1:$(port 5672) --tls-listen 127.0.0.1:$(port 5671) --ops-listen 127.0.0.1:$(port 5300) --peer-listen 127.0.0.1:0 --gossip-listen 127.0.0.1:0"; }

start() { # start FLAG...: a development node, until it greets
	: >"$work/log" # what an earlier node wrote
	# shellcheck disable=SC2046 # the flags are words
	busbar dev $(listens) "$@" >>"$work/log" 2>&1 &
	node=$!
	until grep -q 'is ready after' "$work/log"; do kill -0 "$node" && sleep 0.02; done
}

stop() {
	kill "$node" && wait "$node" || true
	node=
}

official() { # the shape of the official emulator's file
	cat >Config.json <<'JSON'
{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns",
  "Queues": [{"Name": "queue.1", "Properties": {"LockDuration": "PT1M", "MaxDeliveryCount": 3, "RequiresSession": false}}],
  "Topics": [{"Name": "topic.1", "Properties": {"DefaultMessageTimeToLive": "PT1H"}, "Subscriptions": [
    {"Name": "subscription.1", "Rules": [{"Name": "json", "Properties": {"FilterType": "Correlation", "CorrelationFilter": {"ContentType": "application/json"}}}]},
    {"Name": "subscription.2", "Rules": [{"Name": "eu", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "region = 'eu'"}, "Action": {"SqlExpression": "SET seen = 1"}}}]}]}]}],
  "Logging": {"Type": "File"}}}
JSON
}

resident() { awk '/^VmRSS/ { printf "%.0f", $2 / 1024 }' "/proc/$node/status"; } # memory of the node, in MiB

developer() {
	heading 'A developer, one node'
	start --ephemeral
	for _ in {1..40}; do
		if (($(resident) <= 30)); then break; fi
		sleep 0.05
	done
	(($(resident) <= 30)) || { echo "an empty node has $(resident) MiB resident, and 30 are told" >&2; exit 1; }
	put 'start, nothing left on disk' 'a container of the emulator with its database' 'busbar dev --ephemeral' "$(sed -n 's/.*is ready after //p' "$work/log")" \
		"$(resident) MiB resident, $(du -sm "$TMPDIR" | cut -f1) MiB on disk while it runs"
	stop
	official
	start --data-dir "$work/data"
	put 'start' '`nats-server -js`' 'busbar dev' "$(sed -n 's/.*is ready after //p' "$work/log")" "$(du -sm "$work/data" | cut -f1) MiB on disk"
	known 1
	row 'a queue' '`declare queue`, `stream add`' 'orders +Active' 'busbar queue create orders'
	row 'the first message' '`nats pub`' 'sent 1 to orders' 'busbar send orders hello'
	row 'receive it' '`consumer next`' 'hello' 'busbar receive orders'
	row 'receive from an empty queue' '' 'no message in 1s' 'busbar receive orders --wait 1s'
	row "the official emulator's file, found by itself" 'the emulator' '0 created, 0 differ' 'busbar entities apply Config.json'
	row 'topics and their counts' '`list bindings`, `consumer ls`' 'topic.1 +subscription.2 +Active' 'busbar subscription list topic.1'
	row 'a subscription' '`consumer info`' 'subscription.2 +Active' 'busbar queue show topic.1/Subscriptions/subscription.2'
	row 'would a rule select this?' '' 'eu +yes' 'busbar rule test topic.1 subscription.2 --property region=eu'
	row 'change a queue, and see what changes' '`stream edit --dry-run`, `alter-config`' 'LockDuration: .*' 'busbar queue update orders --lock-duration 30s'
	row 'what a changed file would change' 'definitions are imported whole' '1 would be updated' "sed -i 's/\"MaxDeliveryCount\": 3/\"MaxDeliveryCount\": 5/' Config.json; busbar entities apply Config.json --update --dry-run"
	row 'send 2,000' '' 'sent 2000 to orders' 'seq 2000 | busbar send orders'
	row 'look at 2,000' '`stream view`' '^2000$' 'busbar peek orders --max 2000 -o jsonl | wc -l'
	row 'put 2,000 aside' '' '^2000$' 'busbar receive orders --max 2000 --deadletter --reason Poison --description bad -f "%n\n" | wc -l'
	row 'dead letters: why' 'a list in Service Bus Explorer' 'Poison +2000' 'busbar dlq stats orders'
	row 'which they are' 'the same' 'Poison +bad' 'busbar dlq list orders --max 3'
	row 'how many a filter takes' '' '[0-9]+ messages?' "busbar dlq redrive orders --filter \"sys.DeliveryCount = 0\" --dry-run"
	row 'send 1,500 again, each once' 'one by one in the portal of Azure' 'sent 1500 messages' 'busbar dlq redrive orders --reason Poison --max 1500'
	row 'send the rest, 250 a second' '' 'sent 500 messages' 'busbar dlq redrive orders --rate 250'
	row 'purge says first what it would do' '' 'holds 2000 messages' 'busbar queue purge orders' 2
	row 'purge' '`purge queue`, `stream purge`' 'deleted 2000 messages' 'busbar queue purge orders --yes'
	row 'schedule' 'an SDK' 'scheduled 1 message' 'busbar send orders later --in 1h'
	row 'list what is scheduled' 'an SDK' 'scheduled +- +2' 'busbar queue peek orders --state scheduled'
	row 'cancel' 'an SDK' 'cancelled 1 message' "busbar cancel orders \$(busbar peek orders -o jsonl | grep -o '\"sequenceNumber\":[0-9]*' | cut -d: -f2)"
	quiet 'busbar send orders one two three --property region=eu'
	row 'messages to a file' '`stream backup`' '^3$' 'busbar messages export orders | tee orders.jsonl | wc -l'
	row 'and back' '`stream restore`' 'sent 3 messages' 'busbar messages import orders < orders.jsonl'
	row 'delete what a filter takes' '`stream purge --subject`' 'deleted 6 messages' "busbar messages delete orders --filter \"region = 'eu'\" --yes"
	row 'follow a queue' '`nats sub`, `rpk topic consume`' 'followed' 'busbar tail orders --max 1 & sleep 0.5; busbar send orders followed > /dev/null; wait'
	row 'which queues grow' '`nats server report`' 'orders +Queue' 'busbar top --once'
	row 'one message by its number' '`stream get`' 'followed' "busbar receive orders --defer > /dev/null; busbar receive orders --deferred"
	quiet "curl -sf -X PUT -H \"Authorization: \$(busbar token steps)\" -H 'Content-Type: application/atom+xml' --data '<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\"><QueueDescription xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\"><RequiresSession>true</RequiresSession></QueueDescription></content></entry>' 'http://127.0.0.1:$(port 5672)/steps?api-version=2021-05'"
	row 'a session and its state' 'an SDK' 'reached 3' 'busbar send steps go --session s1 > /dev/null; busbar session state set steps s1 "reached 3" > /dev/null; busbar session state get steps s1'
	row 'a token for HTTP, made in a shell' '' '201' "curl -s -o /dev/null -w '%{http_code}' -H \"Authorization: \$(busbar token orders)\" --data hello http://127.0.0.1:$(port 5672)/orders/messages"
	row 'a page in a browser' 'management of RabbitMQ, Redpanda Console' 'text/html' "curl -s -o /dev/null -H 'Accept: text/html' -w '%{content_type}' http://127.0.0.1:$(port 5300)/"
	row 'names in the shell' 'nats and rpk complete them' '^orders' "busbar __complete queue show ''"
	row 'a schema for the editor' '' 'json-schema.org[^"]*' 'busbar config schema entities'
	row 'pages of the manual' 'rabbitmqadmin has them' '^[0-9]+$' 'busbar man --dir man > /dev/null; ls man | wc -l'
	row 'load' '`nats bench`, perf-test' 'x \| [0-9]+ ' 'busbar bench load --create --mode cycle --duration 1s --warmup 100ms --output row --name x'
	row 'empty everything between two tests' 'a new container' 'emptied [0-9]+ entities' 'busbar reset --yes'
	row 'delete asks where messages would be lost' '' 'holds 1 message' 'busbar send orders x > /dev/null; busbar queue delete orders' 2
}

mistakes() {
	heading 'Mistakes, and what is said'
	row 'a wrong key' '' 'invalid signature.*: is the key[^(]*' "busbar queue list --connection-string 'Endpoint=sb://127.0.0.1:$(port 5672);SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong;UseDevelopmentEmulator=true'" 5
	row 'nobody listens' '' 'nobody listens there: [^;]*' 'busbar send orders x --connection-string "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=k;UseDevelopmentEmulator=true"' 1
	row 'AMQP to the operations port' '' 'that port speaks HTTP and no AMQP: is it the operations port\?' "busbar send orders x --connection-string 'Endpoint=sb://127.0.0.1:$(port 5300);SharedAccessKeyName=k;SharedAccessKey=k;UseDevelopmentEmulator=true'" 1
	row 'TLS without the authority' '' 'give the authority of the broker by --ca-file' "busbar send orders x --connection-string 'Endpoint=sb://127.0.0.1:$(port 5671);SharedAccessKeyName=k;SharedAccessKey=k'" 1
	row 'a port in use' '' 'address already in use; to mend it: .*' "busbar dev --ephemeral --log-level error --amqp-listen 127.0.0.1:$(port 5672) --ops-listen 127.0.0.1:0 --tls-listen 127.0.0.1:0 --peer-listen 127.0.0.1:0 --gossip-listen 127.0.0.1:0" 1
	row 'a data directory in use' '' 'in use by process [0-9]+' "busbar dev --data-dir $work/data --amqp-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0 --tls-listen 127.0.0.1:0 --peer-listen 127.0.0.1:0 --gossip-listen 127.0.0.1:0" 1
	row 'an unknown command' '' 'unknown command "quue"' 'busbar quue' 2
	row 'an unknown setting' '' 'there is no setting root-keey: did you mean root-key\?' "echo 'root-keey: x' > c.yaml; busbar config check --config c.yaml" 2
	row 'a rule that is none, in a file of entities' 'OpenServiceBus names the line' 'rule[^:]*: .*' "printf '{\"UserConfig\":{\"Namespaces\":[{\"Topics\":[{\"Name\":\"t\",\"Subscriptions\":[{\"Name\":\"s\",\"Rules\":[{\"Name\":\"r\",\"Properties\":{\"FilterType\":\"Sql\",\"SqlFilter\":{\"SqlExpression\":\"a = = 3\"}}}]}]}]}]}}' > bad.json; busbar config check --entities bad.json" 2
	row 'a queue that is not there' '' 'could not be found .*busbar entities list shows what there is' 'busbar send nosuch x' 3
	row 'a name that is taken' '' 'orders exists already' 'busbar queue create orders' 4
	row 'receive from a topic' '' 'receive from one of its subscriptions, TOPIC/Subscriptions/NAME' 'busbar receive topic.1' 2
	row 'flags that exclude each other' '' '--complete and --keep-locks exclude each other' 'busbar receive orders --complete=false --keep-locks' 2
	stop
}

operator() {
	heading 'An operator, three nodes'
	local began
	began=$(now)
	CLUSTER_FLAGS='--log-level warn' "$root/scripts/cluster.sh" up 3 >/dev/null
	put 'three nodes, ready' 'an evening with the pages of RabbitMQ or NATS' 'scripts/cluster.sh up 3' "$(seconds $(($(now) - began)))" 'ready'
	known 1
	quiet 'busbar cluster health --wait 60s; busbar queue create orders; busbar queue create idle; busbar send orders a b c'
	row 'nodes, versions, leaders, disks' '`rpk cluster status`' 'n3 +alive' 'busbar cluster status'
	row 'is it well' '`rpk cluster health`, code 10 if not' 'healthy' 'busbar cluster health'
	row 'what is wrong, and its cure' '`rabbitmq-diagnostics check_*`, `nats server check`' 'nothing is wrong' 'busbar cluster doctor'
	row 'move a leader' 'step-down' '1 +n2 ' 'busbar cluster transfer-leader 1 n2 > /dev/null && busbar cluster status'
	row "move the catalog's leader" 'step-down of the meta leader' 'catalog +n2 ' 'busbar cluster transfer-leader catalog n2 > /dev/null && busbar cluster status'
	row 'leaders where they should be' '`rabbitmq-queues rebalance`' 'handed over [0-9]+ leaderships?' 'busbar cluster rebalance'
	row 'drain a node for maintenance' '`rabbitmq-upgrade drain`, `rpk cluster maintenance enable`' 'n3 leads nothing and keeps [0-9]+ replicas' 'busbar cluster drain n3'
	row 'and back' '`rabbitmq-upgrade revive`' 'n3 gets its share again' 'busbar cluster undrain n3'
	row 'who is connected' '`list connections`, `nats server report connections`' 'n[123] +.*busbar-cli' '(busbar receive idle --wait 3s > /dev/null 2>&1 &); sleep 0.5; busbar connections list'
	row 'close a connection' '`close connection`' 'closed [0-9]+ connections?' "(busbar receive idle --wait 5s > /dev/null 2>&1 &); sleep 0.5; busbar connections close --entity idle"
	row 'a backup while clients go on' '`nats account backup`; RabbitMQ has definitions alone' 'made backups/.*' 'busbar backup create backups'
	row 'is it whole' '' 'catalog +whole' 'busbar backup verify backups/*'
	row 'definitions out' '`definitions export`' 'orders' 'busbar entities export'
	row 'every replica recounted and compared' '' 'well' 'busbar debug audit'
	row 'the version that the cluster has' 'feature flags' '0\.1' 'busbar cluster upgrade status'
	row 'metrics of the node: families' 'RabbitMQ, exporters of NATS, Redpanda' '[0-9]+ families' "curl -s http://127.0.0.1:$(port 5300)/metrics | grep -c '^# TYPE' | sed 's/\$/ families/'"
	row 'histograms' 'RabbitMQ, Redpanda' '[0-9]+ histograms' "curl -s http://127.0.0.1:$(port 5300)/metrics | grep -c '^# TYPE.*histogram\$' | sed 's/\$/ histograms/'"
	row 'metrics of a queue, at the node that leads it' 'RabbitMQ, detailed' 'busbar_entity_messages\{entity="orders",state="active"\} [0-9]+' "curl -s 'http://127.0.0.1:{$(port 5300),$(port 5310),$(port 5320)}/metrics/entities?match=orders'"
	row 'readiness, check by check' '`check_*`' 'ok' "curl -s 'http://127.0.0.1:$(port 5300)/readyz?verbose'"
	row 'SIGHUP reads the settings again' 'NATS' 'busbar_config_reloads_total\{result="[a-z]+"\} [1-9]' "kill -HUP \$(cat $CLUSTER_DIR/n1/pid) && sleep 0.5 && curl -s http://127.0.0.1:$(port 5300)/metrics"
	row 'a stop in good order, and a start' 'lame duck' '^n2 ready' "$root/scripts/cluster.sh stop 2 && $root/scripts/cluster.sh start 2 && $root/scripts/cluster.sh status"
	quiet 'busbar cluster health --wait 60s'
	quiet "$root/scripts/cluster.sh kill 3"
	row 'a node is dead: the code tells' '`rpk cluster health`' 'n3 .*' 'for i in $(seq 100); do busbar cluster health > /dev/null || break; sleep 0.1; done; busbar cluster health' 10
	row 'and what to do' '' 'cure: look at the network.*' 'busbar cluster doctor' 10
	quiet "rm -rf $CLUSTER_DIR/n3/*; $root/scripts/cluster.sh start 3"
	row 'its disk is replaced: replicas come back by themselves' 'procedures of each' 'healthy' 'busbar cluster health --wait 120s'
	row 'remove a node whose replicas have no other place' '`forget_cluster_node`, `peer-remove`, decommission' 'no other node is free for them: add a node' 'timeout 3 busbar cluster remove n3' 124
}

tests() {
	heading 'What takes a test to show'
	tested 'the first fifteen minutes of the README' '' test 'go test -count=1 -run TestTheFirstFifteenMinutes ./conformance/examples'
	tested 'first programs in four languages' '' test 'go test -count=1 -run TestTheFirstProgramsOfTheReadmeRun ./conformance/examples'
	tested 'libraries for tests in Go, JavaScript, Python and Java' 'testcontainers' . 'test/kits/run.sh'
	tested 'programs, packages and images without a compiler' 'each of them' scripts/release 'go test -count=1 -run "TestAReleaseIsWhole|TestTwoReleasesAreTheSame" .'
	tested "the image in the place of the emulator's" 'the emulator' scripts/release 'go test -count=1 -run TestTheEmulatorOfTheImageStarts .'
	tested 'all that needs no terminal, in Chromium' 'management of RabbitMQ' test 'go test -count=1 -run TestTasksOnOneNode ./console'
	tested 'nodes come and go under load' '`rabbitmqctl join_cluster`, and a rebalance' test 'go test -short -count=1 -run TestT267 ./conformance/failover'
	tested 'a rolling upgrade, and back' 'feature flags' test 'go test -short -count=1 -run TestAClusterIsUpgradedAndGoesBack ./conformance/failover'
	tested 'a backup under load, restored into another size' '`nats account restore`' test/conformance 'go test -count=1 -run TestABackupUnderLoadIsRestored .'
	tested 'a majority that is lost for good' 'procedures of each' test/conformance 'go test -count=1 -run TestALostMajorityIsRecovered .'
	tested 'keys, certificates and settings without a restart' 'NATS' . 'go test -short -count=1 -run "Reload|RootKeysRotate|FilesAreWatched" ./cmd/busbar'
	tested 'systemd: readiness, reload and watchdog' 'RabbitMQ' . 'go test -short -count=1 -run "Systemd|Watchdog" ./cmd/busbar'
	tested 'TLS and tokens on the operations port' 'RabbitMQ, NATS' . 'go test -short -count=1 -run "OperationsPort" ./cmd/busbar'
	tested 'who changed what' 'activity log of Azure' . 'go test -short -count=1 -run "Audited" ./cmd/busbar'
	tested 'spans of the broker' 'Solace' . 'go test -short -count=1 -run "TracedMessage" ./cmd/busbar'
	tested 'dashboards and alerts, by the library of Prometheus' 'the operator of RabbitMQ' test/monitoring 'go test -count=1 .'
	tested 'Kubernetes: a rollout and a lost pod under load' 'the operator of RabbitMQ' test 'go test -short -count=1 -run TestRollingUpdateAndLostPod ./kubernetes/acted'
}

measured() {
	echo
	echo "\`scripts/comparison.sh\` runs each row and writes this section. The machine has $(nproc) processors, and node and client share them."
	echo "It ran at $(date -u +%F), commit $(git -C "$root" rev-parse --short HEAD)."
	developer
	mistakes
	operator
	tests
	echo
}

measured >"$work/section"
awk -v section="$work/section" '
	/^<!-- tried -->$/ { print; while ((getline line < section) > 0) print line; skip = 1 }
	/^<!-- end of tried -->$/ { skip = 0 }
	!skip && !/^<!-- tried -->$/ { print }' "$out" >"$work/page"
cp "$work/page" "$out"
echo "wrote $out" >&2
