package duplicates;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * A worker does each job once, although two jobs reach it twice. The scheduler gives each message the id of its job.
 */
public class Main {
    static final String QUEUE = "duplicates-jobs";

    public static void main(String[] args) {
        var client = new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
        try (var sender = client.sender().queueName(QUEUE).buildClient();
             var receiver = client.receiver().queueName(QUEUE).buildClient()) {
            // The scheduler was restarted and sends job-1 a second time.
            for (var job : List.of("job-1", "job-2", "job-1")) {
                sender.sendMessage(new ServiceBusMessage("").setMessageId(job));
            }
            work(receiver, 4);
        }
    }

    /** Handles so many deliveries. */
    static void work(ServiceBusReceiverClient receiver, int deliveries) {
        Set<String> done = new HashSet<>(); // stands for a table that is written in the same transaction as the work
        while (deliveries > 0) {
            for (var message : receiver.receiveMessages(1, Duration.ofMinutes(1))) {
                deliveries--;
                var job = message.getMessageId();
                long delivery = message.getDeliveryCount() + 1; // this SDK counts the deliveries before this one
                if (!done.add(job)) {
                    System.out.printf("%s: skipped, delivery %d%n", job, delivery);
                    receiver.complete(message);
                    continue;
                }
                System.out.printf("%s: done, delivery %d%n", job, delivery);
                if (job.equals("job-2")) {
                    receiver.abandon(message); // as if the lock had been lost before the completion: it comes again
                } else {
                    receiver.complete(message);
                }
            }
        }
    }
}
