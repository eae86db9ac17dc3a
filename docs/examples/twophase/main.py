"""Sends in two phases without transactions. Phase 1 stores a message where no worker looks. Phase 2 makes it ready or
deletes it, as the local transaction has decided, also after a crash in between."""

import os
import uuid

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
PREPARED, READY = "twophase-prepared", "twophase-ready"  # the second detects duplicates


def prepare(client, committed):
    """Is phase 1 of three orders, each with its local transaction."""
    with client.get_queue_sender(PREPARED) as sender:
        for order in ("order 1", "order 2", "order 3"):
            key = str(uuid.uuid4())
            sender.send_messages(ServiceBusMessage(order, message_id=key))
            if order == "order 1":
                committed.add(key)
                print(f"{order}: prepared, committed here")
            elif order == "order 2":
                print(f"{order}: prepared, rolled back here")
            else:
                print(f"{order}: prepared, and the process stops before it decides")


def finish(client, committed, count):
    """Is phase 2 of so many messages. It may stop anywhere and be done again: a second send has the same id."""
    with client.get_queue_receiver(PREPARED, max_wait_time=60) as receiver, client.get_queue_sender(READY) as sender:
        for _ in range(count):
            message = next(receiver)
            if message.message_id in committed:
                sender.send_messages(ServiceBusMessage(str(message), message_id=message.message_id))
                print(f"{message}: is ready")
            else:
                print(f"{message}: is deleted")
            receiver.complete_message(message)


with ServiceBusClient.from_connection_string(CONNECTION) as client:
    committed = set()  # stands for a table of your database: the orders whose local transaction has committed
    prepare(client, committed)
    finish(client, committed, 3)  # by the next process
    with client.get_queue_receiver(READY, max_wait_time=60) as receiver:
        for message in receiver.receive_messages(max_message_count=10, max_wait_time=60):
            print(f"{message}: received")
            receiver.complete_message(message)
