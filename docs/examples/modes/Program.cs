// Receives the same number of messages in both modes and measures them. Then it shows what each mode leaves of a
// message whose worker failed.
using System.Diagnostics;
using Azure.Messaging.ServiceBus;

const string Queue = "modes-samples";
const int Count = 200;
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
foreach (var (mode, name) in new[]
{
    (ServiceBusReceiveMode.ReceiveAndDelete, "receive and delete"), (ServiceBusReceiveMode.PeekLock, "peek-lock"),
})
{
    await MeasureAsync(mode, name);
    await FailAsync(mode, name);
}

ServiceBusReceiver Receiver(ServiceBusReceiveMode mode) =>
    client.CreateReceiver(Queue, new ServiceBusReceiverOptions { ReceiveMode = mode });

async Task SendAsync(int n)
{
    await using var sender = client.CreateSender(Queue);
    await sender.SendMessagesAsync(Enumerable.Range(0, n).Select(_ => new ServiceBusMessage("sample")));
}

async Task MeasureAsync(ServiceBusReceiveMode mode, string name)
{
    await SendAsync(Count);
    await using var receiver = Receiver(mode);
    var clock = Stopwatch.StartNew();
    for (var received = 0; received < Count;)
    {
        var messages = await receiver.ReceiveMessagesAsync(20);
        received += messages.Count;
        foreach (var message in messages.Where(_ => mode == ServiceBusReceiveMode.PeekLock))
        {
            await receiver.CompleteMessageAsync(message);
        }
    }
    Console.WriteLine($"{name}: {Count} messages in {clock.ElapsedMilliseconds} ms");
}

// A worker takes one more message and fails.
async Task FailAsync(ServiceBusReceiveMode mode, string name)
{
    await SendAsync(1);
    await using var receiver = Receiver(mode);
    var message = await receiver.ReceiveMessageAsync();
    if (mode == ServiceBusReceiveMode.PeekLock)
    {
        await receiver.AbandonMessageAsync(message);
    }
    var again = await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(3)); // null if nothing comes
    Console.WriteLine($"{name}: the message of the failed worker is {(again is null ? "lost" : "there again")}");
    if (again is not null)
    {
        await receiver.CompleteMessageAsync(again);
    }
}
