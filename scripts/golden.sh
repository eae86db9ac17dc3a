#!/usr/bin/env bash
# Rewrites the golden files of every package whose tests have the flag -update.
# Read the diff before you commit it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
found=0
for p in $(grep -rlE --include='*_test.go' 'flag\.Bool\("update"' cmd fsm partition transport cluster storage \
	test | xargs -r -n1 dirname | sort -u); do
	found=$((found + 1))
	echo "-- $p"
	(cd "$p" && go test . -update) # some are packages of the module test
done
if [[ $found -eq 0 ]]; then
	echo 'no package has golden files' >&2
	exit 1
fi
git --no-pager diff --stat 2>/dev/null || true
