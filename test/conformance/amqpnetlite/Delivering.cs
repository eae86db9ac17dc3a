using Amqp;
using Amqp.Framing;
using Amqp.Types;
using static Busbar.Env;
using static Busbar.Scene;

namespace Busbar;

/// <summary>Credit, the outcomes of deliveries, and what messages hold.</summary>
public static class Delivering
{
    [Scenario("send-one")]
    public static async Task One(Env e)
    {
        var q = await e.QueueAsync();
        await SendAsync(await e.SessionAsync(), q, new Message("hello") { Header = new Header { Durable = true, Priority = 7 } });
        var r = Receiver(await e.SessionAsync(1), q);
        var m = await OneAsync(r);
        Equal($"{m.Body} {m.Header.Priority}", "hello 7", "arrived");
        r.Accept(m);
    }

    [Scenario("send-many")]
    public static async Task Many(Env e)
    {
        string[] bodies = ["a", "b", "c", "d", "e"];
        var q = await e.FilledAsync(bodies);
        EqualAll(Texts(await TakeAsync(Receiver(await e.SessionAsync(1), q), 5)), bodies, "bodies");
    }

    [Scenario("amqp-credit")]
    public static async Task Credit(Env e)
    {
        var bodies = Enumerable.Range(0, 10).Select(i => $"m{i}").ToArray();
        var r = Receiver(await e.SessionAsync(1), await e.FilledAsync(bodies));
        var first = await TakeAsync(r, 3);
        EqualAll(Texts(first), bodies[..3], "with a credit of three");
        await NoneAsync(r);
        first.ForEach(r.Accept);
        await NoneAsync(r); // settling gives no credit
        EqualAll(Texts(await TakeAsync(r, 7)), bodies[3..], "the rest");
    }

    [Scenario("amqp-drain")]
    public static async Task Drain(Env e)
    {
        var q = await e.FilledAsync(["a", "b", "c"]);
        var session = await e.SessionAsync(1);
        var r = Receiver(session, q);
        r.SetCredit(10, CreditMode.Drain);
        EqualAll(Texts(await TakeAsync(r, 3, credit: false)), ["a", "b", "c"], "drained");
        await NoneAsync(r);
        await SendAsync(session, q, new Message("later"));
        await NoneAsync(r); // the drain has used up the credit
        Equal((await OneAsync(r)).Body, "later", "with new credit");
    }

    [Scenario("amqp-accepted")]
    public static async Task Accepted(Env e)
    {
        var r = Receiver(await e.SessionAsync(1), await e.FilledAsync(["x"]));
        var m = await OneAsync(r);
        Equal(m.Header.DeliveryCount, 0u, "count of earlier deliveries");
        r.Accept(m);
        r.SetCredit(1, CreditMode.Manual);
        await NoneAsync(r);
    }

    [Scenario("amqp-released")]
    public static async Task Released(Env e)
    {
        var r = Receiver(await e.SessionAsync(1), await e.FilledAsync(["x"]));
        for (var i = 0; i < 12; i++) // more often than the queue allows deliveries
        {
            var m = await OneAsync(r);
            Equal(m.Header.DeliveryCount, 0u, "count after a release");
            r.Release(m);
        }
        r.Accept(await OneAsync(r));
    }

    [Scenario("amqp-modified-failed")]
    public static async Task ModifiedFailed(Env e)
    {
        var q = await e.FilledAsync(["x"], o => o.MaxDeliveryCount = 3);
        var r = Receiver(await e.SessionAsync(1), q);
        for (var i = 0u; i < 3; i++)
        {
            var m = await OneAsync(r);
            Equal(m.Header.DeliveryCount, i, "count");
            r.Modify(m, deliveryFailed: true, undeliverableHere: false, new Fields { [new Symbol("why")] = "because" });
        }
        r.SetCredit(1, CreditMode.Manual);
        await NoneAsync(r);
        var dead = await OneAsync(Receiver(await e.SessionAsync(), q + "/$DeadLetterQueue"));
        Equal(dead.ApplicationProperties["DeadLetterReason"], "MaxDeliveryCountExceeded", "reason");
        Equal(dead.ApplicationProperties["why"], "because", "what was modified");
    }

    [Scenario("amqp-modified-elsewhere")]
    public static async Task ModifiedElsewhere(Env e)
    {
        var q = await e.FilledAsync(["x"]);
        var session = await e.SessionAsync(1);
        var r = Receiver(session, q);
        r.Modify(await OneAsync(r), deliveryFailed: false, undeliverableHere: true);
        r.SetCredit(1, CreditMode.Manual);
        await NoneAsync(r);
        var (code, body) = await RequestAsync(session, q, "peek-message",
            new Map { ["from-sequence-number"] = 0L, ["message-count"] = 5 });
        Equal((code, ((List)body!["messages"]).Count), (200, 1), "peeked");
    }

    [Scenario("amqp-rejected")]
    public static async Task Rejected(Env e)
    {
        var q = await e.FilledAsync(["x", "y"]);
        var r = Receiver(await e.SessionAsync(1), q);
        var got = await TakeAsync(r, 2);
        r.Reject(got[0], new Error(new Symbol("com.microsoft:dead-letter"))
        {
            Info = new Fields
            {
                [new Symbol("DeadLetterReason")] = "reason-x",
                [new Symbol("DeadLetterErrorDescription")] = "description-y",
            },
        });
        r.Reject(got[1]);
        var dead = await TakeAsync(Receiver(await e.SessionAsync(), q + "/$DeadLetterQueue"), 2);
        EqualAll(Texts(dead), ["x", "y"], "dead letters");
        Equal(dead[0].ApplicationProperties["DeadLetterReason"], "reason-x", "reason");
        Equal(dead[0].ApplicationProperties["DeadLetterErrorDescription"], "description-y", "description");
        Equal(dead[1].ApplicationProperties?["DeadLetterReason"], null, "a reason that nobody gave");
    }

    [Scenario("amqp-presettled-send")]
    public static async Task PresettledSend(Env e)
    {
        var q = await e.QueueAsync();
        var sender = new SenderLink(await e.SessionAsync(), LinkName(), q);
        for (var i = 0; i < 10; i++)
        {
            sender.Send(new Message($"m{i}"), null, null); // without a callback for the outcome it is settled
        }
        await sender.CloseAsync();
        EqualAll(Texts(await TakeAsync(Receiver(await e.SessionAsync(1), q), 10)), Enumerable.Range(0, 10).Select(i => $"m{i}"),
            "arrived");
    }

    [Scenario("amqp-presettled-receive")]
    public static async Task PresettledReceive(Env e)
    {
        var q = await e.FilledAsync(["a", "b"]);
        var r = Receiver(await e.SessionAsync(1), q, SenderSettleMode.Settled);
        EqualAll(Texts(await TakeAsync(r, 2)), ["a", "b"], "bodies");
        await r.CloseAsync();
        var other = Receiver(await e.SessionAsync(), q);
        other.SetCredit(1, CreditMode.Manual);
        await NoneAsync(other);
    }

    [Scenario("amqp-large")]
    public static async Task Large(Env e)
    {
        var q = await e.QueueAsync();
        var body = Enumerable.Range(0, 900 << 10).Select(i => (byte)(i * 7)).ToArray();
        var small = new ConnectionFactory();
        small.AMQP.MaxFrameSize = 4 << 10;
        await SendAsync(await e.SessionAsync(), q, new Message { BodySection = new Data { Binary = body } });
        var m = await OneAsync(Receiver(await e.SessionAsync(1, factory: small), q));
        Check(((byte[])m.Body).AsSpan().SequenceEqual(body), "the body came back changed");
    }

    [Scenario("amqp-types")]
    public static async Task Types(Env e)
    {
        var q = await e.QueueAsync();
        var sent = new ApplicationProperties
        {
            ["bool"] = true, ["ubyte"] = byte.MaxValue, ["ushort"] = ushort.MaxValue, ["uint"] = uint.MaxValue,
            ["ulong"] = ulong.MaxValue, ["byte"] = sbyte.MinValue, ["short"] = short.MinValue, ["int"] = int.MinValue,
            ["long"] = long.MinValue, ["float"] = 1.5f, ["double"] = 2.25, ["char"] = 'ü', ["string"] = "ü€",
            ["symbol"] = new Symbol("sym"), ["uuid"] = Guid.NewGuid(),
            ["timestamp"] = new DateTime(2020, 2, 3, 4, 5, 6, 123, DateTimeKind.Utc),
        };
        await SendAsync(await e.SessionAsync(), q, new Message(new List { 1, "two", new Map { ["k"] = 3.0 } })
        {
            ApplicationProperties = sent,
            Properties = new Properties { MessageId = "id", Subject = "s", GroupId = "g", ContentType = "application/x" },
        });
        var m = await OneAsync(Receiver(await e.SessionAsync(1), q));
        foreach (var (key, value) in sent.Map)
        {
            Equal(m.ApplicationProperties[key], value, $"{key}");
        }
        var body = (List)m.Body;
        EqualAll([body[0], body[1], ((Map)body[2])["k"]], new object[] { 1, "two", 3.0 }, "body");
        Equal($"{m.Properties.MessageId} {m.Properties.Subject} {m.Properties.GroupId} {m.Properties.ContentType}",
            "id s g application/x", "properties");
    }
}
