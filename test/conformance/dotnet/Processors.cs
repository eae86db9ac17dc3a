using System.Collections.Concurrent;
using System.Diagnostics;
using Azure.Messaging.ServiceBus;
using static Busbar.Env;
using static Busbar.Scene;

namespace Busbar;

public static class Processors
{
    /// <summary>What the handlers of a processor saw, and what went wrong.</summary>
    private sealed class Seen
    {
        private readonly ConcurrentQueue<ServiceBusReceivedMessage> messages = new();
        private readonly ConcurrentQueue<Exception> errors = new();

        public IReadOnlyCollection<ServiceBusReceivedMessage> Messages => messages;
        public IReadOnlyCollection<Exception> Errors => errors;

        public void Add(ServiceBusReceivedMessage m) => messages.Enqueue(m);

        public Task FailedAsync(ProcessErrorEventArgs args)
        {
            errors.Enqueue(args.Exception);
            return Task.CompletedTask;
        }

        public bool Told(ServiceBusFailureReason reason) => errors.Any(x => x is ServiceBusException s && s.Reason == reason);

        public void NoErrors() => EqualAll(errors.Select(x => x.Message), [], "errors");
    }

    private static async Task<(Seen, ServiceBusProcessor)> StartAsync(
        Env e, string q, ServiceBusProcessorOptions options, Func<ProcessMessageEventArgs, Task> handle)
    {
        var seen = new Seen();
        var p = e.Client(1).CreateProcessor(q, options);
        e.Later(async () => await p.DisposeAsync());
        p.ProcessMessageAsync += args =>
        {
            seen.Add(args.Message);
            return handle(args);
        };
        p.ProcessErrorAsync += seen.FailedAsync;
        await p.StartProcessingAsync();
        return (seen, p);
    }

    private static async Task<Seen> StartSessionsAsync(
        Env e, string q, ServiceBusSessionProcessorOptions options, Func<Seen, ProcessSessionMessageEventArgs, Task> handle)
    {
        var seen = new Seen();
        var p = e.Client(1).CreateSessionProcessor(q, options);
        e.Later(async () => await p.DisposeAsync());
        p.ProcessMessageAsync += args =>
        {
            seen.Add(args.Message);
            return handle(seen, args);
        };
        p.ProcessErrorAsync += seen.FailedAsync;
        await p.StartProcessingAsync();
        return seen;
    }

    private static Task<string> FilledAsync(Env e, int n, int lockSeconds = 60) =>
        Receiving.FilledAsync(e, n, o => o.LockDuration = TimeSpan.FromSeconds(lockSeconds));

    private static async Task GoneAsync(Env e, string q)
    {
        var r = e.Receiver(q, 0);
        await UntilAsync("the queue is empty", async () => (await r.PeekMessagesAsync(1, 0)).Count == 0);
    }

    private static readonly ServiceBusProcessorOptions Default = new();
    private static readonly TimeSpan LongerThanItsLock = TimeSpan.FromSeconds(15);

    [Scenario("process-complete")]
    public static async Task Complete(Env e)
    {
        var q = await FilledAsync(e, 10);
        var (seen, _) = await StartAsync(e, q, Default, _ => Task.CompletedTask);
        await UntilAsync("ten messages", () => seen.Messages.Count == 10);
        await GoneAsync(e, q);
        seen.NoErrors();
    }

    [Scenario("process-abandon")]
    public static async Task Abandon(Env e)
    {
        var q = await FilledAsync(e, 1);
        var (seen, _) = await StartAsync(e, q, Default, args =>
            args.Message.DeliveryCount < 3 ? throw new TimeoutException("again") : Task.CompletedTask);
        await UntilAsync("three deliveries", () => seen.Messages.Count == 3);
        await GoneAsync(e, q);
        EqualAll(seen.Errors.Select(x => x.Message), ["again", "again"], "told of");
    }

    [Scenario("process-manual")]
    public static async Task Manual(Env e)
    {
        var q = await FilledAsync(e, 3);
        var (seen, _) = await StartAsync(e, q, new() { AutoCompleteMessages = false }, args => Text(args.Message) == "m1"
            ? args.DeadLetterMessageAsync(args.Message, "by hand")
            : args.CompleteMessageAsync(args.Message));
        await UntilAsync("three messages", () => seen.Messages.Count == 3);
        Equal((await OneAsync(e.DeadLetters(q))).DeadLetterReason, "by hand", "reason");
        await GoneAsync(e, q);
        seen.NoErrors();
    }

    [Scenario("process-concurrent")]
    public static async Task Concurrent(Env e)
    {
        var q = await FilledAsync(e, 12);
        var (now, done, most) = (0, 0, 0);
        var guard = new Lock();
        await StartAsync(e, q, new() { MaxConcurrentCalls = 4 }, async _ =>
        {
            lock (guard)
            {
                most = Math.Max(most, ++now);
            }
            await Task.Delay(300);
            lock (guard)
            {
                (now, done) = (now - 1, done + 1);
            }
        });
        await UntilAsync("twelve messages", () => Volatile.Read(ref done) == 12);
        Check(most is > 1 and <= 4, $"{most} handlers at once");
    }

    [Scenario("process-renew")]
    public static async Task Renew(Env e)
    {
        var q = await FilledAsync(e, 1, lockSeconds: 10);
        var done = new TaskCompletionSource();
        var (seen, _) = await StartAsync(e, q, Default, async _ =>
        {
            await Task.Delay(LongerThanItsLock);
            done.SetResult();
        });
        await done.Task.WaitAsync(Soon);
        await GoneAsync(e, q);
        Equal(seen.Messages.Count, 1, "deliveries");
    }

    /// <summary>
    /// Has a handler work until its message is delivered again; returns how long that took. The handler's
    /// settlement fails then, which is told, and the processor goes on.
    /// </summary>
    private static async Task<TimeSpan> LostAtWorkAsync(Env e, TimeSpan renewed)
    {
        var q = await FilledAsync(e, 1, lockSeconds: 5);
        var again = new TaskCompletionSource();
        var took = TimeSpan.Zero;
        var options = new ServiceBusProcessorOptions
        {
            MaxConcurrentCalls = 2, MaxAutoLockRenewalDuration = renewed, AutoCompleteMessages = false,
        };
        var (seen, _) = await StartAsync(e, q, options, async args =>
        {
            if (args.Message.DeliveryCount == 2)
            {
                again.SetResult();
            }
            else if (Text(args.Message) == "m0")
            {
                var watch = Stopwatch.StartNew();
                await again.Task.WaitAsync(Soon);
                took = watch.Elapsed;
            }
            await args.CompleteMessageAsync(args.Message);
        });
        await UntilAsync("the loss is told", () => seen.Told(ServiceBusFailureReason.MessageLockLost));
        await e.SendAsync(q, new ServiceBusMessage("next"));
        await UntilAsync("the next message", () => seen.Messages.Count == 3);
        EqualAll(seen.Messages.Select(m => $"{Text(m)} {m.DeliveryCount}"), ["m0 1", "m0 2", "next 1"], "bodies and counts");
        await GoneAsync(e, q);
        return took;
    }

    [Scenario("process-lost")]
    public static Task Lost(Env e) => LostAtWorkAsync(e, TimeSpan.Zero);

    [Scenario("process-renew-limit")]
    public static async Task RenewLimit(Env e)
    {
        var took = await LostAtWorkAsync(e, TimeSpan.FromSeconds(8));
        Check(took > TimeSpan.FromSeconds(6.5), $"a lock of 5 s that is renewed for 8 s was lost after {took}");
    }

    [Scenario("process-stop")]
    public static async Task Stop(Env e)
    {
        var q = await FilledAsync(e, 2);
        var (seen, p) = await StartAsync(e, q, Default, _ => Task.CompletedTask);
        await UntilAsync("two messages", () => seen.Messages.Count == 2);
        await GoneAsync(e, q);
        await p.StopProcessingAsync();
        await e.SendAsync(q, new ServiceBusMessage("after"));
        Equal(Text(await OneAsync(e.Receiver(q, 0))), "after", "body");
        Equal(seen.Messages.Count, 2, "deliveries");
    }

    [Scenario("process-error")]
    public static async Task Error(Env e)
    {
        var (seen, _) = await StartAsync(e, e.Name(), Default, _ => Task.CompletedTask);
        await UntilAsync("an error", () => seen.Told(ServiceBusFailureReason.MessagingEntityNotFound));
    }

    [Scenario("process-session")]
    public static async Task Session(Env e)
    {
        var q = await e.SessionQueueAsync();
        await e.SendAsync(q, [.. Receiving.Bodies(10).Select(b => In("S", b))]);
        var seen = await StartSessionsAsync(e, q, new() { MaxConcurrentSessions = 1 }, (_, _) => Task.CompletedTask);
        await UntilAsync("ten messages", () => seen.Messages.Count == 10);
        EqualAll(Texts(seen.Messages), Receiving.Bodies(10), "in order");
    }

    [Scenario("process-session-renew")]
    public static async Task SessionRenew(Env e)
    {
        var q = await e.SessionQueueAsync(TimeSpan.FromSeconds(10));
        await e.SendAsync(q, In("S", "x"));
        var done = new TaskCompletionSource();
        var seen = await StartSessionsAsync(e, q, new() { MaxConcurrentSessions = 1 }, async (_, _) =>
        {
            await Task.Delay(LongerThanItsLock);
            done.SetResult();
        });
        await done.Task.WaitAsync(Soon);
        await GoneAsync(e, q);
        Equal(seen.Messages.Count, 1, "deliveries");
    }

    [Scenario("process-session-lost")]
    public static async Task SessionLost(Env e)
    {
        var q = await e.SessionQueueAsync(TimeSpan.FromSeconds(5));
        await e.SendAsync(q, In("S", "x"));
        var options = new ServiceBusSessionProcessorOptions
        {
            MaxConcurrentSessions = 2, MaxAutoLockRenewalDuration = TimeSpan.Zero, AutoCompleteMessages = false,
        };
        var seen = await StartSessionsAsync(e, q, options, async (all, args) =>
        {
            if (args.Message.DeliveryCount == 1)
            {
                await UntilAsync("another delivery", () => all.Messages.Count == 2);
            }
            await args.CompleteMessageAsync(args.Message);
        });
        await UntilAsync("the loss is told", () => seen.Told(ServiceBusFailureReason.SessionLockLost));
        await GoneAsync(e, q);
        EqualAll(seen.Messages.Select(m => m.DeliveryCount), [1, 2], "counts");
    }

    [Scenario("process-sessions")]
    public static async Task Sessions(Env e)
    {
        var q = await e.SessionQueueAsync();
        string[] sessions = ["A", "B", "C"];
        foreach (var s in sessions)
        {
            await e.SendAsync(q, [.. Enumerable.Range(0, 3).Select(i => In(s, $"{s}{i}"))]);
        }
        var seen = await StartSessionsAsync(e, q, new() { MaxConcurrentSessions = 3 }, (_, _) => Task.CompletedTask);
        await UntilAsync("nine messages", () => seen.Messages.Count == 9);
        foreach (var s in sessions)
        {
            EqualAll(Texts(seen.Messages.Where(m => m.SessionId == s)), [$"{s}0", $"{s}1", $"{s}2"], "in order");
        }
    }
}
