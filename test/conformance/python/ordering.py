"""Order in sessions under the library's default loop, while messages arrive."""

import asyncio
import os
import random
import time

from azure.servicebus.exceptions import ServiceBusError

from env import check, message, text

SESSIONS = 10
AHEAD = 8  # messages of a session that wait at most before the next is sent
EACH = int(os.environ.get("BUSBAR_MESSAGES", "1000")) // SESSIONS
LIMIT = float(os.environ.get("BUSBAR_LIMIT", "90"))


async def produce(e, queue, session, state, end):
    """Sends the messages of a session one after the other; a failed send is repeated. It stays a few messages
    ahead only, so that messages arrive while receivers wait, while they settle, and between the two."""
    sender = e.sender(e.client(session + 1), queue)
    for n in range(1, EACH + 1):
        while True:
            try:
                await e.do(sender.send_messages, message(str(n), session_id=str(session)))
                break
            except ServiceBusError:
                check(time.monotonic() < end, f"session {session}: {n - 1} of {EACH} messages are sent")
                await e.do(sender.close)
                sender = e.sender(e.client(session + n), queue)
        ahead = random.randrange(AHEAD)
        while n - state[session] > ahead and time.monotonic() < end:
            await asyncio.sleep(0.001)


async def drain(e, receiver, session, state):
    """Receives until the session has given all, or its link fails."""
    while state[session] <= EACH:
        for m in await e.do(receiver.receive_messages, max_message_count=10, max_wait_time=20):
            n = int(text(m))
            check(n <= state[session], f"session {session}: {n} was handed out before {state[session]}; next {state}")
            state[session] += n == state[session]
            await e.do(receiver.complete_message, m)


async def consume(e, queue, session, state, end):
    """Opens the session at the next node whenever a link is lost."""
    at = session
    while state[session] <= EACH:
        client = e.client(at)
        try:
            receiver = client.get_queue_receiver(queue, session_id=str(session))
            await e.do(receiver.__aenter__ if e.aio else receiver.__enter__)
            await drain(e, receiver, session, state)
        except ServiceBusError:
            check(time.monotonic() < end, f"session {session}: message {state[session]} never came")
            await asyncio.sleep(0.05)
        await e.do(client.close)
        at += 1


async def session_order(e):
    queue, state, end = await e.session_queue(), [1] * SESSIONS, time.monotonic() + LIMIT
    work = [asyncio.ensure_future(f(e, queue, i, state, end)) for i in range(SESSIONS) for f in (produce, consume)]
    try:
        await asyncio.gather(*work)
    finally:
        for w in work:
            w.cancel()


SCENARIOS = {"session-order": session_order}
