import asyncio
from datetime import datetime, timedelta, timezone

from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import MessageNotFoundError, MessageSizeExceededError

from env import MISSING, check, equal, message, on_time, seconds, skip, text, texts


async def send_one(e):
    q = await e.queue()
    await e.send(q, message("hello"))
    r = e.receiver(q)
    m = await e.one(r)
    equal(text(m), "hello")
    await e.complete(r, m)
    await e.none(r)


async def send_properties(e):
    q = await e.queue()
    at = datetime(2020, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    properties = {"s": "ü", "i": -5, "big": 1 << 30, "d": 1.5, "b": True}
    sent = dict(content_type="text/plain", correlation_id="corr", message_id="mid-1", subject="subj", to="to",
                reply_to="rt", reply_to_session_id="rts", session_id="only data", partition_key="only data",
                time_to_live=timedelta(seconds=90))
    await e.send(q, message("x", application_properties={**properties, "t": at}, **sent))
    r = e.receiver(q)
    m = await e.one(r)
    for key, want in sent.items():
        equal(getattr(m, key), want, key)
    got = {(k.decode() if isinstance(k, bytes) else k): v for k, v in m.application_properties.items()}
    for key, want in properties.items():
        value = got[key]
        equal(value.decode() if isinstance(value, bytes) and isinstance(want, str) else value, want, key)
    check(got["t"] in (at, int(at.timestamp() * 1000)), f"the time {got['t']!r}")
    equal(m.expires_at_utc - m.enqueued_time_utc, timedelta(seconds=90), "lives for")


async def send_body_kinds(e):
    q = await e.queue()
    kinds = [
        (AmqpMessageBodyType.DATA, {"data_body": [b"\x00\x01", b"\xfe\xff"]}),
        (AmqpMessageBodyType.VALUE, {"value_body": {b"word": b"text", b"list": [1, 2, b"three"]}}),
        (AmqpMessageBodyType.SEQUENCE, {"sequence_body": [[b"a", 1], [b"b", True]]}),
    ]
    s = e.sender(e.client(0), q)
    for _, kind in kinds:
        await e.do(s.send_messages, AmqpAnnotatedMessage(**kind))
    r = e.receiver(q)
    for m, (kind, body) in zip(await e.take(r, 3), kinds):
        equal(m.body_type, kind, "kind")
        want, = body.values()
        got = m.body if kind is AmqpMessageBodyType.VALUE else list(m.body)
        equal(got, want, f"body of {kind}")


async def send_empty(e):
    q = await e.queue()
    await e.send(q, message(b"", subject="nothing"))
    m = await e.one(e.receiver(q))
    equal((text(m), m.subject), ("", "nothing"))


async def send_id(e):
    q = await e.queue()
    ids = ["order-1", "ü" * 60, "x" * 128]
    for i in ids:
        await e.send(q, message(i, message_id=i))
    for m in await e.take(e.receiver(q), 3):
        equal(m.message_id, text(m), "id")


async def send_many(e):
    q = await e.queue()
    bodies = [f"m{i}" for i in range(50)]
    await e.send(q, *(message(b) for b in bodies))
    r = e.receiver(q)
    got = await e.take(r, 50)
    equal(texts(got), bodies)
    await e.complete(r, *got)


async def send_batch(e):
    q = await e.queue()
    s = e.sender(e.client(0), q)
    batch = await e.do(s.create_message_batch)
    n = 0
    try:
        while n < 200:
            batch.add_message(message(f"{n}:" + "x" * (16 << 10)))
            n += 1
    except MessageSizeExceededError:
        pass
    check(50 < n < 70, f"{n} messages of 16 KiB fit, want what a limit of 1 MiB holds")
    await e.do(s.send_messages, batch)
    r = e.receiver(q)
    # One at a time: what arrives between two calls the library releases, and a released message comes back behind
    # those already on the wire.
    for i in range(n):
        m = await e.one(r)
        check(text(m).startswith(f"{i}:"), f"position {i} holds {text(m)[:8]}")
        await e.complete(r, m)
    small = await e.do(s.create_message_batch, max_size_in_bytes=1000)
    try:
        small.add_message(message("y" * 2000))
    except MessageSizeExceededError:
        return
    raise AssertionError("a small batch took a large message")


async def send_large(e):
    q = await e.queue()
    body = bytes((i * 7) & 255 for i in range(900 << 10))
    await e.send(q, message(body))
    r = e.receiver(q)
    m = await e.one(r)
    check(b"".join(m.body) == body, "the body came back changed")
    await e.complete(r, m)


async def send_too_large(e):
    q = await e.queue()
    c = e.client()
    s = e.sender(c, q)
    await e.fails(MessageSizeExceededError, s.send_messages, message(bytes(2 << 20)))
    await e.do(s.send_messages, message("small"))
    m = await e.one(c.get_queue_receiver(q))
    equal((text(m), m.sequence_number), ("small", 1))


async def send_missing(e):
    s = e.sender(e.client(), e.name())
    await e.fails(MISSING, s.send_messages, message())


async def send_partitioned(e):
    q = await e.queue(enable_partitioning=True)
    s = e.sender(e.client(0), q)
    n = 60
    for i in range(n):
        await e.do(s.send_messages, message(str(i), partition_key=f"key-{i % 12}"))
    r = e.receiver(q)
    numbers, last = set(), {}
    for m in await e.take(r, n):
        check(m.sequence_number >> 48 > 0, "a number without partition")
        numbers.add(m.sequence_number)
        check(last.get(m.partition_key, -1) < int(text(m)), f"{text(m)} out of order")
        last[m.partition_key] = int(text(m))
        await e.complete(r, m)
    equal(len(numbers), n, "numbers")
    await e.none(r)


async def schedule(e):
    q, at = await e.queue(), seconds(4)
    s = e.sender(e.client(0), q)
    equal(len(await e.do(s.schedule_messages, message("later"), at)), 1, "numbers")
    r = e.receiver(q)
    m = await e.one(r)
    on_time(at)
    equal(m.scheduled_enqueue_time_utc, at, "time")
    check(m.enqueued_time_utc >= at, f"enqueued at {m.enqueued_time_utc}, before its time {at}")
    await e.complete(r, m)


async def schedule_many(e):
    q = await e.queue()
    s = e.sender(e.client(0), q)
    numbers = await e.do(s.schedule_messages, [message(b) for b in "abcd"], seconds(2))
    equal(len(set(numbers)), 4, "numbers")
    r = e.receiver(q)
    got = await e.take(r, 4)
    equal(sorted(texts(got)), list("abcd"))
    await e.complete(r, *got)


async def schedule_property(e):
    q, at = await e.queue(), seconds(3)
    await e.send(q, message("later", scheduled_enqueue_time_utc=at))
    r = e.receiver(q)
    m = await e.one(r)
    on_time(at)
    await e.complete(r, m)


async def schedule_cancel(e):
    q = await e.queue()
    s = e.sender(e.client(0), q)
    numbers = await e.do(s.schedule_messages, [message("a"), message("b"), message("keep")], seconds(12))
    await e.do(s.cancel_scheduled_messages, numbers[:2])
    r = e.receiver(q)
    m = await e.one(r)
    equal(text(m), "keep")
    await e.complete(r, m)
    await e.none(r)


async def schedule_cancel_missing(e):
    q = await e.queue()
    s = e.sender(e.client(), q)
    number, = await e.do(s.schedule_messages, message(), seconds(60))
    await e.do(s.cancel_scheduled_messages, number)
    await e.fails(MessageNotFoundError, s.cancel_scheduled_messages, number)


async def ttl_dropped(e):
    q = await e.queue()
    await e.send(q, message("short", time_to_live=timedelta(seconds=1)), message("long"))
    await asyncio.sleep(1.5)
    r = e.receiver(q)
    m = await e.one(r)
    equal(text(m), "long")
    await e.complete(r, m)
    await e.none(r)
    await e.none(e.dead_letters(q))


async def ttl_dead_letter(e):
    q = await e.queue(dead_lettering_on_message_expiration=True)
    await e.send(q, message("short", time_to_live=timedelta(seconds=1)))
    d = e.dead_letters(q)
    m = await e.one(d)
    equal((text(m), m.dead_letter_reason), ("short", "TTLExpiredException"))
    await e.complete(d, m)


async def ttl_default(e):
    q = await e.queue(default_message_time_to_live=timedelta(seconds=2))
    await e.send(q, message("a"), message("b", time_to_live=timedelta(hours=1)))
    r = e.receiver(q)
    for m in await e.peek(r):
        check(m.expires_at_utc - m.enqueued_time_utc <= timedelta(seconds=2), "outlives the queue's limit")
    await asyncio.sleep(2.5)
    await e.none(r)


async def duplicate_dropped(e):
    q = await e.queue(requires_duplicate_detection=True,
                      duplicate_detection_history_time_window=timedelta(minutes=1))
    await e.send(q, message("first", message_id="same"))
    await e.send(q, message("second", message_id="same"), node=1)
    await e.send(q, message("other", message_id="other"))
    r = e.receiver(q)
    got = await e.take(r, 2)
    equal(texts(got), ["first", "other"])
    await e.complete(r, *got)
    await e.send(q, message("third", message_id="same"), node=1)
    await e.none(r)


async def duplicate_batch(e):
    q = await e.queue(requires_duplicate_detection=True)
    await e.send(q, *(message(f"{k}{i}", message_id=k) for i, k in enumerate("abacb")))
    r = e.receiver(q)
    got = await e.take(r, 3)
    equal(texts(got), ["a0", "b1", "c3"])
    await e.complete(r, *got)
    await e.none(r)


SCENARIOS = {f.__name__.replace("_", "-"): f for f in (
    send_one, send_properties, send_body_kinds, send_empty, send_id, send_many, send_batch, send_large,
    send_too_large, send_missing, send_partitioned, schedule, schedule_many, schedule_property,
    schedule_cancel, schedule_cancel_missing, ttl_dropped, ttl_dead_letter, ttl_default, duplicate_dropped,
    duplicate_batch)}
SCENARIOS["send-pipelined"] = skip("a sender of the library sends one message after the other")
