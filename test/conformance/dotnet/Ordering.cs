using Azure.Messaging.ServiceBus;
using static Busbar.Env;
using static Busbar.Scene;

namespace Busbar;

/// <summary>Order in sessions under the library's default loops, while messages arrive.</summary>
public sealed class Ordering
{
    private const int SessionCount = 10;

    /// <summary>A producer stays fewer messages than this ahead, so that receivers wait for messages, too.</summary>
    private const int Ahead = 30;

    private static readonly int Each =
        int.Parse(Environment.GetEnvironmentVariable("BUSBAR_MESSAGES") ?? "1000") / SessionCount;

    private readonly Env e;
    private readonly string queue;
    private readonly int[] next = [.. Enumerable.Repeat(1, SessionCount)];
    private readonly DateTime end = DateTime.UtcNow + Runner.Limit - TimeSpan.FromSeconds(5);
    private volatile string? wrong;

    private Ordering(Env e, string queue) => (this.e, this.queue) = (e, queue);

    private static async Task<Ordering> OfAsync(Env e) => new(e, await e.SessionQueueAsync());

    [Scenario("session-order")]
    public static async Task Default(Env e)
    {
        var o = await OfAsync(e);
        await Task.WhenAll(Enumerable.Range(0, SessionCount).SelectMany(s => new[] { o.ProduceAsync(s), o.ConsumeAsync(s) }));
        o.Done();
    }

    [Scenario("process-session-order")]
    public static async Task Processor(Env e)
    {
        var o = await OfAsync(e);
        await using var p = e.Client(1).CreateSessionProcessor(o.queue, new ServiceBusSessionProcessorOptions
        {
            MaxConcurrentSessions = SessionCount,
        });
        p.ProcessMessageAsync += args =>
        {
            o.See(args.Message);
            return Task.CompletedTask;
        };
        p.ProcessErrorAsync += _ => Task.CompletedTask; // links are lost when a leader dies
        await p.StartProcessingAsync();
        await Task.WhenAll(Enumerable.Range(0, SessionCount).Select(o.ProduceAsync));
        while (o.wrong is null && Enumerable.Range(0, SessionCount).Any(o.Misses) && DateTime.UtcNow < o.end)
        {
            await Task.Delay(50);
        }
        o.Done();
    }

    /// <summary>Expects that every session has given all, each message at its place.</summary>
    private void Done()
    {
        Check(wrong is null, wrong ?? "");
        EqualAll(next, Enumerable.Repeat(Each + 1, SessionCount), "the next message of each session");
    }

    private bool Misses(int session) => Volatile.Read(ref next[session]) <= Each;

    /// <summary>Notes a message. One that was seen before may come again, none may come ahead of its place.</summary>
    private void See(ServiceBusReceivedMessage m)
    {
        var (session, n) = (int.Parse(m.SessionId), int.Parse(Text(m)));
        if (n > next[session])
        {
            wrong ??= $"session {session}: {n} was handed out before {next[session]}";
        }
        else if (n == next[session])
        {
            Volatile.Write(ref next[session], n + 1);
        }
    }

    /// <summary>Sends the messages of a session one after the other; a failed send is repeated.</summary>
    private async Task ProduceAsync(int session)
    {
        var sender = e.Sender(queue, session + 1);
        for (var n = 1; n <= Each && wrong is null; n++)
        {
            while (!await TriedAsync(() => sender.SendMessageAsync(In($"{session}", $"{n}")))) { }
            for (var ahead = Random.Shared.Next(Ahead); n - Volatile.Read(ref next[session]) > ahead && wrong is null;)
            {
                Check(DateTime.UtcNow < end, $"session {session}: message {next[session]} never came");
                await Task.Delay(1);
            }
        }
    }

    /// <summary>Opens the session at the next node whenever a link is lost.</summary>
    private async Task ConsumeAsync(int session)
    {
        for (var at = session; Misses(session) && wrong is null; at++)
        {
            await TriedAsync(async () =>
            {
                await using var client = e.Client(at);
                await using var r = await client.AcceptSessionAsync(queue, $"{session}");
                while (Misses(session) && wrong is null)
                {
                    foreach (var m in await r.ReceiveMessagesAsync(10))
                    {
                        See(m);
                        await r.CompleteMessageAsync(m);
                    }
                }
            });
        }
    }

    /// <summary>Tells whether the call succeeded. Its failure ends the scenario when the time is over.</summary>
    private async Task<bool> TriedAsync(Func<Task> call)
    {
        try
        {
            await call();
            return true;
        }
        catch (Exception) when (wrong is null && DateTime.UtcNow < end)
        {
            await Task.Delay(50);
            return false;
        }
    }
}
