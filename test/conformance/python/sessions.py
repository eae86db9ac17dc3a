import asyncio
from datetime import datetime, timedelta, timezone

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode
from azure.servicebus.exceptions import (MessageNotFoundError, OperationTimeoutError, ServiceBusError,
                                         SessionCannotBeLockedError, SessionLockLostError)

from env import SOON, check, equal, message, text, texts, until


def inside(session, *bodies):
    return [message(b, session_id=session) for b in bodies]


async def filled(e, *bodies, **options):
    q = await e.session_queue(**options)
    await e.send(q, *inside("S", *bodies))
    return q


async def session_named(e):
    q = await e.session_queue()
    for i in range(4):
        await e.send(q, *inside("A", f"a{i}"), *inside("B", f"b{i}"))
    for i, session in enumerate("BA"):
        r = await e.accept(q, session, node=i)
        equal(r.session.session_id, session, "session")
        check(r.session.locked_until_utc > datetime.now(timezone.utc), "not locked")
        got = await e.take(r, 4)
        equal(texts(got), [f"{session.lower()}{k}" for k in range(4)])
        equal({m.session_id for m in got}, {session}, "the messages' session")
        await e.complete(r, *got)
        await e.none(r)
        await e.do(r.close)
    r = await e.accept(q, "C", node=2)  # a session without message or state can be held
    await e.send(q, *inside("C", "c"))
    await e.complete(r, await e.one(r))


async def session_next(e):
    q = await e.session_queue()
    await e.send(q, *inside("one", "1"), *inside("two", "2"))
    held = []
    for i in range(2):
        r = await e.accept(q, NEXT_AVAILABLE_SESSION, node=i, max_wait_time=10)
        m = await e.one(r)
        equal(m.session_id, r.session.session_id, "session")
        await e.complete(r, m)
        held.append(m.session_id)
    equal(sorted(held), ["one", "two"])


async def session_none(e):
    q = await e.session_queue()
    await e.fails(OperationTimeoutError, accepting, e, q, NEXT_AVAILABLE_SESSION, 2)


def accepting(e, q, session, wait=None):
    """Accepts in the way of the client at hand."""
    r = e.client(2, retry_total=0).get_queue_receiver(q, session_id=session, max_wait_time=wait)
    return r.__aenter__() if e.aio else r.__enter__()


async def session_waits(e):
    q = await e.session_queue()
    waiting = asyncio.ensure_future(e.accept(q, NEXT_AVAILABLE_SESSION, max_wait_time=20))
    await asyncio.sleep(0.5)
    await e.send(q, *inside("late", "x"))
    r = await waiting
    equal(r.session.session_id, "late", "session")
    await e.complete(r, await e.one(r))


async def session_held(e):
    q = await filled(e, "x", lock_duration=timedelta(minutes=5))  # old versions wait a minute for a session
    r = await e.accept(q, "S", node=0)
    await e.fails(SessionCannotBeLockedError, accepting, e, q, "S")
    await e.fails(OperationTimeoutError, accepting, e, q, NEXT_AVAILABLE_SESSION, 2)
    await e.complete(r, await e.one(r))
    await e.do(r.close)
    await e.accept(q, "S", node=1)


async def session_close(e):
    q = await filled(e, "1", "2", "3")
    r = await e.accept(q, "S")
    first = await e.take(r, 3)
    await e.complete(r, first[0])
    await e.do(r.close)
    r = await e.accept(q, "S", node=2)
    got = await e.take(r, 2)
    equal([(text(m), m.delivery_count) for m in got], [("2", 0), ("3", 0)])
    await e.complete(r, *got)


async def session_state(e):
    q = await e.session_queue()
    r = await e.accept(q, "S", node=0)
    equal(await e.do(r.session.get_state), None, "state of a fresh session")
    await e.do(r.session.set_state, b"one")
    await e.do(r.close)
    r = await e.accept(q, "S", node=1)
    equal(await e.do(r.session.get_state), b"one", "state")
    await e.do(r.session.set_state, "two")
    equal(await e.do(r.session.get_state), b"two", "state")
    await e.do(r.session.set_state, None)
    equal(await e.do(r.session.get_state), None, "state after it was cleared")


async def session_renew(e):
    q = await filled(e, "x", lock_duration=timedelta(seconds=10))
    r = await e.accept(q, "S")
    m = await e.one(r)
    for _ in range(3):
        old = r.session.locked_until_utc
        await asyncio.sleep(4)  # thrice that is more than the lock
        await e.do(r.session.renew_lock)
        check(r.session.locked_until_utc > old, "locked-until did not move")
    await e.complete(r, m)  # the message's lock is the session's


async def session_lost(e):
    q = await filled(e, "1", "2", lock_duration=timedelta(seconds=5))
    r = await e.accept(q, "S")
    m = await e.one(r)
    await asyncio.sleep(6.5)  # the lock's five seconds, and a margin for its expiry to be noticed
    other = await e.accept(q, "S", node=0)
    await e.fails(SessionLockLostError, r.complete_message, m)
    await e.fails(SessionLockLostError, r.session.renew_lock)
    got = await e.take(other, 2)
    equal([(text(x), x.delivery_count) for x in got], [("1", 1), ("2", 0)])
    await e.complete(other, *got)


async def session_abandon(e):
    q = await filled(e, "1", "2", "3", "4")
    r = await e.accept(q, "S")
    got = await e.take(r, 3)
    await e.do(r.abandon_message, got[1])
    again = await e.one(r)
    equal((text(again), again.delivery_count), ("2", 1))
    last = await e.one(r)
    equal(text(last), "4")
    await e.complete(r, got[2], got[0], last, again)
    await e.none(r)


async def session_defer(e):
    q = await filled(e, "a", "b")
    r = await e.accept(q, "S")
    m = await e.one(r)
    await e.do(r.defer_message, m)
    b = await e.one(r)
    equal(text(b), "b")
    await e.complete(r, b)
    await e.do(r.close)
    other = await e.accept(q, "S", node=0)
    await e.none(other)
    got, = await e.do(other.receive_deferred_messages, m.sequence_number)
    equal(text(got), "a")
    await e.complete(other, got)
    await e.fails(MessageNotFoundError, other.receive_deferred_messages, m.sequence_number)


async def session_dead_letter(e):
    q = await filled(e, "bad", "good")
    r = await e.accept(q, "S")
    await e.do(r.dead_letter_message, await e.one(r), reason="why")
    m = await e.one(r)
    equal(text(m), "good")
    await e.complete(r, m)
    d = e.dead_letters(q)
    g = await e.one(d)
    equal((text(g), g.session_id, g.dead_letter_reason), ("bad", "S", "why"))
    await e.complete(d, g)


async def session_peek(e):
    q = await e.session_queue()
    await e.send(q, *inside("A", "a1"), *inside("B", "b1"), *inside("A", "a2"))
    r = await e.accept(q, "A")
    equal(texts(await e.peek(r)), ["a1", "a2"])


async def session_schedule(e):
    q = await e.session_queue()
    s = e.sender(e.client(0), q)
    await e.do(s.schedule_messages, inside("S", "later"), datetime.now(timezone.utc) + timedelta(seconds=2))
    r = await e.accept(q, NEXT_AVAILABLE_SESSION, max_wait_time=20)
    m = await e.one(r)
    equal((text(m), m.session_id), ("later", "S"))
    await e.complete(r, m)


async def session_receive_delete(e):
    q = await filled(e, "a", "b")
    r = await e.accept(q, "S", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    equal(texts(await e.take(r, 2)), ["a", "b"])
    await e.do(r.close)
    await e.none(await e.accept(q, "S", node=0))


async def session_guard(e):
    q, plain = await e.session_queue(), await e.queue()
    err = await e.fails(ServiceBusError, e.client(retry_total=0).get_queue_receiver(q).receive_messages,
                        max_wait_time=SOON)
    check("requires sessions" in str(err), f"the reason {err}")
    await e.fails(ServiceBusError, e.sender(e.client(), q).send_messages, message("no session"))
    await e.fails(ServiceBusError, accepting, e, plain, "S")


async def session_list(e):
    q = await e.session_queue()
    await e.send(q, *inside("A", "1"), *inside("B", "2"))
    r = await e.accept(q, "C")
    await e.do(r.session.set_state, b"state")
    c = e.client()
    equal(sorted(await e.each(c.list_queue_sessions(q))), ["A", "B", "C"])
    hour = timedelta(hours=1)
    now = datetime.now(timezone.utc)
    equal(await e.each(c.list_queue_sessions(q, state_updated_after=now - hour)), ["C"], "with state of late")
    equal(await e.each(c.list_queue_sessions(q, state_updated_after=now + hour)), [], "with state of the future")


async def process_session_renew(e):
    q = await filled(e, "x", lock_duration=timedelta(seconds=10))
    renewer = e.bus.AutoLockRenewer(max_lock_renewal_duration=60)
    r = await e.accept(q, "S", auto_lock_renewer=renewer)
    m = await e.one(r)
    await asyncio.sleep(13)  # more than the lock
    await e.complete(r, m)
    await e.do(renewer.close)
    await e.do(r.close)
    await e.none(await e.accept(q, "S", node=0))


async def process_session_lost(e):
    q = await filled(e, "x", lock_duration=timedelta(seconds=5))
    r = await e.accept(q, "S")
    m = await e.one(r)
    await asyncio.sleep(6.5)  # the lock's five seconds, and a margin for its expiry to be noticed
    other = await e.accept(q, "S", node=0)
    told = []

    def on_failure(lost, _):
        told.append(lost)

    async def on_failure_async(lost, _):
        told.append(lost)
    renewer = e.bus.AutoLockRenewer(on_lock_renew_failure=on_failure_async if e.aio else on_failure)
    await e.do(renewer.register, r, r.session)

    async def is_told():
        return told
    await until("the loss is told", is_told)
    check(told[0] is r.session, f"lost is {told[0]}")
    await e.fails(SessionLockLostError, r.complete_message, m)
    again = await e.one(other)
    equal((text(again), again.delivery_count), ("x", 1), "delivered again")
    await e.complete(other, again)
    await e.do(renewer.close)


SCENARIOS = {f.__name__.replace("_", "-"): f for f in (
    session_named, session_next, session_none, session_waits, session_held, session_close, session_state,
    session_renew, session_lost, session_abandon, session_defer, session_dead_letter, session_peek,
    session_schedule, session_receive_delete, session_guard, session_list, process_session_renew,
    process_session_lost)}
