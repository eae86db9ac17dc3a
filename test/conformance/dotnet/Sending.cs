using Azure.Core.Amqp;
using Azure.Messaging.ServiceBus;
using static Busbar.Env;
using static Busbar.Scene;

namespace Busbar;

public static class Sending
{
    [Scenario("send-one")]
    public static async Task One(Env e)
    {
        var q = await e.QueueAsync();
        await e.SendAsync(q, new ServiceBusMessage("hello"));
        var r = e.Receiver(q);
        var m = await OneAsync(r);
        Equal(Text(m), "hello", "body");
        await r.CompleteMessageAsync(m);
        await NoneAsync(r);
    }

    [Scenario("send-properties")]
    public static async Task Properties(Env e)
    {
        var q = await e.QueueAsync();
        var properties = new Dictionary<string, object>
        {
            ["s"] = "ü", ["i"] = -5, ["l"] = 1L << 40, ["d"] = 1.5, ["b"] = true, ["m"] = 1.25m, ["c"] = 'c',
            ["g"] = Guid.NewGuid(), ["t"] = new DateTimeOffset(2020, 2, 3, 4, 5, 6, TimeSpan.Zero),
            ["span"] = TimeSpan.FromSeconds(90), ["u"] = new Uri("urn:x"),
        };
        var sent = new ServiceBusMessage("x")
        {
            ContentType = "text/plain", CorrelationId = "corr", MessageId = "mid-1", Subject = "subj", To = "to",
            ReplyTo = "rt", ReplyToSessionId = "rts", SessionId = "only data", PartitionKey = "only data",
            TimeToLive = TimeSpan.FromSeconds(90),
        };
        foreach (var (key, value) in properties)
        {
            sent.ApplicationProperties[key] = value;
        }
        await e.SendAsync(q, sent);
        var m = await OneAsync(e.Receiver(q));
        EqualAll(
            [m.ContentType, m.CorrelationId, m.MessageId, m.Subject, m.To, m.ReplyTo, m.ReplyToSessionId, m.SessionId,
                m.PartitionKey],
            ["text/plain", "corr", "mid-1", "subj", "to", "rt", "rts", "only data", "only data"], "properties");
        foreach (var (key, value) in properties)
        {
            Equal(m.ApplicationProperties[key], value, key);
        }
        Equal(m.TimeToLive, TimeSpan.FromSeconds(90), "time to live");
        // The library has written the end of its life by the clock of the sender.
        Check(m.ExpiresAt > m.EnqueuedTime.AddSeconds(60), $"came at {m.EnqueuedTime} and ends at {m.ExpiresAt}");
    }

    [Scenario("send-body-kinds")]
    public static async Task BodyKinds(Env e)
    {
        var q = await e.QueueAsync();
        byte[] bytes = [0, 1, 254, 255];
        foreach (var body in new[]
        {
            AmqpMessageBody.FromValue("a value"),
            AmqpMessageBody.FromSequence([["a", 1, true]]),
            AmqpMessageBody.FromData([bytes]),
        })
        {
            var m = new ServiceBusMessage();
            m.GetRawAmqpMessage().Body = body;
            await e.SendAsync(q, m);
        }
        var got = (await TakeAsync(e.InOrder(q), 3)).ConvertAll(x => x.GetRawAmqpMessage().Body);
        Check(got[0].TryGetValue(out var value), "no body of a value");
        Equal(value, "a value", "value");
        Check(got[1].TryGetSequence(out var sequences), "no body of a sequence");
        EqualAll(sequences!.Single(), ["a", 1, true], "sequence");
        Check(got[2].TryGetData(out var data), "no body of bytes");
        EqualAll(data!.Single().ToArray(), bytes, "bytes");
    }

    [Scenario("send-empty")]
    public static async Task Empty(Env e)
    {
        var q = await e.QueueAsync();
        await e.SendAsync(q, new ServiceBusMessage { Subject = "nothing" });
        var m = await OneAsync(e.Receiver(q));
        Equal(m.Body.ToMemory().Length, 0, "bytes");
        Equal(m.Subject, "nothing", "subject");
    }

    [Scenario("send-id")]
    public static async Task Id(Env e)
    {
        var q = await e.QueueAsync();
        foreach (var id in new[] { "order-1", new string('ü', 60), new string('x', 128) })
        {
            await e.SendAsync(q, new ServiceBusMessage(id) { MessageId = id });
        }
        foreach (var m in await TakeAsync(e.Receiver(q), 3))
        {
            Equal(m.MessageId, Text(m), "id");
        }
    }

    [Scenario("send-many")]
    public static async Task Many(Env e)
    {
        var q = await e.QueueAsync();
        var bodies = Receiving.Bodies(50).ToList();
        var s = e.Sender(q);
        foreach (var body in bodies)
        {
            await s.SendMessageAsync(new ServiceBusMessage(body));
        }
        var r = e.InOrder(q);
        var got = await TakeAsync(r, 50);
        EqualAll(Texts(got), bodies, "bodies");
        await CompleteAsync(r, got);
    }

    [Scenario("send-pipelined")]
    public static async Task Pipelined(Env e)
    {
        var q = await e.QueueAsync();
        var s = e.Sender(q);
        await Task.WhenAll(Receiving.Bodies(500).Select(b => s.SendMessageAsync(new ServiceBusMessage(b))));
        var got = await TakeAsync(e.Receiver(q), 500);
        EqualAll(Texts(got).Order(), Receiving.Bodies(500).Order(), "bodies");
    }

    [Scenario("send-batch")]
    public static async Task Batch(Env e)
    {
        var q = await e.QueueAsync();
        var s = e.Sender(q);
        using var batch = await s.CreateMessageBatchAsync();
        while (batch.Count < 200 && batch.TryAddMessage(new ServiceBusMessage($"{batch.Count}:{new string('x', 16 << 10)}")))
        {
        }
        Check(batch.Count is > 50 and < 70, $"{batch.Count} messages of 16 KiB fit, want what a limit of 1 MiB holds");
        await s.SendMessagesAsync(batch);
        var r = e.InOrder(q);
        var got = await TakeAsync(r, batch.Count);
        EqualAll(Texts(got).Select(t => t.Split(':')[0]), Enumerable.Range(0, got.Count).Select(i => $"{i}"), "numbers");
        await CompleteAsync(r, got);
        using var small = await s.CreateMessageBatchAsync(new CreateMessageBatchOptions { MaxSizeInBytes = 1000 });
        Check(!small.TryAddMessage(new ServiceBusMessage(new string('y', 2000))), "2000 bytes fit into 1000");
    }

    [Scenario("send-large")]
    public static async Task Large(Env e)
    {
        var q = await e.QueueAsync();
        var body = Enumerable.Range(0, 900 << 10).Select(i => (byte)(i * 7)).ToArray();
        await e.SendAsync(q, new ServiceBusMessage(body));
        var r = e.Receiver(q);
        var m = await OneAsync(r);
        Check(m.Body.ToMemory().Span.SequenceEqual(body), "the body came back changed");
        await r.CompleteMessageAsync(m);
    }

    [Scenario("send-too-large")]
    public static async Task TooLarge(Env e)
    {
        var q = await e.QueueAsync();
        var s = e.Sender(q);
        await FailsAsync(ServiceBusFailureReason.MessageSizeExceeded,
            () => s.SendMessageAsync(new ServiceBusMessage(new byte[2 << 20])));
        await s.SendMessageAsync(new ServiceBusMessage("small"));
        var m = await OneAsync(e.Receiver(q));
        Equal($"{Text(m)} {m.SequenceNumber}", "small 1", "arrived");
    }

    [Scenario("send-missing")]
    public static Task Missing(Env e) => FailsAsync(ServiceBusFailureReason.MessagingEntityNotFound,
        () => e.Sender(e.Name()).SendMessageAsync(new ServiceBusMessage("x")));

    [Scenario("send-partitioned")]
    public static async Task Partitioned(Env e)
    {
        var q = await e.QueueAsync(o => o.EnablePartitioning = true);
        var s = e.Sender(q);
        const int n = 60;
        for (var i = 0; i < n; i++)
        {
            await s.SendMessageAsync(new ServiceBusMessage($"{i}") { PartitionKey = $"key-{i % 12}" });
        }
        var r = e.InOrder(q);
        var numbers = new HashSet<long>();
        var last = new Dictionary<string, int>();
        foreach (var m in await TakeAsync(r, n))
        {
            Check(m.SequenceNumber >> 48 > 0, "a number without partition");
            numbers.Add(m.SequenceNumber);
            var i = int.Parse(Text(m));
            Check(last.GetValueOrDefault(m.PartitionKey, -1) < i, $"{i} is out of order");
            last[m.PartitionKey] = i;
            await r.CompleteMessageAsync(m);
        }
        Equal(numbers.Count, n, "numbers");
        await NoneAsync(r);
    }

    [Scenario("schedule")]
    public static async Task Schedule(Env e)
    {
        var q = await e.QueueAsync();
        var at = Seconds(4);
        await e.Sender(q).ScheduleMessageAsync(new ServiceBusMessage("later"), at);
        var r = e.Receiver(q);
        var m = await OneAsync(r);
        OnTime(at);
        Equal(m.ScheduledEnqueueTime.ToUnixTimeMilliseconds(), at.ToUnixTimeMilliseconds(), "time");
        await r.CompleteMessageAsync(m);
    }

    [Scenario("schedule-many")]
    public static async Task ScheduleMany(Env e)
    {
        var q = await e.QueueAsync();
        var numbers = await e.Sender(q).ScheduleMessagesAsync(
            [new ServiceBusMessage("a"), new ServiceBusMessage("b"), new ServiceBusMessage("c")],
            DateTimeOffset.UtcNow.AddSeconds(2));
        Equal(numbers.Distinct().Count(), 3, "numbers");
        var r = e.Receiver(q);
        var got = await TakeAsync(r, 3);
        EqualAll(Texts(got).Order(), ["a", "b", "c"], "bodies");
        await CompleteAsync(r, got);
    }

    [Scenario("schedule-property")]
    public static async Task ScheduleProperty(Env e)
    {
        var q = await e.QueueAsync();
        var at = Seconds(3);
        await e.SendAsync(q, new ServiceBusMessage("later") { ScheduledEnqueueTime = at });
        var m = await OneAsync(e.Receiver(q));
        OnTime(at);
        Equal(Text(m), "later", "body");
    }

    [Scenario("schedule-cancel")]
    public static async Task ScheduleCancel(Env e)
    {
        var q = await e.QueueAsync();
        var s = e.Sender(q);
        var numbers = await s.ScheduleMessagesAsync(
            [new ServiceBusMessage("a"), new ServiceBusMessage("b"), new ServiceBusMessage("keep")],
            DateTimeOffset.UtcNow.AddSeconds(12));
        await s.CancelScheduledMessagesAsync(numbers.Take(2));
        var r = e.Receiver(q);
        var m = await OneAsync(r);
        Equal(Text(m), "keep", "body");
        await r.CompleteMessageAsync(m);
        await NoneAsync(r);
    }

    [Scenario("schedule-cancel-missing")]
    public static async Task ScheduleCancelMissing(Env e)
    {
        var q = await e.QueueAsync();
        var s = e.Sender(q);
        var number = await s.ScheduleMessageAsync(new ServiceBusMessage("x"), DateTimeOffset.UtcNow.AddMinutes(1));
        await s.CancelScheduledMessageAsync(number);
        await FailsAsync(ServiceBusFailureReason.MessageNotFound, () => s.CancelScheduledMessageAsync(number));
        await s.SendMessageAsync(new ServiceBusMessage("the link goes on"));
    }

    [Scenario("ttl-dropped")]
    public static async Task TtlDropped(Env e)
    {
        var q = await e.QueueAsync();
        await e.SendAsync(q, new ServiceBusMessage("short") { TimeToLive = TimeSpan.FromSeconds(1) },
            new ServiceBusMessage("long"));
        await Task.Delay(1500); // its life
        var r = e.Receiver(q);
        var m = await OneAsync(r);
        Equal(Text(m), "long", "body");
        await r.CompleteMessageAsync(m);
        await NoneAsync(r);
        await NoneAsync(e.DeadLetters(q));
    }

    [Scenario("ttl-dead-letter")]
    public static async Task TtlDeadLetter(Env e)
    {
        var q = await e.QueueAsync(o => o.DeadLetteringOnMessageExpiration = true);
        await e.SendAsync(q, new ServiceBusMessage("short") { TimeToLive = TimeSpan.FromSeconds(1) });
        Equal((await OneAsync(e.DeadLetters(q))).DeadLetterReason, "TTLExpiredException", "reason");
    }

    [Scenario("ttl-default")]
    public static async Task TtlDefault(Env e)
    {
        var q = await e.QueueAsync(o => o.DefaultMessageTimeToLive = TimeSpan.FromSeconds(2));
        await e.SendAsync(q, new ServiceBusMessage("a"), new ServiceBusMessage("b") { TimeToLive = TimeSpan.FromHours(1) });
        await Task.Delay(2500); // their life
        await NoneAsync(e.Receiver(q));
    }

    private static ServiceBusMessage Named(string body, string id) => new(body) { MessageId = id };

    [Scenario("duplicate-dropped")]
    public static async Task DuplicateDropped(Env e)
    {
        var q = await e.QueueAsync(o =>
        {
            o.RequiresDuplicateDetection = true;
            o.DuplicateDetectionHistoryTimeWindow = TimeSpan.FromMinutes(1);
        });
        await e.SendAsync(q, Named("first", "same"));
        await e.Sender(q, 1).SendMessageAsync(Named("second", "same"));
        await e.SendAsync(q, Named("other", "other"));
        var r = e.Receiver(q);
        var got = await TakeAsync(r, 2);
        EqualAll(Texts(got).Order(), ["first", "other"], "bodies");
        await CompleteAsync(r, got);
        await e.Sender(q, 1).SendMessageAsync(Named("third", "same"));
        await NoneAsync(r);
    }

    [Scenario("duplicate-batch")]
    public static async Task DuplicateBatch(Env e)
    {
        var q = await e.QueueAsync(o => o.RequiresDuplicateDetection = true);
        await e.SendAsync(q, Named("a0", "a"), Named("b1", "b"), Named("a2", "a"), Named("c3", "c"));
        EqualAll(Texts(await TakeAsync(e.Receiver(q), 3)).Order(), ["a0", "b1", "c3"], "bodies");
    }
}
