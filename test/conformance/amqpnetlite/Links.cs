using Amqp;
using Amqp.Types;
using static Busbar.Env;
using static Busbar.Scene;

namespace Busbar;

/// <summary>Links, sessions and connections.</summary>
public static class Links
{
    private static readonly Symbol SessionFilter = new("com.microsoft:session-filter");

    [Scenario("amqp-reattach")]
    public static async Task Reattach(Env e)
    {
        var q = await e.QueueAsync();
        var session = await e.SessionAsync();
        for (var i = 0; i < 3; i++)
        {
            var s = new SenderLink(session, "the-sender", q);
            await s.SendAsync(new Message($"m{i}"), Soon);
            await s.CloseAsync();
        }
        for (var i = 0; i < 3; i++)
        {
            var r = new ReceiverLink(session, "the-receiver", q);
            var m = await OneAsync(r);
            Equal(m.Body, $"m{i}", "after attaching again");
            r.Accept(m);
            await r.CloseAsync();
        }
    }

    [Scenario("amqp-refused")]
    public static async Task Refused(Env e)
    {
        var session = await e.SessionAsync();
        await EndsAsync(Receiver(session, e.Name()), "amqp:not-found");
        await EndsAsync(new SenderLink(session, LinkName(), e.Name()), "amqp:not-found");
        await SendAsync(session, await e.QueueAsync(), new Message("the connection goes on"));
    }

    [Scenario("amqp-two-sessions")]
    public static async Task TwoSessions(Env e)
    {
        var q = await e.FilledAsync(["a", "b"]);
        var first = await e.SessionAsync(1);
        var second = new Session(first.Connection);
        await OneAsync(Receiver(first, q));
        var r = Receiver(second, q);
        var b = await OneAsync(r);
        await first.CloseAsync();
        r.Accept(b);
        await NoneAsync(r);
        var third = Receiver(second, q);
        third.SetCredit(1, CreditMode.Manual);
        await NoneAsync(third); // "a" is locked still, "b" is gone
    }

    [Scenario("amqp-idle")]
    public static async Task Idle(Env e)
    {
        var factory = new ConnectionFactory();
        factory.AMQP.IdleTimeout = 2000;
        var q = await e.QueueAsync();
        var session = await e.SessionAsync(factory: factory);
        await Task.Delay(TimeSpan.FromSeconds(9)); // more than four times what the client tolerates
        await SendAsync(session, q, new Message("still here"));
    }

    [Scenario("amqp-plain-wrong-key")]
    public static async Task WrongKey(Env e) =>
        await FailsAsync<AmqpException>(() => e.SessionAsync(key: "wrong"));

    [Scenario("amqp-session-filter")]
    public static async Task Filter(Env e)
    {
        var q = await e.QueueAsync(o => o.RequiresSession = true);
        await SendAsync(await e.SessionAsync(), q, new Message("x") { Properties = new() { GroupId = "S" } });
        var session = await e.SessionAsync(1);
        var r = Receiver(session, q, filter: new Map { [SessionFilter] = "S" });
        var m = await OneAsync(r);
        Equal($"{m.Body} {m.Properties.GroupId}", "x S", "in the session");
        var other = Receiver(await e.SessionAsync(), q, filter: new Map { [SessionFilter] = "S" });
        await EndsAsync(other, "com.microsoft:session-cannot-be-locked");
        r.Accept(m);
        await EndsAsync(Receiver(session, q), "amqp:not-allowed");
    }

    [Scenario("amqp-management")]
    public static async Task Management(Env e)
    {
        var q = await e.FilledAsync(["x"], o => o.LockDuration = TimeSpan.FromSeconds(30));
        var session = await e.SessionAsync();
        var r = Receiver(session, q);
        var m = await OneAsync(r);
        var (code, body) = await RequestAsync(session, q, "renew-lock",
            new Map { ["lock-tokens"] = new[] { new Guid(m.DeliveryTag) } });
        Equal((code, ((DateTime[])body!["expirations"]).Length), (200, 1), "renewed");
        (code, body) = await RequestAsync(session, q, "peek-message",
            new Map { ["from-sequence-number"] = 1L, ["message-count"] = 10 });
        Equal((code, ((List)body!["messages"]).Count), (200, 1), "peeked");
        (code, _) = await RequestAsync(session, q, "no-such-operation", []);
        Equal(code, 501, "an operation that is not there");
        r.Accept(m);
    }
}
