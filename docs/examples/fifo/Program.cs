// Hands over two files as sequences of messages that travel interleaved through one queue. Each sequence is a session:
// one consumer gets it whole and in order, whatever the other consumers do.
using Azure.Messaging.ServiceBus;

const string Queue = "fifo-files";
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await SendAsync();
var files = await Task.WhenAll(ConsumeAsync(), ConsumeAsync());
Console.WriteLine(string.Join(Environment.NewLine, files.Order(StringComparer.Ordinal)));

// Sends two sequences, one message of each in turn. The subject tells where a sequence begins and ends.
async Task SendAsync()
{
    await using var sender = client.CreateSender(Queue);
    foreach (var (i, subject) in new[] { "start", "content", "content", "end" }.Index())
    {
        foreach (var file in new[] { "letter", "report" })
        {
            var message = new ServiceBusMessage($"{file}, part {i}") { SessionId = file, Subject = subject };
            await sender.SendMessageAsync(message);
        }
    }
}

// Takes a session that nobody holds, reads it from start to end and gives it back at once.
async Task<string> ConsumeAsync()
{
    await using var session = await client.AcceptNextSessionAsync(Queue);
    var lines = new List<string>();
    long? start = null;
    await foreach (var message in session.ReceiveMessagesAsync())
    {
        if (message.Subject == "start")
        {
            start = message.SequenceNumber;
        }
        var behind = message.SequenceNumber - (start ?? throw new InvalidDataException("a sequence without a start"));
        lines.Add($"{message.Subject,-7} {message.Body}, number {behind} behind the start");
        await session.CompleteMessageAsync(message);
        if (message.Subject == "end")
        {
            break;
        }
    }
    return string.Join(Environment.NewLine, lines);
}
