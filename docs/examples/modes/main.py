"""Receives the same number of messages in both modes and measures them. Then it shows what each mode leaves of a
message whose worker failed."""

import os
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE, COUNT = "modes-samples", 200


def send(client, n):
    with client.get_queue_sender(QUEUE) as sender:
        sender.send_messages([ServiceBusMessage("sample") for _ in range(n)])


def measure(client, mode, name):
    send(client, COUNT)
    with client.get_queue_receiver(QUEUE, receive_mode=mode) as receiver:
        began, received = time.monotonic(), 0
        while received < COUNT:
            messages = receiver.receive_messages(max_message_count=20, max_wait_time=60)
            received += len(messages)
            if mode == ServiceBusReceiveMode.PEEK_LOCK:
                for message in messages:
                    receiver.complete_message(message)
        print(f"{name}: {COUNT} messages in {(time.monotonic() - began) * 1000:.0f} ms")


def fail(client, mode, name):
    """A worker takes one more message and fails."""
    send(client, 1)
    with client.get_queue_receiver(QUEUE, receive_mode=mode) as receiver:
        [message] = receiver.receive_messages(max_message_count=1, max_wait_time=60)
        if mode == ServiceBusReceiveMode.PEEK_LOCK:
            receiver.abandon_message(message)
        again = receiver.receive_messages(max_message_count=1, max_wait_time=3)
        print(f"{name}: the message of the failed worker is {'there again' if again else 'lost'}")
        for message in again:
            receiver.complete_message(message)


with ServiceBusClient.from_connection_string(CONNECTION) as client:
    for mode, name in [(ServiceBusReceiveMode.RECEIVE_AND_DELETE, "receive and delete"),
                       (ServiceBusReceiveMode.PEEK_LOCK, "peek-lock")]:
        measure(client, mode, name)
        fail(client, mode, name)
