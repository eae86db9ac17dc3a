"""Runs a handler whose work takes longer than the lock of its message. The SDK for Python renews locks by itself; to
complete when the handler is done, and abandon when it fails, is up to the loop."""

import os
import time

from azure.servicebus import AutoLockRenewer, ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE = "handler-reports"  # its locks last 10 s
WORK, RENEW_AT_ALL = 12, 60  # seconds; a handler that hangs loses its message after the second


def write(message):
    """Is the handler."""
    report, delivery = str(message), message.delivery_count + 1  # this SDK counts the deliveries before this one
    print(f"{report}: begins, delivery {delivery}")
    if report == "broken" and delivery == 1:
        raise RuntimeError("the printer is out of paper")
    if report == "long":
        time.sleep(WORK)
    print(f"{report}: done")


def handle(receiver, renewer, message):
    renewer.register(receiver, message, max_lock_renewal_duration=RENEW_AT_ALL)
    try:
        write(message)
    except RuntimeError as e:
        print(f"{message}: failed: {e}")
        receiver.abandon_message(message)
    else:
        receiver.complete_message(message)


with ServiceBusClient.from_connection_string(CONNECTION) as client:
    with client.get_queue_sender(QUEUE) as sender:
        for report in ("long", "broken"):
            sender.send_messages(ServiceBusMessage(report))
    with client.get_queue_receiver(QUEUE, max_wait_time=60) as receiver, AutoLockRenewer() as renewer:
        for _ in range(3):  # deliveries
            handle(receiver, renewer, next(receiver))
