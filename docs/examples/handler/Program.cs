// Runs a handler whose work takes longer than the lock of its message. The processor of the SDK runs the loop: it
// renews the lock, completes when the handler is done and abandons when it fails.
using Azure.Messaging.ServiceBus;

const string Queue = "handler-reports"; // its locks last 10 s
var work = TimeSpan.FromSeconds(12);
var left = 3; // deliveries
var over = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await using (var sender = client.CreateSender(Queue))
{
    await sender.SendMessageAsync(new ServiceBusMessage("long"));
    await sender.SendMessageAsync(new ServiceBusMessage("broken"));
}
await using var processor = client.CreateProcessor(Queue, new ServiceBusProcessorOptions
{
    MaxConcurrentCalls = 1,
    MaxAutoLockRenewalDuration = TimeSpan.FromMinutes(1), // a handler that hangs loses its message then
});
processor.ProcessMessageAsync += HandleAsync;
processor.ProcessErrorAsync += args =>
{
    Console.Error.WriteLine($"{args.ErrorSource}: {args.Exception.Message}");
    return Task.CompletedTask;
};
await processor.StartProcessingAsync();
await over.Task;
await processor.StopProcessingAsync(); // after the last completion

async Task HandleAsync(ProcessMessageEventArgs args)
{
    try
    {
        await WriteAsync(args.Message.Body.ToString(), args.Message.DeliveryCount);
    }
    catch (InvalidOperationException e)
    {
        Console.WriteLine($"{args.Message.Body}: failed: {e.Message}");
        throw; // the SDK abandons the message
    }
    finally
    {
        if (--left == 0)
        {
            over.TrySetResult();
        }
    }
}

async Task WriteAsync(string report, int delivery)
{
    Console.WriteLine($"{report}: begins, delivery {delivery}");
    if (report == "broken" && delivery == 1)
    {
        throw new InvalidOperationException("the printer is out of paper");
    }
    if (report == "long")
    {
        await Task.Delay(work);
    }
    Console.WriteLine($"{report}: done");
}
