"""A worker dead-letters an order that it cannot read, and a repairer reads dead letters, repairs them and sends them
again."""

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE = "deadletters-orders"


def work(client, orders):
    """Handles so many orders. To try again would not help an amount that is no number, so it is rejected at once."""
    with client.get_queue_receiver(QUEUE, max_wait_time=60) as receiver:
        for _ in range(orders):
            message = next(receiver)
            try:
                amount = int(str(message))
            except ValueError:
                print(f"{message.message_id}: rejected")
                receiver.dead_letter_message(message, reason="NoNumber", error_description=f'"{message}" is no number')
            else:
                print(f"{message.message_id}: paid {amount}")
                receiver.complete_message(message)


def repair(client, sender):
    """Mends one dead letter. It completes the dead letter after the new message is stored: a crash in between leaves
    both, not neither."""
    with client.get_queue_receiver(QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=60) as receiver:
        dead = next(receiver)
        print(f"{dead.message_id}: {dead.dead_letter_reason}, {dead.dead_letter_error_description}; sent again as 20")
        sender.send_messages(ServiceBusMessage("20", message_id=dead.message_id))
        receiver.complete_message(dead)


with ServiceBusClient.from_connection_string(CONNECTION) as client, client.get_queue_sender(QUEUE) as sender:
    for amount in ("10", "twenty"):
        sender.send_messages(ServiceBusMessage(amount, message_id=f"order-{amount}"))
    work(client, 2)
    repair(client, sender)
    work(client, 1)
