using Azure.Messaging.ServiceBus;
using Busbar;

await Runner.RunAsync(args, typeof(ServiceBusClient), (id, index) => new Env(id, index));
