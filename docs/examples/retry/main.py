"""Tries failed calls again, later each time. The message of the next attempt is scheduled, so the worker does other
things meanwhile; the last attempt ends in the dead-letter queue."""

import os
from datetime import datetime, timedelta, timezone

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE, ATTEMPTS = "retry-calls", 3


def call(name, attempt):
    if name != "busy" or attempt < 3:
        raise ConnectionError("no answer")


def work(sender, receiver, message):
    """Makes one attempt and tells whether it was the last."""
    name, attempt = str(message), (message.application_properties or {}).get(b"attempt", 1)
    try:
        call(name, attempt)
    except ConnectionError as e:
        if attempt == ATTEMPTS:
            print(f"{name}: attempt {attempt}: {e}; to the dead letters")
            receiver.dead_letter_message(message, reason="TooManyAttempts", error_description=str(e))
            return True
        delay = timedelta(seconds=2 ** (attempt - 1))
        print(f"{name}: attempt {attempt}: {e}; again in {delay.seconds}s")
        again = ServiceBusMessage(name, message_id=message.message_id, application_properties={"attempt": attempt + 1})
        sender.schedule_messages(again, datetime.now(timezone.utc) + delay)
        receiver.complete_message(message)  # only now: a crash before it repeats an attempt, and loses none
        return False
    print(f"{name}: attempt {attempt} succeeded")
    receiver.complete_message(message)
    return True


with ServiceBusClient.from_connection_string(CONNECTION) as client, client.get_queue_sender(QUEUE) as sender, \
        client.get_queue_receiver(QUEUE, max_wait_time=60) as receiver:
    for name in ("busy", "gone"):  # the first answers at the third call, the second never
        sender.send_messages(ServiceBusMessage(name))
        while not work(sender, receiver, next(receiver)):
            pass
