// A worker dead-letters an order that it cannot read, and a repairer reads dead letters, repairs them and sends them
// again.
using Azure.Messaging.ServiceBus;

const string Queue = "deadletters-orders";
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await using var sender = client.CreateSender(Queue);
foreach (var amount in new[] { "10", "twenty" })
{
    await sender.SendMessageAsync(new ServiceBusMessage(amount) { MessageId = $"order-{amount}" });
}
await WorkAsync(2);
await RepairAsync();
await WorkAsync(1);

// Handles so many orders. To try again would not help an amount that is no number, so it is rejected at once.
async Task WorkAsync(int orders)
{
    await using var receiver = client.CreateReceiver(Queue);
    for (; orders > 0; orders--)
    {
        var message = await receiver.ReceiveMessageAsync();
        if (int.TryParse(message.Body.ToString(), out var amount))
        {
            Console.WriteLine($"{message.MessageId}: paid {amount}");
            await receiver.CompleteMessageAsync(message);
        }
        else
        {
            Console.WriteLine($"{message.MessageId}: rejected");
            await receiver.DeadLetterMessageAsync(message, "NoNumber", $"\"{message.Body}\" is no number");
        }
    }
}

// Repairs one dead letter. It completes the dead letter after the new message is stored: a crash in between leaves
// both, not neither.
async Task RepairAsync()
{
    var deadLetters = new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter };
    await using var receiver = client.CreateReceiver(Queue, deadLetters);
    var dead = await receiver.ReceiveMessageAsync();
    var why = $"{dead.DeadLetterReason}, {dead.DeadLetterErrorDescription}";
    Console.WriteLine($"{dead.MessageId}: {why}; sent again as 20");
    await sender.SendMessageAsync(new ServiceBusMessage("20") { MessageId = dead.MessageId });
    await receiver.CompleteMessageAsync(dead);
}
