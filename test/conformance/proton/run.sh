#!/usr/bin/env bash
# Installs Debian's Python binding of Qpid Proton, an AMQP client of nobody's SDK, and runs the
# scenarios of plain AMQP 1.0.
source "$(dirname "$0")/../tools.sh"

# The binding belongs to the system's Python, not to whichever comes first in PATH.
python=/usr/bin/python3
need "$python" 'install python3'
if ! "$python" -c 'import proton' 2>/dev/null; then
	need apt-get 'install the Python binding of Qpid Proton (python3-qpid-proton)'
	sudo=
	[[ $(id -u) == 0 ]] || sudo='sudo -n'
	{ $sudo apt-get update -q && $sudo apt-get install -y -q --no-install-recommends python3-qpid-proton; } >&2
fi
installed

PYTHONPATH=$here/../py exec "$python" -B "$here/main.py" $only
