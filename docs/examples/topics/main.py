"""Publishes trades. Each subscription gets those that its rule selects, and one rule marks what it passes on."""

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
TOPIC = "topics-trades"
# Subscriptions and how many of the trades each gets; Config.json has their rules.
SUBSCRIPTIONS = {"all": 3, "europe": 2, "large": 2}


def show(client, subscription, count):
    with client.get_subscription_receiver(TOPIC, subscription, max_wait_time=60) as receiver:
        for _ in range(count):
            message = next(receiver)
            trade = {key.decode(): value for key, value in message.application_properties.items()}
            desk = trade.get("desk", b"no desk").decode()
            print(f"{subscription}: {trade['region'].decode()} {trade['amount']}, {desk}")
            receiver.complete_message(message)
        left = receiver.peek_messages(10)
        if left:
            raise RuntimeError(f"{subscription} has {len(left)} messages more than its rule selects")


with ServiceBusClient.from_connection_string(CONNECTION) as client:
    with client.get_topic_sender(TOPIC) as sender:
        for region, amount in [("eu", 500), ("eu", 5000), ("us", 2000)]:
            trade = {"region": region, "amount": amount}
            sender.send_messages(ServiceBusMessage(b"", subject="trade", application_properties=trade))
    for subscription, count in SUBSCRIPTIONS.items():
        show(client, subscription, count)
