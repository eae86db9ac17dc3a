"""A broker for tests: a process of its own on free ports, empty, and gone at the end.

    with busbartest.start() as broker:
        queue = broker.queue("orders", MaxDeliveryCount=1)
        client = ServiceBusClient.from_connection_string(broker.connection_string)

With pytest, the fixture ``busbar`` is such a broker; see plugin.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Union
from xml.sax.saxutils import escape

__all__ = ["Broker", "BrokerError", "start"]

_START_LIMIT = 60.0
_STOP_LIMIT = 10.0
_KEY_NAME = "RootManageSharedAccessKey"
_KEY = "SAS_KEY_VALUE"  # of a broker for development: everybody knows it
_SCHEMA = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
_numbers = itertools.count(1)

Entities = Union[str, "os.PathLike[str]", Mapping[str, Any], None]


class BrokerError(Exception):
    """A broker did not start, or refused something."""


def start(entities: Entities = None, *, program: Optional[str] = None) -> "Broker":
    """Start a broker and wait until it serves.

    entities: the path of a file in the form of the official emulator's Config.json, or a mapping of that form.
    program: the path of the program; else the variable BUSBAR_BINARY, or busbar on the path. Without any the kit starts
    a container of the image that the variable BUSBAR_IMAGE names.
    """
    return Broker(entities, program)


class Broker:
    """A running broker. It is a context manager, and ends with the block; :func:`start` makes one."""

    #: For clients of Azure Service Bus.
    connection_string: str
    #: The URL of health, metrics, the management API and the console.
    operations: str

    def __init__(self, entities: Entities, program: Optional[str]) -> None:
        self._dir = Path(tempfile.mkdtemp(prefix="busbartest-"))
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._container = ""
        try:
            self._begin(self._file_of(entities), program)
            amqp, ops = self._addresses()
            self.connection_string = (
                f"Endpoint=sb://{amqp};SharedAccessKeyName={_KEY_NAME};SharedAccessKey={_KEY};UseDevelopmentEmulator=true"
            )
            self.operations = f"http://{ops}"
            self._await("is not healthy yet", self._healthy)
        except BaseException as fault:
            log = self.log
            self.close()
            if isinstance(fault, (BrokerError, OSError)):
                raise BrokerError(f"{fault}\n{log}".rstrip()) from fault
            raise

    def queue(self, prefix: str, **properties: Any) -> str:
        """Make a queue and return its name, the prefix and a number.

        The properties have the names of the management API, such as LockDuration="PT5S".
        """
        name = f"{prefix}-{next(_numbers)}"
        self._make(name, "QueueDescription", properties)
        return name

    def topic(self, prefix: str, *subscriptions: str, **properties: Any) -> str:
        """Make a topic with subscriptions that get every message, and return its name."""
        name = f"{prefix}-{next(_numbers)}"
        self._make(name, "TopicDescription", properties)
        for subscription in subscriptions:
            self._make(f"{name}/subscriptions/{subscription}", "SubscriptionDescription", {})
        return name

    def reset(self) -> None:
        """Empty every entity, as if each had just been made. Close receivers before."""
        self._ask("POST", "/api/reset")

    @property
    def log(self) -> str:
        """What the broker has printed so far."""
        try:
            return (self._dir / "log").read_text(errors="replace")
        except FileNotFoundError:
            return self._last_log

    _last_log = ""

    def close(self) -> None:
        """End the broker and remove its data. It may be called again."""
        try:
            if self._process is not None:
                self._end(self._process)
        finally:
            self._last_log = self.log
            shutil.rmtree(self._dir, ignore_errors=True)

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _file_of(self, entities: Entities) -> Optional[Path]:
        if entities is None or not isinstance(entities, Mapping):
            return None if entities is None else Path(entities).absolute()
        file = self._dir / "Config.json"
        file.write_text(json.dumps(entities))
        return file

    def _begin(self, entities: Optional[Path], program: Optional[str]) -> None:
        program = program or os.environ.get("BUSBAR_BINARY") or shutil.which("busbar")
        image = os.environ.get("BUSBAR_IMAGE")
        if program:
            command = [program, "serve", "--dev", "--ephemeral", "--stop-with-stdin", "--log-format", "text",
                       "--ports-file", str(self._dir / "ports.json"), "--amqp-listen", "127.0.0.1:0",
                       "--tls-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]
            command += ["--entities", str(entities)] if entities else []
        elif image:
            self._container = f"busbartest-{uuid.uuid4()}"
            command = ["docker", "run", "--rm", "-i", "--name", self._container, "-p", "127.0.0.1::5672", "-p", "127.0.0.1::5300"]
            command += ["-v", f"{entities}:/ServiceBus_Emulator/ConfigFiles/Config.json:ro"] if entities else []
            command += [image, "emulator", "--stop-with-stdin"]
        else:
            raise BrokerError("busbar is not on the path: set BUSBAR_BINARY to the program, or BUSBAR_IMAGE to an image")
        # Settings of a node on this machine are none of the test's.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("BUSBAR_") or k == "BUSBAR_STANDIN"}
        with open(self._dir / "log", "wb") as log:
            # The broker ends with its standard input, and so with this process, even if this one is killed.
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)

    def _addresses(self) -> "tuple[str, str]":
        found = ["", ""]

        def listens() -> bool:
            if self._container:
                found[:] = self._published("5672/tcp"), self._published("5300/tcp")
                return all(found)
            try:
                ports = json.loads((self._dir / "ports.json").read_text())
            except (FileNotFoundError, ValueError):
                return False
            found[:] = f"localhost:{ports['amqp']}", f"localhost:{ports['ops']}"
            return True

        self._await("does not listen yet", listens)
        return found[0], found[1]

    def _published(self, port: str) -> str:
        """Where a port of the container is on this machine, or nothing."""
        out = subprocess.run(["docker", "port", self._container, port], capture_output=True, text=True).stdout
        return out.split("\n")[0].strip()

    def _await(self, what: str, so: Callable[[], bool]) -> None:
        assert self._process is not None
        until = time.monotonic() + _START_LIMIT
        while not so():
            if self._process.poll() is not None:
                raise BrokerError(f"the broker ended with code {self._process.returncode}")
            if time.monotonic() > until:
                raise BrokerError(f"the broker {what}, after {_START_LIMIT:.0f} s")
            time.sleep(0.02)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.operations}/health", timeout=5):
                return True
        except OSError:
            return False

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerError(f"the broker did not stop within {_STOP_LIMIT:.0f} s, and was killed") from None

    def _make(self, path: str, kind: str, properties: Mapping[str, Any]) -> None:
        inner = "".join(f"<{name}>{escape(_text(value))}</{name}>" for name, value in sorted(properties.items()))
        made = self._ask("PUT", f"/{path}?api-version=2021-05",
                         '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
                         f'<{kind} xmlns="{_SCHEMA}">{inner}</{kind}></content></entry>')
        for name in properties:  # the service ignores what it does not know, and a test would not notice
            if f"<{name}>" not in made:
                raise BrokerError(f"a {kind} has no property {name}; options of Busbar go into the file of entities")

    def _ask(self, method: str, path: str, body: str = "") -> str:
        headers = {"Authorization": _token(self.operations), "Content-Type": "application/atom+xml"}
        request = urllib.request.Request(self.operations + path, body.encode(), headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as fault:
            raise BrokerError(f"{method} {path}: {fault}: {fault.read().decode(errors='replace')}") from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _token(of: str) -> str:
    """A shared access signature for the whole broker, good for an hour."""
    until = int(time.time()) + 3600
    where = urllib.parse.quote_plus(of)
    mac = hmac.new(_KEY.encode(), f"{where}\n{until}".encode(), hashlib.sha256).digest()
    signature = urllib.parse.quote_plus(base64.b64encode(mac))
    return f"SharedAccessSignature sr={where}&sig={signature}&se={until}&skn={_KEY_NAME}"
