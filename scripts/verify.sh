#!/usr/bin/env bash
# Everything that can be judged without running the broker: format, modules, lint, links, coverage.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo '-- gofmt'
unformatted=$(git ls-files -co --exclude-standard '*.go' 2>/dev/null || find . -name '*.go' -not -path './bin/*')
unformatted=$(for f in $unformatted; do [[ -f $f ]] && echo "$f"; done | xargs -r gofmt -l)
if [[ -n $unformatted ]]; then
	echo "not formatted (gofmt -w):" >&2
	echo "$unformatted" >&2
	exit 1
fi

echo '-- modules are tidy'
for mod in $(find . -name go.mod -not -path './bin/*' | sort); do
	(cd "$(dirname "$mod")" && go mod tidy -diff >/dev/null) || {
		echo "$mod is not tidy: run go mod tidy there" >&2
		exit 1
	}
done

echo '-- links of the documentation, references of comments'
go run ./scripts/links

echo '-- parts of the examples in other pages'
go run ./scripts/snippets

echo '-- diagrams'
go run ./scripts/mermaid

echo '-- sentences that are too long, or name nobody'
go run ./scripts/prose

echo '-- coverage of the specification'
go run ./scripts/coverage -check

echo '-- reference of the command line'
go test -count=1 -run '^TestTheReferenceOfTheCommandLineIsTrue$' ./cmd/busbar

echo '-- vet and lint'
go vet ./...
(cd test && go vet ./...)
(cd docs/examples && go vet ./...)
make lint

echo '-- known vulnerabilities'
database=${GOVULNDB:-https://vuln.go.dev}
if curl --silent --show-error --fail --max-time 20 --output /dev/null "$database/index/db.json"; then
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -db "$database" ./...
else
	echo "SKIPPED: $database cannot be reached; nobody has looked for known vulnerabilities" >&2
fi
