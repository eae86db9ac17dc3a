"""Two requesters and one responder. All answers go through one queue; each requester gets its own, for each has a
session of the reply queue."""

import os
import uuid
from concurrent.futures import ThreadPoolExecutor

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
REQUESTS, REPLIES = "reply-requests", "reply-replies"  # the second requires sessions


def ask(name):
    """Accepts its reply session before it sends: a session that is held is given to nobody else."""
    instance = str(uuid.uuid4())
    with ServiceBusClient.from_connection_string(CONNECTION) as client, \
            client.get_queue_receiver(REPLIES, session_id=instance, max_wait_time=60) as session, \
            client.get_queue_sender(REQUESTS) as sender:
        sender.send_messages(ServiceBusMessage(name, reply_to=REPLIES, reply_to_session_id=instance))
        reply = next(session)
        session.complete_message(reply)
        return str(reply)


def respond(count):
    """Answers count requests. A request says where its answer goes."""
    with ServiceBusClient.from_connection_string(CONNECTION) as client, \
            client.get_queue_receiver(REQUESTS, max_wait_time=60) as receiver:
        for _ in range(count):
            request = next(receiver)
            with client.get_queue_sender(request.reply_to) as sender:
                sender.send_messages(ServiceBusMessage(f"good day, {request}", session_id=request.reply_to_session_id,
                                                       correlation_id=request.message_id))
            receiver.complete_message(request)


with ThreadPoolExecutor() as threads:  # each has a client of its own: clients are not for several threads
    responder = threads.submit(respond, 2)
    answers = {name: threads.submit(ask, name) for name in ("ann", "bob")}
    for name, answer in answers.items():
        print(f"{name} was answered: {answer.result()}")
    responder.result()
