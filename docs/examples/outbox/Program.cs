// Sends what a database has decided. An order and its message are written in one local transaction. A relay sends the
// messages afterwards, as often as it must, and the queue drops what it has already.
using Azure.Messaging.ServiceBus;

const string Queue = "outbox-orders"; // detects duplicates
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
// The list stands for a table of your database. The id of a message is that of its row.
var outbox = Enumerable.Range(1, 3).Select(i => new Row(Guid.NewGuid().ToString(), $"order {i}")).ToList();
Console.WriteLine("3 orders and their messages are committed");
await RelayAsync("order 2"); // it stops before it notes that the second message was sent
await RelayAsync(null);
await ReceiveAsync();

// Sends the rows that are not noted as sent, and notes each when its outcome is there.
async Task RelayAsync(string? stopAt)
{
    await using var sender = client.CreateSender(Queue);
    foreach (var row in outbox.Where(row => !row.Sent))
    {
        await sender.SendMessageAsync(new ServiceBusMessage(row.Body) { MessageId = row.Id });
        Console.WriteLine($"{row.Body}: sent");
        if (row.Body == stopAt)
        {
            Console.WriteLine("the relay stops before it notes that");
            return;
        }
        row.Sent = true;
    }
}

// Shows all that the queue has.
async Task ReceiveAsync()
{
    await using var receiver = client.CreateReceiver(Queue);
    for (var received = 0; received < 3; received++)
    {
        var message = await receiver.ReceiveMessageAsync();
        Console.WriteLine($"{message.Body}: received");
        await receiver.CompleteMessageAsync(message);
    }
    Console.WriteLine($"{(await receiver.PeekMessagesAsync(10)).Count} messages are left");
}

internal class Row(string id, string body)
{
    public string Id { get; } = id;
    public string Body { get; } = body;
    public bool Sent { get; set; }
}
