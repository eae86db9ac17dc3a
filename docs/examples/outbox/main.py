"""Sends what a database has decided. An order and its message are written in one local transaction. A relay sends the
messages afterwards, as often as it must, and the queue drops what it has already."""

import os
import sqlite3
import uuid

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE = "outbox-orders"  # detects duplicates


def order(database, name):
    """Writes an order and its message in one local transaction. The id of the message is that of its row."""
    with database:
        database.execute("INSERT INTO orders VALUES (?)", (name,))
        database.execute("INSERT INTO outbox VALUES (?, ?, FALSE)", (str(uuid.uuid4()), name))


def relay(database, client, stop_at=None):
    """Sends the rows that are not noted as sent, and notes each when its outcome is there."""
    rows = database.execute("SELECT id, body FROM outbox WHERE NOT sent ORDER BY rowid").fetchall()
    with client.get_queue_sender(QUEUE) as sender:
        for row, body in rows:
            sender.send_messages(ServiceBusMessage(body, message_id=row))
            print(f"{body}: sent")
            if body == stop_at:
                print("the relay stops before it notes that")
                return
            with database:
                database.execute("UPDATE outbox SET sent = TRUE WHERE id = ?", (row,))


def receive(client):
    """Shows all that the queue has."""
    with client.get_queue_receiver(QUEUE, max_wait_time=60) as receiver:
        for _ in range(3):
            message = next(receiver)
            print(f"{message}: received")
            receiver.complete_message(message)
        print(f"{len(receiver.peek_messages(10))} messages are left")


with sqlite3.connect(":memory:") as database, ServiceBusClient.from_connection_string(CONNECTION) as client:
    database.execute("CREATE TABLE orders (name TEXT)")
    database.execute("CREATE TABLE outbox (id TEXT PRIMARY KEY, body TEXT, sent BOOLEAN)")
    for i in (1, 2, 3):
        order(database, f"order {i}")
    print("3 orders and their messages are committed")
    relay(database, client, stop_at="order 2")  # it stops before it notes that the second message was sent
    relay(database, client)
    receive(client)
