#!/usr/bin/env bash
# Runs the tests of the kits that are named, or of all that have a run.sh. The program is that of BUSBAR_BINARY, or bin/busbar.
set -euo pipefail
cd "$(dirname "$0")"
export BUSBAR_BINARY=${BUSBAR_BINARY:-$(cd ../.. && pwd)/bin/busbar}
for kit in "${@:-*/run.sh}"; do
	for run in ${kit%/run.sh}/run.sh; do
		began=$SECONDS
		"$run"
		echo "kit for ${run%/run.sh}: ok, $((SECONDS - began)) s"
	done
done
