"""Hands over two files as sequences of messages that travel interleaved through one queue. Each sequence is a
session: one consumer gets it whole and in order, whatever the other consumers do."""

import os
from concurrent.futures import ThreadPoolExecutor

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE = "fifo-files"


def send():
    """Sends two sequences, one message of each in turn. The subject tells where a sequence begins and ends."""
    with ServiceBusClient.from_connection_string(CONNECTION) as client, client.get_queue_sender(QUEUE) as sender:
        for i, subject in enumerate(["start", "content", "content", "end"]):
            for file in ["letter", "report"]:
                sender.send_messages(ServiceBusMessage(f"{file}, part {i}", session_id=file, subject=subject))


def consume(_):
    """Takes a session that nobody holds, reads it from start to end and gives it back at once."""
    lines, start = [], None
    with ServiceBusClient.from_connection_string(CONNECTION) as client, \
            client.get_queue_receiver(QUEUE, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=60) as session:
        for message in session:
            if message.subject == "start":
                start = message.sequence_number
            if start is None:
                raise ValueError("a sequence without a start")
            lines.append(f"{message.subject:7} {message}, number {message.sequence_number - start} behind the start")
            session.complete_message(message)
            if message.subject == "end":
                break
    return lines


send()
with ThreadPoolExecutor() as consumers:  # each has a client of its own: clients are not for several threads
    for lines in sorted(consumers.map(consume, range(2)), key=lambda lines: lines[0]):
        print("\n".join(lines))
