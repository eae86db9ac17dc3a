#!/usr/bin/env bash
# Installs a version of the JavaScript SDK as its lock file says, and runs the scenarios.
source "$(dirname "$0")/../tools.sh"

need node 'install Node.js 20 or newer'
need npm 'install npm'
pins "$here/versions/$version"
if tools js versions/"$version"/package.json versions/"$version"/package-lock.json; then
	fresh
	cp "$here/versions/$version"/package.json "$here/versions/$version"/package-lock.json "$dir"
	(cd "$dir" && npm ci --silent --no-audit --no-fund --ignore-scripts) >&2
	filled
fi
installed

# Node reads the authority from a file, and modules from NODE_PATH.
export NODE_PATH=$dir/node_modules NODE_EXTRA_CA_CERTS=${BUSBAR_CA-}
exec node "$here/run.js" $only
