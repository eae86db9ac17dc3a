package dev.busbar.test;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;

/** The tests of the kit, with the official SDK. */
class BrokerTest {
    private static final String ENTITIES = """
            { "Queues": [ { "Name": "invoices", "Properties": { "MaxDeliveryCount": 1 } } ],
              "Topics": [ { "Name": "events", "Subscriptions": [ { "Name": "urgent", "Rules": [
                { "Name": "r", "Properties": { "FilterType": "Sql", "SqlFilter": { "SqlExpression": "priority > 3" } } } ] } ] } ] }
            """;

    @TempDir
    Path dir;

    private static ServiceBusClientBuilder client(Broker broker) {
        return new ServiceBusClientBuilder().connectionString(broker.connectionString());
    }

    /** A topic takes what is sent to a queue of its name. */
    private static void send(Broker broker, String to, String body, Map<String, Object> properties) {
        try (var sender = client(broker).sender().queueName(to).buildClient()) {
            var message = new ServiceBusMessage(body);
            message.getApplicationProperties().putAll(properties);
            sender.sendMessage(message);
        }
    }

    private static List<String> bodies(ServiceBusReceiverClient receiver) {
        try (receiver) {
            return receiver.receiveMessages(1, Duration.ofSeconds(20)).stream().map(m -> m.getBody().toString()).toList();
        }
    }

    private static void judge(Broker broker) {
        send(broker, "events", "low", Map.of("priority", 1));
        send(broker, "events", "high", Map.of("priority", 5));
        assertEquals(List.of("high"), bodies(client(broker).receiver().topicName("events").subscriptionName("urgent").buildClient()));
        send(broker, "invoices", "one", Map.of());
        broker.reset();
        try (var receiver = client(broker).receiver().queueName("invoices").buildClient()) {
            assertEquals(0, receiver.peekMessages(10).stream().count());
        }
    }

    @Test
    void entitiesOfAFileAndAReset() throws IOException {
        try (var broker = Broker.start(Files.writeString(dir.resolve("Config.json"), ENTITIES))) {
            judge(broker);
        }
    }

    @Test
    void entitiesOfATextAndAReset() {
        try (var broker = Broker.start(ENTITIES)) {
            judge(broker);
        }
    }

    @Test
    void entitiesOfATest() {
        try (var broker = Broker.start()) {
            var one = broker.queue("q");
            var two = broker.queue("q", Map.of("RequiresSession", true, "UserMetadata", "a < b & c"));
            assertNotEquals(one, two);
            send(broker, one, "mine", Map.of());
            assertEquals(List.of("mine"), bodies(client(broker).receiver().queueName(one).buildClient()));
            assertThrows(RuntimeException.class, () -> send(broker, "absent", "x", Map.of()));
            assertThrows(RuntimeException.class, () -> send(broker, two, "without a session", Map.of()));
            var topic = broker.topic("t", "a", "b");
            send(broker, topic, "all", Map.of());
            for (var subscription : List.of("a", "b")) {
                assertEquals(List.of("all"), bodies(client(broker).receiver().topicName(topic).subscriptionName(subscription).buildClient()));
            }
            assertTrue(assertThrows(IllegalArgumentException.class, () -> broker.queue("q", Map.of("Colour", "red"))).getMessage().contains("Colour"));
            assertTrue(assertThrows(IllegalArgumentException.class, () -> broker.queue("q", Map.of("MaxDeliveryCount", 0))).getMessage().contains("400"));
        }
    }

    @Test
    void brokersShareNothing() {
        try (var b = Broker.start()) {
            var a = Broker.start();
            assertNotEquals(a.connectionString(), b.connectionString());
            a.close();
            a.close();
            assertTrue(a.log().contains("is ready after"));
            assertFalse(reaches(a.operations()));
            send(b, b.queue("q"), "x", Map.of());
        }
    }

    @Test
    void aFaultySetUpIsExplained() {
        assertTrue(assertThrows(IllegalStateException.class, () -> Broker.start("{\"Queues\": [{\"Name\": \"a b\"}]}")).getMessage().contains("/Queues/0"));
        assertTrue(assertThrows(IllegalStateException.class, () -> Broker.start(Path.of("/no/such/busbar"), null)).getMessage().contains("/no/such/busbar"));
        assertTrue(assertThrows(IllegalStateException.class, () -> Broker.start(null, null, Map.of("PATH", "/nowhere"))).getMessage().contains("BUSBAR_BINARY"));
    }

    /** A test that somebody will kill. */
    static final class Holder {
        public static void main(String[] args) throws InterruptedException {
            System.out.println(Broker.start().operations());
            Thread.sleep(600_000);
        }
    }

    @Test
    void aBrokerEndsWithAKilledTest() throws Exception {
        var java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        var holder = new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"), Holder.class.getName())
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        var url = holder.inputReader().readLine();
        assertTrue(reaches(url));
        holder.destroyForcibly().waitFor();
        for (var end = System.nanoTime() + Duration.ofSeconds(20).toNanos(); reaches(url); Thread.sleep(50)) {
            assertTrue(System.nanoTime() < end, "the broker is still there");
        }
    }

    private static boolean reaches(String url) {
        try (var socket = new Socket(URI.create(url).getHost(), URI.create(url).getPort())) {
            return socket.isConnected();
        } catch (IOException refused) {
            return false;
        }
    }

    /** Tests that another test runs. */
    @ExtendWith(BusbarExtension.class)
    @TestMethodOrder(MethodOrderer.MethodName.class)
    static class Inner {
        @Test
        void one(Broker broker) {
            put(broker);
        }

        @Test
        void two(Broker broker) {
            put(broker);
        }

        @Test
        void three(Broker broker) {
            broker.queue("made-by-three");
            throw new IllegalStateException("on purpose");
        }

        private static void put(Broker broker) {
            try (var receiver = client(broker).receiver().queueName("invoices").buildClient()) {
                assertEquals(0, receiver.peekMessages(1).stream().count());
            }
            send(broker, "invoices", "x", Map.of());
        }
    }

    /** A test has an empty broker with the entities of the setting, and a failed one prints the log of the broker. */
    @Test
    void theExtension() throws IOException {
        Files.writeString(dir.resolve("Config.json"), ENTITIES);
        var request = LauncherDiscoveryRequestBuilder.request().selectors(selectClass(Inner.class))
                .configurationParameter("busbar.entities", dir.resolve("Config.json").toString()).build();
        var summary = new SummaryGeneratingListener();
        var printed = new ByteArrayOutputStream();
        var before = System.err;
        System.setErr(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            LauncherFactory.create().execute(request, summary);
        } finally {
            System.setErr(before);
        }
        assertEquals(2, summary.getSummary().getTestsSucceededCount(), () -> summary.getSummary().getFailures().toString());
        assertEquals(1, summary.getSummary().getTestsFailedCount());
        var text = printed.toString(StandardCharsets.UTF_8);
        assertTrue(text.contains("log of the broker during three") && text.contains("made-by-three"), text);
        assertFalse(text.contains("during one"), text);
    }

    /** Without a program a container is started. A stand-in takes the place of the command docker. */
    @Test
    void aContainer() throws IOException {
        var environment = new HashMap<>(System.getenv());
        environment.put("BUSBAR_STANDIN", environment.remove("BUSBAR_BINARY"));
        environment.put("TMPDIR", dir.toString());
        environment.put("PATH", Path.of("../docker").toAbsolutePath().normalize() + ":/usr/bin:/bin");
        environment.put("BUSBAR_IMAGE", "busbar:test");
        try (var broker = Broker.start(null, Files.writeString(dir.resolve("Config.json"), ENTITIES), environment)) {
            send(broker, "invoices", "x", Map.of());
        }
        environment.put("BUSBAR_IMAGE", "busbar:absent");
        assertTrue(assertThrows(IllegalStateException.class, () -> Broker.start(null, null, environment)).getMessage().contains("busbar:absent"));
    }
}
