"""Credit and the outcomes of deliveries."""

from proton import Condition, Delivery, Message, symbol
from proton.reactor import Selector
from proton.utils import LinkDetached

from env import check, equal

LOCK_LOST = "com.microsoft:message-lock-lost"


def filled(e, *bodies, **options):
    q = e.queue(**options)
    e.connect(0).send(q, *bodies)
    return q


def amqp_credit(e):
    q = filled(e, *[f"m{i}" for i in range(10)])
    r = e.connect(1).receiver(q)
    r.none()
    r.flow(3)
    r.c.until(lambda: len(r.kept.arrived) == 3, "three messages")
    r.c.idle(1)
    equal([m.body for m, _ in r.kept.arrived], ["m0", "m1", "m2"], "with a credit of three")
    for _, d in r.take(3, credit=False):
        r.accept(d)
    r.c.idle(0.5)
    equal(len(r.kept.arrived), 0, "after settling, without credit")
    equal([m.body for m, _ in r.take(7)], [f"m{i}" for i in range(3, 10)], "the rest")


def amqp_drain(e):
    q = filled(e, "a", "b", "c")
    c = e.connect(1)
    r = c.receiver(q)
    r.link.drain(10)
    c.until(lambda: r.link.credit == 0, "the credit is used up")
    equal([m.body for m, _ in r.kept.arrived], ["a", "b", "c"], "drained")
    r.kept.arrived.clear()
    r.link.drain(5)  # there is nothing
    c.until(lambda: r.link.credit == 0, "the credit of an empty queue is used up")
    r.link.drain_mode = False
    c.send(q, "later")
    r.none()
    equal(r.one()[0].body, "later", "with new credit")


def amqp_accepted(e):
    q = filled(e, "x")
    r = e.connect(1).receiver(q)
    m, d = r.one()
    equal(m.delivery_count, 0, "count of earlier deliveries")
    check(not d.settled, "a lock came settled")
    r.accept(d)
    r.flow(1)
    r.none()


def amqp_released(e):
    q = filled(e, "x")
    r = e.connect(1).receiver(q)
    for _ in range(12):  # more often than the queue allows deliveries
        m, d = r.one()
        equal(m.delivery_count, 0, "count after a release")
        r.settle(d, Delivery.RELEASED)
    r.accept(r.one()[1])


def amqp_modified_failed(e):
    q = filled(e, "x", MaxDeliveryCount=3)
    r = e.connect(1).receiver(q)
    for i in range(3):
        m, d = r.one()
        equal(m.delivery_count, i, "count")
        d.local.failed = True
        d.local.annotations = {symbol("why"): "because"}
        r.settle(d, Delivery.MODIFIED)
    r.flow(1)
    r.none()
    m, d = e.connect(0).receiver(q + "/$DeadLetterQueue").one()
    equal(m.properties["DeadLetterReason"], "MaxDeliveryCountExceeded", "reason")
    equal(m.properties["why"], "because", "what was modified")


def amqp_modified_elsewhere(e):
    q = filled(e, "x")
    c = e.connect(1)
    r = c.receiver(q)
    m, d = r.one()
    d.local.undeliverable = True
    r.settle(d, Delivery.MODIFIED)
    r.flow(1)
    r.none()
    code, answer = c.request(q, "peek-message", {"from-sequence-number": 0, "message-count": 5})
    equal((code, len(answer["messages"])), (200, 1), "peeked")


def amqp_rejected(e):
    q = filled(e, "x", "y")
    r = e.connect(1).receiver(q)
    (_, with_error), (_, bare) = r.take(2)
    with_error.local.condition = Condition("com.microsoft:dead-letter", "in short", {
        symbol("DeadLetterReason"): "reason-x", symbol("DeadLetterErrorDescription"): "description-y"})
    r.settle(with_error, Delivery.REJECTED)
    r.settle(bare, Delivery.REJECTED)
    d = e.connect(0).receiver(q + "/$DeadLetterQueue")
    (x, dx), (y, dy) = d.take(2)
    equal((x.body, x.properties["DeadLetterReason"], x.properties["DeadLetterErrorDescription"]),
          ("x", "reason-x", "description-y"), "the dead letter")
    equal(y.body, "y", "rejected without an error")
    check("DeadLetterReason" not in (y.properties or {}), "a reason that nobody gave")
    d.accept(dx)
    d.accept(dy)


def amqp_presettled_receive(e):
    q = filled(e, "a", "b")
    r = e.connect(1).receiver(q, presettled=True)
    for m, d in r.take(2):
        check(d.settled, "came unsettled")
    r.close()
    other = e.connect(0).receiver(q)
    other.flow(1)
    other.none()


def amqp_second(e):
    q = filled(e, "a", "b", "c", "d", LockDuration="PT5S")
    c = e.connect(1)
    r = c.receiver(q, second=True)
    (_, a), (_, b), (_, x), (_, late) = r.take(4)
    r.settle(a, Delivery.ACCEPTED, settled=False)
    equal(a.remote_state, Delivery.ACCEPTED, "accepted is answered by")
    r.settle(b, Delivery.REJECTED, settled=False)
    equal(b.remote_state, Delivery.REJECTED, "rejected is answered by")
    equal(b.remote.condition, None, "its error")
    x.local.undeliverable = True
    r.settle(x, Delivery.MODIFIED, settled=False)
    equal(x.remote_state, Delivery.MODIFIED, "modified is answered by")
    again = e.connect(0).receiver(q)
    m, _ = again.one()  # waits until the lock has run out
    equal((m.body, m.delivery_count), ("d", 1), "delivered again")
    r.settle(late, Delivery.ACCEPTED, settled=False)
    equal(late.remote_state, Delivery.REJECTED, "a settlement that is late is answered by")
    equal(late.remote.condition.name, LOCK_LOST, "with")


def amqp_many_unsettled(e):
    n = 2000
    q = e.queue()
    c = e.connect(0)
    s = c.sender(q)
    sent = []
    while len(sent) < n:
        c.until(lambda: s.link.credit > 0, "credit to send")
        for _ in range(min(s.link.credit, n - len(sent))):
            sent.append(s.link.send(Message(body=len(sent))))
    c.until(lambda: all(d.settled for d in sent), "all are taken")
    r = e.connect(1).receiver(q)
    got = r.take(n)
    equal([m.body for m, _ in got], list(range(n)), "in order")
    for _, d in got:
        d.update(Delivery.ACCEPTED)
        d.settle()
    r.c.flush()
    r.flow(1)
    r.none()


def amqp_copy(e):
    q = filled(e, "a", "b", "c")
    c = e.connect(1)
    r = c.receiver(q)
    held, d = r.one()
    for _ in range(2):
        looking = c.receiver(q, name="looking", copies=True)
        looking.link.drain(10)
        c.until(lambda: looking.link.credit == 0, "the end")
        equal([(m.body, m.delivery_count, d.settled) for m, d in looking.kept.arrived],
              [("a", 0, True), ("b", 0, True), ("c", 0, True)], "copies")
        looking.close()
    r.accept(d)
    equal([(m.body, m.delivery_count) for m, _ in r.take(2)], [("b", 0), ("c", 0)], "taken")


def amqp_filter(e):
    q = filled(e, "x")
    c = e.connect(1)
    try:
        c.b.create_receiver(q, options=Selector("colour = 'red'"))
    except LinkDetached as why:
        equal(why.condition, "amqp:not-implemented", "refused with")
    else:
        raise AssertionError("a selector was taken")
    equal(c.receiver(q).one()[0].body, "x", "the connection goes on")


SCENARIOS = {
    "amqp-credit": amqp_credit, "amqp-drain": amqp_drain, "amqp-accepted": amqp_accepted,
    "amqp-released": amqp_released, "amqp-modified-failed": amqp_modified_failed,
    "amqp-modified-elsewhere": amqp_modified_elsewhere, "amqp-rejected": amqp_rejected,
    "amqp-presettled-receive": amqp_presettled_receive, "amqp-second": amqp_second,
    "amqp-many-unsettled": amqp_many_unsettled, "amqp-copy": amqp_copy, "amqp-filter": amqp_filter,
}
