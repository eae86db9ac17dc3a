"""Stands in for what an operator sets up outside of the application: a name in the DNS, the standard
ports, and the node's authority in the trust store. The transport appends the original's domain to every
namespace and takes no port."""

import os
import socket

import certifi

HOST = "busbar-tests.servicebus.windows.net"
find = socket.getaddrinfo


def getaddrinfo(host, port, *args, **kw):
    if host == HOST:
        host, port = os.environ["BUSBAR_TLS"].rsplit(":", 1)
    return find(host, port, *args, **kw)


socket.getaddrinfo = getaddrinfo
certifi.where = lambda: os.environ["BUSBAR_CA"]
