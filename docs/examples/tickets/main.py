"""Sells three tickets to the first three who asked. Two clerks work side by side and finish in any order; the sequence
numbers of the requests decide."""

import os
from concurrent.futures import ThreadPoolExecutor

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE, TICKETS = "tickets-requests", 3
BUYERS = ["ann", "bob", "ann", "cid", "dan", "eve"]  # they ask in this order; ann is impatient


def collect(requests):
    """Is a clerk who notes so many requests: who asks, and with which number."""
    noted = []
    with ServiceBusClient.from_connection_string(CONNECTION) as client, \
            client.get_queue_receiver(QUEUE, max_wait_time=60) as receiver:
        for _ in range(requests):
            message = next(receiver)
            noted.append((message.sequence_number, str(message)))
            receiver.complete_message(message)
    return noted


with ServiceBusClient.from_connection_string(CONNECTION) as client, client.get_queue_sender(QUEUE) as sender:
    for buyer in BUYERS:
        sender.send_messages(ServiceBusMessage(buyer))
with ThreadPoolExecutor() as clerks:  # each has a client of its own: clients are not for several threads
    notes = list(clerks.map(collect, [len(BUYERS) // 2] * 2))
in_order = dict.fromkeys(buyer for _, buyer in sorted(notes[0] + notes[1]))  # each buyer once, by the first request
for place, buyer in enumerate(in_order, start=1):
    print(f"{buyer}: ticket {place}" if place <= TICKETS else f"{buyer}: sold out")
