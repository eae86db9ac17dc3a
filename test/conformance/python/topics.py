from datetime import timedelta

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import (CorrelationRuleFilter, FalseRuleFilter, SqlRuleAction, SqlRuleFilter,
                                         TrueRuleFilter)

from env import check, equal, message, on_time, seconds, skip, text, texts, until


async def subscription(e, topic, name="s", **options):
    await e.do(e.admin().create_subscription, topic, name, **options)
    return name


async def send(e, topic, *messages):
    s = e.client(0).get_topic_sender(topic)
    await e.do(s.send_messages, list(messages))
    await e.do(s.close)


def receiver(e, topic, name="s", node=1, **kw):
    return e.client(node).get_subscription_receiver(topic, name, **kw)


async def chosen(e, topic, name):
    """The bodies that reached the subscription."""
    r = receiver(e, topic, name)
    got = []
    while True:
        batch = await e.receive(r, 10, 2 if got else 10)
        if not batch:
            return got
        got += texts(batch)
        await e.complete(r, *batch)


async def topic_admin(e):
    a, name = e.admin(0), e.name("t")
    made = await e.do(a.create_topic, name, user_metadata="note", default_message_time_to_live=timedelta(hours=2))
    equal((made.name, made.user_metadata), (name, "note"))
    read = await e.do(e.admin(1).get_topic, name)
    equal(read.default_message_time_to_live, timedelta(hours=2), "time to live")
    read.user_metadata = "changed"
    await e.do(a.update_topic, read)
    equal((await e.do(e.admin(1).get_topic, name)).user_metadata, "changed")
    await e.fails(ResourceExistsError, a.create_topic, name)
    await e.fails(ResourceExistsError, a.create_queue, name)

    async def listed():
        return name in [t.name for t in await e.each(e.admin().list_topics())]
    await until("the topic is listed", listed)
    await e.do(a.delete_topic, name)
    await e.fails(ResourceNotFoundError, a.get_topic, name)


async def subscription_admin(e):
    t, a = await e.topic(), e.admin(0)
    made = await e.do(a.create_subscription, t, "one", lock_duration=timedelta(seconds=45), max_delivery_count=7,
                      dead_lettering_on_filter_evaluation_exceptions=False)
    equal((made.name, made.lock_duration, made.max_delivery_count), ("one", timedelta(seconds=45), 7))
    await e.do(a.create_subscription, t, "two")
    read = await e.do(e.admin(1).get_subscription, t, "one")
    read.user_metadata = "changed"
    await e.do(a.update_subscription, t, read)
    equal((await e.do(e.admin(1).get_subscription, t, "one")).user_metadata, "changed")
    equal([s.name for s in await e.each(a.list_subscriptions(t))], ["one", "two"])
    equal((await e.do(a.get_topic_runtime_properties, t)).subscription_count, 2, "subscriptions")
    await e.fails(ResourceExistsError, a.create_subscription, t, "one")
    await e.do(a.delete_subscription, t, "one")
    await e.fails(ResourceNotFoundError, a.get_subscription, t, "one")


async def rule_admin(e):
    t, a = await e.topic(), e.admin(0)
    await subscription(e, t)
    default, = await e.each(a.list_rules(t, "s"))
    equal((default.name, type(default.filter)), ("$Default", TrueRuleFilter))
    await e.do(a.create_rule, t, "s", "sql", filter=SqlRuleFilter("price > 10 AND colour IN ('red','blue')"),
               action=SqlRuleAction("SET marked = TRUE; REMOVE colour"))
    await e.do(a.create_rule, t, "s", "corr", filter=CorrelationRuleFilter(
        label="l", correlation_id="c", content_type="ct", properties={"kind": "a", "n": 5}))
    await e.do(a.create_rule, t, "s", "none", filter=FalseRuleFilter())
    sql = await e.do(e.admin(1).get_rule, t, "s", "sql")
    equal((sql.filter.sql_expression, sql.action.sql_expression),
          ("price > 10 AND colour IN ('red','blue')", "SET marked = TRUE; REMOVE colour"))
    corr = await e.do(e.admin(1).get_rule, t, "s", "corr")
    equal((corr.filter.label, corr.filter.correlation_id, corr.filter.content_type), ("l", "c", "ct"))
    equal({k: v for k, v in corr.filter.properties.items()}, {"kind": "a", "n": 5}, "properties")
    sql.filter = SqlRuleFilter("price > 20")
    await e.do(a.update_rule, t, "s", sql)
    equal((await e.do(a.get_rule, t, "s", "sql")).filter.sql_expression, "price > 20")
    equal(sorted(r.name for r in await e.each(a.list_rules(t, "s"))), ["$Default", "corr", "none", "sql"])
    await e.do(a.delete_rule, t, "s", "$Default")
    await e.fails(ResourceNotFoundError, a.get_rule, t, "s", "$Default")


async def topic_fan_out(e):
    t = await e.topic()
    for name in ("a", "b", "c"):
        await subscription(e, t, name)
    await send(e, t, *(message(f"m{i}", application_properties={"i": i}) for i in range(5)))
    for i, name in enumerate(("a", "b", "c")):
        r = receiver(e, t, name, node=i)
        got = await e.take(r, 5)
        equal(texts(got), [f"m{k}" for k in range(5)], name)
        await e.complete(r, *got)
        await e.none(r)


async def filtered(e, **rules):
    t = await e.topic()
    for name, rule in rules.items():
        await subscription(e, t, name)
        await e.do(e.admin().create_rule, t, name, "only", **rule)
        await e.do(e.admin().delete_rule, t, name, "$Default")
    return t


async def topic_sql(e):
    t = await filtered(
        e, dear={"filter": SqlRuleFilter("price > 10")},
        red={"filter": SqlRuleFilter("colour = 'red' OR sys.Label LIKE 'r%'")},
        nothing={"filter": FalseRuleFilter()}, bare={"filter": SqlRuleFilter("price IS NULL")})
    await send(e, t, message("1", application_properties={"price": 5, "colour": "red"}),
               message("2", application_properties={"price": 15, "colour": "blue"}),
               message("3", application_properties={"price": 20.5}, subject="rose"), message("4"))
    equal(await chosen(e, t, "dear"), ["2", "3"], "dear")
    equal(await chosen(e, t, "red"), ["1", "3"], "red")
    equal(await chosen(e, t, "bare"), ["4"], "bare")
    equal(await chosen(e, t, "nothing"), [], "nothing")


async def topic_correlation(e):
    t = await filtered(
        e, label={"filter": CorrelationRuleFilter(label="l")},
        both={"filter": CorrelationRuleFilter(correlation_id="c", properties={"kind": "a"})})
    await send(e, t, message("1", subject="l"), message("2", correlation_id="c"),
               message("3", correlation_id="c", application_properties={"kind": "a"}))
    equal(await chosen(e, t, "label"), ["1"], "label")
    equal(await chosen(e, t, "both"), ["3"], "both")


async def topic_action(e):
    t = await filtered(e, changed={"filter": SqlRuleFilter("1=1"), "action": SqlRuleAction(
        "SET total = price * 2; SET sys.Label = 'marked'; REMOVE secret")})
    await send(e, t, message("x", application_properties={"price": 21, "secret": "s"}))
    m = await e.one(receiver(e, t, "changed"))
    got = {(k.decode() if isinstance(k, bytes) else k): v for k, v in m.application_properties.items()}
    equal((got.get("total"), m.subject, "secret" in got), (42, "marked", False))


async def topic_dead_letter(e):
    t = await e.topic()
    await subscription(e, t)
    await send(e, t, message("bad"))
    r = receiver(e, t)
    await e.do(r.dead_letter_message, await e.one(r), reason="why")
    d = receiver(e, t, sub_queue=ServiceBusSubQueue.DEAD_LETTER, node=0)
    m = await e.one(d)
    equal((text(m), m.dead_letter_reason), ("bad", "why"))
    await e.complete(d, m)


async def topic_sessions(e):
    t = await e.topic()
    await subscription(e, t, requires_session=True)
    await send(e, t, *(message(f"{s}{i}", session_id=s) for i in range(3) for s in "AB"))
    held = []
    for node in (0, 1):
        r = receiver(e, t, node=node, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=20)
        await e.open(r)
        s = r.session.session_id
        got = await e.take(r, 3)
        equal(texts(got), [f"{s}{i}" for i in range(3)])
        await e.complete(r, *got)
        held.append(s)
    equal(sorted(held), ["A", "B"])


async def topic_schedule(e):
    t = await e.topic()
    await subscription(e, t)
    s = e.client(0).get_topic_sender(t)
    at = seconds(12)
    keep, drop = await e.do(s.schedule_messages, [message("keep"), message("drop")], at)
    await e.do(s.cancel_scheduled_messages, drop)
    r = receiver(e, t)
    m = await e.one(r)
    on_time(at)
    equal(text(m), "keep")
    await e.complete(r, m)
    await e.none(r)


async def topic_receive(e):
    t = await e.topic()
    await e.fails(ServiceBusError, e.client(retry_total=0).get_queue_receiver(t).receive_messages,
                  max_wait_time=20)


async def topic_counts(e):
    t = await e.topic()
    await subscription(e, t)
    await send(e, t, message("a"), message("b"), message("c"))
    r = receiver(e, t)
    await e.do(r.dead_letter_message, await e.one(r))

    async def counted():
        p = await e.do(e.admin(1).get_subscription_runtime_properties, t, "s")
        return (p.active_message_count, p.dead_letter_message_count, p.total_message_count) == (2, 1, 3)
    await until("the counts", counted)


async def forward(e):
    last = await e.queue()
    second = await e.queue(forward_to=last)
    first = await e.queue(forward_to=second)
    await e.send(first, message("x", message_id="the-id", application_properties={"k": "v"}))
    r = e.receiver(last)
    m = await e.one(r)
    equal((text(m), m.message_id, m.delivery_count, len(m.application_properties)), ("x", "the-id", 0, 1))
    await e.complete(r, m)
    await e.fails(ServiceBusError, e.client(retry_total=0).get_queue_receiver(first).receive_messages,
                  max_wait_time=20)


async def forward_topic(e):
    q, t = await e.queue(), await e.topic()
    await subscription(e, t, forward_to=q)
    await send(e, t, message("a"), message("b"))
    equal(sorted(texts(await e.take(e.receiver(q), 2))), ["a", "b"])


async def forward_dead_letters(e):
    graves = await e.queue()
    q = await e.queue(forward_dead_lettered_messages_to=graves)
    await e.send(q, message("bad"))
    r = e.receiver(q)
    await e.do(r.dead_letter_message, await e.one(r), reason="why")
    d = e.receiver(graves, node=0)
    m = await e.one(d)
    equal((text(m), m.dead_letter_reason, m.dead_letter_source.lower()), ("bad", "why", q.lower()))
    await e.complete(d, m)


SCENARIOS = {f.__name__.replace("_", "-"): f for f in (
    topic_admin, subscription_admin, rule_admin, topic_fan_out, topic_sql, topic_correlation, topic_action,
    topic_dead_letter, topic_sessions, topic_schedule, topic_receive, topic_counts, forward, forward_topic,
    forward_dead_letters)}
SCENARIOS["topic-rules-live"] = skip("the library changes rules over the management API only")
SCENARIOS.update({f"transaction-{kind}": skip("the library has no transactions")
                  for kind in ("commit", "rollback", "schedule", "settle", "session", "cross-entity")})
