#!/bin/sh
set -e
if ! getent passwd busbar >/dev/null 2>&1; then
	if command -v systemd-sysusers >/dev/null 2>&1; then
		systemd-sysusers busbar.conf
	else
		useradd --system --user-group --home-dir /var/lib/busbar --no-create-home --shell /usr/sbin/nologin busbar
	fi
fi
# The root key of a node is drawn once. An upgrade leaves the file alone.
if [ ! -e /etc/busbar/keys.env ]; then
	key=$(head -c 32 /dev/urandom | base64)
	if [ "${#key}" -ne 44 ]; then # a pipe hides the failure of its first command
		echo 'busbar: no random bytes in /dev/urandom, so no root key could be drawn' >&2
		exit 1
	fi
	(umask 077 && printf 'BUSBAR_ROOT_KEY=%s\n' "$key" >/etc/busbar/keys.env.new)
	mv /etc/busbar/keys.env.new /etc/busbar/keys.env
fi
# Nothing is started: a node of a cluster needs its configuration first, and an upgrade goes from node to node.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
