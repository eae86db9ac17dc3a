"""Three messages and two consumers, of which the first is slow. Without sessions the messages are handed out in order
and finished in another one. In a session they are finished in order, too."""

import os

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]


def send(client, queue):
    with client.get_queue_sender(queue) as sender:
        for body in ("1", "2", "3"):  # a queue without sessions takes the session's id for a property
            sender.send_messages(ServiceBusMessage(body, session_id="set-1"))


def finish(receiver, count):
    """Takes and completes so many messages, and returns them in the order in which they were finished."""
    finished = []
    for _ in range(count):
        message = next(receiver)
        receiver.complete_message(message)
        finished.append(str(message))
    return finished


def without(client):
    send(client, "order-plain")
    with client.get_queue_receiver("order-plain", max_wait_time=60) as slow, \
            client.get_queue_receiver("order-plain", max_wait_time=60) as quick:
        first = next(slow)
        finished = finish(quick, 2)  # while the slow consumer works on the first
        slow.complete_message(first)
        print("without a session:", *finished, first)


def within(client):
    send(client, "order-session")
    with client.get_queue_receiver("order-session", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=60) as slow:
        try:
            with ServiceBusClient.from_connection_string(CONNECTION, retry_total=0) as impatient, \
                    impatient.get_queue_receiver("order-session", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2):
                raise RuntimeError("two consumers hold one session")
        except OperationTimeoutError:
            print("the second consumer gets nothing of the session")
        print("within a session:", *finish(slow, 3))


with ServiceBusClient.from_connection_string(CONNECTION) as client:
    without(client)
    within(client)
