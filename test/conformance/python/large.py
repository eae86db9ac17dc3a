"""A message of megabytes on its way through three queues, while leaders may be killed."""

import asyncio
import hashlib
import os
import time

from env import MISSING, check, equal, message

MB = int(os.environ.get("BUSBAR_LARGE", "5"))
SECONDS = float(os.environ.get("BUSBAR_LARGE_SECONDS", "0"))  # rounds begin for that long; there is one at least
LIMIT = float(os.environ.get("BUSBAR_LIMIT", "90"))
WAIT = 20  # seconds for one receive; a message that a killed node was handing out is locked for longer
# A send of which nobody knows the outcome is done again.
LARGE = {"max_message_size_in_kilobytes": 102400, "lock_duration": "PT30S", "requires_duplicate_detection": True}


class Nothing(Exception):
    """No message came in time."""


async def again(e, what, end, step):
    """Does a step with a client of its own, again at the next node whenever it fails, as while leaders are lost."""
    at = 0
    while True:
        # The keep-alive thread of the blocking clients exchanges frames of a message (outoforder.py).
        client = e.client(at, socket_timeout=30, keep_alive=0)
        try:
            return await step(client)
        except (AssertionError, *MISSING):
            raise
        except Exception as err:  # the library lets through errors of sockets, too
            check(time.monotonic() < end, f"{what}: {type(err).__name__}: {err}")
            await asyncio.sleep(0.5)
        finally:
            await e.do(client.close)
        at += 1


async def settled(e, queue, what, end, settle):
    """Receives the only message of a queue and settles it. A settlement that failed may have been done all the same:
    then the queue is empty."""
    tried = False

    async def step(client):
        nonlocal tried
        receiver = client.get_queue_receiver(queue)
        if tried and not await e.peek(receiver, 1):
            return
        got = await e.receive(receiver, 1, WAIT)
        if not got:
            raise Nothing
        tried = True
        await settle(receiver, got[0])
    await again(e, what, end, step)


async def large_message(e):
    final = await e.queue(**LARGE)
    dead = await e.queue(forward_dead_lettered_messages_to=final, **LARGE)
    first = await e.queue(forward_to=dead, **LARGE)
    began, body = time.monotonic(), os.urandom((MB << 20) - 4096)
    end, sum_, number = began + LIMIT, hashlib.sha256(body).digest(), 0
    while number == 0 or time.monotonic() < began + SECONDS:
        number += 1
        name = f"large-{number}"

        async def send(client):
            await e.do(client.get_queue_sender(first).send_messages, message(body, message_id=name))

        async def dead_letter(receiver, m):
            whole(m, name, sum_, body)
            await e.do(receiver.dead_letter_message, m, reason=name, error_description="of a large one")

        async def complete(receiver, m):
            whole(m, name, sum_, body)
            equal(m.dead_letter_reason, name, "reason")
            await e.do(receiver.complete_message, m)

        await again(e, "send", end, send)
        await settled(e, dead, "dead-letter", end, dead_letter)
        await settled(e, final, "complete", end, complete)
    for queue in (dead, final):
        equal(len(await e.peek(e.receiver(queue), 1)), 0, "messages left")


def whole(m, name, sum_, sent):
    equal(m.message_id, name, "message id")
    body = b"".join(m.body)
    if hashlib.sha256(body).digest() == sum_:
        return
    at = next((i for i, (got, want) in enumerate(zip(body, sent)) if got != want), min(len(body), len(sent)))
    place = sent.find(body[at:at + 64])
    check(False, f"the body of {len(body)} bytes is another one from byte {at} on: there is what belongs to {place}, "
          f"{body[at:at + 16].hex()}")


SCENARIOS = {"large-message": large_message}
