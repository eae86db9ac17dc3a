// Counts money. The running total is the state of the session, which says up to which message it counts. A message that
// comes again is counted once.
using Azure.Messaging.ServiceBus;

const string Queue = "checkpoint-payments", Account = "account-1";
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await using (var sender = client.CreateSender(Queue))
{
    await sender.SendMessagesAsync(
        new[] { "10", "20", "30" }.Select(amount => new ServiceBusMessage(amount) { SessionId = Account }));
}
await CountAsync(stopAt: 20);
await CountAsync(stopAt: null);

async Task CountAsync(int? stopAt)
{
    await using var session = await client.AcceptSessionAsync(Queue, Account);
    var checkpoint = (await session.GetSessionStateAsync())?.ToObjectFromJson<Checkpoint>() ?? new Checkpoint(0, 0);
    await foreach (var message in session.ReceiveMessagesAsync())
    {
        var amount = int.Parse(message.Body.ToString());
        if (message.SequenceNumber <= checkpoint.UpTo)
        {
            Console.WriteLine($"{amount} came again, the total is {checkpoint.Total} with it");
        }
        else
        {
            checkpoint = new Checkpoint(checkpoint.Total + amount, message.SequenceNumber);
            Console.WriteLine($"{amount} counted, the total is {checkpoint.Total}");
            // Only then may the message be completed.
            await session.SetSessionStateAsync(BinaryData.FromObjectAsJson(checkpoint));
        }
        if (amount == stopAt)
        {
            Console.WriteLine("the worker stops before it completes the message");
            return;
        }
        await session.CompleteMessageAsync(message);
        if (amount == 30)
        {
            await session.SetSessionStateAsync(null); // the last: clear the state, or it stays for ever
            return;
        }
    }
}

// A total, and the number of the last message in it.
internal record Checkpoint(long Total, long UpTo);
