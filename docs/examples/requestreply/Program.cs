// Two requesters and one responder. All answers go through one queue; each requester gets its own, for each has a
// session of the reply queue.
using Azure.Messaging.ServiceBus;

const string Requests = "reply-requests", Replies = "reply-replies"; // the second requires sessions
await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING"));
var responder = RespondAsync(2);
var answers = await Task.WhenAll(AskAsync("ann"), AskAsync("bob"));
Console.WriteLine($"ann was answered: {answers[0]}");
Console.WriteLine($"bob was answered: {answers[1]}");
await responder;

// Accepts its reply session before it sends: a session that is held is given to nobody else.
async Task<string> AskAsync(string name)
{
    var instance = Guid.NewGuid().ToString();
    await using var session = await client.AcceptSessionAsync(Replies, instance);
    await using var sender = client.CreateSender(Requests);
    await sender.SendMessageAsync(new ServiceBusMessage(name) { ReplyTo = Replies, ReplyToSessionId = instance });
    var reply = await session.ReceiveMessageAsync();
    await session.CompleteMessageAsync(reply);
    return reply.Body.ToString();
}

// Answers count requests. A request says where its answer goes.
async Task RespondAsync(int count)
{
    await using var receiver = client.CreateReceiver(Requests);
    for (var answered = 0; answered < count; answered++)
    {
        var request = await receiver.ReceiveMessageAsync();
        await using var sender = client.CreateSender(request.ReplyTo);
        await sender.SendMessageAsync(new ServiceBusMessage($"good day, {request.Body}")
        {
            SessionId = request.ReplyToSessionId,
            CorrelationId = request.MessageId,
        });
        await receiver.CompleteMessageAsync(request);
    }
}
