using Azure.Messaging.ServiceBus;
using static Busbar.Env;
using static Busbar.Scene;

namespace Busbar;

public static class Sessions
{
    /// <summary>A queue whose session S has these messages.</summary>
    private static async Task<string> FilledAsync(Env e, TimeSpan? lockDuration, params string[] bodies)
    {
        var q = await e.SessionQueueAsync(lockDuration);
        await e.SendAsync(q, [.. bodies.Select(b => In("S", b))]);
        return q;
    }

    /// <summary>Accepts the next session with little patience.</summary>
    private static Task ImpatientAsync(Env e, string q) => e.Client(2, o =>
    {
        o.RetryOptions.TryTimeout = TimeSpan.FromSeconds(3);
        o.RetryOptions.MaxRetries = 0;
    }).AcceptNextSessionAsync(q);

    [Scenario("session-named")]
    public static async Task Named(Env e)
    {
        var q = await e.SessionQueueAsync();
        for (var i = 0; i < 4; i++)
        {
            await e.SendAsync(q, In("A", $"A{i}"));
            await e.SendAsync(q, In("B", $"B{i}"));
        }
        foreach (var session in new[] { "B", "A" })
        {
            await using var r = await e.AcceptAsync(q, session);
            Equal(r.SessionId, session, "session");
            var got = await TakeAsync(r, 4);
            EqualAll(Texts(got), Enumerable.Range(0, 4).Select(i => $"{session}{i}"), "bodies");
            await CompleteAsync(r, got);
        }
        var held = await e.AcceptAsync(q, "C", 2); // a session without message or state can be held
        await e.SendAsync(q, In("C", "c"));
        await held.CompleteMessageAsync(await OneAsync(held));
    }

    [Scenario("session-next")]
    public static async Task Next(Env e)
    {
        var q = await e.SessionQueueAsync();
        await e.SendAsync(q, In("one", "1"));
        await e.SendAsync(q, In("two", "2"));
        var held = new List<string>();
        for (var i = 0; i < 2; i++)
        {
            var r = await e.AcceptAsync(q, null, i);
            var m = await OneAsync(r);
            Equal(m.SessionId, r.SessionId, "session");
            await r.CompleteMessageAsync(m);
            held.Add(m.SessionId);
        }
        EqualAll(held.Order(), ["one", "two"], "held");
    }

    [Scenario("session-none")]
    public static async Task None(Env e)
    {
        var q = await e.SessionQueueAsync();
        await FailsAsync(ServiceBusFailureReason.ServiceTimeout, () => ImpatientAsync(e, q));
    }

    [Scenario("session-waits")]
    public static async Task Waits(Env e)
    {
        var q = await e.SessionQueueAsync();
        var waiting = e.AcceptAsync(q, null);
        await Task.Delay(500);
        await e.SendAsync(q, In("late", "x"));
        var r = await waiting;
        Equal(r.SessionId, "late", "session");
        await r.CompleteMessageAsync(await OneAsync(r));
    }

    [Scenario("session-held")]
    public static async Task Held(Env e)
    {
        var q = await FilledAsync(e, null, "x");
        var r = await e.AcceptAsync(q, "S", 0);
        await FailsAsync(ServiceBusFailureReason.SessionCannotBeLocked, () => e.AcceptAsync(q, "S"));
        await FailsAsync(ServiceBusFailureReason.ServiceTimeout, () => ImpatientAsync(e, q));
        await r.CompleteMessageAsync(await OneAsync(r));
        await r.CloseAsync();
        await e.AcceptAsync(q, "S");
    }

    [Scenario("session-close")]
    public static async Task Close(Env e)
    {
        var q = await FilledAsync(e, null, "1", "2", "3");
        var r = await e.AcceptAsync(q, "S");
        await r.CompleteMessageAsync((await TakeAsync(r, 3))[0]);
        await r.CloseAsync();
        var next = await e.AcceptAsync(q, "S", 2);
        var got = await TakeAsync(next, 2);
        EqualAll(got.Select(m => $"{Text(m)} {m.DeliveryCount}"), ["2 1", "3 1"], "bodies and counts");
        await CompleteAsync(next, got);
    }

    [Scenario("session-state")]
    public static async Task State(Env e)
    {
        var q = await e.SessionQueueAsync();
        var r = await e.AcceptAsync(q, "S", 0);
        Check(await r.GetSessionStateAsync() is null, "a fresh session has state");
        await r.SetSessionStateAsync(BinaryData.FromString("one"));
        await r.CloseAsync();
        var next = await e.AcceptAsync(q, "S");
        Equal((await next.GetSessionStateAsync()).ToString(), "one", "state");
        await next.SetSessionStateAsync(BinaryData.FromString("two"));
        Equal((await next.GetSessionStateAsync()).ToString(), "two", "state");
        await next.SetSessionStateAsync(null);
        Check(await next.GetSessionStateAsync() is null, "the state was not cleared");
    }

    [Scenario("session-renew")]
    public static async Task Renew(Env e)
    {
        var r = await e.AcceptAsync(await FilledAsync(e, TimeSpan.FromSeconds(10), "x"), "S");
        var m = await OneAsync(r);
        for (var i = 0; i < 3; i++)
        {
            var old = r.SessionLockedUntil;
            await Task.Delay(4000); // thrice that is more than the lock
            await r.RenewSessionLockAsync();
            Check(r.SessionLockedUntil > old, "locked-until did not move");
        }
        await r.CompleteMessageAsync(m); // the message's lock is the session's
    }

    [Scenario("session-lost")]
    public static async Task Lost(Env e)
    {
        var q = await FilledAsync(e, TimeSpan.FromSeconds(5), "1", "2");
        var r = await e.AcceptAsync(q, "S");
        var m = await OneAsync(r);
        await Task.Delay(6500); // the lock's five seconds, and a margin for its expiry to be noticed
        var next = await e.AcceptAsync(q, "S", 0);
        await FailsAsync(ServiceBusFailureReason.SessionLockLost, () => r.CompleteMessageAsync(m));
        await FailsAsync(ServiceBusFailureReason.SessionLockLost, () => r.RenewSessionLockAsync());
        EqualAll((await TakeAsync(next, 2)).Select(x => $"{Text(x)} {x.DeliveryCount}"), ["1 2", "2 1"], "the next holder got");
    }

    [Scenario("session-abandon")]
    public static async Task Abandon(Env e)
    {
        var r = await e.AcceptAsync(await FilledAsync(e, null, "1", "2", "3", "4"), "S");
        var got = await TakeAsync(r, 3);
        await r.AbandonMessageAsync(got[1]);
        var again = await OneAsync(r);
        Equal($"{Text(again)} {again.DeliveryCount}", "2 2", "abandoned");
        var last = await OneAsync(r);
        Equal(Text(last), "4", "last");
        await CompleteAsync(r, [got[2], got[0], last, again]);
        await NoneAsync(r);
    }

    [Scenario("session-defer")]
    public static async Task Defer(Env e)
    {
        var q = await FilledAsync(e, null, "a", "b");
        var r = await e.AcceptAsync(q, "S");
        var m = await OneAsync(r);
        await r.DeferMessageAsync(m);
        var b = await OneAsync(r);
        Equal(Text(b), "b", "body");
        await r.CompleteMessageAsync(b);
        await r.CloseAsync();
        var next = await e.AcceptAsync(q, "S", 0);
        await NoneAsync(next);
        var got = await next.ReceiveDeferredMessageAsync(m.SequenceNumber);
        Equal(Text(got), "a", "body");
        await next.CompleteMessageAsync(got);
    }

    [Scenario("session-dead-letter")]
    public static async Task DeadLetter(Env e)
    {
        var q = await FilledAsync(e, null, "bad", "good");
        var r = await e.AcceptAsync(q, "S");
        await r.DeadLetterMessageAsync(await OneAsync(r), "why");
        var m = await OneAsync(r);
        Equal(Text(m), "good", "body");
        await r.CompleteMessageAsync(m);
        var dead = await OneAsync(e.DeadLetters(q));
        Equal($"{Text(dead)} {dead.SessionId} {dead.DeadLetterReason}", "bad S why", "the dead letter");
    }

    [Scenario("session-peek")]
    public static async Task Peek(Env e)
    {
        var q = await e.SessionQueueAsync();
        await e.SendAsync(q, In("A", "a1"));
        await e.SendAsync(q, In("B", "b1"));
        await e.SendAsync(q, In("A", "a2"));
        EqualAll(Texts(await (await e.AcceptAsync(q, "A")).PeekMessagesAsync(10)), ["a1", "a2"], "peeked");
    }

    [Scenario("session-schedule")]
    public static async Task Schedule(Env e)
    {
        var q = await e.SessionQueueAsync();
        await e.Sender(q).ScheduleMessageAsync(In("S", "later"), DateTimeOffset.UtcNow.AddSeconds(2));
        var r = await e.AcceptAsync(q, null);
        Equal($"{r.SessionId} {Text(await OneAsync(r))}", "S later", "arrived");
    }

    [Scenario("session-receive-delete")]
    public static async Task ReceiveDelete(Env e)
    {
        var q = await FilledAsync(e, null, "a", "b");
        var r = await e.Client(1).AcceptSessionAsync(q, "S",
            new ServiceBusSessionReceiverOptions { ReceiveMode = ServiceBusReceiveMode.ReceiveAndDelete });
        EqualAll(Texts(await TakeAsync(r, 2)), ["a", "b"], "bodies");
        await r.CloseAsync();
        await NoneAsync(await e.AcceptAsync(q, "S", 0));
    }

    [Scenario("session-guard")]
    public static async Task Guard(Env e)
    {
        var (q, plain) = (await e.SessionQueueAsync(), await e.QueueAsync());
        await FailsAsync<InvalidOperationException>(() => e.Receiver(q).ReceiveMessageAsync(Soon));
        await FailsAsync<InvalidOperationException>(() => e.SendAsync(q, new ServiceBusMessage("no session")));
        await FailsAsync<InvalidOperationException>(() => e.AcceptAsync(plain, "S"));
    }

    [Scenario("session-share")]
    public static async Task Share(Env e)
    {
#if SHARES_SESSIONS
        var q = await FilledAsync(e, null, "1", "2");
        await using var first = await ShareAsync(e, q, 1, null);
        Check(!first.IsSessionExclusive, "the session is exclusive");
        var token = Guid.Parse(first.SessionLockToken);
        await FailsAsync(ServiceBusFailureReason.SessionCannotBeLocked, () => e.AcceptAsync(q, "S", 2));
        await first.SetSessionStateAsync(BinaryData.FromString("of the first"));
        var m = await OneAsync(first);
        await using var next = await ShareAsync(e, q, 2, token);
        Equal(next.SessionLockToken, first.SessionLockToken, "token");
        Equal((await next.GetSessionStateAsync()).ToString(), "of the first", "state");
        await FailsAsync(ServiceBusFailureReason.SessionLockLost, () => first.RenewSessionLockAsync());
        await next.CompleteMessageAsync(m); // over the management link, as its token says
        var rest = await OneAsync(next);
        Equal(Text(rest), "2", "the next holder got");
        await next.CompleteMessageAsync(rest);
        EqualAll(await PeekedAsync(next), [], "left");
#else
        await Task.CompletedTask;
        throw new NotSupportedException("the library shares sessions from 7.21.0");
#endif
    }

#if SHARES_SESSIONS
    private static Task<ServiceBusSessionReceiver> ShareAsync(Env e, string q, int i, Guid? token) =>
        e.Client(i).AcceptSessionAsync(q, "S", new ServiceBusSessionReceiverOptions
        {
            EnableNonExclusiveSession = true,
            SessionLockToken = token,
        });
#endif

    [Scenario("session-list")]
    public static async Task List(Env e)
    {
#if LISTS_SESSIONS
        var q = await e.SessionQueueAsync();
        foreach (var session in new[] { "A", "B", "C" })
        {
            await e.SendAsync(q, In(session, "x"));
        }
        await using (var r = await e.AcceptAsync(q, "state"))
        {
            await r.SetSessionStateAsync(BinaryData.FromString("s"));
        }
        var all = new List<string>();
        await foreach (var session in e.Client().GetMessageSessionsAsync(q))
        {
            all.Add(session);
        }
        EqualAll(all.Order(StringComparer.Ordinal), ["A", "B", "C", "state"], "sessions");
#else
        await Task.CompletedTask;
        throw new NotSupportedException("the library lists sessions from 7.21.0");
#endif
    }
}
