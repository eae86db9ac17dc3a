// The test of the kit, and how it is used. It exits with 1 when something is not so.
using Azure.Messaging.ServiceBus;
using BusbarTest;

string name;
await using (var busbar = await Busbar.StartAsync())
{
    var queue = busbar.Name("orders");
    await busbar.Administration.CreateQueueAsync(queue);
    await using var client = busbar.CreateClient();
    await client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage("hello"));
    var receiver = client.CreateReceiver(queue);
    var message = await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(20));
    Check(message?.Body.ToString() == "hello", "the message did not come");
    await receiver.CompleteMessageAsync(message);
    Check(busbar.Name("orders") != queue, "a name was given twice");
    await busbar.ResetAsync();
    Check(!await busbar.Administration.QueueExistsAsync(queue), "the queue is still there");
    name = busbar.ConnectionString;
}
await using (var other = await Busbar.StartAsync())
{
    Check(other.ConnectionString != name, "the first broker still holds its port");
}
try
{
    await Busbar.StartAsync(config: "/no/such/file");
    Check(false, "a broker started without its file of entities");
}
catch (InvalidOperationException e)
{
    Check(e.Message.Contains("/no/such/file", StringComparison.Ordinal), $"the failure says {e.Message}");
}
Console.WriteLine("ok");

static void Check(bool ok, string text)
{
    if (!ok)
    {
        Console.Error.WriteLine(text);
        Environment.Exit(1);
    }
}
