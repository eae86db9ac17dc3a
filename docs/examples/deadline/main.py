"""Judges essays by the time at which the broker took them, long after that time."""

import os
import time
from datetime import datetime, timedelta, timezone

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE = "deadline-essays"

with ServiceBusClient.from_connection_string(CONNECTION) as client:
    with client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(ServiceBusMessage("ann"))
        deadline = datetime.now(timezone.utc) + timedelta(seconds=1)
        time.sleep(2)
        sender.send_messages(ServiceBusMessage("bob"))
    print("the deadline is over, the essays are read now")
    with client.get_queue_receiver(QUEUE, max_wait_time=60) as receiver:
        for _ in range(2):
            essay = next(receiver)
            print(f"{essay}: {'in time' if essay.enqueued_time_utc <= deadline else 'too late'}")
            receiver.complete_message(essay)
