"""What applications do with a queue, in plain AMQP 1.0 and requests to the queue's own node."""

import time
import uuid

from proton import Condition, Delivery, Message, symbol, timestamp, uint
from proton.utils import LinkDetached, SendException

from env import SOON, check, equal
from links import longs, tag_of, tokens


def fails(kinds, f):
    try:
        f()
    except kinds as err:
        return err
    raise AssertionError(f"succeeded, want {kinds}")


def filled(e, *bodies, **options):
    q = e.queue(**options)
    e.connect(0).send(q, *bodies)
    return q


def bodies(got):
    return [m.body for m, _ in got]


def token_of(delivery):
    return uuid.UUID(bytes_le=tag_of(delivery))


def request(c, node, operation, body, want=200):
    """A request that must be answered with a code; the answer's body."""
    code, answer = c.request(node, operation, body)
    equal(code, want, operation + " is answered by")
    return answer


def peeked(c, node, first=0, count=10):
    code, answer = c.request(node, "peek-message", {"from-sequence-number": first, "message-count": count})
    if code == 204:
        return []
    equal(code, 200, "peek is answered by")
    return [decoded(x["message"]) for x in answer["messages"]]


def decoded(data):
    m = Message()
    m.decode(bytes(data))
    return m


def modify(r, delivery, failed=False, elsewhere=False, **annotations):
    delivery.local.failed, delivery.local.undeliverable = failed, elsewhere
    delivery.local.annotations = {symbol(k): v for k, v in annotations.items()}
    r.settle(delivery, Delivery.MODIFIED)


def dead_letter(r, delivery, reason):
    delivery.local.condition = Condition("com.microsoft:dead-letter", "", {symbol("DeadLetterReason"): reason})
    r.settle(delivery, Delivery.REJECTED)


def scheduled(c, q, at, *names):
    """Schedules messages over the request node; their numbers."""
    messages = [{"message-id": n, "message": Message(
        id=n, body=n, annotations={symbol("x-opt-scheduled-enqueue-time"): at}).encode()} for n in names]
    return list(request(c, q, "schedule-message", {"messages": messages})["sequence-numbers"].elements)


def soon(seconds):
    return timestamp(int(1000 * (time.time() + seconds)))


def deferred(c, q, *numbers):
    """Receives by number; messages with the tokens of their locks."""
    answer = request(c, q, "receive-by-sequence-number", {
        "sequence-numbers": longs(*numbers), "receiver-settle-mode": uint(1)})
    return [(decoded(x["message"]), x["lock-token"]) for x in answer["messages"]]


# Sending.

def send_id(e):
    q = e.queue()
    c = e.connect(0)
    c.sender(q).send(Message(id="the-id", body="x"), timeout=SOON)
    m, d = c.receiver(q).one()
    equal(m.id, "the-id", "id")


def send_many(e):
    q = filled(e, *range(5))
    equal(bodies(e.connect(1).receiver(q).take(5)), list(range(5)), "bodies")


def send_empty(e):
    q = e.queue()
    e.connect(0).sender(q).send(Message(), timeout=SOON)
    m, d = e.connect(1).receiver(q).one()
    check(not m.body, "a body came of nothing")


def send_too_large(e):
    q = e.queue()
    c = e.connect(0)
    fails((SendException, LinkDetached), lambda: c.sender(q).send(Message(body=b"x" * (2 << 20)), timeout=SOON))
    other = e.connect(1)
    other.send(q, "small")
    equal(other.receiver(q).one()[0].body, "small", "body")


# Receiving.

def receive_many(e):
    q = filled(e, *range(20))
    r = e.connect(1).receiver(q)
    got = r.take(20)
    equal(bodies(got), list(range(20)), "bodies")
    for _, d in got:
        r.accept(d)
    r.flow(1)
    r.none()


def receive_waits(e):
    q = e.queue()
    r = e.connect(1).receiver(q)
    r.flow(1)
    r.none()
    e.connect(0).send(q, "late")
    equal(r.one(credit=False)[0].body, "late", "body")


def receive_delete(e):
    q = filled(e, "a", "b", "c")
    r = e.connect(1).receiver(q, presettled=True)
    equal(bodies(r.take(3)), ["a", "b", "c"], "bodies")
    equal(peeked(e.connect(0), q), [], "left")


def receive_two(e):
    q = filled(e, *range(30))
    a, b = e.connect(0).receiver(q), e.connect(1).receiver(q)
    a.flow(10)
    got = bodies(b.take(20)) + bodies(a.take(10, credit=False))
    equal(sorted(got), list(range(30)), "bodies")


# Settling.

def settle_elsewhere(e):
    q = filled(e, "x", LockDuration="PT30S")
    c = e.connect(1)
    r = c.receiver(q)
    token = token_of(r.one()[1])
    r.close()
    c.close()
    other = e.connect(0)
    rx = other.receiver(q)
    rx.flow(1)
    rx.none()
    update = {"disposition-status": "completed", "lock-tokens": tokens(token)}
    request(other, q, "update-disposition", update)
    request(other, q, "update-disposition", update, want=410)  # once


def abandon(e):
    q = filled(e, "x")
    c = e.connect(1)
    r = c.receiver(q)
    first = r.one()[1]
    request(c, q, "update-disposition", {
        "disposition-status": "abandoned", "lock-tokens": tokens(token_of(first)),
        "properties-to-modify": {"why": "because"}})
    m, d = r.one()
    equal((m.delivery_count, m.properties["why"]), (1, "because"), "count and property")
    check(token_of(d) != token_of(first), "the token of the first delivery")


def abandon_properties(e):
    q = filled(e, "x")
    r = e.connect(1).receiver(q)
    modify(r, r.one()[1], failed=True, why="because", times=3)
    m, d = r.one()
    equal((m.properties["why"], m.properties["times"]), ("because", 3), "properties")


def abandon_delay(e):
    q = filled(e, "x")
    r = e.connect(1).receiver(q)
    modify(r, r.one()[1], failed=True, **{"x-busbar-delay": 3000})
    r.flow(1)
    r.none()
    m, d = r.one(credit=False)
    equal((m.delivery_count, m.properties), (1, None), "count and properties")


def defer(e):
    q = filled(e, "x")
    c = e.connect(1)
    r = c.receiver(q)
    modify(r, r.one()[1], elsewhere=True, step="two")
    r.flow(1)
    r.none()
    (m, token), = deferred(c, q, 1)
    equal((m.body, m.properties["step"]), ("x", "two"), "deferred")
    before = m.delivery_count
    request(c, q, "update-disposition", {"disposition-status": "abandoned", "lock-tokens": tokens(token)})
    (m, token), = deferred(c, q, 1)  # deferred it stays
    equal(m.delivery_count, before + 1, "count")
    request(c, q, "update-disposition", {"disposition-status": "completed", "lock-tokens": tokens(token)})
    equal(peeked(c, q), [], "left")


def defer_missing(e):
    q = filled(e, "x")
    c = e.connect(0)
    request(c, q, "receive-by-sequence-number",
            {"sequence-numbers": longs(1000), "receiver-settle-mode": uint(1)}, want=404)


def dead_letter_reason(e):
    q = filled(e, "x")
    c = e.connect(1)
    token = token_of(c.receiver(q).one()[1])
    request(c, q, "update-disposition", {
        "disposition-status": "suspended", "lock-tokens": tokens(token), "deadletter-reason": "reason-x",
        "deadletter-description": "description-y"})
    d = c.receiver(q + "/$DeadLetterQueue")
    m, delivery = d.one()
    equal((m.body, m.properties["DeadLetterReason"], m.properties["DeadLetterErrorDescription"]),
          ("x", "reason-x", "description-y"), "the dead letter")
    d.accept(delivery)
    equal(peeked(c, q + "/$DeadLetterQueue"), [], "left")


def dead_letter_settle(e):
    q = filled(e, "x")
    c = e.connect(1)
    r = c.receiver(q)
    dead_letter(r, r.one()[1], "why")
    graves = q + "/$DeadLetterQueue"
    d = c.receiver(graves)
    modify(d, d.one()[1], failed=True)
    modify(d, d.one()[1], elsewhere=True)
    (m, token), = deferred(c, graves, 1)
    equal(m.body, "x", "body")
    request(c, graves, "update-disposition", {"disposition-status": "completed", "lock-tokens": tokens(token)})
    equal(peeked(c, graves), [], "left")


def max_delivery(e):
    q = filled(e, "x", MaxDeliveryCount=3)
    r = e.connect(1).receiver(q)
    for i in range(3):
        m, d = r.one()
        equal(m.delivery_count, i, "count")
        modify(r, d, failed=True)
    m, d = e.connect(0).receiver(q + "/$DeadLetterQueue").one()
    equal(m.properties["DeadLetterReason"], "MaxDeliveryCountExceeded", "reason")


def lock_renew(e):
    q = filled(e, "x", LockDuration="PT6S")
    c = e.connect(1)
    r = c.receiver(q)
    m, d = r.one()
    for _ in range(3):
        c.idle(3)  # thrice that is more than the lock
        request(c, q, "renew-lock", {"lock-tokens": tokens(token_of(d))})
    other = e.connect(0).receiver(q)
    other.flow(1)
    other.none()
    r.accept(d)
    other.none()


def lock_lost(e):
    q = filled(e, "x", LockDuration="PT5S")
    c = e.connect(1)
    first = token_of(c.receiver(q).one()[1])
    m, d = e.connect(0).receiver(q).one()  # waits for the expiry
    equal(m.delivery_count, 1, "count")
    request(c, q, "renew-lock", {"lock-tokens": tokens(first)}, want=410)


# Peeking, scheduling, lifetimes, duplicates.

def peek(e):
    q = filled(e, "a", "b", "c", "d", "e")
    c = e.connect(1)
    r = c.receiver(q)
    m, d = r.one()
    equal([m.body for m in peeked(c, q, 0, 3) + peeked(c, q, 4, 3)], ["a", "b", "c", "d", "e"], "peeked")
    equal([m.delivery_count for m, _ in r.take(4)], [0] * 4, "counts after peeking")


def peek_from(e):
    q = filled(e, "a", "b", "c", "d")
    c = e.connect(0)
    equal([m.body for m in peeked(c, q, 2, 2)], ["b", "c"], "peeked")
    equal(peeked(c, q, 99), [], "peeked")


def peek_states(e):
    q = filled(e, "a", "b")
    c = e.connect(0)
    scheduled(c, q, soon(60), "c")
    r = c.receiver(q)
    modify(r, r.one()[1], elsewhere=True)
    equal([(m.body, m.annotations[symbol("x-opt-message-state")]) for m in peeked(c, q)],
          [("a", 1), ("b", 0), ("c", 2)], "bodies and states")


def peek_dead_letters(e):
    q = filled(e, "a", "b")
    c = e.connect(0)
    r = c.receiver(q)
    dead_letter(r, r.one()[1], "why")
    equal([m.properties["DeadLetterReason"] for m in peeked(c, q + "/$DeadLetterQueue")], ["why"], "reasons")
    equal([m.body for m in peeked(c, q)], ["b"], "peeked")


def peek_empty(e):
    equal(peeked(e.connect(0), e.queue()), [], "peeked")


def schedule(e):
    q = e.queue()
    c = e.connect(0)
    at = soon(3)
    scheduled(c, q, at, "later")
    r = e.connect(1).receiver(q)
    m, d = r.one()
    check(time.time() * 1000 >= at, "came before its time")
    equal(m.body, "later", "body")


def schedule_cancel(e):
    q = e.queue()
    c = e.connect(0)
    numbers = scheduled(c, q, soon(12), "a", "b", "c")
    request(c, q, "cancel-scheduled-message", {"sequence-numbers": longs(numbers[1])})
    r = e.connect(1).receiver(q)
    equal(sorted(bodies(r.take(2))), ["a", "c"], "came")
    r.flow(1)
    r.none()
    request(c, q, "cancel-scheduled-message", {"sequence-numbers": longs(numbers[1])}, want=404)


def ttl_dead_letter(e):
    q = e.queue(DeadLetteringOnMessageExpiration="true")
    c = e.connect(0)
    c.send(q, "short", ttl=1)
    m, d = c.receiver(q + "/$DeadLetterQueue").one()
    equal(m.properties["DeadLetterReason"], "TTLExpiredException", "reason")


def ttl_default(e):
    q = filled(e, "x", DefaultMessageTimeToLive="PT1S")
    time.sleep(1.5)  # its life
    r = e.connect(1).receiver(q)
    r.flow(1)
    r.none()


def duplicate_dropped(e):
    q = e.queue(RequiresDuplicateDetection="true")
    c = e.connect(0)
    s = c.sender(q)
    for i in ("same", "same", "other", "same"):
        s.send(Message(id=i, body=i), timeout=SOON)
    r = c.receiver(q)
    equal(bodies(r.take(2)), ["same", "other"], "left")
    r.flow(1)
    r.none()


def delete_batch(e):
    q = filled(e, "a", "b", "c")
    c = e.connect(0)
    got = request(c, q, "batch-delete-messages", {"message-count": 2, "enqueued-time-utc": soon(0)})
    equal(got["message-count"], 2, "deleted")
    equal([m.body for m in peeked(c, q)], ["c"], "left")


def delete_purge(e):
    q = filled(e, *range(10))
    c = e.connect(0)
    while peeked(c, q, 0, 1):
        c.request(q, "batch-delete-messages", {"message-count": 4, "enqueued-time-utc": soon(60)})


SCENARIOS = {
    "send-id": send_id, "send-many": send_many, "send-empty": send_empty, "send-too-large": send_too_large,
    "receive-many": receive_many, "receive-waits": receive_waits, "receive-delete": receive_delete,
    "receive-two": receive_two, "settle-elsewhere": settle_elsewhere, "abandon": abandon,
    "abandon-properties": abandon_properties, "abandon-delay": abandon_delay, "defer": defer, "defer-missing": defer_missing,
    "dead-letter": dead_letter_reason, "dead-letter-settle": dead_letter_settle, "max-delivery": max_delivery,
    "lock-renew": lock_renew, "lock-lost": lock_lost, "peek": peek, "peek-from": peek_from,
    "peek-states": peek_states, "peek-dead-letters": peek_dead_letters, "peek-empty": peek_empty,
    "schedule": schedule, "schedule-cancel": schedule_cancel, "ttl-dead-letter": ttl_dead_letter,
    "ttl-default": ttl_default, "duplicate-dropped": duplicate_dropped, "delete-batch": delete_batch,
    "delete-purge": delete_purge,
}
