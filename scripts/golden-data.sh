#!/usr/bin/env bash
# Writes a data directory of this program below cmd/busbar/testdata/directories, for later programs to open. Run it for
# each release, with its version as the argument, and commit what it writes. Never write one anew under an old name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
name=${1:?usage: scripts/golden-data.sh VERSION, such as 0.1.0}
if [[ -e cmd/busbar/testdata/directories/$name.tar.gz ]]; then
	echo "$name is there: a directory of a release stays as that release has written it" >&2
	exit 1
fi
go test -count=1 -run TestDataDirectoriesOfEarlierReleasesOpen ./cmd/busbar -golden-data "$name"
ls -l "cmd/busbar/testdata/directories/$name".*
