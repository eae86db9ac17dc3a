import asyncio
import time
from datetime import datetime, timedelta, timezone

from azure.servicebus import ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.exceptions import AutoLockRenewTimeout

from env import LOCK_LOST, MISSING, SOON, check, equal, message, skip, text, texts, until
from runner import Skip

BODIES = [f"m{i}" for i in range(30)]


async def filled(e, n, **options):
    q = await e.queue(**options)
    await e.send(q, *(message(b) for b in BODIES[:n]))
    return q


async def receive_many(e):
    q = await filled(e, 20)
    r = e.receiver(q)
    got = await e.take(r, 20)
    equal(texts(got), BODIES[:20])
    await e.complete(r, *got)
    await e.none(r)


async def receive_waits(e):
    q = await e.queue()
    r = e.receiver(q)
    await e.none(r)  # the link is up
    waiting = asyncio.ensure_future(e.one(r))
    await asyncio.sleep(0.5)
    await e.send(q, message("late"))
    m = await waiting
    equal(text(m), "late")
    await e.complete(r, m)


async def receive_empty(e):
    q = await e.queue()
    r = e.receiver(q)
    await e.none(r)  # the link is up
    for _ in range(3):
        equal(await e.receive(r, 5, 0.3), [])
    await e.send(q, message())
    await e.complete(r, await e.one(r))  # and the link goes on


async def receive_delete(e):
    q = await filled(e, 3)
    r = e.receiver(q, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    got = await e.take(r, 3)
    equal(texts(got), BODIES[:3])
    equal(got[0].lock_token, None, "lock token")
    await e.do(r.close)
    await e.none(e.receiver(q, node=0))


async def receive_delete_settle(e):
    q = await filled(e, 2)
    r = e.receiver(q, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    m = await e.one(r)
    for settle in (r.complete_message, r.abandon_message, r.defer_message, r.dead_letter_message,
                   r.renew_message_lock):
        await e.fails(ValueError, settle, m)
    locking = e.receiver(q, node=0)  # whatever else is asked for
    second = await e.one(locking)
    equal((text(second), second.lock_token is not None), ("m1", True), "body and lock")
    await e.none(r)
    await e.complete(locking, second)


async def receive_timeout(e):
    if not e.aio:
        raise Skip("a receive of the library that ends in time never fails")
    q = await e.queue()
    r = e.receiver(q)
    await e.none(r)
    try:
        await asyncio.wait_for(r.receive_messages(max_wait_time=SOON), 0.5)
        raise AssertionError("succeeded, want a time-out")
    except asyncio.TimeoutError:
        pass
    await r.close()  # what it had asked for, it would still get
    await e.send(q, message())
    other = e.receiver(q)
    m = await e.one(other)
    equal((text(m), m.delivery_count), ("x", 0), "body and count")
    await e.complete(other, m)


async def receive_prefetch(e):
    q = await filled(e, 25)
    r = e.receiver(q, prefetch_count=20)
    got = []
    for _ in range(25):
        m = await e.one(r)
        got.append(text(m))
        await e.complete(r, m)
    equal(got, BODIES[:25])
    await e.none(r)


async def receive_iterate(e):
    q = await filled(e, 5)
    r = e.receiver(q, max_wait_time=5)
    await e.open(r)
    if e.aio:
        seen = []
        async for m in r:
            seen.append(text(m))
            await r.complete_message(m)
    else:
        def iterate():
            got = []
            for m in r:
                got.append(text(m))
                r.complete_message(m)
            return got
        seen = await asyncio.to_thread(iterate)
    equal(seen, BODIES[:5])


async def receive_two(e):
    q = await filled(e, 30)
    a, b = e.receiver(q, node=0), e.receiver(q, node=1)
    x, y = await asyncio.gather(e.take(a, 10), e.take(b, 20))
    equal(sorted(texts(x + y)), sorted(BODIES))
    await e.complete(a, *x)
    await e.complete(b, *y)
    await e.none(a)


async def receive_missing(e):
    r = e.receiver(e.name())
    await e.fails(MISSING, r.receive_messages, max_wait_time=SOON)
    await e.fails(MISSING, e.receiver(e.name()).peek_messages)


async def receive_counts(e):
    q = await filled(e, 1, lock_duration=timedelta(seconds=30))
    r = e.receiver(q)
    m = await e.one(r)
    now = datetime.now(timezone.utc)
    equal((m.sequence_number, m.enqueued_sequence_number, m.delivery_count), (1, None, 0), "numbers and count")
    equal(m.state, ServiceBusMessageState.ACTIVE, "state")
    check(m.lock_token is not None, "no lock token")
    check(abs(now - m.enqueued_time_utc) < timedelta(seconds=30), f"enqueued {m.enqueued_time_utc}")
    check(timedelta(seconds=10) < m.locked_until_utc - now < timedelta(seconds=31), f"until {m.locked_until_utc}")
    await e.complete(r, m)


async def peek(e):
    q = await filled(e, 5)
    r = e.receiver(q)
    locked = await e.one(r)
    first = await e.peek(r, 3)
    second = await e.peek(r, 3, first[-1].sequence_number + 1)
    equal(texts(first + second), BODIES[:5])
    for m in first + second:
        equal(m.state, ServiceBusMessageState.ACTIVE, "state")
    rest = await e.take(r, 4)
    for m in rest:
        equal(m.delivery_count, 0, "count after peeking")
    await e.complete(r, locked, *rest)


async def peek_from(e):
    q = await filled(e, 4)
    r = e.receiver(q)
    equal(texts(await e.peek(r, 2, 2)), ["m1", "m2"])
    equal(await e.peek(r, 1, 99), [])


async def peek_states(e):
    q = await filled(e, 2)
    s = e.sender(e.client(0), q)
    await e.do(s.schedule_messages, message("wait"), datetime.now(timezone.utc) + timedelta(minutes=1))
    r = e.receiver(q)
    await e.do(r.defer_message, await e.one(r))
    want = [("m0", ServiceBusMessageState.DEFERRED), ("m1", ServiceBusMessageState.ACTIVE),
            ("wait", ServiceBusMessageState.SCHEDULED)]
    equal([(text(m), m.state) for m in await e.peek(r)], want)


async def peek_dead_letters(e):
    q = await filled(e, 2)
    r = e.receiver(q)
    await e.do(r.dead_letter_message, await e.one(r), reason="why")
    d = e.dead_letters(q)
    equal([(text(x), x.dead_letter_reason) for x in await e.peek(d)], [("m0", "why")])
    equal(texts(await e.peek(r)), ["m1"])


async def peek_empty(e):
    equal(await e.peek(e.receiver(await e.queue())), [])


async def process_renew(e):
    q = await filled(e, 1, lock_duration=timedelta(seconds=10))
    r = e.receiver(q)
    renewer = e.bus.AutoLockRenewer()
    m = await e.one(r)
    failed = []

    def on_failure(_, err):
        failed.append(err)

    async def on_failure_async(_, err):
        failed.append(err)
    await e.do(renewer.register, r, m, max_lock_renewal_duration=60,
               on_lock_renew_failure=on_failure_async if e.aio else on_failure)
    other = e.receiver(q, node=0)
    await e.open(other)
    equal(await e.receive(other, 1, 12), [], "received while it was renewed")
    await e.complete(r, m)
    await e.do(renewer.close)
    equal(failed, [], "failures")
    await e.none(other)


async def process_renew_limit(e):
    q = await filled(e, 1, lock_duration=timedelta(seconds=5))
    r = e.receiver(q)
    renewer = e.bus.AutoLockRenewer(max_lock_renewal_duration=8)
    m = await e.one(r)
    await e.do(renewer.register, r, m)
    began = time.monotonic()
    again = await e.one(e.receiver(q, node=0))
    took = time.monotonic() - began
    check(took > 6.5, f"a lock of 5 s that is renewed for 8 s was lost after {took} s")
    equal((again.delivery_count, type(m.auto_renew_error)), (1, AutoLockRenewTimeout), "count and error")
    await e.fails(LOCK_LOST, r.complete_message, m)
    await e.do(renewer.close)


async def process_lost(e):
    q = await filled(e, 1, lock_duration=timedelta(seconds=5))
    r = e.receiver(q)
    m = await e.one(r)
    again = await e.one(e.receiver(q, node=0))  # the work took longer than the lock
    told = []

    def on_failure(lost, _):
        told.append(lost)

    async def on_failure_async(lost, _):
        told.append(lost)
    renewer = e.bus.AutoLockRenewer(on_lock_renew_failure=on_failure_async if e.aio else on_failure)
    await e.do(renewer.register, r, m)

    async def is_told():
        return told
    await until("the loss is told", is_told)
    equal((told[0] is m, again.delivery_count), (True, 1), "what was lost, and its count")
    await e.fails(LOCK_LOST, r.complete_message, m)
    await e.send(q, message("next"))
    after = await e.one(r)
    equal(text(after), "next")
    await e.complete(r, after)
    await e.do(renewer.close)


NO_PROCESSOR = "the library has no processor"

SCENARIOS = {f.__name__.replace("_", "-"): f for f in (
    receive_many, receive_waits, receive_empty, receive_delete, receive_delete_settle, receive_timeout,
    receive_prefetch, receive_iterate, receive_two, receive_missing, receive_counts, peek, peek_from, peek_states,
    peek_dead_letters, peek_empty, process_renew, process_renew_limit, process_lost)}
SCENARIOS |= {k: skip(NO_PROCESSOR) for k in (
    "process-complete", "process-abandon", "process-manual", "process-concurrent", "process-stop",
    "process-error", "process-session", "process-sessions")}
SCENARIOS["session-share"] = skip("the library has no sessions without exclusion")
SCENARIOS |= {k: skip("the library has no deletion of messages") for k in ("delete-batch", "delete-purge")}
