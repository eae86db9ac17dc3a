"""A worker does each job once, although two jobs reach it twice. The scheduler gives each message the id of its
job."""

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE = "duplicates-jobs"


def work(receiver, deliveries):
    """Handles so many deliveries. Done stands for a table that is written in the same transaction as the work."""
    done = set()
    for _ in range(deliveries):
        message = next(receiver)
        job = message.message_id
        delivery = message.delivery_count + 1  # this SDK counts the deliveries before this one
        if job in done:
            print(f"{job}: skipped, delivery {delivery}")
            receiver.complete_message(message)
            continue
        print(f"{job}: done, delivery {delivery}")
        done.add(job)
        if job == "job-2":
            receiver.abandon_message(message)  # as if the lock had been lost before the completion: it comes again
        else:
            receiver.complete_message(message)


with ServiceBusClient.from_connection_string(CONNECTION) as client:
    with client.get_queue_sender(QUEUE) as sender:
        for job in ("job-1", "job-2", "job-1"):  # the scheduler was restarted and sends job-1 a second time
            sender.send_messages(ServiceBusMessage(b"", message_id=job))
    with client.get_queue_receiver(QUEUE, max_wait_time=60) as receiver:
        work(receiver, 4)
