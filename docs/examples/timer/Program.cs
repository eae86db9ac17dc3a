// Runs logins with a time limit. Each login schedules the message that ends it, and keeps the number of that message in
// the state of its session. It cancels the message when the code comes in time.
using Azure.Messaging.ServiceBus;

const string Queue = "timer-logins";
var limit = TimeSpan.FromSeconds(5);
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await using var sender = client.CreateSender(Queue);
// Ann asks for a code and enters it. Bob asks for one and goes away.
await sender.SendMessageAsync(Of("ann", "ask"));
await sender.SendMessageAsync(Of("ann", "enter"));
await sender.SendMessageAsync(Of("bob", "ask"));
await LoginAsync("ann");
await LoginAsync("bob");

static ServiceBusMessage Of(string user, string subject) => new() { SessionId = user, Subject = subject };

// Handles the messages of one user until the user is in or the time is over.
async Task LoginAsync(string user)
{
    await using var session = await client.AcceptSessionAsync(Queue, user);
    await foreach (var message in session.ReceiveMessagesAsync())
    {
        switch (message.Subject)
        {
            case "ask":
                var number = await sender.ScheduleMessageAsync(Of(user, "lapse"), DateTimeOffset.UtcNow + limit);
                await session.SetSessionStateAsync(BinaryData.FromString(number.ToString()));
                Console.WriteLine($"{user}: has a code for {limit.TotalSeconds} s");
                break;
            case "enter":
                var kept = await session.GetSessionStateAsync();
                await sender.CancelScheduledMessageAsync(long.Parse(kept.ToString()));
                Console.WriteLine($"{user}: is in, the timer is cancelled");
                break;
            default:
                Console.WriteLine($"{user}: the code has lapsed");
                break;
        }
        await session.CompleteMessageAsync(message);
        if (message.Subject != "ask")
        {
            break;
        }
    }
    await session.SetSessionStateAsync(null);
}
