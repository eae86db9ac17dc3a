using Azure.Messaging.ServiceBus;
using static Busbar.Env;
using static Busbar.Receiving;
using static Busbar.Scene;

namespace Busbar;

public static class Settling
{
    [Scenario("settle-once")]
    public static async Task Once(Env e)
    {
        var r = e.Receiver(await FilledAsync(e, 1));
        var m = await OneAsync(r);
        await r.CompleteMessageAsync(m);
        await FailsAsync(ServiceBusFailureReason.MessageLockLost, () => r.CompleteMessageAsync(m));
        await NoneAsync(r);
    }

    [Scenario("settle-elsewhere")]
    public static async Task Elsewhere(Env e)
    {
        var q = await FilledAsync(e, 1);
        var r = e.Receiver(q);
        var m = await OneAsync(r);
        await r.CloseAsync();
        var other = e.Receiver(q, 0);
        await NoneAsync(other); // locked still
        await other.CompleteMessageAsync(m); // by its token, over the request node
        EqualAll(await PeekedAsync(other), [], "left");
    }

    [Scenario("abandon")]
    public static async Task Abandon(Env e)
    {
        var r = e.Receiver(await FilledAsync(e, 1));
        var m = await OneAsync(r);
        await r.AbandonMessageAsync(m);
        var again = await OneAsync(r);
        Equal($"{again.DeliveryCount} {again.SequenceNumber}", "2 1", "count and number");
        Check(again.LockToken != m.LockToken, "the token of the first delivery");
        await r.CompleteMessageAsync(again);
        await NoneAsync(r);
    }

    [Scenario("abandon-properties")]
    public static async Task AbandonProperties(Env e)
    {
        var r = e.Receiver(await FilledAsync(e, 1));
        await r.AbandonMessageAsync(await OneAsync(r), new Dictionary<string, object> { ["why"] = "because", ["times"] = 3 });
        var again = await OneAsync(r);
        Equal(again.ApplicationProperties["why"], "because", "why");
        Equal(again.ApplicationProperties["times"], 3, "times");
    }

    [Scenario("abandon-delay")]
    public static async Task AbandonDelay(Env e)
    {
        var r = e.Receiver(await FilledAsync(e, 1));
        await r.AbandonMessageAsync(await OneAsync(r),
            new Dictionary<string, object> { ["x-busbar-delay"] = 4000L, ["why"] = "later" });
        await NoneAsync(r);
        var again = await OneAsync(r);
        Equal(again.DeliveryCount, 2, "count");
        EqualAll(again.ApplicationProperties.Select(p => $"{p.Key}={p.Value}"), ["why=later"], "properties");
    }

    [Scenario("max-delivery")]
    public static async Task MaxDelivery(Env e)
    {
        var q = await FilledAsync(e, 1, o => o.MaxDeliveryCount = 3);
        var r = e.Receiver(q);
        for (var i = 1; i <= 3; i++)
        {
            var m = await OneAsync(r);
            Equal(m.DeliveryCount, i, "count");
            await r.AbandonMessageAsync(m);
        }
        await NoneAsync(r);
        Equal((await OneAsync(e.DeadLetters(q))).DeadLetterReason, "MaxDeliveryCountExceeded", "reason");
    }

    [Scenario("defer")]
    public static async Task Defer(Env e)
    {
        var q = await FilledAsync(e, 1);
        var r = e.Receiver(q);
        await r.DeferMessageAsync(await OneAsync(r));
        await NoneAsync(r);
        var other = e.Receiver(q, 0);
        var got = await other.ReceiveDeferredMessageAsync(1);
        Equal(Text(got), "m0", "body");
        await other.AbandonMessageAsync(got); // deferred it stays
        await NoneAsync(other);
        var again = await other.ReceiveDeferredMessageAsync(1);
        Equal(again.DeliveryCount, got.DeliveryCount + 1, "count");
        await other.CompleteMessageAsync(again);
    }

    [Scenario("defer-properties")]
    public static async Task DeferProperties(Env e)
    {
        var r = e.Receiver(await FilledAsync(e, 1));
        await r.DeferMessageAsync(await OneAsync(r), new Dictionary<string, object> { ["step"] = "two" });
        var m = await r.ReceiveDeferredMessageAsync(1);
        Equal(m.ApplicationProperties["step"], "two", "step");
        await r.DeadLetterMessageAsync(m);
    }

    [Scenario("defer-missing")]
    public static async Task DeferMissing(Env e)
    {
        var r = e.Receiver(await FilledAsync(e, 1));
        await FailsAsync(ServiceBusFailureReason.MessageNotFound, () => r.ReceiveDeferredMessageAsync(1));
        await FailsAsync(ServiceBusFailureReason.MessageNotFound, () => r.ReceiveDeferredMessageAsync(1000));
        await r.CompleteMessageAsync(await OneAsync(r));
    }

    [Scenario("dead-letter")]
    public static async Task DeadLetter(Env e)
    {
        var q = await FilledAsync(e, 1);
        var r = e.Receiver(q);
        await r.DeadLetterMessageAsync(await OneAsync(r), new Dictionary<string, object>
        {
            ["added"] = 7, ["DeadLetterReason"] = "reason-x", ["DeadLetterErrorDescription"] = "description-y",
        });
        await NoneAsync(r);
        var d = e.DeadLetters(q);
        var m = await OneAsync(d);
        Equal($"{m.DeadLetterReason} {m.DeadLetterErrorDescription} {Text(m)} {m.ApplicationProperties["added"]} {m.SequenceNumber}",
            "reason-x description-y m0 7 1", "the dead letter");
        await d.CompleteMessageAsync(m);
        await NoneAsync(d);
    }

    [Scenario("dead-letter-settle")]
    public static async Task DeadLetterSettle(Env e)
    {
        var q = await FilledAsync(e, 1);
        var r = e.Receiver(q);
        await r.DeadLetterMessageAsync(await OneAsync(r));
        var d = e.DeadLetters(q);
        await d.AbandonMessageAsync(await OneAsync(d));
        var second = await OneAsync(d);
        await d.RenewMessageLockAsync(second);
        await d.DeferMessageAsync(second);
        await NoneAsync(d);
        await d.CompleteMessageAsync(await d.ReceiveDeferredMessageAsync(second.SequenceNumber));
        EqualAll(await PeekedAsync(d), [], "left");
    }

    [Scenario("dead-letter-twice")]
    public static async Task DeadLetterTwice(Env e)
    {
        var q = await FilledAsync(e, 1, o => o.LockDuration = TimeSpan.FromSeconds(5));
        var r = e.Receiver(q);
        await r.DeadLetterMessageAsync(await OneAsync(r));
        var d = e.DeadLetters(q);
        var m = await OneAsync(d);
        await FailsAsync<Exception>(() => d.DeadLetterMessageAsync(m));
        var again = await OneAsync(d);
        Equal(again.DeliveryCount, m.DeliveryCount, "count in the dead-letter queue");
        await d.CompleteMessageAsync(again);
    }

    [Scenario("lock-renew")]
    public static async Task LockRenew(Env e)
    {
        var q = await FilledAsync(e, 1, o => o.LockDuration = TimeSpan.FromSeconds(10));
        var r = e.Receiver(q);
        var m = await OneAsync(r);
        for (var i = 0; i < 3; i++)
        {
            var old = m.LockedUntil;
            await Task.Delay(4000); // thrice that is more than the lock
            await r.RenewMessageLockAsync(m);
            Check(m.LockedUntil > old, "locked-until did not move");
        }
        await NoneAsync(e.Receiver(q, 0));
        await r.CompleteMessageAsync(m);
    }

    [Scenario("lock-lost")]
    public static async Task LockLost(Env e)
    {
        var q = await FilledAsync(e, 1, o => o.LockDuration = TimeSpan.FromSeconds(5));
        var r = e.Receiver(q);
        var m = await OneAsync(r);
        var other = e.Receiver(q, 0);
        var again = await OneAsync(other); // waits for the expiry
        Equal(again.DeliveryCount, 2, "count");
        await FailsAsync(ServiceBusFailureReason.MessageLockLost, () => r.CompleteMessageAsync(m));
        await FailsAsync(ServiceBusFailureReason.MessageLockLost, () => r.RenewMessageLockAsync(m));
        await other.CompleteMessageAsync(again);
    }
}
