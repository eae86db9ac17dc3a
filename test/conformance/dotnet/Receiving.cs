using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;
using static Busbar.Env;
using static Busbar.Scene;

namespace Busbar;

/// <summary>Receiving, peeking and deleting.</summary>
public static class Receiving
{
    private static readonly ServiceBusReceiverOptions AtOnce = new() { ReceiveMode = ServiceBusReceiveMode.ReceiveAndDelete };

    public static IEnumerable<string> Bodies(int n) => Enumerable.Range(0, n).Select(i => $"m{i}");

    /// <summary>A queue with n messages m0, m1 and so on.</summary>
    public static async Task<string> FilledAsync(Env e, int n, Action<CreateQueueOptions>? edit = null)
    {
        var q = await e.QueueAsync(edit);
        await e.SendAsync(q, [.. Bodies(n).Select(b => new ServiceBusMessage(b))]);
        return q;
    }

    [Scenario("receive-many")]
    public static async Task Many(Env e)
    {
        var q = await FilledAsync(e, 20);
        var r = e.InOrder(q);
        var got = await TakeAsync(r, 20);
        EqualAll(Texts(got), Bodies(20), "bodies");
        await CompleteAsync(r, got);
        await NoneAsync(r);
    }

    [Scenario("receive-waits")]
    public static async Task Waits(Env e)
    {
        var q = await e.QueueAsync();
        var r = e.Receiver(q);
        await NoneAsync(r); // the link is up
        var waiting = OneAsync(r);
        await Task.Delay(500);
        await e.SendAsync(q, new ServiceBusMessage("late"));
        Equal(Text(await waiting), "late", "body");
        await r.CompleteMessageAsync(await waiting);
    }

    [Scenario("receive-empty")]
    public static async Task Empty(Env e)
    {
        var q = await e.QueueAsync();
        var r = e.Receiver(q);
        for (var i = 0; i < 3; i++)
        {
            EqualAll(Texts(await r.ReceiveMessagesAsync(5, TimeSpan.FromMilliseconds(300))), [], "bodies");
        }
        await e.SendAsync(q, new ServiceBusMessage("x"));
        await r.CompleteMessageAsync(await OneAsync(r)); // and the link goes on
    }

    [Scenario("receive-delete")]
    public static async Task Delete(Env e)
    {
        var q = await FilledAsync(e, 3);
        var r = e.Receiver(q, 1, AtOnce);
        EqualAll(Texts(await TakeAsync(r, 3)), Bodies(3), "bodies");
        await r.CloseAsync();
        await NoneAsync(e.Receiver(q, 0));
    }

    [Scenario("receive-delete-settle")]
    public static async Task DeleteSettle(Env e)
    {
        var q = await FilledAsync(e, 2);
        var r = e.Receiver(q, 1, AtOnce);
        var m = await OneAsync(r);
        foreach (var settle in new Func<Task>[]
        {
            () => r.CompleteMessageAsync(m), () => r.AbandonMessageAsync(m), () => r.DeferMessageAsync(m),
            () => r.DeadLetterMessageAsync(m), () => r.RenewMessageLockAsync(m),
        })
        {
            await FailsAsync<InvalidOperationException>(settle);
        }
        var locking = e.Receiver(q, 0); // whatever else is asked for
        Equal(locking.ReceiveMode, ServiceBusReceiveMode.PeekLock, "the default");
        var second = await OneAsync(locking);
        Equal(Text(second), "m1", "body");
        Check(Guid.Parse(second.LockToken) != Guid.Empty, "no lock token");
        await NoneAsync(r);
        await locking.CompleteMessageAsync(second);
    }

    [Scenario("receive-timeout")]
    public static async Task Timeout(Env e)
    {
        var q = await e.QueueAsync();
        var r = e.Receiver(q);
        await NoneAsync(r); // the link is up
        using var broken = new CancellationTokenSource(TimeSpan.FromMilliseconds(500));
        await FailsAsync<OperationCanceledException>(() => r.ReceiveMessageAsync(Soon, broken.Token));
        await e.SendAsync(q, new ServiceBusMessage("x"));
        var m = await OneAsync(r);
        Equal($"{Text(m)} {m.DeliveryCount}", "x 1", "body and count");
        await r.CompleteMessageAsync(m);
    }

    [Scenario("receive-prefetch")]
    public static async Task Prefetch(Env e)
    {
        var q = await FilledAsync(e, 25);
        var r = e.Receiver(q, 1, new ServiceBusReceiverOptions { PrefetchCount = 20 });
        var seen = new List<string>();
        for (var i = 0; i < 25; i++)
        {
            var m = await OneAsync(r);
            seen.Add(Text(m));
            await r.CompleteMessageAsync(m);
        }
        EqualAll(seen, Bodies(25), "bodies");
        await NoneAsync(r);
    }

    [Scenario("receive-iterate")]
    public static async Task Iterate(Env e)
    {
        var q = await FilledAsync(e, 5);
        var r = e.Receiver(q);
        var seen = new List<string>();
        await foreach (var m in r.ReceiveMessagesAsync())
        {
            await r.CompleteMessageAsync(m);
            seen.Add(Text(m));
            if (seen.Count == 5)
            {
                break;
            }
        }
        EqualAll(seen, Bodies(5), "bodies");
    }

    [Scenario("receive-two")]
    public static async Task Two(Env e)
    {
        var q = await FilledAsync(e, 30);
        var got = await Task.WhenAll(TakeAsync(e.Receiver(q, 0), 10), TakeAsync(e.Receiver(q), 20));
        EqualAll(Texts(got.SelectMany(m => m)).Order(), Bodies(30).Order(), "bodies");
    }

    [Scenario("receive-missing")]
    public static async Task Missing(Env e)
    {
        await FailsAsync(ServiceBusFailureReason.MessagingEntityNotFound, () => e.Receiver(e.Name()).ReceiveMessageAsync());
        await FailsAsync(ServiceBusFailureReason.MessagingEntityNotFound, () => e.Receiver(e.Name()).PeekMessageAsync());
    }

    [Scenario("receive-counts")]
    public static async Task Counts(Env e)
    {
        var q = await FilledAsync(e, 1, o => o.LockDuration = TimeSpan.FromSeconds(30));
        var m = await OneAsync(e.Receiver(q));
        Equal($"{m.SequenceNumber} {m.EnqueuedSequenceNumber} {m.DeliveryCount}", "1 0 1", "numbers and count");
        Equal(m.State, ServiceBusMessageState.Active, "state");
        var (held, age) = (m.LockedUntil - DateTimeOffset.UtcNow, DateTimeOffset.UtcNow - m.EnqueuedTime);
        Check(held.TotalSeconds is > 5 and <= 31, $"locked for {held}");
        Check(age.TotalSeconds is > -1 and < 60, $"it came {age} ago");
    }

    [Scenario("peek")]
    public static async Task Peek(Env e)
    {
        var q = await FilledAsync(e, 5);
        var r = e.Receiver(q);
        var locked = await OneAsync(r);
        var other = e.Receiver(q, 0);
        var seen = Texts(await other.PeekMessagesAsync(3)).ToList();
        seen.AddRange(Texts(await other.PeekMessagesAsync(3)));
        EqualAll(seen, Bodies(5), "peeked");
        EqualAll((await TakeAsync(r, 4)).Select(m => m.DeliveryCount), [1, 1, 1, 1], "counts after peeking");
        await r.CompleteMessageAsync(locked);
    }

    [Scenario("peek-from")]
    public static async Task PeekFrom(Env e)
    {
        var r = e.Receiver(await FilledAsync(e, 4));
        EqualAll(Texts(await r.PeekMessagesAsync(2, 2)), ["m1", "m2"], "peeked");
        EqualAll(Texts(await r.PeekMessagesAsync(1, 99)), [], "peeked");
    }

    [Scenario("peek-states")]
    public static async Task PeekStates(Env e)
    {
        var q = await FilledAsync(e, 2);
        await e.Sender(q).ScheduleMessageAsync(new ServiceBusMessage("wait"), DateTimeOffset.UtcNow.AddMinutes(1));
        var r = e.Receiver(q);
        await r.DeferMessageAsync(await OneAsync(r));
        EqualAll((await r.PeekMessagesAsync(10, 0)).Select(m => $"{Text(m)} {m.State}"),
            ["m0 Deferred", "m1 Active", "wait Scheduled"], "peeked");
    }

    [Scenario("peek-dead-letters")]
    public static async Task PeekDeadLetters(Env e)
    {
        var q = await FilledAsync(e, 2);
        var r = e.Receiver(q);
        await r.DeadLetterMessageAsync(await OneAsync(r), "why");
        Equal((await e.DeadLetters(q).PeekMessageAsync()).DeadLetterReason, "why", "reason");
        EqualAll(await PeekedAsync(r), ["m1"], "peeked");
    }

    [Scenario("peek-empty")]
    public static async Task PeekEmpty(Env e) => EqualAll(await PeekedAsync(e.Receiver(await e.QueueAsync())), [], "peeked");

    private const string NoDeletion = "the library has no deletion of messages";

    [Scenario("delete-batch")]
    public static Task DeleteBatch(Env e) => throw new Skip(NoDeletion);

    [Scenario("delete-purge")]
    public static Task DeletePurge(Env e) => throw new Skip(NoDeletion);
}
