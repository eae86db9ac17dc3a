using Rebus.Activation;
using Rebus.Config;
using Shop;

var connection = Environment.GetEnvironmentVariable("BUSBAR") ?? throw new InvalidOperationException("set BUSBAR");

using var activator = new BuiltinHandlerActivator();
activator.Handle<OrderPlaced>(message =>
{
    Console.WriteLine($"order {message.Number}");
    return Task.CompletedTask;
});
var bus = Configure.With(activator)
    .Transport(t => t.UseAzureServiceBus(connection, "billing")) // creates the queue
    .Start();
await bus.Subscribe<OrderPlaced>(); // creates the topic of the event and the subscription
await bus.Publish(new OrderPlaced(42));
Console.WriteLine("press a key to end");
Console.ReadKey(true);

namespace Shop
{
    public record OrderPlaced(int Number);
}
