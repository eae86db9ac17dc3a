// Judges essays by the time at which the broker took them, long after that time.
using Azure.Messaging.ServiceBus;

const string Queue = "deadline-essays";
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
await using var sender = client.CreateSender(Queue);
await using var receiver = client.CreateReceiver(Queue);
await sender.SendMessageAsync(new ServiceBusMessage("ann"));
var deadline = DateTimeOffset.UtcNow.AddSeconds(1);
await Task.Delay(TimeSpan.FromSeconds(2));
await sender.SendMessageAsync(new ServiceBusMessage("bob"));
Console.WriteLine("the deadline is over, the essays are read now");
for (var read = 0; read < 2; read++)
{
    var essay = await receiver.ReceiveMessageAsync();
    Console.WriteLine($"{essay.Body}: {(essay.EnqueuedTime <= deadline ? "in time" : "too late")}");
    await receiver.CompleteMessageAsync(essay);
}
