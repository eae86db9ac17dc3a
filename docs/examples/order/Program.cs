// Three messages and two consumers, of which the first is slow. Without sessions the messages are handed out in order
// and finished in another one. In a session they are finished in order, too.
using Azure.Messaging.ServiceBus;

var connection = Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING");
await using var client = new ServiceBusClient(connection);
await WithoutAsync();
await WithinAsync();

async Task SendAsync(string queue)
{
    await using var sender = client.CreateSender(queue);
    foreach (var body in new[] { "1", "2", "3" })
    {
        // A queue without sessions takes the session's id for a property.
        await sender.SendMessageAsync(new ServiceBusMessage(body) { SessionId = "set-1" });
    }
}

// Takes and completes so many messages, and returns them in the order in which they were finished.
async Task<string> FinishAsync(ServiceBusReceiver receiver, int count)
{
    var finished = new List<string>();
    while (finished.Count < count)
    {
        var message = await receiver.ReceiveMessageAsync();
        await receiver.CompleteMessageAsync(message);
        finished.Add(message.Body.ToString());
    }
    return string.Join(' ', finished);
}

async Task WithoutAsync()
{
    await SendAsync("order-plain");
    await using var slow = client.CreateReceiver("order-plain");
    await using var quick = client.CreateReceiver("order-plain");
    var first = await slow.ReceiveMessageAsync();
    var finished = await FinishAsync(quick, 2); // while the slow consumer works on the first
    await slow.CompleteMessageAsync(first);
    Console.WriteLine($"without a session: {finished} {first.Body}");
}

async Task WithinAsync()
{
    await SendAsync("order-session");
    await using var slow = await client.AcceptNextSessionAsync("order-session");
    await using var impatient = new ServiceBusClient(connection, new ServiceBusClientOptions
    {
        RetryOptions = new ServiceBusRetryOptions { MaxRetries = 0, TryTimeout = TimeSpan.FromSeconds(2) },
    });
    try
    {
        await impatient.AcceptNextSessionAsync("order-session");
        throw new InvalidOperationException("two consumers hold one session");
    }
    catch (ServiceBusException e) when (e.Reason == ServiceBusFailureReason.ServiceTimeout)
    {
        Console.WriteLine("the second consumer gets nothing of the session");
    }
    Console.WriteLine($"within a session: {await FinishAsync(slow, 3)}");
}
