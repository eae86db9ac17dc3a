#!/bin/sh
set -e
# rpm says 0 and deb says remove when the package goes. Both say something else when a newer version takes its place.
case "$1" in
0 | remove)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now busbar.service || true
	fi
	;;
esac
