using Amqp;
using Busbar;

await Runner.RunAsync(args, typeof(Connection), (id, index) => new Env(id, index));
