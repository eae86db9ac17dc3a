#!/usr/bin/env bash
# Installs a version of the Python SDK into a virtual environment as its requirements.txt says, and
# runs the scenarios with its blocking clients (sync) or its asynchronous ones (aio).
source "$(dirname "$0")/../tools.sh"

need python3 'install Python 3.9 or newer with venv'
requirements=versions/$version/requirements.txt
pins "$here/versions/$version"
if tools python "$requirements"; then
	fresh
	# Without the module ensurepip, Debian's python3-venv is missing.
	python3 -m venv "$dir/venv" >&2 || need ensurepip 'apt-get install python3-venv'
	# Versions before 7.9 need the C library uamqp: without a wheel for this Python, say so at once.
	binary=
	if grep -q '^uamqp==' "$here/$requirements"; then binary='--only-binary uamqp'; fi
	"$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-input $binary \
		-r "$here/$requirements" >&2 || {
		echo "azure-servicebus $version was not installed${binary:+: uamqp has wheels for Python 3.7 to 3.13 on Linux}" >&2
		exit 1
	}
	filled
fi
installed

# Older versions do not hand connection_verify on to the management API's connections; requests and
# aiohttp read the authority from these.
if [[ -n ${BUSBAR_CA-} ]]; then export REQUESTS_CA_BUNDLE=$BUSBAR_CA SSL_CERT_FILE=$BUSBAR_CA; fi
PYTHONPATH=$here/../py exec "$dir/venv/bin/python" -B "$here/main.py" ${only:-"$client"}
