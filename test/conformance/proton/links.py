"""Links, sessions and connections."""

import time
import uuid

from proton import (Array, ConnectionException, Data, Delivery, Endpoint, Message, UNDESCRIBED, symbol,
                    timestamp)
from proton.utils import LinkDetached

from env import check, equal


def fails(kinds, condition, f):
    try:
        f()
    except kinds as err:
        text = f"{getattr(err, 'condition', '')} {err}"
        check(condition in text, f"failed with {text!r}, want {condition}")
        return
    raise AssertionError(f"succeeded, want {condition}")


def amqp_reattach(e):
    q = e.queue()
    c = e.connect(0)
    for i in range(3):
        s = c.sender(q, name="the-sender")
        s.send(note(f"m{i}"))
        s.close()
    for i in range(3):
        r = c.receiver(q, name="the-receiver")
        m, d = r.one()
        equal(m.body, f"m{i}", "after attaching again")
        r.accept(d)
        r.close()


def amqp_detach(e):
    q = e.queue(LockDuration="PT30S")
    c = e.connect(0)
    c.send(q, "x")
    r = c.receiver(q, name="holder")
    m, d = r.one()
    token = uuid.UUID(bytes_le=tag_of(d))
    r.close()
    other = c.receiver(q, name="holder")
    other.flow(1)
    other.none()  # the lock outlives the link
    code, _ = c.request(q, "update-disposition", {
        "disposition-status": "abandoned", "lock-tokens": tokens(token)})
    equal(code, 200, "abandon by token")
    m, d = other.one(credit=False)
    equal((m.body, m.delivery_count), ("x", 1), "delivered again")
    other.accept(d)


def tag_of(delivery):
    tag = delivery.tag
    return tag if isinstance(tag, bytes) else tag.encode("utf-8", "surrogateescape")


def tokens(*all_tokens):
    return Array(UNDESCRIBED, Data.UUID, *all_tokens)


def note(body, **properties):
    return Message(body=body, **properties)


def amqp_lost_connection(e):
    q = e.queue(LockDuration="PT5M")
    e.connect(0).send(q, "x")
    holder = e.holder(q)
    r = e.connect(1).receiver(q)
    r.flow(1)
    r.none()
    holder.kill()
    m, d = r.one(credit=False)  # after a grace of seconds, not of the lock's five minutes
    equal((m.body, m.delivery_count), ("x", 1), "delivered again")
    r.accept(d)


def amqp_refused(e):
    c = e.connect(0)
    missing = e.prefix + "-missing"
    fails(LinkDetached, "amqp:not-found", lambda: c.receiver(missing))
    fails(LinkDetached, "amqp:not-found", lambda: c.sender(missing))
    q = e.queue()
    fails(LinkDetached, "amqp:not-allowed", lambda: c.sender(q + "/$DeadLetterQueue"))
    c.send(q, "the connection goes on")


def amqp_two_sessions(e):
    q = e.queue()
    c = e.connect(0)
    c.send(q, "a", "b")
    first, second = (c.b.conn.session() for _ in range(2))
    for s in (first, second):
        s.open()
    a, b = first.receiver("in-the-first"), second.receiver("in-the-second")
    a.source.address = b.source.address = q
    for link in (a, b):
        link.open()
        link.flow(1)
    c.until(lambda: a.unsettled > 0 and b.unsettled > 0, "a message on each")
    first.close()
    c.until(lambda: first.state & Endpoint.REMOTE_CLOSED, "the first session ends")
    check(second.state & Endpoint.REMOTE_ACTIVE, "the second session ended with the first")
    d = b.current
    d.update(Delivery.ACCEPTED)
    d.settle()
    c.flush()
    third = c.receiver(q)
    third.flow(1)
    third.none()  # "a" is locked still, "b" is gone


def amqp_idle(e):
    c = e.connect(0, heartbeat=2)
    q = e.queue()
    s = c.sender(q)
    began = time.monotonic()
    while time.monotonic() - began < 9:  # more than four times what the client tolerates
        c.idle(1)
        check(not c.b.disconnected, "the connection was lost while idle")
    s.send(note("still here"))


def amqp_plain_wrong_key(e):
    fails(ConnectionException, "amqp:unauthorized-access", lambda: e.connect(0, password="wrong"))


def amqp_session_filter(e):
    q = e.queue(RequiresSession="true")
    e.connect(0).send(q, "x", group_id="S")
    c = e.connect(1)
    r = c.receiver(q, no_filter=False, session="S")
    m, d = r.one()
    equal((m.body, m.group_id), ("x", "S"), "in the session")
    r.accept(d)
    fails(LinkDetached, "com.microsoft:session-cannot-be-locked",
          lambda: e.connect(0).receiver(q, no_filter=False, session="S"))
    r.close()
    c.send(q, "y", group_id="T")
    r = c.receiver(q, no_filter=False, session=None)
    granted = r.link.remote_source.filter
    granted.rewind()
    check(granted.next() is not None, "no filter in the answer")
    equal(granted.get_object()[symbol("com.microsoft:session-filter")], "T", "the session that was given")
    r.accept(r.one()[1])
    fails(LinkDetached, "amqp:not-allowed", lambda: c.receiver(q))


def amqp_management(e):
    q = e.queue(LockDuration="PT30S")
    c = e.connect(0)
    c.send(q, "x")
    r = c.receiver(q)
    m, d = r.one()
    token = uuid.UUID(bytes_le=tag_of(d))
    code, answer = c.request(q, "renew-lock", {"lock-tokens": tokens(token)})
    equal((code, len(answer["expirations"].elements)), (200, 1), "renewed")
    code, answer = c.request(q, "peek-message", {"from-sequence-number": 1, "message-count": 10})
    equal((code, len(answer["messages"])), (200, 1), "peeked")
    body = note("later", annotations={symbol("x-opt-scheduled-enqueue-time"): later(60)})
    code, answer = c.request(q, "schedule-message", {
        "messages": [{"message-id": "m", "message": body.encode()}]})
    equal((code, len(answer["sequence-numbers"].elements)), (200, 1), "scheduled")
    code, _ = c.request(q, "cancel-scheduled-message", {
        "sequence-numbers": longs(*answer["sequence-numbers"].elements)})
    equal(code, 200, "cancelled")
    code, _ = c.request(q, "no-such-operation", {})
    equal(code, 501, "an operation that is not there")
    r.accept(d)


def later(seconds):
    return timestamp(int(1000 * (time.time() + seconds)))


def longs(*numbers):
    return Array(UNDESCRIBED, Data.LONG, *numbers)


SCENARIOS = {
    "amqp-reattach": amqp_reattach, "amqp-detach": amqp_detach,
    "amqp-lost-connection": amqp_lost_connection, "amqp-refused": amqp_refused,
    "amqp-two-sessions": amqp_two_sessions, "amqp-idle": amqp_idle,
    "amqp-plain-wrong-key": amqp_plain_wrong_key, "amqp-session-filter": amqp_session_filter,
    "amqp-management": amqp_management,
}
