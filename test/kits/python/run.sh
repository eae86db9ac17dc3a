#!/usr/bin/env bash
# Runs the tests of the kit for Python, with what requirements.txt pins.
pinned=kit
source "$(dirname "$0")/../../conformance/tools.sh"

need python3 'install Python 3.9 or newer with venv'
if tools python requirements.txt; then
	fresh
	python3 -m venv "$dir/venv" >&2 || need ensurepip 'apt-get install python3-venv'
	"$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-input -r "$here/requirements.txt" >&2
	filled
fi
installed

cd "$here"
PYTHONPATH=$here exec "$dir/venv/bin/python" -B -m pytest --quiet -p busbartest.plugin -p no:cacheprovider tests example
