"""The tests of the kit, with the official SDK."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

import busbartest

pytest_plugins = ["pytester"]

ENTITIES = {
    "Queues": [{"Name": "invoices", "Properties": {"MaxDeliveryCount": 1}}],
    "Topics": [{"Name": "events", "Subscriptions": [{"Name": "urgent", "Rules": [
        {"Name": "r", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "priority > 3"}}}]}]}],
}


def client_of(broker):
    return ServiceBusClient.from_connection_string(broker.connection_string)


def send(client, to, body, **properties):
    with client.get_queue_sender(to) as sender:
        sender.send_messages(ServiceBusMessage(body, application_properties=properties))


def texts(receiver):
    with receiver:
        return [str(m) for m in receiver.receive_messages(10, max_wait_time=20)]


@pytest.mark.parametrize("form", ["file", "code"])
def test_entities_and_reset(form, tmp_path):
    (tmp_path / "Config.json").write_text(json.dumps(ENTITIES))
    with busbartest.start(tmp_path / "Config.json" if form == "file" else ENTITIES) as broker, client_of(broker) as client:
        send(client, "events", "low", priority=1)
        send(client, "events", "high", priority=5)
        assert texts(client.get_subscription_receiver("events", "urgent")) == ["high"]
        send(client, "invoices", "one")
        broker.reset()
        with client.get_queue_receiver("invoices") as receiver:
            assert receiver.peek_messages(10) == []


def test_entities_of_a_test():
    with busbartest.start() as broker, client_of(broker) as client:
        one = broker.queue("q")
        two = broker.queue("q", RequiresSession=True, UserMetadata="a < b & c")
        assert one != two
        send(client, one, "mine")
        assert texts(client.get_queue_receiver(one)) == ["mine"]
        with pytest.raises(Exception, match="(?i)session"):
            with client.get_queue_receiver(two) as receiver:
                receiver.receive_messages(1, max_wait_time=5)
        topic = broker.topic("t", "a", "b")
        send(client, topic, "all")
        assert [texts(client.get_subscription_receiver(topic, s)) for s in ("a", "b")] == [["all"], ["all"]]
        with pytest.raises(busbartest.BrokerError, match="Colour"):
            broker.queue("q", Colour="red")
        broker.queue("q", ForwardTo=one, AutoDeleteOnIdle="PT1H", Status="Disabled")
        with pytest.raises(busbartest.BrokerError, match="(?s)MaxDeliveryCount.*400|400.*MaxDeliveryCount"):
            broker.queue("q", MaxDeliveryCount=0)


def test_brokers_share_nothing():
    with busbartest.start() as a, busbartest.start() as b:
        assert a.connection_string != b.connection_string
        a.close()
        a.close()
        assert not a._dir.exists()
        assert "is ready after" in a.log
        with client_of(b) as client:
            send(client, b.queue("q"), "x")


def test_a_faulty_set_up_is_explained(monkeypatch, tmp_path):
    with pytest.raises(busbartest.BrokerError, match="/Queues/0"):
        busbartest.start({"Queues": [{"Name": "a b"}]})
    with pytest.raises(busbartest.BrokerError, match="/no/such/busbar"):
        busbartest.start(program="/no/such/busbar")
    monkeypatch.delenv("BUSBAR_BINARY")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(busbartest.BrokerError, match="BUSBAR_BINARY"):
        busbartest.start()


def test_a_broker_ends_with_a_killed_test():
    program = "import busbartest, time; b = busbartest.start(); print(b.operations, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as holder:
        host, port = holder.stdout.readline().strip()[len("http://"):].split(":")
        socket.create_connection((host, int(port)), 5).close()
        holder.send_signal(signal.SIGKILL)
    until = time.monotonic() + 20
    while True:
        try:
            socket.create_connection((host, int(port)), 5).close()
        except OSError:
            return
        assert time.monotonic() < until, "the broker is still there"
        time.sleep(0.05)


def test_the_fixture(pytester):
    """A test has an empty broker with the entities of the setting, and a failed one shows the log of the broker."""
    pytester.makefile(".json", Config=json.dumps(ENTITIES))
    pytester.makeini("[pytest]\nbusbar_entities = Config.json\n")
    pytester.makepyfile('''
        from azure.servicebus import ServiceBusClient, ServiceBusMessage

        def put(busbar):
            with ServiceBusClient.from_connection_string(busbar.connection_string) as client:
                with client.get_queue_receiver("invoices") as receiver:
                    assert receiver.peek_messages(1) == []
                with client.get_queue_sender("invoices") as sender:
                    sender.send_messages(ServiceBusMessage("x"))

        def test_one(busbar):
            put(busbar)

        def test_two(busbar):
            put(busbar)

        def test_three(busbar):
            busbar.queue("made-by-three")
            assert False
    ''')
    result = pytester.runpytest_subprocess("-p", "busbartest.plugin")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*log of the broker*", "*made-by-three*"])


def test_a_container(monkeypatch, tmp_path):
    """Without a program a container is started. A stand-in takes the place of the command docker."""
    monkeypatch.setenv("BUSBAR_STANDIN", os.environ["BUSBAR_BINARY"])
    monkeypatch.delenv("BUSBAR_BINARY")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(__file__).parents[2] / 'docker'}:/usr/bin:/bin")
    monkeypatch.setenv("BUSBAR_IMAGE", "busbar:test")
    with busbartest.start(ENTITIES) as broker, client_of(broker) as client:
        send(client, "invoices", "x")
    monkeypatch.setenv("BUSBAR_IMAGE", "busbar:absent")
    with pytest.raises(busbartest.BrokerError, match="busbar:absent"):
        busbartest.start()
