using System.Text;
using Amqp;
using Amqp.Framing;
using Amqp.Types;
using Azure.Messaging.ServiceBus.Administration;

namespace Busbar;

/// <summary>What a scenario gets: queues and connections of its own, with every delivery in its own hand.</summary>
public sealed class Env(string id, int index) : Scene("amqpnetlite", id, index)
{
    private static string Variable(string name) => Environment.GetEnvironmentVariable(name)!;

    /// <summary>A session on a connection of its own.</summary>
    public async Task<Session> SessionAsync(int i = 0, string? key = null, ConnectionFactory? factory = null)
    {
        var port = int.Parse(Line("BUSBAR_ADDRESSES", i).Split(':')[^1]);
        var scheme = Variable("BUSBAR_WIRE") == "plain" ? "amqp" : "amqps";
        var address = new Address("localhost", port, Variable("BUSBAR_KEY_NAME"), key ?? Variable("BUSBAR_KEY"), "/", scheme);
        var connection = await (factory ?? new ConnectionFactory()).CreateAsync(address);
        Later(() => connection.CloseAsync());
        return new Session(connection);
    }

    public async Task<string> QueueAsync(Action<CreateQueueOptions>? edit = null)
    {
        var options = new CreateQueueOptions(Name());
        edit?.Invoke(options);
        var admin = Admin.Of(Line("BUSBAR_ADMIN", 0));
        await admin.CreateQueueAsync(options);
        Later(() => admin.DeleteQueueAsync(options.Name));
        return options.Name;
    }

    /// <summary>A queue with messages whose bodies are these texts.</summary>
    public async Task<string> FilledAsync(string[] bodies, Action<CreateQueueOptions>? edit = null)
    {
        var q = await QueueAsync(edit);
        await SendAsync(await SessionAsync(), q, [.. bodies.Select(b => new Message(b))]);
        return q;
    }

    public static async Task SendAsync(Session session, string address, params Message[] messages)
    {
        var sender = new SenderLink(session, LinkName(), address);
        foreach (var m in messages)
        {
            await sender.SendAsync(m, Soon);
        }
        await sender.CloseAsync();
    }

    /// <summary>A receiver without credit, with a filter or none.</summary>
    public static ReceiverLink Receiver(
        Session session, string address, SenderSettleMode mode = SenderSettleMode.Unsettled, Map? filter = null) =>
        new(session, LinkName(), new Attach
        {
            Source = new Source { Address = address, FilterSet = filter },
            Target = new Target(),
            SndSettleMode = mode,
        }, null);

    public static string LinkName() => Guid.NewGuid().ToString();

    /// <summary>Gives credit for n messages, if it is asked to, and waits for them.</summary>
    public static async Task<List<Message>> TakeAsync(ReceiverLink receiver, int n, bool credit = true)
    {
        if (credit)
        {
            receiver.SetCredit(n, CreditMode.Manual);
        }
        var got = new List<Message>();
        while (got.Count < n)
        {
            var m = await receiver.ReceiveAsync(Soon);
            Check(m is not null, $"received {got.Count} of {n}");
            got.Add(m!);
        }
        return got;
    }

    public static async Task<Message> OneAsync(ReceiverLink receiver, bool credit = true) =>
        (await TakeAsync(receiver, 1, credit))[0];

    /// <summary>Listens with the credit that there is.</summary>
    public static async Task NoneAsync(ReceiverLink receiver) =>
        Equal((await receiver.ReceiveAsync(Quiet))?.Body, null, "received");

    public static IEnumerable<string> Texts(IEnumerable<Message> messages) =>
        messages.Select(m => m.Body as string ?? Encoding.UTF8.GetString((byte[])m.Body));

    /// <summary>The condition that the broker ends a link with.</summary>
    public static async Task EndsAsync(Link link, string condition)
    {
        var ended = new TaskCompletionSource<Error?>(TaskCreationOptions.RunContinuationsAsynchronously);
        link.AddClosedCallback((_, error) => ended.TrySetResult(error));
        Equal((await ended.Task.WaitAsync(Soon))?.Condition?.ToString(), condition, "ended with");
    }

    /// <summary>A request to the node of an entity; the code and the body of its answer.</summary>
    public static async Task<(int Code, Map? Body)> RequestAsync(Session session, string entity, string operation, Map body)
    {
        var replyTo = LinkName();
        var answers = new ReceiverLink(session, LinkName(), new Attach
        {
            Source = new Source { Address = entity + "/$management" },
            Target = new Target { Address = replyTo },
            SndSettleMode = SenderSettleMode.Settled,
        }, null);
        answers.SetCredit(1, CreditMode.Manual);
        await SendAsync(session, entity + "/$management", new Message(body)
        {
            Properties = new Properties { MessageId = replyTo, ReplyTo = replyTo },
            ApplicationProperties = new ApplicationProperties { ["operation"] = "com.microsoft:" + operation },
        });
        var answer = await OneAsync(answers, credit: false);
        Equal(answer.Properties.CorrelationId, replyTo, "correlation id");
        await answers.CloseAsync();
        return ((int)answer.ApplicationProperties["statusCode"], answer.Body as Map);
    }
}
