"""Sessions: links whose source has a filter, and requests that name the session."""

from proton import symbol, timestamp
from proton.utils import LinkDetached, SendException

from common import bodies, dead_letter, fails, modify, peeked, request
from env import equal


def filled(e, *sessions, **options):
    q = e.queue(RequiresSession="true", **options)
    c = e.connect(0)
    for s in sessions:
        c.send(q, s[1:], group_id=s[0])
    return q


def accept(c, q, session):
    return c.receiver(q, no_filter=False, session=session)


def granted(r):
    """The session that the broker gave."""
    answer = r.link.remote_source.filter
    answer.rewind()
    answer.next()
    return answer.get_object()[symbol("com.microsoft:session-filter")]


def session_named(e):
    q = filled(e, "A1", "B1", "A2", "B2")
    c = e.connect(1)
    for s in "BA":
        r = accept(c, q, s)
        got = r.take(2)
        equal(bodies(got), ["1", "2"], "in order")
        for _, d in got:
            r.accept(d)
        r.close()


def session_next(e):
    q = filled(e, "A1", "B1")
    c = e.connect(1)
    first, second = accept(c, q, None), accept(c, q, None)
    equal(sorted([granted(first), granted(second)]), ["A", "B"], "held")


def session_held(e):
    q = filled(e, "A1")
    accept(e.connect(1), q, "A")
    why = fails(LinkDetached, lambda: accept(e.connect(0), q, "A"))
    equal(why.condition, "com.microsoft:session-cannot-be-locked", "refused with")


def session_close(e):
    q = filled(e, "A1")
    r = accept(e.connect(1), q, "A")
    r.one()
    r.close()
    m, d = accept(e.connect(0), q, "A").one()
    equal((m.body, m.delivery_count), ("1", 0), "free at once, and counted nothing")


def session_state(e):
    q = filled(e, "A1")
    c = e.connect(1)
    r = accept(c, q, "A")
    equal(request(c, q, "get-session-state", {"session-id": "A"})["session-state"], None, "state at first")
    request(c, q, "set-session-state", {"session-id": "A", "session-state": b"half way"})
    r.close()
    other = e.connect(0)
    accept(other, q, "A")
    equal(bytes(request(other, q, "get-session-state", {"session-id": "A"})["session-state"]), b"half way", "state")
    request(other, q, "set-session-state", {"session-id": "A", "session-state": None})
    equal(request(other, q, "get-session-state", {"session-id": "A"})["session-state"], None, "state in the end")


def session_renew(e):
    q = filled(e, "A1", LockDuration="PT6S")
    c = e.connect(1)
    r = accept(c, q, "A")
    m, d = r.one()
    for _ in range(3):
        c.idle(3)  # thrice that is more than the lock
        request(c, q, "renew-session-lock", {"session-id": "A"})
    r.accept(d)
    equal(peeked(e.connect(0), q), [], "left")


def session_lost(e):
    q = filled(e, "A1", LockDuration="PT5S")
    c = e.connect(1)
    r = accept(c, q, "A")
    r.one()
    c.idle(6)  # more than the lock
    m, d = accept(e.connect(0), q, "A").one()
    equal(m.delivery_count, 1, "count")
    request(c, q, "renew-session-lock", {"session-id": "A"}, want=410)


def session_abandon(e):
    q = filled(e, "A1", "A2")
    r = accept(e.connect(1), q, "A")
    m, d = r.one()
    modify(r, d, failed=True)
    m, d = r.one()
    equal((m.body, m.delivery_count), ("1", 1), "next")


def session_dead_letter(e):
    q = filled(e, "A1")
    c = e.connect(1)
    r = accept(c, q, "A")
    dead_letter(r, r.one()[1], "why")
    m, d = c.receiver(q + "/$DeadLetterQueue").one()
    equal((m.body, m.group_id), ("1", "A"), "the dead letter")


def session_peek(e):
    q = filled(e, "A1", "B2", "A3")
    c = e.connect(1)
    answer = request(c, q, "peek-message", {
        "from-sequence-number": 0, "message-count": 10, "session-id": "A"})
    equal(len(answer["messages"]), 2, "messages of the session")


def session_guard(e):
    q = filled(e)
    c = e.connect(0)
    fails(SendException, lambda: c.send(q, "without a session"))
    why = fails(LinkDetached, lambda: c.receiver(q))
    equal(why.condition, "amqp:not-allowed", "refused with")
    fails(LinkDetached, lambda: accept(c, e.queue(), "A"))


def session_list(e):
    q = filled(e, "A1", "B1", "C1")
    answer = request(e.connect(0), q, "get-message-sessions", {
        "last-updated-time": timestamp(253402300800000), "skip": 0, "top": 100})
    equal(sorted(answer["sessions-ids"].elements), ["A", "B", "C"], "sessions")


SCENARIOS = {f.__name__.replace("_", "-"): f for f in (
    session_named, session_next, session_held, session_close, session_state, session_renew, session_lost,
    session_abandon, session_dead_letter, session_peek, session_guard, session_list)}
