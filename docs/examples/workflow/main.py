"""Runs an order as a state machine. Its state is the state of its session, so another process goes on where one has
crashed."""

import json
import os
import subprocess
import sys

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE = "workflow-orders"
# The state machine: the state in which each message leaves an order.
NEXT = {"order": "ordered", "pay": "paid", "ship": "shipped", "close": "closed"}


def main():
    with ServiceBusClient.from_connection_string(CONNECTION) as client, client.get_queue_sender(QUEUE) as sender:
        for step in NEXT:
            sender.send_messages(ServiceBusMessage(b"", session_id="order-7", message_id=step))
    process = subprocess.run([sys.executable, __file__, "pay"])
    print(f"the process ended with code {process.returncode}", flush=True)
    subprocess.run([sys.executable, __file__, "never"], check=True)


def handle(crash):
    # Accepting waits until the session of a dead process is free.
    with ServiceBusClient.from_connection_string(CONNECTION) as client, \
            client.get_queue_receiver(QUEUE, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=60) as receiver:
        state = receiver.session.get_state()
        # What the session keeps: a state, and the id of the last message whose work is in it.
        order = json.loads(state) if state else {"state": "new", "last": None}
        print(f"{receiver.session.session_id}: a process finds it {order['state']}", flush=True)
        for message in receiver:
            step = message.message_id
            if step == order["last"]:
                print(f"{step}: skipped, the state has it", flush=True)
            else:
                order = {"state": NEXT[step], "last": step}
                # A session without messages and state is gone.
                receiver.session.set_state(None if order["state"] == "closed" else json.dumps(order))
                print(f"{step}: the order is {order['state']}", flush=True)
            if step == crash:
                os._exit(3)  # between the state and the completion
            receiver.complete_message(message)
            if order["state"] == "closed":
                break


if len(sys.argv) > 1:
    handle(sys.argv[1])  # a process that handles orders; it crashes in the middle of one step
else:
    main()
