using System.Transactions;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;
using static Busbar.Env;
using static Busbar.Scene;

namespace Busbar;

/// <summary>
/// What frameworks for .NET do at start and at work, operation by operation: their quotas, their names, and the
/// order in which they ask.
/// </summary>
public static class Frameworks
{
    private static readonly TimeSpan FiveMinutes = TimeSpan.FromMinutes(5);

    /// <summary>Creates what is missing, as every instance of an application does at the same time.</summary>
    private static async Task EnsureQueueAsync(Env e, CreateQueueOptions options)
    {
        if (await e.Admin().QueueExistsAsync(options.Name))
        {
            return;
        }
        await e.Admin().CreateQueueAsync(options);
        e.Later(() => e.Admin().DeleteQueueAsync(options.Name));
        // The other instance, a moment too late.
        await FailsAsync(ServiceBusFailureReason.MessagingEntityAlreadyExists, () => e.Admin(1).CreateQueueAsync(options));
    }

    private static async Task EnsureTopicAsync(Env e, CreateTopicOptions options)
    {
        if (!await e.Admin().TopicExistsAsync(options.Name))
        {
            await e.Admin().CreateTopicAsync(options);
            e.Later(() => e.Admin().DeleteTopicAsync(options.Name));
        }
    }

    /// <summary>Queues that live as long as the calendar, topics named after types, and subscriptions that forward.</summary>
    [Scenario("like-masstransit")]
    public static async Task MassTransit(Env e)
    {
        var (lasting, year) = (TimeSpan.FromDays(427), TimeSpan.FromDays(366));
        var queue = e.Name("order-service");
        var options = new CreateQueueOptions(queue)
        {
            LockDuration = FiveMinutes, MaxDeliveryCount = 5, AutoDeleteOnIdle = lasting, DefaultMessageTimeToLive = year,
            DeadLetteringOnMessageExpiration = true, EnableBatchedOperations = true,
        };
        await EnsureQueueAsync(e, options);
        await EnsureQueueAsync(e, new CreateQueueOptions((await e.Admin().GetQueueAsync(queue)).Value) { Name = queue + "_error" });
        Equal((await e.Admin(1).GetQueueAsync(queue + "_error")).Value.AutoDeleteOnIdle, lasting, "idle time");
        var topic = e.Name("Contracts.Orders") + "~OrderSubmitted";
        await EnsureTopicAsync(e, new CreateTopicOptions(topic)
        {
            AutoDeleteOnIdle = lasting, DefaultMessageTimeToLive = year, EnableBatchedOperations = true,
        });
        const string name = "order-service~1";
        Check(!await e.Admin().SubscriptionExistsAsync(topic, name), "a subscription that nobody created");
        await e.Admin().CreateSubscriptionAsync(new CreateSubscriptionOptions(topic, name)
        {
            ForwardTo = queue, LockDuration = FiveMinutes, AutoDeleteOnIdle = lasting, MaxDeliveryCount = 5,
        });
        SubscriptionProperties found = await e.Admin(1).GetSubscriptionAsync(topic, name);
        Check(found.ForwardTo.EndsWith(queue, StringComparison.Ordinal), $"forwards to {found.ForwardTo}");
        await e.Admin().UpdateSubscriptionAsync(found); // as it is, at every start
        await e.SendAsync(topic, new ServiceBusMessage("{}") { ContentType = "application/vnd.masstransit+json", MessageId = "m" });
        var r = e.Receiver(queue);
        var m = await OneAsync(r);
        Equal(m.ContentType, "application/vnd.masstransit+json", "content type");
        await e.Sender(queue + "_error", 1).SendMessageAsync(new ServiceBusMessage(m)); // a consumer that failed
        await r.CompleteMessageAsync(m);
        Equal((await OneAsync(e.Receiver(queue + "_error", 0))).MessageId, "m", "moved");
    }

    /// <summary>No limit of deliveries, rules over the data connection, and everything of a message in one transaction.</summary>
    [Scenario("like-nservicebus")]
    public static async Task NServiceBus(Env e)
    {
        var (start, shipping, audit) = (e.Name("Sales.Endpoint"), e.Name("Shipping.Endpoint"), e.Name("audit"));
        foreach (var q in new[] { start, shipping, audit })
        {
            await EnsureQueueAsync(e, new CreateQueueOptions(q)
            {
                LockDuration = FiveMinutes, MaxDeliveryCount = int.MaxValue, MaxSizeInMegabytes = 5120, EnableBatchedOperations = true,
            });
        }
        Equal((await e.Admin(1).GetQueueAsync(start)).Value.MaxDeliveryCount, int.MaxValue, "deliveries");
        var topic = e.Name("bundle-1");
        await EnsureTopicAsync(e, new CreateTopicOptions(topic) { MaxSizeInMegabytes = 5120, EnableBatchedOperations = true });
        await e.Admin().CreateSubscriptionAsync(new CreateSubscriptionOptions(topic, "sales")
        {
            LockDuration = FiveMinutes, ForwardTo = start, MaxDeliveryCount = int.MaxValue,
            EnableDeadLetteringOnFilterEvaluationExceptions = false,
        }, new CreateRuleOptions("$default", new FalseRuleFilter()));
        await using (var rules = e.Client(1).CreateRuleManager(topic, "sales"))
        {
            await rules.CreateRuleAsync("OrderPlaced",
                new SqlRuleFilter("[NServiceBus.EnclosedMessageTypes] LIKE '%Sales.OrderPlaced%'"));
            await rules.CreateRuleAsync("Dropped", new TrueRuleFilter());
            await rules.DeleteRuleAsync("Dropped");
        }
        foreach (var type in new[] { "Sales.Other", "Sales.OrderPlaced" })
        {
            await e.SendAsync(topic, new ServiceBusMessage(type)
            {
                ApplicationProperties = { ["NServiceBus.EnclosedMessageTypes"] = $"{type}, Sales.Messages" },
            });
        }
        var c = e.Client(1, o => o.EnableCrossEntityTransactions = true);
        var r = c.CreateReceiver(start);
        var m = await OneAsync(r);
        Equal(Text(m), "Sales.OrderPlaced", "chosen");
        using (var scope = new TransactionScope(TransactionScopeAsyncFlowOption.Enabled))
        {
            foreach (var q in new[] { shipping, audit })
            {
                await c.CreateSender(q).SendMessageAsync(new ServiceBusMessage($"for {q}"));
            }
            await r.CompleteMessageAsync(m);
            scope.Complete();
        }
        foreach (var q in new[] { shipping, audit })
        {
            Equal(Text(await OneAsync(e.Receiver(q, 0))), $"for {q}", "sent");
        }
        EqualAll(await PeekedAsync(e.Receiver(start, 0)), [], "left");
    }

    /// <summary>Locks that are renewed long before their end, and messages that come later.</summary>
    [Scenario("like-rebus")]
    public static async Task Rebus(Env e)
    {
        var queue = e.Name("rebus-input");
        await EnsureQueueAsync(e, new CreateQueueOptions(queue) { LockDuration = TimeSpan.FromSeconds(30), MaxDeliveryCount = 100 });
        var topic = e.Name("mycompany.messages") + "__mycompany_contracts";
        await EnsureTopicAsync(e, new CreateTopicOptions(topic));
        SubscriptionProperties s = await e.Admin().CreateSubscriptionAsync(topic, "rebus-input");
        (s.ForwardTo, s.UserMetadata) = (queue, "Events");
        await e.Admin().UpdateSubscriptionAsync(s);
        var later = Seconds(2);
        await e.SendAsync(queue, new ServiceBusMessage("deferred") { ScheduledEnqueueTime = later }); // its way to defer
        await e.SendAsync(topic, new ServiceBusMessage("event"));
        var r = e.Receiver(queue);
        var got = await TakeAsync(r, 2);
        EqualAll(Texts(got).Order(), ["deferred", "event"], "messages");
        OnTime(later);
        var until = got[0].LockedUntil;
        await Task.Delay(TimeSpan.FromSeconds(20)); // its renewal
        await r.RenewMessageLockAsync(got[0]);
        Check(got[0].LockedUntil > until, "the lock was not renewed");
        await Task.Delay(TimeSpan.FromSeconds(12)); // longer than the first lock
        await r.CompleteMessageAsync(got[0]);
    }
}
