#!/usr/bin/env bash
# Runs the tests of the kits that are named, or of all that have a run.sh, side by side: they wait more than they work. The
# program is that of BUSBAR_BINARY, or bin/busbar.
set -euo pipefail
cd "$(dirname "$0")"
export BUSBAR_BINARY=${BUSBAR_BINARY:-$(cd ../.. && pwd)/bin/busbar}
printed=$(mktemp -d)
trap 'rm -rf "$printed"' EXIT

kits=("$@")
[[ ${#kits[@]} -gt 0 ]] || for run in */run.sh; do kits+=("${run%/run.sh}"); done
declare -A running
for kit in "${kits[@]}"; do
	{ "$kit/run.sh" && echo "ok after $SECONDS s"; } >"$printed/$kit" 2>&1 &
	running[$kit]=$!
done
failed=0
for kit in "${kits[@]}"; do
	wait "${running[$kit]}" || failed=1
	sed "s/^/kit for $kit: /" "$printed/$kit"
done
exit $failed
