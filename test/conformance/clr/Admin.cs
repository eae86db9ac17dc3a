using Azure.Core;
using Azure.Core.Pipeline;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Busbar;

public static class Admin
{
    /// <summary>A management client for https at the port of the endpoint, which the library drops.</summary>
    public static ServiceBusAdministrationClient Of(string connectionString)
    {
        var options = new ServiceBusAdministrationClientOptions();
        options.AddPolicy(
            new ToPort(ServiceBusConnectionStringProperties.Parse(connectionString).Endpoint.Port), HttpPipelinePosition.PerCall);
        return new ServiceBusAdministrationClient(connectionString, options);
    }

    private sealed class ToPort(int port) : HttpPipelineSynchronousPolicy
    {
        public override void OnSendingRequest(HttpMessage message)
        {
            message.Request.Uri.Scheme = "https";
            message.Request.Uri.Port = port;
        }
    }
}
