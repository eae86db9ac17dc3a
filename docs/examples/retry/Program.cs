// Tries failed calls again, later each time. The message of the next attempt is scheduled, so the worker does other
// things meanwhile; the last attempt ends in the dead-letter queue.
using Azure.Messaging.ServiceBus;

const string Queue = "retry-calls";
const int Attempts = 3;
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await using var sender = client.CreateSender(Queue);
await using var receiver = client.CreateReceiver(Queue);
foreach (var name in new[] { "busy", "gone" }) // the first answers at the third call, the second never
{
    await sender.SendMessageAsync(new ServiceBusMessage(name));
    while (!await WorkAsync(await receiver.ReceiveMessageAsync()))
    {
    }
}

static void Call(string name, int attempt)
{
    if (name != "busy" || attempt < 3)
    {
        throw new IOException("no answer");
    }
}

// Makes one attempt and tells whether it was the last.
async Task<bool> WorkAsync(ServiceBusReceivedMessage message)
{
    var name = message.Body.ToString();
    var attempt = message.ApplicationProperties.TryGetValue("attempt", out var number) ? (int)number : 1;
    try
    {
        Call(name, attempt);
    }
    catch (IOException e)
    {
        if (attempt == Attempts)
        {
            Console.WriteLine($"{name}: attempt {attempt}: {e.Message}; to the dead letters");
            await receiver.DeadLetterMessageAsync(message, "TooManyAttempts", e.Message);
            return true;
        }
        var delay = TimeSpan.FromSeconds(1 << (attempt - 1));
        Console.WriteLine($"{name}: attempt {attempt}: {e.Message}; again in {delay.TotalSeconds}s");
        var again = new ServiceBusMessage(name) { MessageId = message.MessageId };
        again.ApplicationProperties["attempt"] = attempt + 1;
        await sender.ScheduleMessageAsync(again, DateTimeOffset.UtcNow + delay);
        await receiver.CompleteMessageAsync(message); // only now: a crash before it repeats an attempt, and loses none
        return false;
    }
    Console.WriteLine($"{name}: attempt {attempt} succeeded");
    await receiver.CompleteMessageAsync(message);
    return true;
}
