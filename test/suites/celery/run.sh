#!/usr/bin/env bash
# Installs Celery with its transport for the original, and runs tasks over it.
pinned=one # by the files here
source "$(dirname "$0")/../../conformance/tools.sh"

need python3 'install Python 3.9 or newer with venv'
if tools celery requirements.txt; then
	fresh
	# Without the module ensurepip, Debian's python3-venv is missing.
	python3 -m venv "$dir/venv" >&2 || need ensurepip 'apt-get install python3-venv'
	"$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-input \
		-r "$here/requirements.txt" >&2
	filled
fi
installed "$@"

# sitecustomize.py and the tasks are found beside the flow.
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 REQUESTS_CA_BUNDLE=$BUSBAR_CA
exec "$dir/venv/bin/python" "$here/flow.py"
