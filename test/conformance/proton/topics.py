"""Topics with subscriptions and rules, forwarding, and transactions."""

import time

from proton import Message, symbol
from proton.handlers import TransactionHandler
from proton.utils import LinkDetached

from common import bodies, dead_letter, fails, peeked, request
from env import SOON, check, equal


def rule(expression, action=""):
    sql = "<SqlExpression>{}</SqlExpression><CompatibilityLevel>20</CompatibilityLevel>"
    text = expression.replace("<", "&lt;").replace(">", "&gt;")
    if action:
        action = f'<Action i:type="SqlRuleAction">{sql.format(action)}</Action>'
    return f'<Filter i:type="SqlFilter">{sql.format(text)}</Filter>{action}<Name>only</Name>'


def publish(e, topic, *messages):
    s = e.connect(0).sender(topic)
    for m in messages:
        s.send(m, timeout=SOON)


def chosen(e, address):
    """The bodies that reached a subscription: those before a last one that every rule takes."""
    c = e.connect(1)
    r = c.receiver(address)
    end = time.monotonic() + SOON
    got = []
    while "last" not in got:
        check(time.monotonic() < end, f"waited in vain for the last: {got}")
        m, d = r.one()
        r.accept(d)
        got.append(m.body)
    return got[:-1]


def topic_fan_out(e):
    t = e.topic()
    addresses = [e.subscription(t, name) for name in "abc"]
    publish(e, t, Message(body="m0"), Message(body="m1"))
    for i, address in enumerate(addresses):
        equal(bodies(e.connect(i).receiver(address).take(2)), ["m0", "m1"], address)


def topic_sql(e):
    t = e.topic()
    dear = e.subscription(t, "dear", DefaultRuleDescription=rule("price > 10"))
    red = e.subscription(t, "red", DefaultRuleDescription=rule("colour = 'red' OR sys.Label LIKE 'r%'"))
    last = {"price": 99, "colour": "red"}
    publish(e, t, Message(body="a", properties={"price": 5, "colour": "red"}),
            Message(body="b", properties={"price": 15, "colour": "blue"}),
            Message(body="c", properties={"price": 20.5}, subject="rose"), Message(body="d"),
            Message(body="last", properties=last))
    equal(chosen(e, dear), ["b", "c"], "dear")
    equal(chosen(e, red), ["a", "c"], "red")


def topic_correlation(e):
    t = e.topic()
    label = e.subscription(t, "s", DefaultRuleDescription=(
        '<Filter i:type="CorrelationFilter"><Label>l</Label></Filter><Name>only</Name>'))
    publish(e, t, Message(body="a"), Message(body="b", subject="l"), Message(body="c", subject="other"),
            Message(body="last", subject="l"))
    equal(chosen(e, label), ["b"], "chosen")


def topic_action(e):
    t = e.topic()
    s = e.subscription(t, "s", DefaultRuleDescription=rule("1=1", "SET total = price * 2; REMOVE secret"))
    publish(e, t, Message(body="x", properties={"price": 21, "secret": "s"}))
    m, d = e.connect(1).receiver(s).one()
    equal((m.properties["total"], "secret" in m.properties), (42, False), "properties of the copy")


def topic_rules_live(e):
    t = e.topic()
    s = e.subscription(t, "s")
    c = e.connect(0)
    request(c, s, "add-rule", {"rule-name": "red", "rule-description": {
        "sql-filter": {"expression": "colour = 'red'"}, "sql-rule-action": None, "rule-name": "red"}})
    request(c, s, "remove-rule", {"rule-name": "$Default"})
    equal(len(request(c, s, "enumerate-rules", {"top": 10, "skip": 0})["rules"]), 1, "rules")
    request(c, s, "remove-rule", {"rule-name": "nobody"}, want=404)
    publish(e, t, Message(body="plain"), Message(body="red", properties={"colour": "red"}),
            Message(body="last", properties={"colour": "red"}))
    equal(chosen(e, s), ["red"], "chosen")


def topic_dead_letter(e):
    t = e.topic()
    s = e.subscription(t, "s")
    publish(e, t, Message(body="bad"))
    c = e.connect(1)
    r = c.receiver(s)
    dead_letter(r, r.one()[1], "why")
    m, d = c.receiver(s + "/$DeadLetterQueue").one()
    equal((m.body, m.properties["DeadLetterReason"]), ("bad", "why"), "the dead letter")


def topic_receive(e):
    t = e.topic()
    fails(LinkDetached, lambda: e.connect(0).receiver(t))


def forward(e):
    last = e.queue()
    first = e.queue(ForwardTo=last)
    c = e.connect(0)
    c.send(first, "x", id="the-id")
    m, d = e.connect(1).receiver(last).one()
    equal((m.body, m.id, m.delivery_count), ("x", "the-id", 0), "forwarded")
    fails(LinkDetached, lambda: c.receiver(first))


def forward_topic(e):
    q, t = e.queue(), e.topic()
    e.subscription(t, "s", ForwardTo=q)
    publish(e, t, Message(body="x"))
    equal(e.connect(1).receiver(q).one()[0].body, "x", "forwarded")


def forward_dead_letters(e):
    graves = e.queue()
    q = e.queue(ForwardDeadLetteredMessagesTo=graves)
    c = e.connect(0)
    c.send(q, "bad")
    r = c.receiver(q)
    dead_letter(r, r.one()[1], "why")
    m, d = e.connect(1).receiver(graves).one()
    equal((m.body, m.annotations[symbol("x-opt-deadletter-source")].lower()), ("bad", q.lower()), "the dead letter")


class Transaction(TransactionHandler):
    """A transaction of a connection, waited for."""

    def __init__(self, connection, settle=False):
        super().__init__()
        self.c, self.now, self.ended = connection, None, ""
        connection.b.container.declare_transaction(
            connection.b.conn, handler=self, settle_before_discharge=settle)
        connection.until(lambda: self.now or self.ended, "a transaction")
        check(self.now is not None, "no transaction was declared")

    def on_transaction_declared(self, event):
        self.now = event.transaction

    def on_transaction_committed(self, event):
        self.ended = "committed"

    def on_transaction_aborted(self, event):
        self.ended = "aborted"

    def on_transaction_declare_failed(self, event):
        self.ended = "declare failed"

    def on_transaction_commit_failed(self, event):
        self.ended = "commit failed"

    def send(self, sender, body):
        d = self.now.send(sender.link, Message(body=body))
        self.c.until(lambda: d.remote_state, "the send is answered")

    def end(self, commit=True):
        (self.now.commit if commit else self.now.abort)()
        self.c.until(lambda: self.ended, "the end of the transaction")
        return self.ended


def filled(e, *names, **options):
    q = e.queue(**options)
    e.connect(0).send(q, *names)
    return q


def transaction_commit(e):
    q = filled(e, "in")
    c, other = e.connect(1), e.connect(0)
    m, d = c.receiver(q).one()
    s = c.sender(q)
    tx = Transaction(c)
    tx.send(s, "out-1")
    tx.send(s, "out-2")
    tx.now.accept(d)
    c.flush()
    equal([m.body for m in peeked(other, q)], ["in"], "before the commit there is")
    equal(tx.end(), "committed", "the transaction")
    equal([m.body for m in peeked(other, q)], ["out-1", "out-2"], "after it there is")


def transaction_rollback(e):
    q = filled(e, "in", LockDuration="PT5M")
    c = e.connect(1)
    r = c.receiver(q)
    m, d = r.one()
    tx = Transaction(c)
    tx.send(c.sender(q), "out")
    tx.now.accept(d)
    equal(tx.end(commit=False), "aborted", "the transaction")
    m, d = r.one()  # at once: the library releases what the rollback has left unsettled
    equal((m.body, m.delivery_count), ("in", 0), "again")
    equal([m.body for m in peeked(c, q)], ["in"], "left")
    r.accept(d)
    q = filled(e, "in", LockDuration="PT5M")
    r = c.receiver(q)
    m, d = r.one()
    tx = Transaction(c, settle=True)
    tx.now.accept(d)
    equal(tx.end(commit=False), "aborted", "the transaction")
    m, d = r.one()  # at once: who has settled it cannot settle it again
    equal((m.body, m.delivery_count), ("in", 1), "again")


def transaction_cross_entity(e):
    q, one, two = filled(e, "in"), e.queue(), e.queue()
    c, other = e.connect(1), e.connect(0)
    m, d = c.receiver(q).one()
    tx = Transaction(c)
    tx.send(c.sender(one), "to-one")
    tx.send(c.sender(two), "to-two")
    tx.now.accept(d)
    c.flush()
    equal(peeked(other, one), [], "before the commit there is")
    equal(tx.end(), "committed", "the transaction")
    equal([other.receiver(x).one()[0].body for x in (one, two)], ["to-one", "to-two"], "sent")
    equal(peeked(other, q), [], "left")


SCENARIOS = {f.__name__.replace("_", "-"): f for f in (
    topic_fan_out, topic_sql, topic_correlation, topic_action, topic_rules_live, topic_dead_letter, topic_receive,
    forward, forward_topic, forward_dead_letters, transaction_commit, transaction_rollback,
    transaction_cross_entity)}
