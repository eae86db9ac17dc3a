#!/usr/bin/env bash
# Builds the scenarios with a version of the Go SDK, as its module file says, and runs them.
source "$(dirname "$0")/../tools.sh"

need go 'install Go 1.26 or newer'
module=versions/$version.mod
[[ -f $here/$module ]] || {
	echo "$here/$module is missing: the module file of version $version" >&2
	exit 1
}
if tools go "$module" "versions/$version.sum" "$here"/*.go; then
	fresh
	tags=$(sed -n 's|^// tags: ||p' "$here/$module")
	(cd "$here/../.." && go build -modfile="conformance/go/$module" -tags="$tags" -o "$dir/scenarios" ./conformance/go) >&2
	filled
fi
installed
exec "$dir/scenarios" $only
