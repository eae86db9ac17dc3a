package handler;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;

/**
 * Runs a handler whose work takes longer than the lock of its message. The processor of the SDK runs the loop: it
 * renews the lock, completes when the handler is done and abandons when it fails.
 */
public class Main {
    static final String QUEUE = "handler-reports"; // its locks last 10 s
    static final Duration WORK = Duration.ofSeconds(12);
    static final Duration RENEW_AT_ALL = Duration.ofMinutes(1); // a handler that hangs loses its message then
    static final CountDownLatch DELIVERIES = new CountDownLatch(3);

    public static void main(String[] args) throws InterruptedException {
        var client = new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
        try (var sender = client.sender().queueName(QUEUE).buildClient()) {
            for (var report : List.of("long", "broken")) {
                sender.sendMessage(new ServiceBusMessage(report));
            }
        }
        try (var processor = client.processor().queueName(QUEUE).maxConcurrentCalls(1)
                .maxAutoLockRenewDuration(RENEW_AT_ALL)
                .processMessage(Main::handle)
                .processError(context -> System.err.println(context.getErrorSource() + ": " + context.getException()))
                .buildProcessorClient()) {
            processor.start();
            DELIVERIES.await();
        } // waits for the last completion
    }

    static void handle(ServiceBusReceivedMessageContext context) {
        var report = context.getMessage().getBody().toString();
        try {
            // This SDK counts the deliveries before this one.
            write(report, context.getMessage().getDeliveryCount() + 1);
        } catch (IllegalStateException e) {
            System.out.println(report + ": failed: " + e.getMessage());
            throw e; // the SDK abandons the message
        } finally {
            DELIVERIES.countDown();
        }
    }

    static void write(String report, long delivery) {
        System.out.printf("%s: begins, delivery %d%n", report, delivery);
        if (report.equals("broken") && delivery == 1) {
            throw new IllegalStateException("the printer is out of paper");
        }
        if (report.equals("long")) {
            try {
                Thread.sleep(WORK.toMillis());
            } catch (InterruptedException e) {
                throw new IllegalStateException("the work was interrupted", e);
            }
        }
        System.out.println(report + ": done");
    }
}
