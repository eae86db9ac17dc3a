// A worker does each job once, although two jobs reach it twice. The scheduler gives each message the id of its job.
using Azure.Messaging.ServiceBus;

const string Queue = "duplicates-jobs";
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await using var sender = client.CreateSender(Queue);
foreach (var job in new[] { "job-1", "job-2", "job-1" }) // the scheduler was restarted and sends job-1 a second time
{
    await sender.SendMessageAsync(new ServiceBusMessage() { MessageId = job });
}
await WorkAsync(4);

// Handles so many deliveries.
async Task WorkAsync(int deliveries)
{
    await using var receiver = client.CreateReceiver(Queue);
    var done = new HashSet<string>(); // stands for a table that is written in the same transaction as the work
    for (; deliveries > 0; deliveries--)
    {
        var message = await receiver.ReceiveMessageAsync();
        var job = message.MessageId;
        if (!done.Add(job))
        {
            Console.WriteLine($"{job}: skipped, delivery {message.DeliveryCount}");
            await receiver.CompleteMessageAsync(message);
            continue;
        }
        Console.WriteLine($"{job}: done, delivery {message.DeliveryCount}");
        if (job == "job-2")
        {
            await receiver.AbandonMessageAsync(message); // as if the lock had been lost before: it comes again
        }
        else
        {
            await receiver.CompleteMessageAsync(message);
        }
    }
}
