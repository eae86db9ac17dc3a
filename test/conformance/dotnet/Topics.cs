using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;
using static Busbar.Env;
using static Busbar.Scene;

namespace Busbar;

/// <summary>Topics, subscriptions, rules and forwarding.</summary>
public static class Topics
{
    private const string Choice = "price > 10 AND colour IN ('red','blue')";
    private const string Change = "SET marked = TRUE; REMOVE colour";

    private static ServiceBusReceiver Receiver(Env e, string topic, string name = "s", int i = 1) =>
        e.Client(i).CreateReceiver(topic, name);

    private static ServiceBusMessage With(string body, params (string Key, object Value)[] properties)
    {
        var m = new ServiceBusMessage(body);
        foreach (var (key, value) in properties)
        {
            m.ApplicationProperties[key] = value;
        }
        return m;
    }

    /// <summary>The bodies that reached the subscription.</summary>
    private static async Task<List<string>> ChosenAsync(Env e, string topic, string name)
    {
        var r = Receiver(e, topic, name);
        var got = new List<string>();
        while (true)
        {
            var batch = await r.ReceiveMessagesAsync(10, got.Count == 0 ? TimeSpan.FromSeconds(5) : Quiet);
            if (batch.Count == 0)
            {
                return got;
            }
            got.AddRange(Texts(batch));
            await CompleteAsync(r, batch);
        }
    }

    /// <summary>A topic with a subscription for each rule, which is its only one.</summary>
    private static async Task<string> FilteredAsync(Env e, params (string Name, CreateRuleOptions Rule)[] subscriptions)
    {
        var t = await e.TopicAsync();
        foreach (var (name, rule) in subscriptions)
        {
            await e.Admin().CreateSubscriptionAsync(new CreateSubscriptionOptions(t, name), rule);
        }
        return t;
    }

    private static CreateRuleOptions Rule(RuleFilter filter, string? action = null) =>
        new("only", filter) { Action = action is null ? null : new SqlRuleAction(action) };

    private static CreateRuleOptions Sql(string expression, string? action = null) => Rule(new SqlRuleFilter(expression), action);

    private static CorrelationRuleFilter Correlation() => new()
    {
        Subject = "l", CorrelationId = "c", ContentType = "ct", ApplicationProperties = { ["kind"] = "a", ["n"] = 5 },
    };

    private static async Task<List<string>> NamesAsync(IAsyncEnumerable<RuleProperties> rules)
    {
        var all = new List<string>();
        await foreach (var rule in rules)
        {
            all.Add(rule.Name);
        }
        return [.. all.Order(StringComparer.Ordinal)];
    }

    [Scenario("topic-admin")]
    public static async Task Admin(Env e)
    {
        var (a, name) = (e.Admin(), e.Name("t"));
        TopicProperties made = await a.CreateTopicAsync(
            new CreateTopicOptions(name) { UserMetadata = "note", DefaultMessageTimeToLive = TimeSpan.FromHours(2) });
        Equal($"{made.Name} {made.UserMetadata}", $"{name} note", "made");
        TopicProperties read = await e.Admin(1).GetTopicAsync(name);
        Equal(read.DefaultMessageTimeToLive, TimeSpan.FromHours(2), "time to live");
        read.UserMetadata = "changed";
        Equal((await a.UpdateTopicAsync(read)).Value.UserMetadata, "changed", "updated");
        await FailsAsync(ServiceBusFailureReason.MessagingEntityAlreadyExists, () => a.CreateTopicAsync(name));
        await FailsAsync(ServiceBusFailureReason.MessagingEntityAlreadyExists, () => a.CreateQueueAsync(name));
        await UntilAsync("the topic is listed", async () =>
        {
            await foreach (var t in a.GetTopicsAsync())
            {
                if (t.Name == name)
                {
                    return true;
                }
            }
            return false;
        });
        Check(await a.TopicExistsAsync(name), "it does not exist");
        await a.DeleteTopicAsync(name);
        Check(!await a.TopicExistsAsync(name), "it is still there");
    }

    [Scenario("subscription-admin")]
    public static async Task SubscriptionAdmin(Env e)
    {
        var (t, a) = (await e.TopicAsync(), e.Admin());
        SubscriptionProperties made = await a.CreateSubscriptionAsync(
            new CreateSubscriptionOptions(t, "one") { LockDuration = TimeSpan.FromSeconds(45), MaxDeliveryCount = 7 });
        Equal($"{made.SubscriptionName} {made.TopicName} {made.LockDuration} {made.MaxDeliveryCount}", $"one {t} 00:00:45 7", "made");
        await a.CreateSubscriptionAsync(t, "two");
        SubscriptionProperties read = await e.Admin(1).GetSubscriptionAsync(t, "one");
        read.UserMetadata = "changed";
        Equal((await a.UpdateSubscriptionAsync(read)).Value.UserMetadata, "changed", "updated");
        var names = new List<string>();
        await foreach (var s in a.GetSubscriptionsAsync(t))
        {
            names.Add(s.SubscriptionName);
        }
        EqualAll(names, ["one", "two"], "listed");
        Equal((await a.GetTopicRuntimePropertiesAsync(t)).Value.SubscriptionCount, 2, "subscriptions");
        await FailsAsync(ServiceBusFailureReason.MessagingEntityAlreadyExists, () => a.CreateSubscriptionAsync(t, "one"));
        await a.DeleteSubscriptionAsync(t, "one");
        Check(!await a.SubscriptionExistsAsync(t, "one"), "it is still there");
    }

    [Scenario("rule-admin")]
    public static async Task RuleAdmin(Env e)
    {
        var (t, a) = (await e.TopicAsync(), e.Admin());
        await a.CreateSubscriptionAsync(t, "s");
        Equal((await a.GetRuleAsync(t, "s", "$Default")).Value.Filter, new TrueRuleFilter(), "the default rule's filter");
        await a.CreateRuleAsync(t, "s", new CreateRuleOptions("sql", new SqlRuleFilter(Choice)) { Action = new SqlRuleAction(Change) });
        await a.CreateRuleAsync(t, "s", new CreateRuleOptions("corr", Correlation()));
        await a.CreateRuleAsync(t, "s", new CreateRuleOptions("none", new FalseRuleFilter()));
        RuleProperties read = await e.Admin(1).GetRuleAsync(t, "s", "sql");
        Equal(((SqlRuleFilter)read.Filter).SqlExpression, Choice, "filter");
        Equal(((SqlRuleAction)read.Action).SqlExpression, Change, "action");
        Equal((await e.Admin(1).GetRuleAsync(t, "s", "corr")).Value.Filter, Correlation(), "correlation filter");
        read.Filter = new SqlRuleFilter("price > 20");
        Equal(((SqlRuleFilter)(await a.UpdateRuleAsync(t, "s", read)).Value.Filter).SqlExpression, "price > 20", "updated");
        EqualAll(await NamesAsync(a.GetRulesAsync(t, "s")), ["$Default", "corr", "none", "sql"], "listed");
        await a.DeleteRuleAsync(t, "s", "$Default");
        await FailsAsync(ServiceBusFailureReason.MessagingEntityNotFound, () => a.GetRuleAsync(t, "s", "$Default"));
    }

    [Scenario("topic-rules-live")]
    public static async Task RulesLive(Env e)
    {
        var t = await e.TopicAsync();
        await e.Admin().CreateSubscriptionAsync(t, "s");
        await using var rules = e.Client().CreateRuleManager(t, "s");
        EqualAll(await NamesAsync(rules.GetRulesAsync()), ["$Default"], "listed");
        await rules.CreateRuleAsync(new CreateRuleOptions("red", new SqlRuleFilter("colour = 'red'"))
        {
            Action = new SqlRuleAction("SET seen = TRUE"),
        });
        await rules.CreateRuleAsync("corr", Correlation());
        await rules.DeleteRuleAsync("$Default");
        EqualAll(await NamesAsync(rules.GetRulesAsync()), ["corr", "red"], "listed");
        await FailsAsync(ServiceBusFailureReason.MessagingEntityAlreadyExists,
            () => rules.CreateRuleAsync("red", new TrueRuleFilter()));
        await FailsAsync(ServiceBusFailureReason.MessagingEntityNotFound, () => rules.DeleteRuleAsync("nobody"));
        await UntilAsync("the rules are in force", async () =>
        {
            await e.SendAsync(t, new ServiceBusMessage("plain"), With("red", ("colour", "red")));
            return !(await ChosenAsync(e, t, "s")).Contains("plain");
        });
    }

    [Scenario("topic-fan-out")]
    public static async Task FanOut(Env e)
    {
        var t = await e.TopicAsync();
        string[] names = ["a", "b", "c"];
        foreach (var name in names)
        {
            await e.Admin().CreateSubscriptionAsync(t, name);
        }
        await e.SendAsync(t, [.. Receiving.Bodies(3).Select(b => new ServiceBusMessage(b))]);
        foreach (var (i, name) in names.Index())
        {
            var r = Receiver(e, t, name, i);
            var got = await TakeAsync(r, 3);
            EqualAll(Texts(got).Order(), Receiving.Bodies(3), name);
            await CompleteAsync(r, got);
            await NoneAsync(r);
        }
    }

    [Scenario("topic-sql")]
    public static async Task SqlFilters(Env e)
    {
        var t = await FilteredAsync(e, ("dear", Sql("price > 10")), ("red", Sql("colour = 'red' OR sys.Label LIKE 'r%'")),
            ("exact", Sql("price = 20.5")), ("bare", Sql("price IS NULL")), ("nothing", Rule(new FalseRuleFilter())));
        var rose = With("c", ("price", 20.5m)); // a decimal is a number
        rose.Subject = "rose";
        await e.SendAsync(t, With("a", ("price", 5), ("colour", "red")), With("b", ("price", 15), ("colour", "blue")), rose,
            new ServiceBusMessage("d"));
        foreach (var (name, want) in new (string, string[])[]
        {
            ("dear", ["b", "c"]), ("red", ["a", "c"]), ("exact", ["c"]), ("bare", ["d"]), ("nothing", []),
        })
        {
            EqualAll((await ChosenAsync(e, t, name)).Order(), want, name);
        }
    }

    [Scenario("topic-correlation")]
    public static async Task CorrelationFilters(Env e)
    {
        var t = await FilteredAsync(e, ("label", Rule(new CorrelationRuleFilter { Subject = "l" })), ("both", Rule(
            new CorrelationRuleFilter { CorrelationId = "c", ApplicationProperties = { ["kind"] = "a" } })));
        var both = With("c", ("kind", "a"));
        both.CorrelationId = "c";
        await e.SendAsync(t, new ServiceBusMessage("a") { Subject = "l" }, new ServiceBusMessage("b") { CorrelationId = "c" }, both);
        EqualAll(await ChosenAsync(e, t, "label"), ["a"], "label");
        EqualAll(await ChosenAsync(e, t, "both"), ["c"], "both");
    }

    [Scenario("topic-action")]
    public static async Task Action(Env e)
    {
        var t = await FilteredAsync(e,
            ("changed", Sql("1=1", "SET total = price * 2; SET sys.Label = 'marked'; REMOVE secret")));
        await e.SendAsync(t, With("x", ("price", 21), ("secret", "s")));
        var m = await OneAsync(Receiver(e, t, "changed"));
        Equal(Convert.ToInt64(m.ApplicationProperties["total"]), 42, "total");
        Equal($"{m.Subject} {m.ApplicationProperties.ContainsKey("secret")}", "marked False", "label and secret");
    }

    [Scenario("topic-dead-letter")]
    public static async Task DeadLetter(Env e)
    {
        var t = await e.TopicAsync();
        await e.Admin().CreateSubscriptionAsync(t, "s");
        await e.SendAsync(t, new ServiceBusMessage("bad"));
        var r = Receiver(e, t);
        await r.DeadLetterMessageAsync(await OneAsync(r), "why");
        var d = e.Client().CreateReceiver(t, "s", new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
        var m = await OneAsync(d);
        Equal($"{Text(m)} {m.DeadLetterReason}", "bad why", "the dead letter");
        await d.CompleteMessageAsync(m);
    }

    [Scenario("topic-sessions")]
    public static async Task Sessions(Env e)
    {
        var t = await e.TopicAsync();
        await e.Admin().CreateSubscriptionAsync(new CreateSubscriptionOptions(t, "s") { RequiresSession = true });
        foreach (var s in new[] { "A", "B" })
        {
            await e.SendAsync(t, [.. Enumerable.Range(0, 3).Select(i => In(s, $"{s}{i}"))]);
        }
        var held = new List<string>();
        for (var i = 0; i < 2; i++)
        {
            var r = await e.Client(i).AcceptNextSessionAsync(t, "s");
            var got = await TakeAsync(r, 3);
            EqualAll(Texts(got), Enumerable.Range(0, 3).Select(k => $"{r.SessionId}{k}"), "in order");
            await CompleteAsync(r, got);
            held.Add(r.SessionId);
        }
        EqualAll(held.Order(), ["A", "B"], "held");
    }

    [Scenario("topic-schedule")]
    public static async Task Schedule(Env e)
    {
        var t = await e.TopicAsync();
        await e.Admin().CreateSubscriptionAsync(t, "s");
        var s = e.Sender(t);
        var at = Seconds(12);
        await s.ScheduleMessageAsync(new ServiceBusMessage("keep"), at);
        await s.CancelScheduledMessageAsync(await s.ScheduleMessageAsync(new ServiceBusMessage("drop"), at));
        var r = Receiver(e, t);
        var m = await OneAsync(r);
        OnTime(at);
        Equal(Text(m), "keep", "body");
        await r.CompleteMessageAsync(m);
        await NoneAsync(r);
    }

    [Scenario("topic-receive")]
    public static async Task Receive(Env e)
    {
        var t = await e.TopicAsync();
        await FailsAsync<Exception>(() => e.Receiver(t).ReceiveMessageAsync(TimeSpan.FromSeconds(5)));
    }

    [Scenario("topic-counts")]
    public static async Task Counts(Env e)
    {
        var t = await e.TopicAsync();
        await e.Admin().CreateSubscriptionAsync(t, "s");
        await e.SendAsync(t, [.. Receiving.Bodies(3).Select(b => new ServiceBusMessage(b))]);
        var r = Receiver(e, t);
        await r.DeadLetterMessageAsync(await OneAsync(r));
        await UntilAsync("the counts", async () =>
        {
            SubscriptionRuntimeProperties p = await e.Admin(1).GetSubscriptionRuntimePropertiesAsync(t, "s");
            return (p.ActiveMessageCount, p.DeadLetterMessageCount, p.TotalMessageCount) == (2, 1, 3);
        });
    }

    [Scenario("forward")]
    public static async Task Forward(Env e)
    {
        var last = await e.QueueAsync();
        var second = await e.QueueAsync(o => o.ForwardTo = last);
        var first = await e.QueueAsync(o => o.ForwardTo = second);
        var sent = With("x", ("k", "v"));
        sent.MessageId = "the-id";
        await e.SendAsync(first, sent);
        var r = e.Receiver(last);
        var m = await OneAsync(r);
        Equal($"{Text(m)} {m.MessageId} {m.DeliveryCount} {m.ApplicationProperties["k"]}", "x the-id 1 v",
            "what was forwarded twice");
        await r.CompleteMessageAsync(m);
        await FailsAsync<InvalidOperationException>(() => e.Receiver(first).ReceiveMessageAsync(TimeSpan.FromSeconds(5)));
    }

    [Scenario("forward-topic")]
    public static async Task ForwardTopic(Env e)
    {
        var (q, t) = (await e.QueueAsync(), await e.TopicAsync());
        await e.Admin().CreateSubscriptionAsync(new CreateSubscriptionOptions(t, "s") { ForwardTo = q });
        await e.SendAsync(t, new ServiceBusMessage("a"), new ServiceBusMessage("b"));
        EqualAll(Texts(await TakeAsync(e.Receiver(q), 2)).Order(), ["a", "b"], "forwarded");
    }

    [Scenario("forward-dead-letters")]
    public static async Task ForwardDeadLetters(Env e)
    {
        var graves = await e.QueueAsync();
        var q = await e.QueueAsync(o => o.ForwardDeadLetteredMessagesTo = graves);
        await e.SendAsync(q, new ServiceBusMessage("bad"));
        var r = e.Receiver(q);
        await r.DeadLetterMessageAsync(await OneAsync(r), "why");
        var d = e.Receiver(graves, 0);
        var m = await OneAsync(d);
        Equal($"{Text(m)} {m.DeadLetterReason} {m.DeadLetterSource.ToLowerInvariant()}", $"bad why {q.ToLowerInvariant()}",
            "the dead letter");
        await d.CompleteMessageAsync(m);
    }
}
