"""Counts money. The running total is the state of the session. The SDK for Python has no transactions, so the state
says up to which message it counts, and a message that comes again is counted once."""

import json
import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE, ACCOUNT = "checkpoint-payments", "account-1"


def count(client, stop_at=None):
    with client.get_queue_receiver(QUEUE, session_id=ACCOUNT, max_wait_time=60) as receiver:
        state = receiver.session.get_state()
        # A total, and the number of the last message in it.
        checkpoint = json.loads(state) if state else {"total": 0, "up_to": 0}
        for message in receiver:
            amount = int(str(message))
            if message.sequence_number <= checkpoint["up_to"]:
                print(f"{amount} came again, the total is {checkpoint['total']} with it")
            else:
                checkpoint = {"total": checkpoint["total"] + amount, "up_to": message.sequence_number}
                print(f"{amount} counted, the total is {checkpoint['total']}")
                receiver.session.set_state(json.dumps(checkpoint))  # only then may the message be completed
            if amount == stop_at:
                print("the worker stops before it completes the message")
                return
            receiver.complete_message(message)
            if amount == 30:  # the last: clear the state, or it stays for ever
                receiver.session.set_state(None)
                return


with ServiceBusClient.from_connection_string(CONNECTION) as client:
    with client.get_queue_sender(QUEUE) as sender:
        sender.send_messages([ServiceBusMessage(str(n), session_id=ACCOUNT) for n in (10, 20, 30)])
    count(client, stop_at=20)
    count(client)
