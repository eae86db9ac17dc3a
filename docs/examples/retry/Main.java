package retry;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import java.io.IOException;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;

/**
 * Tries failed calls again, later each time. The message of the next attempt is scheduled, so the worker does other
 * things meanwhile; the last attempt ends in the dead-letter queue.
 */
public class Main {
    static final String QUEUE = "retry-calls";
    static final int ATTEMPTS = 3;

    public static void main(String[] args) {
        var client = new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
        try (var sender = client.sender().queueName(QUEUE).buildClient();
             var receiver = client.receiver().queueName(QUEUE).buildClient()) {
            for (var name : List.of("busy", "gone")) { // the first answers at the third call, the second never
                sender.sendMessage(new ServiceBusMessage(name));
                for (boolean over = false; !over;) {
                    for (var message : receiver.receiveMessages(1, Duration.ofMinutes(1))) {
                        over = work(sender, receiver, message);
                    }
                }
            }
        }
    }

    static void call(String name, int attempt) throws IOException {
        if (!name.equals("busy") || attempt < 3) {
            throw new IOException("no answer");
        }
    }

    /** Makes one attempt and tells whether it was the last. */
    static boolean work(ServiceBusSenderClient sender, ServiceBusReceiverClient receiver,
            ServiceBusReceivedMessage message) {
        var name = message.getBody().toString();
        int attempt = (int) message.getApplicationProperties().getOrDefault("attempt", 1);
        try {
            call(name, attempt);
        } catch (IOException e) {
            if (attempt == ATTEMPTS) {
                System.out.printf("%s: attempt %d: %s; to the dead letters%n", name, attempt, e.getMessage());
                receiver.deadLetter(message, new DeadLetterOptions()
                        .setDeadLetterReason("TooManyAttempts").setDeadLetterErrorDescription(e.getMessage()));
                return true;
            }
            var delay = Duration.ofSeconds(1L << (attempt - 1));
            System.out.printf("%s: attempt %d: %s; again in %ds%n", name, attempt, e.getMessage(), delay.toSeconds());
            var again = new ServiceBusMessage(name).setMessageId(message.getMessageId());
            again.getApplicationProperties().put("attempt", attempt + 1);
            sender.scheduleMessage(again, OffsetDateTime.now().plus(delay));
            receiver.complete(message); // only now: a crash before it repeats an attempt, and loses none
            return false;
        }
        System.out.printf("%s: attempt %d succeeded%n", name, attempt);
        receiver.complete(message);
        return true;
    }
}
