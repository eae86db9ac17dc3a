using System.Net;
using Azure;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;
using static Busbar.Env;
using static Busbar.Scene;

namespace Busbar;

public static class Administration
{
    /// <summary>Expects the HTTP status; the library tells it in what its own exception stands on.</summary>
    private static async Task StatusAsync(HttpStatusCode want, Func<Task> call)
    {
        var e = await FailsAsync<Exception>(call);
        var cause = e as RequestFailedException ?? e.InnerException as RequestFailedException;
        Equal(cause?.Status ?? 0, (int)want, $"{e.Message}: status");
    }

    private static string WrongKey(string connectionString) => string.Join(';', connectionString.Split(';').Select(
        part => part.StartsWith("SharedAccessKey=", StringComparison.Ordinal) ? "SharedAccessKey=d3Jvbmc=" : part));

    [Scenario("admin-queue")]
    public static async Task Queue(Env e)
    {
        var (a, name) = (e.Admin(), e.Name());
        await a.CreateQueueAsync(new CreateQueueOptions(name) { LockDuration = TimeSpan.FromSeconds(45), UserMetadata = "note" });
        QueueProperties read = await e.Admin(1).GetQueueAsync(name);
        Equal($"{read.LockDuration} {read.UserMetadata}", "00:00:45 note", "read");
        Check(await e.Admin(1).QueueExistsAsync(name.ToUpperInvariant()), "names must compare without case");
        (read.MaxDeliveryCount, read.UserMetadata) = (11, "changed");
        QueueProperties changed = await a.UpdateQueueAsync(read);
        Equal($"{changed.MaxDeliveryCount} {changed.UserMetadata}", "11 changed", "updated");
        await a.DeleteQueueAsync(name);
        Check(!await e.Admin(1).QueueExistsAsync(name), "it is still there");
    }

    [Scenario("admin-queue-options")]
    public static async Task QueueOptions(Env e)
    {
        var target = await e.QueueAsync();
        var want = new CreateQueueOptions(e.Name())
        {
            LockDuration = TimeSpan.FromMinutes(2), MaxSizeInMegabytes = 2048, RequiresDuplicateDetection = true,
            DefaultMessageTimeToLive = TimeSpan.FromMinutes(90), DeadLetteringOnMessageExpiration = true,
            MaxDeliveryCount = 17, EnableBatchedOperations = false, UserMetadata = "ü <&> \"note\"",
            DuplicateDetectionHistoryTimeWindow = TimeSpan.FromMinutes(20), AutoDeleteOnIdle = TimeSpan.FromDays(1),
            ForwardDeadLetteredMessagesTo = target,
        };
        await e.Admin().CreateQueueAsync(want);
        e.Later(() => e.Admin().DeleteQueueAsync(want.Name));
        QueueProperties got = await e.Admin(1).GetQueueAsync(want.Name);
        static object[] Options(QueueProperties q) =>
        [
            q.LockDuration, q.MaxSizeInMegabytes, q.RequiresDuplicateDetection, q.DefaultMessageTimeToLive,
            q.DeadLetteringOnMessageExpiration, q.MaxDeliveryCount, q.EnableBatchedOperations, q.UserMetadata,
            q.DuplicateDetectionHistoryTimeWindow, q.AutoDeleteOnIdle, q.RequiresSession, q.EnablePartitioning,
        ];
        EqualAll(Options(got),
        [
            want.LockDuration, want.MaxSizeInMegabytes, true, want.DefaultMessageTimeToLive, true, 17, false, want.UserMetadata,
            want.DuplicateDetectionHistoryTimeWindow, want.AutoDeleteOnIdle, false, false,
        ], "options");
        Check(got.ForwardDeadLetteredMessagesTo.EndsWith(target, StringComparison.Ordinal), got.ForwardDeadLetteredMessagesTo);
    }

    [Scenario("admin-queue-list")]
    public static async Task QueueList(Env e)
    {
        var names = new List<string>();
        for (var i = 0; i < 5; i++)
        {
            names.Add(await e.QueueAsync());
        }
        await UntilAsync("every queue is listed", async () =>
        {
            var seen = new HashSet<string>();
            await foreach (var q in e.Admin(1).GetQueuesAsync())
            {
                seen.Add(q.Name);
            }
            return names.TrueForAll(seen.Contains);
        });
    }

    [Scenario("admin-conflict")]
    public static async Task Conflict(Env e)
    {
        var q = await e.QueueAsync();
        await FailsAsync(ServiceBusFailureReason.MessagingEntityAlreadyExists, () => e.Admin(1).CreateQueueAsync(q));
    }

    [Scenario("admin-missing")]
    public static async Task Missing(Env e)
    {
        var (a, name) = (e.Admin(), e.Name());
        Check(!await a.QueueExistsAsync(name), "it exists");
        foreach (var call in new Func<Task>[]
        {
            () => a.GetQueueAsync(name), () => a.GetQueueRuntimePropertiesAsync(name), () => a.DeleteQueueAsync(name),
        })
        {
            await FailsAsync(ServiceBusFailureReason.MessagingEntityNotFound, call);
        }
    }

    [Scenario("admin-counts")]
    public static async Task Counts(Env e)
    {
        var q = await Receiving.FilledAsync(e, 4);
        await e.Sender(q).ScheduleMessageAsync(new ServiceBusMessage("later"), DateTimeOffset.UtcNow.AddMinutes(1));
        var r = e.Receiver(q);
        await r.DeadLetterMessageAsync(await OneAsync(r));
        await UntilAsync("the counts", async () =>
        {
            QueueRuntimeProperties p = await e.Admin(2).GetQueueRuntimePropertiesAsync(q);
            return (p.ActiveMessageCount, p.DeadLetterMessageCount, p.ScheduledMessageCount, p.TotalMessageCount)
                == (3, 1, 1, 5);
        });
        QueueRuntimeProperties told = await e.Admin().GetQueueRuntimePropertiesAsync(q);
        Equal((told.TransferMessageCount, told.TransferDeadLetterMessageCount), (0L, 0L), "counts of transfers");
        Check(told.SizeInBytes > 0 && told.CreatedAt > DateTimeOffset.UtcNow.AddHours(-1), "size and times");
    }

    [Scenario("admin-namespace")]
    public static async Task Namespace(Env e)
    {
        NamespaceProperties p = await e.Admin().GetNamespacePropertiesAsync();
        Check(p.Name.Length > 0 && $"{p.MessagingSku}" is "Basic" or "Standard" or "Premium", $"namespace {p.Name}");
    }

    [Scenario("admin-refused")]
    public static async Task Refused(Env e)
    {
        var plain = await e.QueueAsync();
        foreach (var (name, change) in new (string, Action<CreateQueueOptions>)[]
        {
            ("LockDuration", o => o.LockDuration = TimeSpan.FromMinutes(6)),
            ("MaxDeliveryCount", o => o.MaxDeliveryCount = 0),
            ("AutoDeleteOnIdle", o => o.AutoDeleteOnIdle = TimeSpan.FromMinutes(4)),
        })
        {
            var e1 = await FailsAsync<ArgumentException>(() => e.QueueAsync(change)); // the library refuses it by itself
            Check(e1.Message.Length > 20, $"{name}: no reason: {e1.Message}");
        }
        QueueProperties p = await e.Admin().GetQueueAsync(plain);
        p.LockDuration = TimeSpan.FromSeconds(1);
        await StatusAsync(HttpStatusCode.BadRequest, () => e.Admin().UpdateQueueAsync(p));
    }

    [Scenario("admin-names")]
    public static async Task Names(Env e)
    {
        foreach (var tail in new[] { "/a/b", ".x-y_z", "-" + new string('n', 150) })
        {
            var name = e.Name() + tail;
            await e.Admin().CreateQueueAsync(name);
            e.Later(() => e.Admin().DeleteQueueAsync(name));
            Equal((await e.Admin(1).GetQueueAsync(name)).Value.Name, name, "name");
            await e.SendAsync(name, new ServiceBusMessage(tail));
            var r = e.Receiver(name);
            var m = await OneAsync(r);
            Equal(Text(m), tail, "body");
            await r.CompleteMessageAsync(m);
            await r.PeekMessageAsync();
        }
    }

    [Scenario("admin-disabled")]
    public static async Task Disabled(Env e)
    {
        var q = await e.QueueAsync();
        async Task BecomeAsync(EntityStatus status)
        {
            QueueProperties p = await e.Admin().GetQueueAsync(q);
            p.Status = status;
            await e.Admin().UpdateQueueAsync(p);
        }
        Task RefusedAsync(Func<Task> call) => FailsAsync(ServiceBusFailureReason.MessagingEntityDisabled, call);
        await e.SendAsync(q, new ServiceBusMessage("before"));
        await BecomeAsync(EntityStatus.Disabled);
        await RefusedAsync(() => e.SendAsync(q, new ServiceBusMessage("x")));
        await RefusedAsync(() => e.Receiver(q).ReceiveMessageAsync(Soon));
        await BecomeAsync(EntityStatus.SendDisabled);
        await RefusedAsync(() => e.SendAsync(q, new ServiceBusMessage("x")));
        var r = e.Receiver(q);
        await r.CompleteMessageAsync(await OneAsync(r));
        await BecomeAsync(EntityStatus.Active);
        await e.SendAsync(q, new ServiceBusMessage("after"));
        await r.CompleteMessageAsync(await OneAsync(r));
    }

    [Scenario("auth-wrong-key")]
    public static async Task WrongKeyOfData(Env e)
    {
        var q = await e.QueueAsync();
        var c = e.Client(WrongKey(e.DataString()));
        await FailsAsync<UnauthorizedAccessException>(() => c.CreateSender(q).SendMessageAsync(new ServiceBusMessage("x")));
        await FailsAsync<UnauthorizedAccessException>(() => c.CreateReceiver(q).ReceiveMessageAsync(Soon));
    }

    [Scenario("auth-signature")]
    public static async Task Signature(Env e)
    {
        var q = await e.QueueAsync();
        await e.Client(Signed(e.DataString(), q, TimeSpan.FromHours(1))).CreateSender(q)
            .SendMessageAsync(new ServiceBusMessage("signed"));
        var r = e.Receiver(q);
        await r.CompleteMessageAsync(await OneAsync(r));
        var old = e.Client(Signed(e.DataString(), q, TimeSpan.FromHours(-1)));
        await FailsAsync<UnauthorizedAccessException>(() => old.CreateSender(q).SendMessageAsync(new ServiceBusMessage("stale")));
    }

    /// <summary>Signs the queue's address as an application that hands out tokens does.</summary>
    private static string Signed(string connectionString, string queue, TimeSpan life)
    {
        var parts = connectionString.Split(';', StringSplitOptions.RemoveEmptyEntries)
            .Select(part => part.Split('=', 2)).ToDictionary(part => part[0], part => part[1]);
        var resource = WebUtility.UrlEncode($"{parts["Endpoint"].TrimEnd('/')}/{queue}");
        var expiry = (DateTimeOffset.UtcNow + life).ToUnixTimeSeconds();
        var digest = System.Security.Cryptography.HMACSHA256.HashData(
            System.Text.Encoding.UTF8.GetBytes(parts["SharedAccessKey"]),
            System.Text.Encoding.UTF8.GetBytes($"{resource}\n{expiry}"));
        var signature = WebUtility.UrlEncode(Convert.ToBase64String(digest));
        var emulator = parts.ContainsKey("UseDevelopmentEmulator") ? ";UseDevelopmentEmulator=true" : "";
        return $"Endpoint={parts["Endpoint"]};SharedAccessSignature=SharedAccessSignature sr={resource}&sig={signature}"
            + $"&se={expiry}&skn={parts["SharedAccessKeyName"]}{emulator}";
    }

    [Scenario("auth-admin")]
    public static Task WrongKeyOfManagement(Env e) => StatusAsync(HttpStatusCode.Unauthorized,
        () => Admin.Of(WrongKey(e.AdminString())).CreateQueueAsync(e.Name()));
}
