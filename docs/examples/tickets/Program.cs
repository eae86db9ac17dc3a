// Sells three tickets to the first three who asked. Two clerks work side by side and finish in any order; the sequence
// numbers of the requests decide.
using Azure.Messaging.ServiceBus;

const string Queue = "tickets-requests";
const int Tickets = 3;
string[] buyers = ["ann", "bob", "ann", "cid", "dan", "eve"]; // they ask in this order; ann is impatient
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await using var sender = client.CreateSender(Queue);
foreach (var buyer in buyers)
{
    await sender.SendMessageAsync(new ServiceBusMessage(buyer));
}
var notes = await Task.WhenAll(CollectAsync(buyers.Length / 2), CollectAsync(buyers.Length / 2));
// Each buyer once, by the first request.
var inOrder = notes.SelectMany(note => note).OrderBy(note => note.Number).Select(note => note.Buyer).Distinct();
foreach (var (i, buyer) in inOrder.Index())
{
    Console.WriteLine(i < Tickets ? $"{buyer}: ticket {i + 1}" : $"{buyer}: sold out");
}

// Is a clerk who notes so many requests: who asks, and with which number.
async Task<List<(long Number, string Buyer)>> CollectAsync(int requests)
{
    var noted = new List<(long, string)>();
    await using var receiver = client.CreateReceiver(Queue);
    while (noted.Count < requests)
    {
        var message = await receiver.ReceiveMessageAsync();
        noted.Add((message.SequenceNumber, message.Body.ToString()));
        await receiver.CompleteMessageAsync(message);
    }
    return noted;
}
