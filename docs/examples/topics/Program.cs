// Publishes trades. Each subscription gets those that its rule selects, and one rule marks what it passes on.
using Azure.Messaging.ServiceBus;

const string Topic = "topics-trades";
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await using var sender = client.CreateSender(Topic);
await sender.SendMessageAsync(Trade("eu", 500));
await sender.SendMessageAsync(Trade("eu", 5000));
await sender.SendMessageAsync(Trade("us", 2000));
// How many of the trades each subscription gets; Config.json has their rules.
await ShowAsync("all", 3);
await ShowAsync("europe", 2);
await ShowAsync("large", 2);

static ServiceBusMessage Trade(string region, int amount) => new()
{
    Subject = "trade",
    ApplicationProperties = { ["region"] = region, ["amount"] = amount },
};

async Task ShowAsync(string subscription, int count)
{
    await using var receiver = client.CreateReceiver(Topic, subscription);
    for (var shown = 0; shown < count; shown++)
    {
        var message = await receiver.ReceiveMessageAsync();
        var trade = message.ApplicationProperties;
        var desk = trade.TryGetValue("desk", out var written) ? written : "no desk";
        Console.WriteLine($"{subscription}: {trade["region"]} {trade["amount"]}, {desk}");
        await receiver.CompleteMessageAsync(message);
    }
    var left = await receiver.PeekMessagesAsync(10);
    if (left.Count > 0)
    {
        throw new InvalidOperationException($"{subscription} has {left.Count} messages more than its rule selects");
    }
}
