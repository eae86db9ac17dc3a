package modes;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.time.Duration;
import java.util.stream.Stream;

/**
 * Receives the same number of messages in both modes and measures them. Then it shows what each mode leaves of a
 * message whose worker failed.
 */
public class Main {
    static final String QUEUE = "modes-samples";
    static final int COUNT = 200;

    public static void main(String[] args) {
        measure(ServiceBusReceiveMode.RECEIVE_AND_DELETE, "receive and delete");
        fail(ServiceBusReceiveMode.RECEIVE_AND_DELETE, "receive and delete");
        measure(ServiceBusReceiveMode.PEEK_LOCK, "peek-lock");
        fail(ServiceBusReceiveMode.PEEK_LOCK, "peek-lock");
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    static ServiceBusReceiverClient receiver(ServiceBusReceiveMode mode) {
        return client().receiver().queueName(QUEUE).receiveMode(mode).buildClient();
    }

    static void send(int n) {
        try (var sender = client().sender().queueName(QUEUE).buildClient()) {
            sender.sendMessages(Stream.generate(() -> new ServiceBusMessage("sample")).limit(n).toList());
        }
    }

    static void measure(ServiceBusReceiveMode mode, String name) {
        send(COUNT);
        try (var receiver = receiver(mode)) {
            long began = System.nanoTime();
            for (int received = 0; received < COUNT;) {
                // A call returns when it has so many, or when its time is over.
                for (var message : receiver.receiveMessages(Math.min(20, COUNT - received), Duration.ofMinutes(1))) {
                    received++;
                    if (mode == ServiceBusReceiveMode.PEEK_LOCK) {
                        receiver.complete(message);
                    }
                }
            }
            System.out.printf("%s: %d messages in %d ms%n", name, COUNT, (System.nanoTime() - began) / 1_000_000);
        }
    }

    /** A worker takes one more message and fails. */
    static void fail(ServiceBusReceiveMode mode, String name) {
        send(1);
        try (var receiver = receiver(mode)) {
            var message = receiver.receiveMessages(1, Duration.ofMinutes(1)).iterator().next();
            if (mode == ServiceBusReceiveMode.PEEK_LOCK) {
                receiver.abandon(message);
            }
            var again = receiver.receiveMessages(1, Duration.ofSeconds(3)).stream().toList();
            var fate = again.isEmpty() ? "lost" : "there again";
            System.out.printf("%s: the message of the failed worker is %s%n", name, fate);
            again.forEach(receiver::complete);
        }
    }
}
