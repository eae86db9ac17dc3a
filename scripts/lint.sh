#!/usr/bin/env bash
# Runs the pinned linters over every module of the repository. Findings are errors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
tools=$root/bin/tools
failed=0

files=$(find . -name '*.go' -not -path './bin/*' -not -path './.cluster/*')
wrong=$("$tools/goimports" -l -local github.com/busbar-mq/busbar $files)
if [[ -n $wrong ]]; then
	echo 'imports out of order (goimports -w -local github.com/busbar-mq/busbar):' >&2
	echo "$wrong" >&2
	failed=1
fi

for mod in $(find . -name go.mod -not -path './bin/*' | sort); do
	dir=$(dirname "$mod")
	(cd "$dir" && "$tools/staticcheck" ./...) || failed=1
	(cd "$dir" && "$tools/check" -test=false -errcheck.exclude="$root/scripts/lint/errcheck.txt" ./...) || failed=1
done
exit $failed
