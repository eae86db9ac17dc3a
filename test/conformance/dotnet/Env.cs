using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Busbar;

/// <summary>What a scenario gets: clients and entities of its own.</summary>
public sealed class Env(string id, int index) : Scene("dotnet", id, index)
{
    public string DataString(int i = 0) => Line("BUSBAR_DATA", i);

    public string AdminString(int i = 0) => Line("BUSBAR_ADMIN", i);

    public ServiceBusClient Client(int i = 0, Action<ServiceBusClientOptions>? edit = null) => Client(DataString(i), edit);

    public ServiceBusClient Client(string connectionString, Action<ServiceBusClientOptions>? edit = null)
    {
        var options = new ServiceBusClientOptions
        {
            TransportType = Environment.GetEnvironmentVariable("BUSBAR_WIRE") == "websocket"
                ? ServiceBusTransportType.AmqpWebSockets
                : ServiceBusTransportType.AmqpTcp,
            RetryOptions = new ServiceBusRetryOptions
            {
                MaxRetries = 2,
                Delay = TimeSpan.FromMilliseconds(200),
                TryTimeout = Soon,
            },
        };
        edit?.Invoke(options);
        var client = new ServiceBusClient(connectionString, options);
        Later(async () => await client.DisposeAsync());
        return client;
    }

    public ServiceBusAdministrationClient Admin(int i = 0) => Busbar.Admin.Of(AdminString(i));

    public async Task<string> QueueAsync(Action<CreateQueueOptions>? edit = null)
    {
        var options = new CreateQueueOptions(Name());
        edit?.Invoke(options);
        await Admin().CreateQueueAsync(options);
        Later(() => Admin().DeleteQueueAsync(options.Name));
        return options.Name;
    }

    public Task<string> SessionQueueAsync(TimeSpan? lockDuration = null) => QueueAsync(o =>
    {
        o.RequiresSession = true;
        o.LockDuration = lockDuration ?? o.LockDuration;
    });

    public async Task<string> TopicAsync()
    {
        var name = Name("t");
        await Admin().CreateTopicAsync(name);
        Later(() => Admin().DeleteTopicAsync(name));
        return name;
    }

    public ServiceBusSender Sender(string entity, int i = 0) => Client(i).CreateSender(entity);

    public ServiceBusReceiver Receiver(string queue, int i = 1, ServiceBusReceiverOptions? options = null) =>
        Client(i).CreateReceiver(queue, options);

    /// <summary>
    /// A receiver that fetches ahead. Without that the library releases what comes between two receives, so that
    /// it comes again behind later messages.
    /// </summary>
    public ServiceBusReceiver InOrder(string queue) => Receiver(queue, 1, new ServiceBusReceiverOptions { PrefetchCount = 100 });

    public ServiceBusReceiver DeadLetters(string queue, int i = 0) =>
        Receiver(queue, i, new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });

    /// <summary>Accepts a session; null: the next one with messages.</summary>
    public Task<ServiceBusSessionReceiver> AcceptAsync(string queue, string? session, int i = 1) => session is null
        ? Client(i).AcceptNextSessionAsync(queue)
        : Client(i).AcceptSessionAsync(queue, session);

    public async Task SendAsync(string entity, params ServiceBusMessage[] messages) =>
        await Sender(entity).SendMessagesAsync(messages);

    public static ServiceBusMessage In(string session, string body) => new(body) { SessionId = session };

    public static async Task<List<ServiceBusReceivedMessage>> TakeAsync(ServiceBusReceiver receiver, int n)
    {
        var got = new List<ServiceBusReceivedMessage>();
        for (var end = DateTime.UtcNow + Soon; got.Count < n;)
        {
            var left = end - DateTime.UtcNow;
            Check(left > TimeSpan.Zero, $"received {got.Count} of {n}: {string.Join(", ", Texts(got))}");
            got.AddRange(await receiver.ReceiveMessagesAsync(n - got.Count, left));
        }
        return got;
    }

    public static async Task<ServiceBusReceivedMessage> OneAsync(ServiceBusReceiver receiver) =>
        (await TakeAsync(receiver, 1))[0];

    public static async Task NoneAsync(ServiceBusReceiver receiver) =>
        EqualAll(Texts(await receiver.ReceiveMessagesAsync(1, Quiet)), [], "received");

    public static async Task CompleteAsync(ServiceBusReceiver receiver, IEnumerable<ServiceBusReceivedMessage> messages)
    {
        foreach (var m in messages)
        {
            await receiver.CompleteMessageAsync(m);
        }
    }

    /// <summary>The date n seconds from now, in whole milliseconds, as AMQP carries it.</summary>
    public static DateTimeOffset Seconds(int n) =>
        DateTimeOffset.FromUnixTimeMilliseconds(DateTimeOffset.UtcNow.ToUnixTimeMilliseconds()).AddSeconds(n);

    /// <summary>Fails when it is not yet the date that a message was scheduled for.</summary>
    public static void OnTime(DateTimeOffset at)
    {
        var now = DateTimeOffset.UtcNow;
        Check(now >= at, $"received at {now:O}, before its time {at:O}");
    }

    public static string Text(ServiceBusReceivedMessage m) => m.Body.ToString();

    public static IEnumerable<string> Texts(IEnumerable<ServiceBusReceivedMessage> messages) => messages.Select(Text);

    /// <summary>What a receiver sees of the queue from its beginning, without taking it.</summary>
    public static async Task<IEnumerable<string>> PeekedAsync(ServiceBusReceiver receiver) =>
        Texts(await receiver.PeekMessagesAsync(50, 1));

    /// <summary>Expects the library's own reason.</summary>
    public static async Task<ServiceBusException> FailsAsync(ServiceBusFailureReason reason, Func<Task> call)
    {
        var e = await FailsAsync<ServiceBusException>(call);
        Equal(e.Reason, reason, $"{e.Message}: reason");
        return e;
    }
}
