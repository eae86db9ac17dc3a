#!/usr/bin/env bash
# Rewrites the golden files of every package whose tests know the flag -update. Read the diff.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages=$(grep -rlE --include='*_test.go' 'flag\.Bool\("update"' cmd fsm partition transport cluster \
	storage test | xargs -r -n1 dirname | sort -u | grep -v '^test/conformance' || true)
if [[ -z $packages ]]; then
	echo 'no package has golden files with an -update flag' >&2
	exit 1
fi
for p in $packages; do
	go test "./$p" -update
done
git --no-pager diff --stat 2>/dev/null || true
