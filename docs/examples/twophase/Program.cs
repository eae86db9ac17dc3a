// Sends in two phases. Phase 1 stores a message within a transaction of the broker, where no worker sees it. Phase 2
// commits the transaction or rolls it back, as the local transaction has decided.
using System.Transactions;
using Azure.Messaging.ServiceBus;

const string Queue = "twophase-ready";
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await PrepareAsync("order 1", committed: true);
await PrepareAsync("order 2", committed: false);
await PrepareAsync("order 3", committed: null);
await ReceiveAsync();

// Sends an order. Committed is what its local transaction has come to, and null if the process stops before.
async Task PrepareAsync(string order, bool? committed)
{
    await using var sender = client.CreateSender(Queue);
    using (var transaction = new TransactionScope(TransactionScopeAsyncFlowOption.Enabled))
    {
        await sender.SendMessageAsync(new ServiceBusMessage(order));
        Console.WriteLine($"{order}: prepared, " + committed switch
        {
            true => "committed here",
            false => "rolled back here",
            null => "and the process stops before it decides",
        });
        if (committed == true)
        {
            transaction.Complete();
        }
    } // the end of the scope commits what is complete, and rolls back the rest
    if (committed is not null)
    {
        Console.WriteLine($"{order}: is {(committed == true ? "ready" : "deleted")}");
    }
}

async Task ReceiveAsync()
{
    await using var receiver = client.CreateReceiver(Queue);
    var message = await receiver.ReceiveMessageAsync();
    Console.WriteLine($"{message.Body}: received");
    await receiver.CompleteMessageAsync(message);
    Console.WriteLine($"{(await receiver.PeekMessagesAsync(10)).Count} messages are left");
}
