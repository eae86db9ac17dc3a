// Sends the same number of messages one at a time and ten at a time. The outcome of each send is looked at, in both
// cases.
using System.Diagnostics;
using Azure.Messaging.ServiceBus;

const int Count = 200;
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await using var sender = client.CreateSender("pipeline-readings");
using (await sender.CreateMessageBatchAsync()) // the link is there before the clock starts
{
}
foreach (var atATime in new[] { 1, 10 })
{
    var clock = Stopwatch.StartNew();
    await SendAsync(atATime);
    Console.WriteLine($"{Count} messages accepted, {atATime} at a time: {clock.ElapsedMilliseconds} ms");
}

// Has so many messages under way at a time. A send takes a place of the semaphore before it begins, and gives it back
// when its outcome is there.
async Task SendAsync(int atATime)
{
    using var places = new SemaphoreSlim(atATime);
    var outcomes = new List<Task>();
    for (var i = 0; i < Count; i++)
    {
        await places.WaitAsync();
        outcomes.Add(OneAsync(i));
    }
    await Task.WhenAll(outcomes);

    async Task OneAsync(int i)
    {
        try
        {
            await sender.SendMessageAsync(new ServiceBusMessage($"reading {i}"));
        }
        finally
        {
            places.Release();
        }
    }
}
