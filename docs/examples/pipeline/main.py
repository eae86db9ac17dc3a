"""Sends the same number of messages one at a time and ten at a time. The outcome of each send is looked at, in both
cases."""

import asyncio
import os
import time

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE, COUNT, IN_FLIGHT = "pipeline-readings", 200, 10


async def send(senders):
    """Has as many messages under way as there are senders. A sender of this SDK sends one message after the other, so
    the senders are the places of the semaphore: a send takes one, and gives it back when its outcome is there."""
    places = asyncio.Queue()
    for sender in senders:
        places.put_nowait(sender)

    async def one(i):
        sender = await places.get()
        try:
            await sender.send_messages(ServiceBusMessage(f"reading {i}"))
        finally:
            places.put_nowait(sender)

    await asyncio.gather(*(one(i) for i in range(COUNT)))


async def main():
    async with ServiceBusClient.from_connection_string(CONNECTION) as client:
        senders = [client.get_queue_sender(QUEUE) for _ in range(IN_FLIGHT)]
        for sender in senders:
            await sender.__aenter__()  # the link is there before the clock starts
        for at_a_time in (1, IN_FLIGHT):
            began = time.monotonic()
            await send(senders[:at_a_time])
            took = (time.monotonic() - began) * 1000
            print(f"{COUNT} messages accepted, {at_a_time} at a time: {took:.0f} ms")


asyncio.run(main())
