package busbar;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.URI;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.function.Consumer;

/** What a scenario gets: clients and entities of its own, and words for what it expects. */
public final class Env extends Scene {
    /** Bounds the wait for a message that must come. */
    public static final Duration SOON = Duration.ofMillis(SOON_MS);
    /** How long a scenario listens for what must not come. */
    public static final Duration QUIET = Duration.ofMillis(1500);

    Env(String id, int index) {
        super("java", id, index);
    }

    public String dataString(int i) {
        return line("BUSBAR_DATA", index + i);
    }

    public String adminString(int i) {
        return line("BUSBAR_ADMIN", index + i);
    }

    public ServiceBusClientBuilder builder(int i) {
        return builder(dataString(i));
    }

    public ServiceBusClientBuilder builder(String connectionString) {
        return builder(connectionString, Duration.ofSeconds(20), 2);
    }

    public ServiceBusClientBuilder builder(String connectionString, Duration tryTimeout, int retries) {
        var transport = "websocket".equals(System.getenv("BUSBAR_WIRE")) ? AmqpTransportType.AMQP_WEB_SOCKETS
            : AmqpTransportType.AMQP;
        return new ServiceBusClientBuilder().connectionString(connectionString).transportType(transport).retryOptions(
            new AmqpRetryOptions().setMaxRetries(retries).setDelay(Duration.ofMillis(200)).setTryTimeout(tryTimeout));
    }

    /**
     * A builder whose senders and blocking receivers share a connection, which a transaction needs
     * (Azure/azure-service-bus-java 198). In versions 7.15.0 to 7.17.0 they share one with these settings only;
     * 7.17.1 made the settings the default.
     */
    public ServiceBusClientBuilder transacting(int i) throws Exception {
        return builder(i).configuration(Api.configuration(Map.of(
            "com.azure.messaging.servicebus.nonSession.syncReceive.v2", "true",
            "com.azure.messaging.servicebus.session.syncReceive.v2", "true")));
    }

    public ServiceBusAdministrationClient admin(int i) {
        return admin(adminString(i));
    }

    /** The library drops the port of the endpoint; the documented way around is a policy. */
    public ServiceBusAdministrationClient admin(String connectionString) {
        int port = URI.create(connectionString.replaceAll("^Endpoint=([^;]*);.*", "$1")).getPort();
        HttpPipelinePolicy toPort = (HttpPipelineCallContext context, HttpPipelineNextPolicy next) -> {
            try {
                URI u = context.getHttpRequest().getUrl().toURI();
                context.getHttpRequest().setUrl(
                    "https://" + u.getHost() + ":" + port + u.getRawPath()
                        + (u.getRawQuery() == null ? "" : "?" + u.getRawQuery()));
            } catch (java.net.URISyntaxException e) {
                throw new IllegalStateException(e);
            }
            return next.process();
        };
        return new ServiceBusAdministrationClientBuilder().connectionString(connectionString)
            .addPolicy(toPort).buildClient();
    }

    public String queue(Consumer<CreateQueueOptions> edit) {
        String name = name("q");
        CreateQueueOptions options = new CreateQueueOptions();
        edit.accept(options);
        admin(0).createQueue(name, options);
        keep(() -> admin(0).deleteQueue(name));
        return name;
    }

    public String queue() {
        return queue(o -> { });
    }

    public String sessionQueue() {
        return queue(o -> o.setSessionRequired(true));
    }

    public String topic() {
        String name = name("t");
        admin(0).createTopic(name);
        keep(() -> admin(0).deleteTopic(name));
        return name;
    }

    public ServiceBusSenderClient sender(int i, String queue) {
        return keep(builder(i).sender().queueName(queue).buildClient());
    }

    public ServiceBusReceiverClient receiver(int i, String queue) {
        return keep(builder(i).receiver().queueName(queue).disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    public ServiceBusReceiverClient deadLetters(int i, String queue) {
        return keep(builder(i).receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    public ServiceBusReceiverClient accept(int i, String queue, String session) {
        var c = keep(builder(i).sessionReceiver().queueName(queue).disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
        for (long end = System.nanoTime() + SOON.toNanos();;) {
            try {
                return keep(session == null ? c.acceptNextSession() : c.acceptSession(session));
            } catch (AmqpException x) {
                if (!Api.CLOSES_LATE || System.nanoTime() > end) {
                    throw x;
                }
            }
        }
    }

    public void send(String queue, ServiceBusMessage... messages) {
        Api.send(sender(0, queue), Arrays.asList(messages));
    }

    /** The date n seconds from now, in whole milliseconds, as AMQP carries it. */
    public static OffsetDateTime seconds(int n) {
        return OffsetDateTime.now(ZoneOffset.UTC).truncatedTo(ChronoUnit.MILLIS).plusSeconds(n);
    }

    /** Fails when it is not yet the date that a message was scheduled for. */
    public static void onTime(OffsetDateTime at) {
        var now = OffsetDateTime.now(ZoneOffset.UTC);
        check(!now.isBefore(at), "received at " + now + ", before its time " + at);
    }

    public static ServiceBusMessage message(String body) {
        return new ServiceBusMessage(body);
    }

    public static ServiceBusMessage in(String session, String body) {
        return new ServiceBusMessage(body).setSessionId(session);
    }

    public List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient r, int n) {
        List<ServiceBusReceivedMessage> got = new ArrayList<>();
        long end = System.nanoTime() + SOON.toNanos();
        while (got.size() < n) {
            long left = end - System.nanoTime();
            check(left > 0, "received " + got.size() + " of " + n + ": " + texts(got));
            var wait = Duration.ofNanos(Math.min(left, Api.ONE_WAIT.toNanos()));
            r.receiveMessages(n - got.size(), wait).forEach(got::add);
        }
        return got;
    }

    public ServiceBusReceivedMessage one(ServiceBusReceiverClient r) {
        return take(r, 1).get(0);
    }

    public void none(ServiceBusReceiverClient r) {
        List<ServiceBusReceivedMessage> got = new ArrayList<>();
        r.receiveMessages(1, QUIET).forEach(got::add);
        equal(texts(got), List.of(), "received");
    }

    public static void complete(ServiceBusReceiverClient r, List<ServiceBusReceivedMessage> messages) {
        messages.forEach(r::complete);
    }

    public static List<String> texts(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> all = new ArrayList<>();
        messages.forEach(m -> all.add(m.getBody().toString()));
        return all;
    }

    /** Expects the SDK's own reason; null: any failure. */
    public static Throwable fails(ServiceBusFailureReason reason, Callable<?> call) {
        try {
            call.call();
        } catch (Throwable t) {
            if (reason != null) {
                Throwable cause = t instanceof ServiceBusException ? t : t.getCause();
                if (Api.OLDEST && t instanceof AmqpException) {
                    return t; // it tells no reason
                }
                check(cause instanceof ServiceBusException, "failed with " + t);
                equal(((ServiceBusException) cause).getReason(), reason, t + ": reason");
            }
            return t;
        }
        throw new AssertionError("succeeded, want " + (reason == null ? "a failure" : reason));
    }

    public static Throwable fails(ServiceBusFailureReason reason, Runnable run) {
        return fails(reason, () -> {
            run.run();
            return null;
        });
    }
}
