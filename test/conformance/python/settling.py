import asyncio
from datetime import timedelta

from azure.servicebus.exceptions import (MessageAlreadySettled, MessageNotFoundError,
                                         ServiceBusError)

from env import LOCK_LOST, check, equal, message, skip, text


async def with_one(e, **options):
    q = await e.queue(**options)
    await e.send(q, message("x", message_id="id-1"))
    r = e.receiver(q)
    return q, r, await e.one(r)


async def settle_once(e):
    _, r, m = await with_one(e)
    await e.complete(r, m)
    await e.fails(MessageAlreadySettled, r.complete_message, m)
    await e.fails(MessageAlreadySettled, r.abandon_message, m)
    await e.none(r)


async def abandon(e):
    _, r, m = await with_one(e)
    await e.do(r.abandon_message, m)
    again = await e.one(r)
    equal((again.delivery_count, again.sequence_number), (1, m.sequence_number), "count and number")
    check(again.lock_token != m.lock_token, "the second delivery has the first one's token")
    await e.complete(r, again)
    await e.none(r)


async def defer(e):
    q, r, m = await with_one(e)
    await e.do(r.defer_message, m)
    await e.none(r)
    other = e.receiver(q, node=0)
    got, = await e.do(other.receive_deferred_messages, m.sequence_number)
    equal((text(got), got.sequence_number), ("x", m.sequence_number))
    await e.do(other.abandon_message, got)  # deferred it stays
    await e.none(other)
    again, = await e.do(other.receive_deferred_messages, [m.sequence_number])
    equal(again.delivery_count, got.delivery_count + 1, "count")
    await e.complete(other, again)
    await e.fails(MessageNotFoundError, other.receive_deferred_messages, m.sequence_number)


async def defer_missing(e):
    _, r, m = await with_one(e)
    await e.fails(MessageNotFoundError, r.receive_deferred_messages, m.sequence_number)
    await e.fails(MessageNotFoundError, r.receive_deferred_messages, m.sequence_number + 1000)
    await e.complete(r, m)


async def dead_letter(e):
    q, r, m = await with_one(e)
    await e.do(r.dead_letter_message, m, reason="reason-x", error_description="description-y")
    await e.none(r)
    d = e.dead_letters(q)
    g = await e.one(d)
    equal((text(g), g.message_id, g.dead_letter_reason, g.dead_letter_error_description),
          ("x", "id-1", "reason-x", "description-y"))
    equal(g.sequence_number, m.sequence_number, "number")
    await e.complete(d, g)
    await e.none(d)


async def dead_letter_settle(e):
    q, r, m = await with_one(e)
    await e.do(r.dead_letter_message, m)
    d = e.dead_letters(q)
    first = await e.one(d)
    equal(first.dead_letter_reason, None, "reason")
    await e.do(d.abandon_message, first)
    second = await e.one(d)
    await e.do(d.renew_message_lock, second)
    await e.do(d.defer_message, second)
    await e.none(d)
    third, = await e.do(d.receive_deferred_messages, second.sequence_number)
    await e.complete(d, third)
    equal(await e.peek(d), [], "what is left")


async def dead_letter_twice(e):
    q, r, m = await with_one(e, lock_duration=timedelta(seconds=5))
    await e.do(r.dead_letter_message, m)
    d = e.dead_letters(q)
    g = await e.one(d)
    await e.fails(ServiceBusError, d.dead_letter_message, g)
    again = await e.one(d)  # for the library the message is settled, so its lock runs out
    equal(again.delivery_count, g.delivery_count, "count in the dead-letter queue")
    await e.complete(d, again)


async def max_delivery(e):
    q, r, m = await with_one(e, max_delivery_count=3)
    await e.do(r.abandon_message, m)
    for i in (1, 2):
        again = await e.one(r)
        equal(again.delivery_count, i, "count")
        await e.do(r.abandon_message, again)
    await e.none(r)
    d = e.dead_letters(q)
    g = await e.one(d)
    equal(g.dead_letter_reason, "MaxDeliveryCountExceeded", "reason")
    await e.complete(d, g)


async def lock_renew(e):
    q, r, m = await with_one(e, lock_duration=timedelta(seconds=10))
    other = e.receiver(q, node=0)
    for _ in range(3):
        old = m.locked_until_utc
        await asyncio.sleep(4)  # thrice that is more than the lock
        now = await e.do(r.renew_message_lock, m)
        check(now > old and m.locked_until_utc == now, "locked-until did not move")
    await e.none(other)
    await e.complete(r, m)
    await e.none(other)


async def lock_lost(e):
    q, r, m = await with_one(e, lock_duration=timedelta(seconds=5))
    other = e.receiver(q, node=0)
    again = await e.one(other)  # waits for the expiry
    equal(again.delivery_count, 1, "count")
    await e.fails(LOCK_LOST, r.complete_message, m)
    await e.fails(LOCK_LOST, r.renew_message_lock, m)
    await e.complete(other, again)


# The library settles over the link while it is open, and over the request node when it is not.
async def settle_elsewhere(e):
    q, r, m = await with_one(e)
    await e.do(r.close)
    other = e.receiver(q, node=0)
    await e.none(other)  # locked still


NO_PROPERTIES = "the library changes no properties when it settles"

SCENARIOS = {f.__name__.replace("_", "-"): f for f in (
    settle_once, settle_elsewhere, abandon, defer, defer_missing, dead_letter, dead_letter_settle,
    dead_letter_twice, max_delivery, lock_renew, lock_lost)}
SCENARIOS |= {k: skip(NO_PROPERTIES) for k in ("abandon-properties", "abandon-delay", "defer-properties")}
