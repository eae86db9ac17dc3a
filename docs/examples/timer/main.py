"""Runs logins with a time limit. Each login schedules the message that ends it, keeps the number of that message in
the state of its session, and cancels the message when the code comes in time."""

import os
from datetime import datetime, timedelta, timezone

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE, LIMIT = "timer-logins", timedelta(seconds=5)


def login(client, sender, user):
    """Handles the messages of one user until the user is in or the time is over."""
    with client.get_queue_receiver(QUEUE, session_id=user, max_wait_time=60) as receiver:
        for message in receiver:
            if message.subject == "ask":
                lapse = ServiceBusMessage(b"", session_id=user, subject="lapse")
                [number] = sender.schedule_messages(lapse, datetime.now(timezone.utc) + LIMIT)
                receiver.session.set_state(str(number))
                print(f"{user}: has a code for {LIMIT.seconds} s")
            elif message.subject == "enter":
                sender.cancel_scheduled_messages(int(receiver.session.get_state()))
                print(f"{user}: is in, the timer is cancelled")
            elif message.subject == "lapse":
                print(f"{user}: the code has lapsed")
            receiver.complete_message(message)
            if message.subject != "ask":
                receiver.session.set_state(None)
                return


with ServiceBusClient.from_connection_string(CONNECTION) as client, client.get_queue_sender(QUEUE) as sender:
    # Ann asks for a code and enters it. Bob asks for one and goes away.
    for user, subject in [("ann", "ask"), ("ann", "enter"), ("bob", "ask")]:
        sender.send_messages(ServiceBusMessage(b"", session_id=user, subject=subject))
    login(client, sender, "ann")
    login(client, sender, "bob")
