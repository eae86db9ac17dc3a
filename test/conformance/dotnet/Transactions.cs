using System.Transactions;
using Azure.Messaging.ServiceBus;
using static Busbar.Env;
using static Busbar.Scene;

namespace Busbar;

/// <summary>Transactions of senders and receivers of one connection, which is that of their client.</summary>
public static class Transactions
{
    /// <summary>The library ends a transaction behind the scope's end, and tells nobody when that is done.</summary>
    private static readonly TimeSpan Ending = TimeSpan.FromSeconds(1);

    private static TransactionScope Scope() => new(TransactionScopeAsyncFlowOption.Enabled);

    private static async Task PeekUntilAsync(ServiceBusReceiver r, params string[] want) => await UntilAsync(
        $"the queue has [{string.Join(", ", want)}]", async () => (await PeekedAsync(r)).SequenceEqual(want));

    [Scenario("transaction-commit")]
    public static async Task Commit(Env e)
    {
        var q = await e.QueueAsync();
        await e.SendAsync(q, new ServiceBusMessage("in"));
        var c = e.Client(1);
        var (s, r, other) = (c.CreateSender(q), c.CreateReceiver(q), e.Receiver(q, 0));
        var m = await OneAsync(r);
        using (var scope = Scope())
        {
            await s.SendMessagesAsync([new ServiceBusMessage("out-1"), new ServiceBusMessage("out-2")]);
            await r.CompleteMessageAsync(m);
            using (new TransactionScope(TransactionScopeOption.Suppress, TransactionScopeAsyncFlowOption.Enabled))
            {
                EqualAll(await PeekedAsync(other), ["in"], "before the commit there is");
            }
            scope.Complete();
        }
        await PeekUntilAsync(other, "out-1", "out-2");
    }

    [Scenario("transaction-rollback")]
    public static async Task Rollback(Env e)
    {
        var q = await e.QueueAsync();
        await e.SendAsync(q, new ServiceBusMessage("a"), new ServiceBusMessage("b"));
        var c = e.Client(1);
        var (s, r, other) = (c.CreateSender(q), c.CreateReceiver(q), e.Receiver(q, 0));
        var got = (await TakeAsync(r, 2)).OrderBy(Text).ToList();
        using (Scope())
        {
            await s.SendMessageAsync(new ServiceBusMessage("out"));
            await CompleteAsync(r, got);
        }
        await Task.Delay(Ending);
        EqualAll(await PeekedAsync(other), ["a", "b"], "after the rollback there is");
        await r.CompleteMessageAsync(got[0]); // they are locked still, and settled again over the link
        await r.AbandonMessageAsync(got[1]);
        var again = await OneAsync(r);
        Equal($"{Text(again)} {again.DeliveryCount}", "b 2", "again");
        EqualAll(await PeekedAsync(other), ["b"], "left");
        await r.CompleteMessageAsync(again);
    }

    [Scenario("transaction-schedule")]
    public static async Task Schedule(Env e)
    {
        var q = await e.QueueAsync();
        var (s, other) = (e.Sender(q, 1), e.Receiver(q, 0));
        var at = Seconds(4);
        using (Scope())
        {
            await s.ScheduleMessageAsync(new ServiceBusMessage("dropped"), at);
        }
        using (var scope = Scope())
        {
            await s.ScheduleMessageAsync(new ServiceBusMessage("kept"), at);
            scope.Complete();
        }
        var m = await OneAsync(other);
        OnTime(at);
        Equal(Text(m), "kept", "body");
        await other.CompleteMessageAsync(m);
        await NoneAsync(other);
    }

    [Scenario("transaction-settle")]
    public static async Task Settle(Env e)
    {
        var q = await e.QueueAsync();
        await e.SendAsync(q, new ServiceBusMessage("a"), new ServiceBusMessage("b"), new ServiceBusMessage("c"));
        var r = e.Receiver(q);
        var got = (await TakeAsync(r, 3)).OrderBy(Text).ToList();
        using (var scope = Scope())
        {
            await r.AbandonMessageAsync(got[0]);
            await r.DeferMessageAsync(got[1]);
            await r.DeadLetterMessageAsync(got[2], "why");
            scope.Complete();
        }
        var again = await OneAsync(r);
        Equal($"{Text(again)} {again.DeliveryCount}", "a 2", "abandoned");
        Equal(Text(await r.ReceiveDeferredMessageAsync(got[1].SequenceNumber)), "b", "deferred");
        Equal((await OneAsync(e.DeadLetters(q))).DeadLetterReason, "why", "dead-lettered");
    }

    [Scenario("transaction-session")]
    public static async Task Session(Env e)
    {
        var q = await e.SessionQueueAsync();
        await e.SendAsync(q, In("S", "in"));
        var c = e.Client(1);
        var s = c.CreateSender(q);
        var r = await c.AcceptSessionAsync(q, "S");
        var m = await OneAsync(r);
        using (Scope())
        {
            await r.CompleteMessageAsync(m);
        }
        await Task.Delay(Ending);
        using (var scope = Scope()) // after a roll-back the session goes on
        {
            await s.SendMessageAsync(In("S", "out"));
            await r.CompleteMessageAsync(m);
            scope.Complete();
        }
        var next = await OneAsync(r);
        Equal(Text(next), "out", "next in the session");
        await r.CompleteMessageAsync(next);
    }

    [Scenario("transaction-cross-entity")]
    public static async Task CrossEntity(Env e)
    {
        var (start, one, two) = (await e.QueueAsync(), await e.QueueAsync(), await e.QueueAsync());
        await e.SendAsync(start, new ServiceBusMessage("m"));
        var c = e.Client(1, o => o.EnableCrossEntityTransactions = true);
        var r = c.CreateReceiver(start); // the first to be used is the one that messages go through
        var m = await OneAsync(r);
        using (var scope = Scope())
        {
            await c.CreateSender(one).SendMessageAsync(new ServiceBusMessage("to-one"));
            await c.CreateSender(two).SendMessageAsync(new ServiceBusMessage("to-two"));
            await r.CompleteMessageAsync(m);
            using (new TransactionScope(TransactionScopeOption.Suppress, TransactionScopeAsyncFlowOption.Enabled))
            {
                EqualAll(await PeekedAsync(e.Receiver(one, 0)), [], "before the commit there is");
            }
            scope.Complete();
        }
        Equal(Text(await OneAsync(e.Receiver(one, 0))), "to-one", "sent to one");
        Equal(Text(await OneAsync(e.Receiver(two, 0))), "to-two", "sent to two");
        EqualAll(await PeekedAsync(e.Receiver(start, 0)), [], "left");
    }
}
