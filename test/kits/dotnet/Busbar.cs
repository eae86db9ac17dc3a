using System.Diagnostics;
using System.Net.Security;
using System.Security.Cryptography.X509Certificates;
using System.Text.Json;
using Azure.Core;
using Azure.Core.Pipeline;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace BusbarTest;

/// <summary>
/// A broker for tests: a process of its own on free ports of the loopback interface, with a data directory that goes
/// with it. One for a whole test run is enough: <see cref="Name"/> keeps tests apart, <see cref="ResetAsync"/> empties it.
/// </summary>
public sealed class Busbar : IAsyncDisposable
{
    private const string Credentials = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE";
    private static readonly TimeSpan StartLimit = TimeSpan.FromSeconds(30);

    private readonly Process process;
    private readonly DirectoryInfo directory;
    private readonly HttpClient http;
    private int named;

    private Busbar(Process process, DirectoryInfo directory, Ports ports)
    {
        this.process = process;
        this.directory = directory;
        TlsPort = ports.Tls;
        ConnectionString = $"Endpoint=sb://localhost:{ports.Amqp};{Credentials};UseDevelopmentEmulator=true";
        var authority = X509Certificate2.CreateFromPem(File.ReadAllText(Path.Combine(directory.FullName, "tls", "ca.pem")));
        http = new HttpClient(new SocketsHttpHandler
        {
            SslOptions = new SslClientAuthenticationOptions
            {
                CertificateChainPolicy = new X509ChainPolicy
                {
                    TrustMode = X509ChainTrustMode.CustomRootTrust,
                    RevocationMode = X509RevocationMode.NoCheck,
                    CustomTrustStore = { authority },
                },
            },
        });
        Administration = CreateAdministration();
    }

    /// <summary>What a <see cref="ServiceBusClient"/> connects with: plain AMQP on this machine.</summary>
    public string ConnectionString { get; }

    /// <summary>The port of AMQP and HTTP over TLS.</summary>
    public int TlsPort { get; }

    /// <summary>Creates, reads and deletes queues, topics, subscriptions and rules.</summary>
    public ServiceBusAdministrationClient Administration { get; }

    /// <summary>
    /// Starts a broker and waits until it serves.
    /// </summary>
    /// <param name="binary">The program; null: the variable BUSBAR_BINARY, or else busbar on the path.</param>
    /// <param name="config">A file of entities to begin with, in the form of the official emulator; null: none.</param>
    /// <param name="cancellationToken">Gives up the wait, and ends the process.</param>
    /// <exception cref="InvalidOperationException">The process ended, or did not serve within 30 seconds.</exception>
    public static async Task<Busbar> StartAsync(
        string? binary = null, string? config = null, CancellationToken cancellationToken = default)
    {
        var directory = Directory.CreateTempSubdirectory("busbar-");
        var start = new ProcessStartInfo(binary ?? Environment.GetEnvironmentVariable("BUSBAR_BINARY") ?? "busbar")
        {
            RedirectStandardOutput = true,
            RedirectStandardError = true,
            ArgumentList =
            {
                "serve", "--dev", "--data-dir", directory.FullName, "--amqp-listen", "127.0.0.1:0",
                "--tls-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
            },
        };
        if (config is not null)
        {
            start.ArgumentList.Add("--entities");
            start.ArgumentList.Add(config);
        }
        var said = new List<string>();
        var process = new Process { StartInfo = start };
        void Hear(object _, DataReceivedEventArgs line)
        {
            lock (said)
            {
                said.Add(line.Data ?? "");
            }
        }
        process.OutputDataReceived += Hear;
        process.ErrorDataReceived += Hear;
        try
        {
            process.Start();
            process.BeginOutputReadLine();
            process.BeginErrorReadLine();
            var ports = await ServingAsync(process, directory, cancellationToken);
            return new Busbar(process, directory, ports);
        }
        catch (Exception e)
        {
            await EndAsync(process, directory);
            lock (said)
            {
                throw e is OperationCanceledException
                    ? e
                    : new InvalidOperationException($"{e.Message}; it printed at last: {string.Join('\n', said.TakeLast(20))}", e);
            }
        }
    }

    private static readonly JsonSerializerOptions Web = new(JsonSerializerDefaults.Web);

    private sealed record Ports(int Amqp, int Tls, int Ops);

    private static async Task<Ports> ServingAsync(Process process, DirectoryInfo directory, CancellationToken cancellationToken)
    {
        var file = Path.Combine(directory.FullName, "ports.json");
        using var probe = new HttpClient();
        for (var watch = Stopwatch.StartNew(); watch.Elapsed < StartLimit; await Task.Delay(50, cancellationToken))
        {
            if (process.HasExited)
            {
                throw new InvalidOperationException($"the broker ended with {process.ExitCode}");
            }
            if (!File.Exists(file))
            {
                continue;
            }
            try
            {
                var ports = JsonSerializer.Deserialize<Ports>(
                    await File.ReadAllTextAsync(file, cancellationToken), Web)!;
                using var ready = await probe.GetAsync($"http://127.0.0.1:{ports.Ops}/readyz", cancellationToken);
                if (ready.IsSuccessStatusCode)
                {
                    return ports;
                }
            }
            catch (Exception e) when (e is HttpRequestException or JsonException or IOException)
            {
                // not yet
            }
        }
        throw new InvalidOperationException($"the broker does not serve after {StartLimit}");
    }

    /// <summary>A client that the caller disposes of.</summary>
    public ServiceBusClient CreateClient(ServiceBusClientOptions? options = null) =>
        new(ConnectionString, options ?? new ServiceBusClientOptions());

    /// <summary>A name that no other call gave: prefix, a dash and a number.</summary>
    public string Name(string prefix) => $"{prefix}-{Interlocked.Increment(ref named)}";

    /// <summary>Deletes every queue and every topic with its subscriptions.</summary>
    public async Task ResetAsync(CancellationToken cancellationToken = default)
    {
        await foreach (var queue in Administration.GetQueuesAsync(cancellationToken))
        {
            await Administration.DeleteQueueAsync(queue.Name, cancellationToken);
        }
        await foreach (var topic in Administration.GetTopicsAsync(cancellationToken))
        {
            await Administration.DeleteTopicAsync(topic.Name, cancellationToken);
        }
    }

    /// <summary>Ends the process and deletes its data.</summary>
    public async ValueTask DisposeAsync()
    {
        http.Dispose();
        await EndAsync(process, directory);
    }

    private static async Task EndAsync(Process process, DirectoryInfo directory)
    {
        try
        {
            process.Kill();
            await process.WaitForExitAsync();
        }
        catch (InvalidOperationException)
        {
            // it has not started, or has ended by itself
        }
        process.Dispose();
        directory.Delete(recursive: true);
    }

    private ServiceBusAdministrationClient CreateAdministration()
    {
        var options = new ServiceBusAdministrationClientOptions { Transport = new HttpClientTransport(http) };
        options.AddPolicy(new ToPort(TlsPort), HttpPipelinePosition.PerCall);
        return new ServiceBusAdministrationClient($"Endpoint=sb://localhost/;{Credentials}", options);
    }

    /// <summary>The management client drops the port of an endpoint.</summary>
    private sealed class ToPort(int port) : HttpPipelineSynchronousPolicy
    {
        public override void OnSendingRequest(HttpMessage message) => message.Request.Uri.Port = port;
    }
}
