// Runs an order as a state machine. Its state is the state of its session, so another process goes on where one has
// crashed.
using System.Diagnostics;
using Azure.Messaging.ServiceBus;

const string Queue = "workflow-orders";
// The state machine: the state in which each message leaves an order.
string[] steps = ["order", "pay", "ship", "close"];
var next = new Dictionary<string, string>
{
    ["order"] = "ordered", ["pay"] = "paid", ["ship"] = "shipped", ["close"] = "closed",
};
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
if (args.Length > 0)
{
    await HandleAsync(args[0]); // a process that handles orders; it crashes in the middle of one step
    return;
}
await using (var sender = client.CreateSender(Queue))
{
    foreach (var step in steps)
    {
        await sender.SendMessageAsync(new ServiceBusMessage() { SessionId = "order-7", MessageId = step });
    }
}
Console.WriteLine($"the process ended with code {await RunAsync("pay")}");
if (await RunAsync("never") != 0)
{
    throw new InvalidOperationException("the second process failed");
}

// Runs this program once more, as a process that handles orders, and returns its exit code.
async Task<int> RunAsync(string crash)
{
    using var process = Process.Start(Environment.ProcessPath!, crash);
    await process.WaitForExitAsync();
    return process.ExitCode;
}

async Task HandleAsync(string crash)
{
    await using var session = await client.AcceptNextSessionAsync(Queue); // waits until that of a dead process is free
    // What the session keeps: a state, and the id of the last message whose work is in it.
    var kept = (await session.GetSessionStateAsync())?.ToString() ?? "new none";
    var (state, last) = (kept.Split(' ')[0], kept.Split(' ')[1]);
    Console.WriteLine($"{session.SessionId}: a process finds it {state}");
    while (state != "closed")
    {
        var message = await session.ReceiveMessageAsync();
        var step = message.MessageId;
        if (step == last)
        {
            Console.WriteLine($"{step}: skipped, the state has it");
        }
        else
        {
            (state, last) = (next[step], step);
            // A session without messages and state is gone.
            await session.SetSessionStateAsync(state == "closed" ? null : BinaryData.FromString($"{state} {last}"));
            Console.WriteLine($"{step}: the order is {state}");
        }
        if (step == crash)
        {
            Environment.Exit(3); // between the state and the completion
        }
        await session.CompleteMessageAsync(message);
    }
}
