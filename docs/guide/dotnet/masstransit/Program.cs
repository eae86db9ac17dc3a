using MassTransit;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Shop;

var connection = Environment.GetEnvironmentVariable("BUSBAR") ?? throw new InvalidOperationException("set BUSBAR");

var builder = Host.CreateApplicationBuilder(args);
builder.Services.AddMassTransit(x =>
{
    x.AddConsumer<Billing>();
    x.UsingAzureServiceBus((context, cfg) =>
    {
        cfg.Host(connection);
        cfg.ConfigureEndpoints(context); // creates the queue, the topic of the event and the subscription
    });
});
using var host = builder.Build();
await host.StartAsync();
await host.Services.GetRequiredService<IBus>().Publish(new OrderPlaced(42));
await host.WaitForShutdownAsync();

namespace Shop
{
    public record OrderPlaced(int Number);

    public class Billing : IConsumer<OrderPlaced>
    {
        public Task Consume(ConsumeContext<OrderPlaced> context)
        {
            Console.WriteLine($"order {context.Message.Number}");
            return Task.CompletedTask;
        }
    }
}
