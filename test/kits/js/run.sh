#!/usr/bin/env bash
# Runs the tests of the kit for JavaScript, with the newest version of the SDK that the scenarios have.
set -euo pipefail
cd "$(dirname "$0")"
version=$(awk -F' *[|] *' '$1 == "js" && $3 == "always" { print $2 }' ../../conformance/versions.txt)
NODE_PATH=$(../../conformance/js/run.sh --where "$version")/node_modules
export NODE_PATH
exec node --test --test-concurrency=1 --test-reporter=dot test/*.test.js example/*.test.js
