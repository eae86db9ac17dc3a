#!/usr/bin/env bash
# Installs the Python SDK into a virtual environment as requirements.txt says, and runs the
# scenarios with its blocking clients (sync) or its asynchronous ones (aio).
source "$(dirname "$0")/../tools.sh"

need python3 'install Python 3.9 or newer with venv'
if tools python requirements.txt; then
	fresh
	# Without the module ensurepip, Debian's python3-venv is missing.
	python3 -m venv "$dir/venv" >&2 || need ensurepip 'apt-get install python3-venv'
	"$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-input \
		-r "$here/requirements.txt" >&2
	filled
fi
installed "$@"

PYTHONPATH=$here/../py exec "$dir/venv/bin/python" -B "$here/main.py" "$@"
