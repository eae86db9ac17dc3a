#!/usr/bin/env bash
# Runs every fuzz target of the repository for the given time each: scripts/fuzz.sh 30s
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-30s}
found=0
while IFS=: read -r file target; do
	found=$((found + 1))
	echo "-- $(dirname "$file") $target ($time)"
	(cd "$(dirname "$file")" && go test -run '^$' -fuzz "^${target}\$" -fuzztime "$time" .) # some are in the module test
done < <(grep -rhoE --include='*_test.go' --with-filename '^func Fuzz[A-Za-z0-9_]*' cmd fsm partition \
	transport cluster storage test 2>/dev/null | sed 's/:func /:/' | sort)
if [[ $found -eq 0 ]]; then
	echo 'no fuzz target found' >&2
	exit 1
fi
