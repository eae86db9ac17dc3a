using NServiceBus;
using Shop;

var connection = Environment.GetEnvironmentVariable("BUSBAR") ?? throw new InvalidOperationException("set BUSBAR");

var configuration = new EndpointConfiguration("sales");
configuration.UseSerialization<SystemJsonSerializer>();
configuration.UseTransport(new AzureServiceBusTransport(connection, TopicTopology.Default));
configuration.EnableInstallers(); // creates the queue, the topic of the event and the subscription

var endpoint = await Endpoint.Start(configuration);
await endpoint.Publish(new OrderPlaced { Number = 42 });
Console.WriteLine("press a key to end");
Console.ReadKey(true);
await endpoint.Stop();

namespace Shop
{
    public class OrderPlaced : IEvent
    {
        public int Number { get; set; }
    }

    public class Billing : IHandleMessages<OrderPlaced>
    {
        // The message is completed, and what the handler sends is sent, in one transaction.
        public Task Handle(OrderPlaced message, IMessageHandlerContext context)
        {
            Console.WriteLine($"order {message.Number}");
            return Task.CompletedTask;
        }
    }
}
