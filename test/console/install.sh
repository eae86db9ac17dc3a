#!/usr/bin/env bash
# Installs what the tests of the console need, and prints two lines: the browser, and the file of axe-core. The browser is
# Debian's Chromium, or what BUSBAR_CHROMIUM names. axe-core is the version that axe/package-lock.json pins.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${BUSBAR_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/busbar/conformance}

browser=${BUSBAR_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [[ -z $browser ]]; then
	command -v apt-get >/dev/null || {
		echo 'no Chromium is on the path: install it, or name one by BUSBAR_CHROMIUM' >&2
		exit 1
	}
	sudo=
	[[ $(id -u) == 0 ]] || sudo='sudo -n'
	{ $sudo apt-get update -q && $sudo apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core; } >&2
	browser=$(command -v chromium)
fi

dir=$cache/axe-$(cat "$here"/axe/package.json "$here"/axe/package-lock.json | sha256sum | cut -c1-12)
if [[ ! -e $dir/complete ]]; then
	command -v npm >/dev/null || {
		echo 'npm is missing: install it' >&2
		exit 1
	}
	rm -rf "$dir"
	mkdir -p "$dir"
	cp "$here"/axe/package.json "$here"/axe/package-lock.json "$dir"
	(cd "$dir" && npm ci --silent --no-audit --no-fund --ignore-scripts) >&2
	touch "$dir/complete"
fi
echo "$browser"
echo "$dir/node_modules/axe-core/axe.min.js"
